package store

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"
)

// drainedIn drains a counter in a region, once for an opid, and checks the answer; want -1: there is nothing.
func (w *testRegions) drainedIn(r *testRegion, id string, want int64, applied bool) {
	w.t.Helper()
	op := do(r.s, Op{Kind: CGetDel, Key: []byte("k"), ID: []byte(id)})
	if must(w.t, op.Err); !op.Found {
		op.Value = -1
	}
	if op.Value != want || op.Applied != applied {
		w.t.Errorf("region %d answers %s with %d (applied %v), not %d", r.n, id, op.Value, op.Applied, want)
	}
}

// size is how many keys a region has.
func (r *testRegion) size() int64 {
	n, _ := r.s.DBSize()
	return n
}

// show checks that all regions show a value, 0: no counter; also once they are opened again, with or without
// rows.
func (w *testRegions) show(when string, want int64) {
	w.t.Helper()
	for i := range 3 {
		for _, r := range w.r {
			v, ok := get(r.s, "k")
			if n := r.size(); v != want || ok != (want != 0) || (n == 1) != (want != 0) {
				w.t.Errorf("%s: region %d shows %d, %v, not %d; it has %d keys", when, r.n, v, ok, want, n)
			}
			if i == 1 {
				must(w.t, r.s.Snapshot())
			}
			if i < 2 {
				must(w.t, r.s.CloseNow())
				w.open(r)
			}
		}
	}
}

// forgotten checks that no region remembers anything of the counter.
func (w *testRegions) forgotten() {
	w.t.Helper()
	for range 8 {
		for _, r := range w.r {
			r.s.dropEnded(r.s.partitions[0], new(Batch))
		}
		w.drain()
	}
	for _, r := range w.r {
		get(r.s, "k")
		if p := r.s.partitions[0].hot.peek("k"); p != nil && p.parts() != nil {
			w.t.Errorf("region %d remembers %+v", r.n, p.parts())
		}
	}
}

// TestHandOutTwins: two regions drain a counter under one opid, each what it knows. The first answer counts,
// everywhere, and what the other one handed out is counted again.
func TestHandOutTwins(t *testing.T) {
	t.Parallel()
	for first := range 2 {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprint("first ", first, ", heard ", order), func(t *testing.T) {
				w := newTestRegions(t, 2, 1, 1, 1)
				w.drain()
				w.r[1-first].clock.advance(time.Hour / 2)
				has := []int64{100, 40}
				for i, r := range w.r[:2] {
					wantOp(t, cincr(r.s, "k", fmt.Sprint(i), has[i]), has[i], true)
					w.drainedIn(r, "d", has[i], true)
					if v, ok := get(r.s, "k"); ok || r.size() != 0 {
						t.Errorf("region %d still has %d", i, v)
					}
				}
				for _, i := range order {
					w.takeFrom(w.r[2], w.r[i])
				}
				w.drain()
				left := has[1-first]
				w.show("twins", left)
				for _, r := range w.r {
					w.drainedIn(r, "d", has[first], false)
					if op := cincr(r.s, "k", "d", 1); !errors.Is(op.Err, ErrMismatch) {
						t.Errorf("an increment with its opid: %v", op.Err)
					}
				}
				w.drainedIn(w.r[2], "e", left, true)
				w.drain()
				w.show("drained", 0)
				w.forgotten()
				wantOp(t, cincr(w.r[2].s, "k", "new", 7), 7, true)
				w.drain()
				w.show("anew", 7)
			})
		}
	}
}

// TestHandOutAtOnce: two regions hand out one increment under two opids. The counter is less by that, until
// the next drain.
func TestHandOutAtOnce(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1, 1)
	w.drain()
	cincr(w.r[2].s, "k", "x", 100)
	w.drain()
	w.drainedIn(w.r[0], "d", 100, true)
	w.drainedIn(w.r[1], "e", 100, true)
	w.drain()
	w.show("handed out twice", -100)
	cincr(w.r[0].s, "k", "y", 7)
	w.drain()
	w.drainedIn(w.r[1], "f", -93, true)
	w.drainedIn(w.r[1], "d", 100, false)
	w.drain()
	w.show("made up for", 0)
	w.forgotten()
}

