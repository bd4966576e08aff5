package server

import (
	"strings"
	"testing"
	"time"
)

// TestSoftOutputLimit has clients that take one large reply slowly: the one that
// leaves more than the soft limit unread for its time is disconnected, whether
// the loop serves it or, with TLS, a goroutine of its own.
func TestSoftOutputLimit(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 8<<20)
	settings := []string{"proto-max-bulk-len", "32mb", "client-output-buffer-limit", "normal 0 1mb 1", "client-write-timeout", "0"}
	secure := startTLS(t, append(settings, "tls-auth-clients", "no")...)
	plain := start(t, settings...)
	for name, pair := range map[string][2]*client{
		"plain": {plain.dial(t), plain.dial(t)},
		"TLS":   {secure.dialTLS(t, "", ""), secure.dialTLS(t, "", "")},
	} {
		slow, quick := pair[0], pair[1]
		s := plain.Server
		if name == "TLS" {
			s = secure.Server
		}
		go slow.Write([]byte(frame("ECHO", large)))
		if got := quick.do("ECHO", large); got != large {
			t.Errorf("%s: a large reply that is read: %.80s", name, got)
		}
		begin := time.Now()
		eventually(t, name+": the slow client is gone", func() bool { return len(s.sessions()) == 1 })
		if took := time.Since(begin); took < 100*time.Millisecond {
			t.Errorf("%s: the slow client was disconnected after %v", name, took)
		}
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
		c.expectReply("-ERR Protocol error: this is not an HTTP server")
		c.expectReply("EOF")
	}
	if got := strings.Count(logged(), "possible attack"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, logged())
	}
}
