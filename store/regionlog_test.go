package store

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestLogFromBeforeFlush: what a store deleted with FLUSHALL before it was a region is not told.
func TestLogFromBeforeFlush(t *testing.T) {
	w := &testRegions{t: t, gaps: true}
	for i := range 2 {
		r := &testRegion{n: i, fs: vfs.NewMem(), clock: newFakeClock(), parts: 1}
		w.r = append(w.r, r)
		w.open(r)
	}
	a, b := w.r[0], w.r[1]
	w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	w.do(a, Op{Kind: FlushAll})
	w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	if _, err := w.pull(b, a, 0, 0, 1<<20); !errors.Is(err, ErrGap) {
		t.Errorf("the log of before the FLUSHALL: %v", err)
	}
}
