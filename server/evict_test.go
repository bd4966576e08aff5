package server

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMemoryOfAllClients: together clients hold no more than maxmemory-clients, whatever they
// hold it with, and the largest goes first.
func TestMemoryOfAllClients(t *testing.T) {
	ticks := make(chan time.Time)
	s := startWith(t, Options{Store: openStore(t), Logger: quiet, ticks: ticks}, "maxmemory-clients", "2mb")
	queue := func(bytes int) *client {
		c := s.dial(t)
		c.expect("+OK", "MULTI")
		for ; bytes > 0; bytes -= 100_000 {
			c.expect("+QUEUED", "ECHO", strings.Repeat("x", 100_000))
		}
		return c
	}
	begin := func(bytes int) *client { // a command that never ends
		c := s.dial(t)
		c.send("*2\r\n$4\r\nECHO\r\n$900000\r\n" + strings.Repeat("x", bytes))
		return c
	}
	held := func() (sum int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.conns {
			sum += c.session.Held()
		}
		return sum
	}
	look := func() { // a second one begins when the first is over
		ticks <- time.Now()
		ticks <- time.Now()
	}
	gone := func(c *client, evicted uint64) { // it may not be noted yet what is no longer held
		t.Helper()
		eventually(t, "a client is evicted", func() bool {
			look()
			return s.commands.Info().EvictedClients == evicted
		})
		if _, err := c.in.ReadByte(); err == nil || os.IsTimeout(err) {
			t.Errorf("the largest is still there: %v", err)
		}
	}
	small, large := queue(200_000), queue(400_000)
	half := begin(300_000)
	eventually(t, "all is held", func() bool { return held() >= 900_000 })
	look()
	small.expect("+QUEUED", "PING")
	large.expect("+QUEUED", "PING")
	larger := begin(850_000)
	eventually(t, "all is held", func() bool { return held() >= 2_100_000 })
	gone(larger, 1)
	small.expect("+QUEUED", "PING")
	large.expect("+QUEUED", "PING")
	second := queue(1_200_000)
	gone(second, 2)
	small.expect("+QUEUED", "PING")
	half.send(strings.Repeat("x", 600_000) + "\r\n")
	half.expectReply(strings.Repeat("x", 900_000))
	admin := s.dial(t)
	if info := admin.do("INFO"); !strings.Contains(info, "evicted_clients:2\r") ||
		!strings.Contains(info, "maxmemory_clients:2097152\r") {
		t.Error(info)
	}
	admin.expect("+OK", "CONFIG", "SET", "maxmemory-clients", "0")
	unbounded := queue(2_000_000)
	look()
	unbounded.expect("+QUEUED", "PING")
}

// TestMemoryOfBuffers: a buffer counts in full while a client has one, also if a single byte is in
// it, except with CLIENT NO-EVICT. (Without an event loop it is small again before more is read.)
func TestMemoryOfBuffers(t *testing.T) {
	for _, loop := range loops[:2] {
		t.Run(loop, func(t *testing.T) {
			ticks := make(chan time.Time)
			s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet, ticks: ticks},
				"maxmemory-clients", "600kb")
			buffered := func() (done bool, held int64) { // of the newest client
				s.mu.Lock()
				defer s.mu.Unlock()
				c := s.conns[s.lastID]
				done = c.phase.Load() == phaseReading && c.session.QueryBuffer.Load() == 1
				return done, c.session.Held()
			}
			keep := func(spared bool) *client {
				for range 100 {
					c := s.dial(t)
					if spared {
						c.expect("+OK", "CLIENT", "NO-EVICT", "ON")
					}
					// of the next request there is a byte
					c.send(frame("ECHO", strings.Repeat("x", 900_000)) + "*")
					c.expectReply(strings.Repeat("x", 900_000))
					var held int64
					eventually(t, "the buffer is noted", func() (done bool) {
						done, held = buffered()
						return done
					})
					if held >= 900_000 {
						return c
					}
					c.Close() // the server had reason to look for more at once, and made the buffer smaller
				}
				t.Fatal("a large buffer does not count")
				return nil
			}
			spared, counted := keep(true), keep(false)
			for range 2 { // a second look begins when the first is over
				ticks <- time.Now()
			}
			if _, err := counted.in.ReadByte(); err == nil || os.IsTimeout(err) {
				t.Errorf("a client with a large buffer is still there: %v", err)
			}
			spared.send("1\r\n$4\r\nPING\r\n")
			spared.expectReply("+PONG")
		})
	}
}

