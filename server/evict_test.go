package server

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestMemoryOfAllClients: together clients hold no more than maxmemory-clients, whatever they
// hold it with, and the largest goes first.
func TestMemoryOfAllClients(t *testing.T) {
	ticks := make(chan time.Time)
	s := startWith(t, Options{Store: openStore(t), Logger: quiet, ticks: ticks}, "maxmemory-clients", "1mb")
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
	gone := func(c *client) {
		t.Helper()
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
	larger := begin(500_000)
	eventually(t, "all is held", func() bool { return held() >= 1_400_000 })
	look()
	gone(larger)
	small.expect("+QUEUED", "PING")
	large.expect("+QUEUED", "PING")
	second := queue(700_000)
	look()
	gone(second)
	small.expect("+QUEUED", "PING")
	half.send(strings.Repeat("x", 600_000) + "\r\n")
	half.expectReply(strings.Repeat("x", 900_000))
	admin := s.dial(t)
	if info := admin.do("INFO"); !strings.Contains(info, "evicted_clients:2\r") || !strings.Contains(info, "maxmemory_clients:1048576\r") {
		t.Error(info)
	}
	admin.expect("+OK", "CONFIG", "SET", "maxmemory-clients", "0")
	unbounded := queue(2_000_000)
	look()
	unbounded.expect("+QUEUED", "PING")
}
