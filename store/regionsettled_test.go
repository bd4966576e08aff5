package store

import (
	"testing"
	"time"
)

// TestSettlesOnceLevelled: a removed region has deleted a counter of which it had seen both applications of
// an operation, and only one other region knows that. The other one forgets nothing that it takes back before
// it has levelled: that deletion removed both.
func TestSettlesOnceLevelled(t *testing.T) {
	w := newTestRemoval(t, 2, 1, 1, 1)
	w.drain()
	w.r[1].clock.advance(time.Hour / 2)
	for _, r := range w.r[:2] {
		wantOp(t, cincr(r.s, "k", "x", 100), 100, true)
	}
	w.takeFrom(w.r[2], w.r[1])
	w.takeFrom(w.r[2], w.r[0])
	must(t, do(w.r[2].s, Op{Kind: GetDel, Key: []byte("k")}).Err)
	w.takeFrom(w.r[0], w.r[2])
	wantOp(t, cincr(w.r[0].s, "k", "y", 3), 3, true)
	w.loseOne(2, 0)
	w.learn(w.r[0])
	w.learn(w.r[1])
	w.takeFrom(w.r[1], w.r[0])
	w.takeFrom(w.r[0], w.r[1])
	wantOp(t, cincr(w.r[0].s, "other", "y", 3), 3, true)
	w.takeFrom(w.r[1], w.r[0])
	for range 3 {
		w.drop()
	}
	for range 3 {
		w.progress(w.r[1])
	}
	w.finish()
	for _, r := range w.r {
		if v, _ := get(r.s, "k"); v != 3 {
			t.Errorf("region %d shows %d: %+v", r.n, v, r.s.partitions[0].partsOf("k"))
		}
	}
}
