package persistence

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestRunFilter: a small run's filter knows all of its hashes and few others, so
// that looking those up reads nothing; a run found at the start is read.
func TestRunFilter(t *testing.T) {
	var reads atomic.Int64
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			reads.Add(1)
		}
		return nil
	})))
	db := mustOpen(t, o)
	const n = 5000
	w, err := db.NewRun(Run{ID: 1, Count: n, Bytes: 50 * n})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = uint64(i)<<51 | rng.Uint64()>>13
		if err := w.Add(hashes[i], 1, make([]byte, 50)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.Finish(Run{})
	if err != nil {
		t.Fatal(err)
	}
	if err := publishRuns(db, r); err != nil {
		t.Fatal(err)
	}
	count := func(hash func(int) uint64) (found int, read int64) {
		reads.Store(0)
		var e Entries
		for i := range n {
			if err := db.LookUp(r, hash(i), &e); err != nil {
				t.Fatal(err)
			}
			for e.Next() {
				found++
			}
		}
		return found, reads.Load()
	}
	present, absent := func(i int) uint64 { return hashes[i] }, func(int) uint64 { return rng.Uint64() }
	if found, read := count(present); found != n || read != n {
		t.Errorf("%d of %d found with %d reads", found, n, read)
	}
	if found, read := count(absent); found != 0 || read > n/20 {
		t.Errorf("%d of %d absent hashes found, with %d reads", found, n, read)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	if found, read := count(present); found != n || read != n {
		t.Errorf("after a restart %d of %d found with %d reads", found, n, read)
	}
}
