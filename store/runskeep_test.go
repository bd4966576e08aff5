package store

import (
	"testing"
	"time"
)

// TestRunsAreKept: a run stays until its last record is older than window and skew: until
// then its opids are duplicates, with their original results (G1). Then it goes.
func TestRunsAreKept(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Partitions, o.Clock = 1, clock.now })
	p := s.partitions[0]
	d := p.catalog.find([]byte("k"))
	pass := func(d time.Duration) { // one look at the clock advances logged time by a second at most
		for ; d > 0; d -= time.Second / 2 {
			clock.advance(min(d, time.Second/2))
			s.clock.now()
		}
	}
	runs := func() int {
		t.Helper()
		must(t, s.checkpoint(p, true))
		return s.Stats().Runs
	}
	wantOp(t, cincr(s, "k", "first", 1), 1, true)
	pass(10 * time.Second)
	wantOp(t, cincr(s, "k", "last", 1), 2, true)
	if n := runs(); n != 1 {
		t.Fatalf("%d runs", n)
	}
	pass(d.Window + d.Skew - time.Second) // the first record alone would not be kept
	if n := runs(); n != 1 {
		t.Errorf("%d runs while one is needed", n)
	}
	wantOp(t, cincr(s, "k", "last", 1), 2, false)
	pass(10 * time.Second)
	if n := runs(); n != 0 {
		t.Errorf("%d runs are left of what has expired", n)
	}
}
