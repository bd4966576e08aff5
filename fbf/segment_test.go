package fbf

import "testing"

// TestLanesAreClearedWhole: a lane that expires while a higher one is being cleared, and
// so is cleared before it, is cleared from its first line on; and so is the other one
// when its turn comes again.
func TestLanesAreClearedWhole(t *testing.T) {
	f, err := New(Options{Window: 1000, Error: 1e-6, Capacity: 100_000}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	s := f.newest()
	s.head, s.live = 0, 0xff
	for i := range s.lines {
		for l := range s.lines[i] {
			s.lines[i][l] = 1
		}
	}
	for l := range s.lanes {
		s.lanes[l] = lane{count: 1, expire: 100}
	}
	n := uint64(len(s.lines))
	for _, l := range []int{5, 2, 3} {
		s.lanes[l].expire = 10
		s.expireAt(10, true)
		s.clearSome(n / 3)
	}
	for s.dirty != 0 {
		s.clearSome(7)
	}
	for i := range s.lines {
		for l, word := range s.lines[i] {
			if clean := l == 5 || l == 2 || l == 3; clean != (word == 0) {
				t.Fatalf("lane %d, line %d of %d: %d", l, i, n, word)
			}
		}
	}
}
