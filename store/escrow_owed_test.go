package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestRightsOfOwed: what an operation made is no right while it is owed that it is taken back, neither in its
// region nor, if that is lost, in the heir.
func TestRightsOfOwed(t *testing.T) {
	t.Parallel()
	const twins = 5
	for name, lost := range map[string]int{"none": -1, "owes": 1, "wins": 0} {
		t.Run(name, func(t *testing.T) {
			w := newEscrowWorld(t, 3, 1, 1, 1) // with room for one take-back
			for _, r := range w.r {
				must(t, r.s.DropTable("b"))
				must(t, r.s.CreateTable(TableOptions{Name: "b", Prefix: "b:", Min: boundAt(0), Max: boundAt(100)}))
			}
			w.min, w.max = 0, 100
			w.drainLogs()
			for _, r := range w.r[1:] { // they ask
				_ = do(r.s, Op{Kind: IncrBy, Key: []byte("b:0"), Delta: 1})
			}
			w.drainLogs()
			for _, r := range w.r[:2] {
				for i := range twins {
					must(t, do(r.s, Op{Kind: CIncrBy, Key: []byte("b:0"), ID: fmt.Append(nil, "id-", i), Delta: 3}).Err)
				}
				r.clock.advance(time.Second)
			}
			w.drainLogs()
			within := func() {
				t.Helper()
				sum := int64(0)
				for _, r := range w.r {
					has, _ := w.rightsOf(r, "b:0")
					sum += has[part.Lower]
				}
				if sum > twins*3 {
					t.Fatalf("all may lower it by %d", sum)
				}
				// All that the second region did is taken back.
				if has, _ := w.rightsOf(w.r[len(w.r)-1], "b:0"); lost != 0 && has[part.Lower] > 0 {
					t.Fatalf("the third may lower it by %d", has[part.Lower])
				}
			}
			if within(); lost >= 0 {
				w.loseOne(lost, part.Region(2))
				for n := range 12 {
					for _, r := range w.r {
						w.progress(r)
						within()
					}
					if n > 5 { // they know that they have levelled
						w.drainLogs()
					}
				}
			}
			for range 2 * twins {
				for _, r := range w.r {
					for _, p := range r.s.partitions {
						r.s.dropEnded(p, new(Batch))
					}
					within()
				}
				w.drainLogs()
				within()
			}
			if lost >= 0 {
				w.finish()
			}
			w.ends()
		})
	}
}

// TestRefusedTransfer: an operation on several counters for which one of them has no room leaves no rights of
// the others.
func TestRefusedTransfer(t *testing.T) {
	t.Parallel()
	w := newEscrowWorld(t, 1, 1, 1)
	for _, r := range w.r {
		before := r.seq(0)
		err := do(r.s, Op{Kind: CMIncrBy, ID: []byte("id"), Keys: [][]byte{[]byte("b:0"), []byte("b:1")},
			Deltas: []int64{1, w.max + 1}}).Err
		if !errors.Is(err, ErrBound) || r.seq(0) != before {
			t.Errorf("region %d: %v, %d entries", r.n, err, r.seq(0)-before)
		}
	}
}

// TestHiddenRights: a counter with bounds is not set under an object that hides it.
func TestHiddenRights(t *testing.T) {
	t.Parallel()
	w := newEscrowWorld(t, 1, 1, 1)
	a, key := w.r[0].s, []byte("b:0")
	must(t, do(a, Op{Kind: FBFAdd, Key: key, Keys: [][]byte{[]byte("x")}}).Err)
	for _, op := range []Op{
		{Kind: Set, Key: key, Delta: 1},
		{Kind: MSet, Keys: [][]byte{key}, Deltas: []int64{1}},
	} {
		if err := do(a, op).Err; !errors.Is(err, ErrEscrow) {
			t.Error(err)
		}
	}
	must(t, do(a, Op{Kind: Del, Keys: [][]byte{key}}).Err)
}
