package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestDeafClientsKeepTheirOrder: a request that has to be carried out by itself
// keeps its place, and its arguments, while replies before it wait for a client
// that does not read.
func TestDeafClientsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil)
		deaf := s.dial(t)
		const requests = 3000
		text := strings.Repeat("x", 10000)
		go func() {
			for i := range requests {
				both := frame("ECHO", fmt.Sprint(i, text)) + frame("KEYS", fmt.Sprint("[", i)) +
					frame("INCR", "k")
				if _, err := deaf.Write([]byte(both)); err != nil {
					return
				}
			}
		}()
		s.waitUntilStuck(t)
		for i := range requests {
			if got := deaf.reply(); got != fmt.Sprint(i, text) {
				t.Fatalf("reply %d: %.40q", i, got)
			}
			if keys, incr := deaf.reply(), deaf.reply(); keys != "[]" || incr != fmt.Sprint(":", i+1) {
				t.Fatalf("replies %d: %.40q, %.40q", i, keys, incr)
			}
		}
	})
}

// TestGoneInAPause: what a pause holds of a client that then leaves is dropped, as in
// Redis, and the client no longer counts among those that are connected.
func TestGoneInAPause(t *testing.T) {
	s := start(t)
	admin, gone, stays := s.dial(t), s.dial(t), s.dial(t)
	admin.expect("+OK", "CLIENT", "PAUSE", "60000", "WRITE")
	gone.send(frame("INCR", "k"))
	stays.send(frame("INCR", "l"))
	eventually(t, "both are held", func() bool { return s.pause.held.Load() == 2 })
	gone.Close()
	eventually(t, "one is gone", func() bool { return len(s.sessions()) == 2 })
	admin.expect("+OK", "CLIENT", "UNPAUSE")
	stays.expectReply(":1")
	admin.expect("$-1", "GET", "k")
}

// TestRequestsBetweenSlowOnesAreExecutedOnce: what a connection sends between two
// commands that must run by themselves is executed once.
func TestRequestsBetweenSlowOnesAreExecutedOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, serve serveFunc) {
		s := serve(t, nil)
		c := s.dial(t)
		c.send(frame("KEYS", "x") + frame("INCR", "k") + frame("KEYS", "x") + frame("INCR", "k") +
			frame("WATCH", "k") + frame("GET", "k"))
		for _, want := range []string{"[]", ":1", "[]", ":2", "+OK", "2"} {
			c.expectReply(want)
		}
		c.expect("2", "GET", "k")
	})
}
