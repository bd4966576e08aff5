package store

import (
	"sync"
	"testing"
	"time"
)

// TestEvents: a listener is told of commits, checkpoints, snapshots and expiry,
// and of nothing that did not happen.
func TestEvents(t *testing.T) {
	s := testStore(t, nil)
	var mu sync.Mutex
	heard := map[string]int{}
	s.OnEvent(func(event string, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		heard[event]++
		if took < 0 || took > time.Hour {
			t.Errorf("%s took %v", event, took)
		}
	})
	count := func(event string) int {
		mu.Lock()
		defer mu.Unlock()
		return heard[event]
	}
	get(s, "k")
	if n := count(EventCommit); n != 0 {
		t.Errorf("%d commits of a query", n)
	}
	incr(s, "k", 1)
	if n := count(EventCommit); n != 1 {
		t.Errorf("%d commits of one batch", n)
	}
	must(t, s.Snapshot())
	if n := count(EventSnapshot); n != 1 || count(EventCheckpoint) < 1 {
		t.Errorf("%d snapshots, %d checkpoints", n, count(EventCheckpoint))
	}
}

// TestHitsAndMisses counts the keys that queries ask for.
func TestHitsAndMisses(t *testing.T) {
	s := testStore(t, nil)
	incr(s, "a", 1)
	get(s, "a")
	get(s, "b")
	do(s, Op{Kind: MGet, Keys: [][]byte{[]byte("a"), []byte("b"), []byte("c")}})
	do(s, Op{Kind: Exists, Keys: [][]byte{[]byte("a"), []byte("a")}})
	if st := s.Stats(); st.Hits != 4 || st.Misses != 3 {
		t.Errorf("%d hits, %d misses", st.Hits, st.Misses)
	}
}
