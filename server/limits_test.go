package server

import (
	"net"
	"strings"
	"testing"
	"time"
)

// TestSoftOutputLimit has clients that take one large reply slowly: the one that
// leaves more than the soft limit unread for its time is disconnected, however it is
// served.
func TestSoftOutputLimit(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 16<<20) // more than the system keeps for two sockets, one of them small
	settings := []string{"proto-max-bulk-len", "32mb", "client-output-buffer-limit", "normal 0 1mb 10"}
	for _, loop := range loops {
		ticks := make(chan time.Time)
		s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet, ticks: ticks}, settings...)
		slow, quick := s.dial(t), s.dial(t)
		if err := slow.socket().(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		go slow.Write([]byte(frame("ECHO", large)))
		if got := quick.do("ECHO", large); got != large {
			t.Errorf("%s: a large reply that is read: %.80s", loop, got)
		}
		quick.expect("+PONG", "PING")
		eventually(t, loop+": the reply of the slow client waits", func() bool {
			for _, session := range s.sessions() {
				if session.OutputBuffer.Load() > 1<<20 {
					return true
				}
			}
			return false
		})
		for _, after := range []time.Duration{0, 9 * time.Second} {
			tick(ticks, s.started.Add(after))
			quick.expect("+PONG", "PING")
			if n := len(s.sessions()); n != 2 {
				t.Errorf("%s: %d clients after %v over the limit", loop, n, after)
			}
		}
		tick(ticks, s.started.Add(10*time.Second))
		eventually(t, loop+": the slow client is gone", func() bool { return len(s.sessions()) == 1 })
		quick.expect("+PONG", "PING")
	}
}

// TestHTTPIsLogged: what looks like an attack is logged, once for many.
func TestHTTPIsLogged(t *testing.T) {
	logger, logged := record()
	s := startWith(t, Options{Store: openStore(t), Logger: logger})
	for _, text := range []string{"POST / HTTP/1.1\r\n", "Host: localhost\r\n", "host: x\r\n"} {
		c := s.dial(t)
		c.send(text + "FLUSHALL\r\n")
		c.expectLast("-ERR Protocol error: this is not an HTTP server")
	}
	if got := strings.Count(logged(), "possible attack"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, logged())
	}
}
