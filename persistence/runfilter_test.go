package persistence

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestRunFilter: a run's filter knows all of its hashes and few others, a large one's
// some more, so that looking those up reads nothing; a run found at the start is read.
func TestRunFilter(t *testing.T) {
	t.Run("small", func(t *testing.T) { testRunFilter(t, 5000, 5000/20) })
	t.Run("large", func(t *testing.T) { testRunFilter(t, 2*smallRun, 2*smallRun/5) })
}

func testRunFilter(t *testing.T, n int, most int64) {
	var reads atomic.Int64
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, runSuffix) { // Pebble reads, too
			reads.Add(1)
		}
		return nil
	})))
	db := mustOpen(t, o)
	w, err := db.NewRun(Run{ID: 1, Count: uint64(n), Bytes: 50 * uint64(n)})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = uint64(i)*(1<<63/uint64(n)*2) + rng.Uint64()>>24
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
			had := found
			for e.Next() {
				found++
			}
			if found > had && !db.MayHave(r, hash(i)) {
				t.Fatalf("the run may not have what it has")
			}
		}
		return found, reads.Load()
	}
	present, absent := func(i int) uint64 { return hashes[i] }, func(int) uint64 { return rng.Uint64() }
	if found, read := count(present); found != n || read != int64(n) {
		t.Errorf("%d of %d found with %d reads", found, n, read)
	}
	if found, read := count(absent); found != 0 || read > most {
		t.Errorf("%d of %d absent hashes found, with %d reads", found, n, read)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	if found, read := count(present); found != n || read != int64(n) {
		t.Errorf("after a restart %d of %d found with %d reads", found, n, read)
	}
}
