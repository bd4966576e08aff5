package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestUnsavedKeys plays random changes against a set, with and without somebody
// who wants them in order, and sees that what is unsaved no longer does not pile
// up.
func TestUnsavedKeys(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	h := newHotCounters(64)
	var all []*counter
	for i := range 3000 {
		key := []byte(fmt.Sprint(i))
		all = append(all, h.install(hotHash(key), key, uint64(rnd.IntN(2000))))
	}
	for step := range 200_000 {
		c := all[rnd.IntN(len(all))]
		c.kind = TypeCounter
		c.is.set(isInRow, rnd.IntN(3) > 0)
		h.track(c)
		if waiting := len(h.unsaved.waiting); waiting > 2*len(all)+minSweep {
			t.Fatalf("%d keys wait", waiting)
		}
		if step > 100_000 && step%5000 == 0 {
			for !h.unsaved.order(100) {
			}
			var got, want []*counter
			h.unsaved.ordered.Scan(func(k unsavedKey) bool {
				got = append(got, k.c)
				return true
			})
			for _, c := range all {
				if c.is&isInRow == 0 && c.kind == TypeCounter {
					want = append(want, c)
				}
			}
			if len(got) != len(want) || len(got) != h.unsaved.count {
				t.Fatalf("step %d: %d keys instead of %d, counted %d", step, len(got), len(want),
					h.unsaved.count)
			}
			if !slices.IsSortedFunc(got, func(a, b *counter) int { return int(a.pos) - int(b.pos) }) {
				t.Fatalf("step %d: not in order", step)
			}
		}
	}
}
