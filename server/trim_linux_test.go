package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
)

// TestTrim: what a load needed is let go of once it is over, and what comes
// afterwards is served as before.
func TestTrim(t *testing.T) {
	s := serveLoop(t, nil)
	clients := make([]*client, 20)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	const ops = 200
	value := 0
	load := func() {
		for i, c := range clients {
			c.send(strings.Repeat(frame("INCR", fmt.Sprint("k", i)), ops))
		}
		value += ops
		for _, c := range clients {
			for n := range ops {
				if got := c.reply(); got != fmt.Sprint(":", value-ops+n+1) {
					t.Fatalf("%q", got)
				}
			}
		}
	}
	load()
	s.TrimMemory() // from here on it is seen what is used
	load()
	let := int64(0)
	eventually(t, "memory is let go of", func() bool {
		let += s.TrimMemory()
		return let > 100_000
	})
	keeps := func() bool {
		s.loop.running.mu.Lock()
		defer s.loop.running.mu.Unlock()
		return slices.ContainsFunc(s.loop.running.list, func(w *worker) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.readers.list) > 0 || w.round.Memory() > 0 || w.replies.Cap() > 0
		})
	}
	eventually(t, "no worker keeps anything", func() bool { return s.TrimMemory() == 0 && !keeps() })
	load()
}

// TestReaderStack: readers used since the last trim stay, those at the bottom go.
func TestReaderStack(t *testing.T) {
	var s readerStack
	readers := make([]*resp.Reader, 6)
	for i := range readers {
		readers[i] = resp.NewReader(nil, resp.Limits{})
		s.put(readers[i])
	}
	if n := s.trim(); n != 0 {
		t.Errorf("%d bytes of readers that are new here", n)
	}
	use := func(n int) {
		var taken []*resp.Reader
		for range n {
			taken = append(taken, s.get())
		}
		for _, r := range taken {
			s.put(r)
		}
	}
	use(2)
	if n := s.trim(); n != int64(4*readers[0].Memory()) || len(s.list) != 2 {
		t.Errorf("%d bytes, %d readers left, want those of 4, and 2", n, len(s.list))
	}
	use(1)
	if s.trim(); len(s.list) != 1 {
		t.Errorf("%d readers left, want the one in use", len(s.list))
	}
	if s.trim(); len(s.list) != 0 {
		t.Errorf("%d readers left", len(s.list))
	}
	for range 2 * maxReaders {
		s.put(readers[0])
	}
	if len(s.list) != maxReaders {
		t.Errorf("%d readers kept, want at most %d", len(s.list), maxReaders)
	}
}
