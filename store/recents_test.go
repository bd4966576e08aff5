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
	for deadline := time.Now().Add(10 * time.Second); !s.behind.Load(); n++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of records, and no brake", s.Stats().RecentBytes)
		}
		cincr(s, "k", fmt.Sprint("id", n), 1)
	}
	began := time.Now()
	get(s, "k")
	if took := time.Since(began); took > 500*time.Millisecond {
		t.Errorf("a read took %v", took)
	}
	began = time.Now()
	cincr(s, "k", "late", 1)
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("a write took only %v", took)
	}
	s.snapshots.building.Unlock()
	for deadline := time.Now().Add(10 * time.Second); s.behind.Load(); {
		if time.Now().After(deadline) {
			t.Fatal("the brake stays on")
		}
		time.Sleep(time.Millisecond)
	}
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
			op := do(s, Op{Kind: CIncrBy, Key: []byte("k"), ID: fmt.Append(nil, "id", round), Delta: int64(round + 1)})
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

// TestSegmentsAreBounded: records that wait long for a run go on in another
// segment before a location would no longer say where they are.
func TestSegmentsAreBounded(t *testing.T) {
	var rs recents
	add := func(id string, seq uint64) {
		rs.add(&record{table: 1, hash: seq << 60, seq: seq, logged: int64(seq), key: []byte("k"), id: []byte(id)})
	}
	add("a", 1)
	full := rs.segments[0]
	full.chunks = append(full.chunks, make([][]byte, maxChunks)...)
	add("b", 2)
	if len(rs.segments) != 2 || full.count != 1 || full.lastSeq != 1 {
		t.Fatalf("%d segments, of which the first holds %d records", len(rs.segments), full.count)
	}
	for i, id := range []string{"a", "b"} {
		seq := uint64(i + 1)
		if r, ok := rs.find(seq<<60, []byte("k"), []byte(id)); !ok || r.seq != seq {
			t.Errorf("%s: found %v, sequence %d", id, ok, r.seq)
		}
	}
	if sealed := rs.seal(); len(sealed) != 2 {
		t.Errorf("%d segments are sealed", len(sealed))
	}
}

// TestFlushAllForgetsUnpublishedRuns: nothing is kept of runs that FLUSHALL
// drops before a checkpoint has published them.
func TestFlushAllForgetsUnpublishedRuns(t *testing.T) {
	s := testStore(t, func(o *Options) { o.FS, o.Partitions = vfs.NewMem(), 1 })
	p := s.partitions[0]
	cincr(s, "k", "id", 1)
	must(t, s.flushRecords(p, false))
	var b Batch
	b.Add(FlushAll)
	s.Execute(&b)
	if n := len(p.unpublished); n != 1 {
		t.Fatalf("%d unpublished runs before the checkpoint", n)
	}
	must(t, s.checkpoint(p, true))
	if n := len(p.unpublished); n != 0 {
		t.Errorf("%d unpublished runs are kept", n)
	}
}
