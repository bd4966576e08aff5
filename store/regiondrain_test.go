package store

import (
	"fmt"
	"testing"
	"time"
)

// TestDrainedTwins: an operation that two regions applied is handed out once if one of them deletes the
// counter, whichever application counts, and also before the other region knows of it. An operation that a
// SET has replaced does not come back.
func TestDrainedTwins(t *testing.T) {
	t.Parallel()
	for first := range 2 {
		for _, set := range []bool{false, true} {
			t.Run(fmt.Sprint("first ", first, ", set ", set), func(t *testing.T) {
				w := newTestRegions(t, 2, 1, 1, 1)
				w.drain()
				w.r[1-first].clock.advance(time.Hour / 2)
				for _, r := range w.r[:2] {
					wantOp(t, cincr(r.s, "k", "x", 100), 100, true)
				}
				left := int64(0)
				ends := func(r *testRegion, out int64) {
					t.Helper()
					drains := Op{Kind: GetDel, Key: []byte("k")}
					if set {
						left = 8
						drains = Op{Kind: Set, Key: []byte("k"), Delta: left, Flags: SetGet}
					}
					op := do(r.s, drains)
					if must(t, op.Err); op.Value != out {
						t.Errorf("region %d hands out %d, not %d", r.n, op.Value, out)
					}
				}
				ends(w.r[0], 100)
				w.takeFrom(w.r[0], w.r[1])
				ends(w.r[0], left) // the other region has taken nothing back yet
				w.takeFrom(w.r[1], w.r[0])
				w.takeFrom(w.r[2], w.r[1])
				w.takeFrom(w.r[2], w.r[0])
				w.drain()
				for _, r := range w.r {
					if v, _ := get(r.s, "k"); v != left {
						t.Errorf("region %d shows %d, not %d", r.n, v, left)
					}
				}
				ends(w.r[2], left)
				w.drain()
			})
		}
	}
}

// TestDrainedBoth: both regions have drained the operation before they knew of each other. Nobody can undo
// that: it was handed out twice, and is not handed out a third time.
func TestDrainedBoth(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1, 1)
	w.drain()
	for _, r := range w.r[:2] {
		cincr(r.s, "k", "x", 100)
		if op := do(r.s, Op{Kind: GetDel, Key: []byte("k")}); op.Value != 100 {
			t.Errorf("region %d hands out %d", r.n, op.Value)
		}
	}
	w.drain()
	for _, r := range w.r {
		wantOp(t, cincr(r.s, "k", "x", 100), 100, false)
		if v, ok := get(r.s, "k"); ok {
			t.Errorf("region %d shows %d", r.n, v)
		}
	}
}