// TestMemoryOfGrownBuffers: of a connection with a goroutine of its own, a buffer counts in full
// that was made larger before more came, or whose replies are sent in part.
func TestMemoryOfGrownBuffers(t *testing.T) {
	s := startLoop(t, "goroutine", Options{Store: openStore(t), Logger: quiet}, "proto-max-bulk-len", "16mb")
	for _, what := range []struct {
		name string
		send string
		fits func(c *dedicated) bool
	}{
		{"a request", "*2\r\n$4\r\nECHO\r\n$9000000\r\n" + strings.Repeat("x", 7<<19),
			func(c *dedicated) bool {
				// the next size of the buffer, which c may be making: nobody else reads its size
				return c.session.Held() >= 8<<20
			}},
		{"replies", frame("ECHO", strings.Repeat("x", 16_000_000)), func(c *dedicated) bool {
			return c.session.Held() >= int64(c.replies.Cap()+c.reader.Cap())
		}},
	} {
		t.Run(what.name, func(t *testing.T) {
			c := s.dial(t)
			c.expect("+PONG", "PING")
			c.send(what.send)
			var served *dedicated
			s.mu.Lock()
			for _, other := range s.conns {
				served = other.line.(*dedicated)
			}
			s.mu.Unlock()
			eventually(t, "all was read that was sent, or all was sent that fits into the socket",
				func() bool {
					in, out := served.in.Load(), served.out.Load()
					time.Sleep(20 * time.Millisecond)
					return in >= 7<<19 && (out > maxWrite || what.name == "a request") &&
						served.in.Load() == in && served.out.Load() == out
				})
			eventually(t, "the buffers are noted in full", func() bool { return what.fits(served) })
			c.Close()
			eventually(t, "it is gone", func() bool { return s.commands.Info().ConnectedClients == 0 })
		})
	}
}

// TestMemoryOfMonitors: what waits to be shown to a client with MONITOR counts as its memory, until
// it is sent.
func TestMemoryOfMonitors(t *testing.T) {
	ticks := make(chan time.Time)
	s := startWith(t, Options{Store: openStore(t), Logger: quiet, ticks: ticks}, "maxmemory-clients", "8mb",
		"client-output-buffer-limit", "normal 0 0 0")
	held := func() int64 { return s.commands.Info().ClientMemory }
	reads, slow, c := s.dial(t), s.dial(t), s.dial(t)
	text := strings.Repeat("x", 100_000)
	fed := make(chan string, 600)
	reads.expect("+OK", "MONITOR")
	go func() {
		for {
			line, err := reads.in.ReadString('\n')
			if err != nil {
				return
			}
			fed <- line
		}
	}()
	c.expect(text, "ECHO", text)
	if line := <-fed; !strings.Contains(line, text) {
		t.Errorf("the monitor is shown %.100q", line)
	}
	eventually(t, "nothing waits for it any more", func() bool { return held() < 1<<20 })
	slow.expect("+OK", "MONITOR")
	for range 500 { // 50 MB, far more than the system keeps for a socket
		c.expect(text, "ECHO", text)
	}
	for range 500 { // nothing waits for the one that reads
		<-fed
	}
	eventually(t, "lines wait for the slow one only", func() bool {
		return held() > 8<<20 && s.sessions()[0].Held() < 1<<20
	})
	for range 2 { // a second look begins when the first is over
		ticks <- time.Now()
	}
	eventually(t, "the slow monitor is gone", func() bool { return len(s.sessions()) == 2 })
	c.expect("+PONG", "PING")
	if evicted := s.commands.Info().EvictedClients; evicted != 1 {
		t.Errorf("%d clients are evicted", evicted)
	}
}

// TestMemoryOfWatchedKeys: the keys of WATCH count as the client's memory, until it watches them no
// more. So does the queue of MULTI, which RESET also ends.
func TestMemoryOfWatchedKeys(t *testing.T) {
	s := startWith(t, Options{Store: openStore(t), Logger: quiet})
	c := s.dial(t)
	held := func() int64 { return s.commands.Info().ClientMemory }
	watch := func() {
		t.Helper()
		args := []string{"WATCH"}
		for i := range 20 {
			args = append(args, strings.Repeat("x", 50_000)+fmt.Sprint(i))
		}
		c.expect("+OK", args...)
		if held() < 1_000_000 {
			t.Errorf("%d bytes are held", held())
		}
	}
	for _, end := range [][]string{{"UNWATCH"}, {"RESET"}, {"MULTI", "EXEC"}, {"MULTI", "DISCARD"}} {
		watch()
		for _, command := range end {
			c.do(command)
		}
		eventually(t, strings.Join(end, " "), func() bool { return held() < 500_000 })
	}
	c.expect("+OK", "MULTI")
	c.expect("+QUEUED", "ECHO", strings.Repeat("x", 900_000))
	if held() < 900_000 {
		t.Errorf("%d bytes are held with a queue", held())
	}
	c.expect("+RESET", "RESET")
	eventually(t, "RESET", func() bool { return held() < 500_000 })
}