// TestHandOutAndCounted: increments make up for amounts that were handed out twice; then nothing is left.
func TestHandOutAndCounted(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1, 1)
	w.drain()
	cincr(w.r[2].s, "k", "x", 100)
	w.drain()
	w.drainedIn(w.r[0], "d", 100, true)
	w.drainedIn(w.r[1], "e", 100, true)
	w.drain()
	wantOp(t, cincr(w.r[2].s, "k", "y", 100), 0, true)
	if v, ok := get(w.r[2].s, "k"); ok || w.r[2].size() != 0 {
		t.Errorf("there is %d", v)
	}
	w.drain()
	w.show("counted", 0)
	w.forgotten()
}

// TestHandOutLost: a region is lost that has to count again what it has handed out. Its heir does.
func TestHandOutLost(t *testing.T) {
	t.Parallel()
	w := newTestRemoval(t, 2, 1, 1, 1)
	w.drain()
	w.r[1].clock.advance(time.Hour / 2)
	for i, r := range w.r[:2] {
		cincr(r.s, "k", fmt.Sprint(i), 100-60*int64(i))
		w.drainedIn(r, "d", 100-60*int64(i), true)
	}
	w.takeFrom(w.r[2], w.r[1])
	w.loseOne(1, 2)
	w.finish()
	w.drain()
	w.show("lost", 40)
	for _, r := range w.r {
		w.drainedIn(r, "d", 100, false)
	}
}

// TestHandOutOfRemoved: one region has handed out the increments of another one, which is removed then. Its
// heir does not delete the one without the other, though the counter does not exist.
func TestHandOutOfRemoved(t *testing.T) {
	t.Parallel()
	w := newTestRemoval(t, 2, 1, 1, 1)
	w.drain()
	for range 20 { // its log gets ahead of its heir's
		must(t, incr(w.r[1].s, "k", 5).Err)
	}
	w.drain()
	w.loseOne(1, 2)
	for range 3 {
		for _, r := range w.r {
			w.progress(r)
		}
	}
	w.drainedIn(w.r[0], "d", 100, true)
	for range 5 {
		for _, r := range w.r {
			w.progress(r)
		}
		w.takeFrom(w.r[1], w.r[0]) // which is not told how far the heir has taken it
		w.r[1].s.dropEnded(w.r[1].s.partitions[0], new(Batch))
	}
	w.finish()
	w.show("removed", 0)
	w.forgotten()
	wantOp(t, cincr(w.r[1].s, "k", "y", 7), 7, true)
	w.drain()
	w.show("anew", 7)
}

// TestHandOutIsStated: the state of a region tells which of its operations were drains.
func TestHandOutIsStated(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1)
	w.drain()
	cincr(w.r[0].s, "k", "x", 100)
	w.drainedIn(w.r[0], "d", 100, true)
	for _, page := range w.pagesOf(w.r[1], w.r[0], 0, 1<<20, nil).raw {
		_, err := w.r[1].s.Take(page)
		must(t, err)
	}
	w.drainedIn(w.r[1], "d", 100, false)
	w.drain()
	w.show("stated", 0)
}

// TestHandOutLeast: what would have to be counted again must be an int64.
func TestHandOutLeast(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1)
	w.drain()
	must(t, do(w.r[0].s, Op{Kind: Set, Key: []byte("k"), Delta: math.MinInt64}).Err)
	if op := do(w.r[0].s, Op{Kind: CGetDel, Key: []byte("k"), ID: []byte("d")}); !errors.Is(op.Err, ErrOverflow) {
		t.Errorf("%+v", op)
	}
	w.drain()
	w.show("refused", math.MinInt64)
}

// TestHandOutOfTwin: what another region is to take back is not handed out, and what is left of the counter
// goes with it.
func TestHandOutOfTwin(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1, 1)
	w.drain()
	w.r[1].clock.advance(time.Hour / 2)
	for _, r := range w.r[:2] {
		cincr(r.s, "k", "x", 100)
	}
	w.takeFrom(w.r[0], w.r[1])
	w.drainedIn(w.r[0], "d", 100, true)
	if v, _ := get(w.r[0].s, "k"); v != 100 || w.r[0].size() != 1 {
		t.Errorf("%d is left, of %d keys", v, w.r[0].size())
	}
	w.drain()
	w.show("taken back", 0)
	w.forgotten()
}

// TestHandOutNothing: a drain that found nothing was the first one. So another one's is counted again.
func TestHandOutNothing(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1, 1)
	w.drain()
	w.drainedIn(w.r[0], "d", -1, true)
	w.r[1].clock.advance(time.Hour / 2)
	cincr(w.r[1].s, "k", "x", 5)
	w.drainedIn(w.r[1], "d", 5, true)
	w.drain()
	w.show("nothing", 5)
	for _, r := range w.r {
		w.drainedIn(r, "d", -1, false)
	}
}
