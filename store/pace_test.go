package store

import (
	"strconv"
	"testing"
)

// TestWriteBackGivesWay: writing rows back gives way between its pieces, and holds no
// partition's lock meanwhile; but not while clients are delayed until it is done.
func TestWriteBackGivesWay(t *testing.T) {
	const keys = 10 * writeBackPiece
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	p := s.partitions[0]
	for i := range keys {
		cincr(s, "k"+strconv.Itoa(i), "1", 1)
	}
	times := 0
	slice, give := timeSlice, giveWay
	defer func() { timeSlice, giveWay = slice, give }()
	timeSlice = 0
	giveWay = func() {
		times++
		eventually(t, "the partition is free", p.mu.TryLock) // others may have it for a moment
		p.mu.Unlock()
	}
	must(t, s.flushRows(p))
	// Once for each piece that is captured, and for each whose rows are written.
	if want := 2 * keys / writeBackPiece; times != want {
		t.Errorf("gave way %d times, not %d", times, want)
	}
	times = 0
	for _, hurry := range []func(*Store){func(s *Store) { s.late.Store(true) },
		func(s *Store) { s.behind.Store(true) }} {
		c := checkpoint{s: new(Store)} // in which nothing looks how late it is
		hurry(c.s)
		c.giveWay()
	}
	if times != 0 {
		t.Error("gave way in a hurry")
	}
}
