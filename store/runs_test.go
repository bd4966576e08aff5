package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestWritesWaitForTheBuilder: while runs cannot be built, writes slow down, so
// that records do not fill the memory, and reads do not.
func TestWritesWaitForTheBuilder(t *testing.T) {
	s := testStore(t, func(o *Options) { o.RecordMemory, o.Partitions = 4<<10, 1 })
	s.snapshots.building.Lock()
	n := 0
	eventually(t, "the brake is on", func() bool {
		for range 100 {
			if s.behind.Load() {
				return true
			}
			cincr(s, "k", fmt.Sprint("id", n), 1)
			n++
		}
		return false
	})
	const brake = 500 * time.Millisecond // at least
	took := func(do func()) time.Duration {
		began := time.Now()
		do()
		return time.Since(began)
	}
	if d := took(func() { cincr(s, "k", "late", 1) }); d < brake {
		t.Errorf("a write took %v", d)
	}
	fastest := time.Hour // a busy machine may take as long for some
	for range 20 {
		fastest = min(fastest, took(func() { get(s, "k") }))
	}
	if fastest >= brake || !s.behind.Load() {
		t.Errorf("reads took %v at least, behind: %v", fastest, s.behind.Load())
	}
	s.snapshots.building.Unlock()
	eventually(t, "the brake is off", func() bool { return !s.behind.Load() })
	if v, _ := get(s, "k"); v != int64(n+1) {
		t.Errorf("%d operations, and the counter is %d", n+1, v)
	}
}

// TestSaveTidiesRuns: SAVE leaves no two neighbouring runs that could be one,
// and every record is still found, after a restart too.
func TestSaveTidiesRuns(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	open := func() *Store {
		return testStore(t, func(o *Options) { o.FS, o.Clock, o.Partitions = fs, clock.now, 1 })
	}
	s := open()
	const rounds = 40 // of a second each: a run spans at most 125/8 of them
	for round := range rounds {
		cincr(s, "k", fmt.Sprint("id", round), int64(round+1))
		must(t, s.flushRecords(s.partitions[0], false))
		clock.advance(time.Second)
	}
	before := s.Stats().Runs
	must(t, s.Snapshot())
	after := s.Stats().Runs
	if after != 3 || before <= after {
		t.Errorf("%d runs before SAVE, %d after", before, after)
	}
	for range 2 {
		for round := range rounds {
			op := do(s, Op{Kind: CIncrBy, Key: []byte("k"), ID: fmt.Append(nil, "id", round),
				Delta: int64(round + 1)})
			if op.Err != nil || op.Applied || op.Value != int64((round+1)*(round+2)/2) {
				t.Fatalf("operation %d: %d applied %v, %v", round, op.Value, op.Applied, op.Err)
			}
		}
		must(t, s.Close())
		s = open()
	}
}

// TestRunsGoWhenTheirDropIsDurable loses the power at each removal of a run's
// file: under everysec too, what survives names no run without a file (G1).
func TestRunsGoWhenTheirDropIsDurable(t *testing.T) {
	mem, clock := vfs.NewCrashableMem(), newFakeClock()
	type loss struct {
		run  string
		disk *vfs.MemFS
	}
	var losses []loss
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove && strings.HasSuffix(op.Path, ".run") {
			losses = append(losses, loss{filepath.Base(op.Path), mem.CrashClone(vfs.CrashCloneCfg{})})
		}
		return nil
	}))
	s := testStore(t, func(o *Options) { o.FS, o.Clock, o.Partitions, o.Fsync = fs, clock.now, 1, Everysec })
	for round := range 12 {
		cincr(s, "k", fmt.Sprint("id", round), 1)
		must(t, s.Snapshot())
		clock.advance(time.Second)
	}
	must(t, s.Close())
	if len(losses) == 0 {
		t.Fatal("no run was removed")
	}
	for _, l := range losses {
		db, err := persistence.Open(persistence.Options{FS: l.disk, Dir: "data"})
		must(t, err)
		runs, err := db.Runs(0)
		must(t, err)
		for _, r := range runs {
			if strings.HasSuffix(l.run, fmt.Sprintf("%020d.run", r.ID)) {
				t.Errorf("after a power loss %s is gone, but still part of the data directory", l.run)
			}
		}
		must(t, db.Close())
	}
}

// TestRunsAreKept: a run stays until its last record is older than window and skew: until
// then its opids are duplicates, with their original results (G1). Then it goes.
func TestRunsAreKept(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Partitions, o.Clock = 1, clock.now })
	p := s.partitions[0]
	d := p.catalog.find([]byte("k"))
	pass := func(d time.Duration) { // one look at the clock advances logged time by a second at most
		for ; d > 0; d -= time.Second / 2 {
			clock.advance(min(d, time.Second/2))
			s.look()
		}
	}
	runs := func() int {
		t.Helper()
		must(t, s.checkpoint(p, true))
		return s.Stats().Runs
	}
	wantOp(t, cincr(s, "k", "first", 1), 1, true)
	pass(10 * time.Second)
	wantOp(t, cincr(s, "k", "last", 1), 2, true)
	if n := runs(); n != 1 {
		t.Fatalf("%d runs", n)
	}
	pass(d.Window + d.Skew - time.Second) // the first record alone would not be kept
	if n := runs(); n != 1 {
		t.Errorf("%d runs while one is needed", n)
	}
	wantOp(t, cincr(s, "k", "last", 1), 2, false)
	pass(10 * time.Second)
	if n := runs(); n != 0 {
		t.Errorf("%d runs are left of what has expired", n)
	}
}
