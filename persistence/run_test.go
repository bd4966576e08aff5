package persistence

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// writeRun writes a run with the entries (hash, seq) of pairs.
func writeRun(t testing.TB, db *DB, r Run, pairs ...[2]uint64) Run {
	t.Helper()
	w, err := db.NewRun(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if err := w.Add(p[0], p[1], fmt.Appendf(nil, "v%d", p[1])); err != nil {
			t.Fatal(err)
		}
	}
	r, err = w.Commit(r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lookUp(t testing.TB, db *DB, r Run, hash uint64) string {
	t.Helper()
	s := ""
	err := db.LookUp(r, hash, func(seq uint64, value []byte) bool {
		s += fmt.Sprintf("%d=%s ", seq, value)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func runsOf(t testing.TB, db *DB, partition uint16) string {
	t.Helper()
	runs, err := db.Runs(partition)
	if err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, r := range runs {
		s += fmt.Sprintf("%d/%d:%d ", r.Table, r.ID, r.Count)
	}
	return s
}

func TestRuns(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	a := writeRun(t, db, Run{Partition: 1, Table: 2, ID: 1, FirstSeq: 3, LastSeq: 9, FirstTime: -5, LastTime: 1 << 60},
		[2]uint64{0, 0}, [2]uint64{7, 3}, [2]uint64{7, 4}, [2]uint64{8, 1}, [2]uint64{math.MaxUint64, math.MaxUint64})
	expect(t, "count", a.Count, 5)
	expect(t, "bytes", a.Bytes, uint64(2+2+2+2+21))
	empty := writeRun(t, db, Run{Partition: 1, Table: 2, ID: 256})
	writeRun(t, db, Run{Partition: 1, Table: 1, ID: math.MaxUint64}, [2]uint64{1, 1})
	writeRun(t, db, Run{Partition: 2, Table: 1, ID: 1}, [2]uint64{1, 1})
	writeRun(t, db, Run{Partition: 0, Table: math.MaxUint32, ID: math.MaxUint64}, [2]uint64{1, 1})

	check := func() {
		t.Helper()
		expect(t, "runs", runsOf(t, db, 1), "1/18446744073709551615:1 2/1:5 2/256:0 ")
		expect(t, "runs of 0", runsOf(t, db, 0), "4294967295/18446744073709551615:1 ")
		runs, err := db.Runs(1)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "header", runs[1], a)
		expect(t, "two of one hash", lookUp(t, db, a, 7), "3=v3 4=v4 ")
		expect(t, "lowest", lookUp(t, db, a, 0), "0=v0 ")
		expect(t, "highest", lookUp(t, db, a, math.MaxUint64), "18446744073709551615=v18446744073709551615 ")
		expect(t, "absent", lookUp(t, db, a, 9), "")
		expect(t, "empty run", lookUp(t, db, empty, 7), "")
	}
	check()
	mustClose(t, db)
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	check()

	n := 0
	if err := db.ScanRun(a, func(hash, seq uint64, value []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	expect(t, "scanned", n, 5)
	a.Count++
	if err := db.ScanRun(a, func(uint64, uint64, []byte) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Fatal("a missing entry:", err)
	}

	mustCommit(t, db, func(b *Batch) { b.DropRun(1, 2, 1); b.DropRun(1, 9, 9) })
	expect(t, "dropped", runsOf(t, db, 1), "1/18446744073709551615:1 2/256:0 ")
	mustCommit(t, db, func(b *Batch) { b.DropRuns(1) })
	expect(t, "all dropped", runsOf(t, db, 1), "")
	expect(t, "others stay", runsOf(t, db, 2), "1/1:1 ")
	// Over a range deletion that may still be in the memtable.
	writeRun(t, db, Run{Partition: 1, Table: 2, ID: 300}, [2]uint64{1, 1})
	expect(t, "new after drop", runsOf(t, db, 1), "2/300:1 ")
}

func TestRunOrderAndAbort(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	for _, second := range [][2]uint64{{5, 5}, {5, 4}, {4, 9}} {
		w, err := db.NewRun(Run{ID: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(5, 5, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(second[0], second[1], nil); !errors.Is(err, ErrOrder) {
			t.Fatal(second, err)
		}
		if err := w.Add(9, 9, nil); !errors.Is(err, ErrOrder) {
			t.Fatal("the error is not sticky:", err)
		}
		if _, err := w.Commit(Run{}); !errors.Is(err, ErrOrder) {
			t.Fatal(err)
		}
		w.Abort()
	}
	w, err := db.NewRun(Run{ID: 2})
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if err := w.Add(1, 1, nil); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := w.Commit(Run{}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	expect(t, "runs", runsOf(t, db, 0), "")
	if names, err := db.fs.List(db.path(buildName)); err != nil || len(names) != 0 {
		t.Fatal(names, err)
	}
}

// tryRun writes a run of 500 entries.
func tryRun(db *DB, id uint64) error {
	w, err := db.NewRun(Run{ID: id})
	if err != nil {
		return err
	}
	for hash := range uint64(500) {
		if err := w.Add(hash, 1, randomBytes(50)); err != nil {
			w.Abort()
			return err
		}
	}
	_, err = w.Commit(Run{LastSeq: 1})
	return err
}

// verifyRuns checks that each run of partition 0 is whole and returns their ids.
func verifyRuns(t testing.TB, db *DB) string {
	t.Helper()
	runs, err := db.Runs(0)
	if err != nil {
		t.Fatal(err)
	}
	ids := ""
	for _, r := range runs {
		expect(t, "count", r.Count, 500)
		if err := db.ScanRun(r, func(uint64, uint64, []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		ids += fmt.Sprint(r.ID, " ")
	}
	return ids
}

// TestRunCrash crashes at each operation of building a run: it is there whole,
// and then so is the log it was built from (G4), or not at all.
func TestRunCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for at, armed := 1, new(atomic.Bool); ; at++ {
		var crashed []*vfs.MemFS
		mem := vfs.NewCrashableMem()
		hook := atOperation(at, func() {
			crashed = append(crashed, crash(mem, 0, nil), crash(mem, 50, rng))
		})
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed.Load() {
				return hook(op)
			}
			return nil
		})))
		o.Fsync = Everysec
		db := manualTicks(mustOpen(t, o))
		if err := tryRun(db, 1); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 1, recordOf(1)) })
		armed.Store(true)
		if err := tryRun(db, 2); err != nil {
			t.Fatal(err)
		}
		armed.Store(false)
		done := crashed == nil
		if done {
			crashed = append(crashed, crash(mem, 0, nil))
		}
		mustClose(t, db)
		for _, c := range crashed {
			db := mustOpen(t, testOptions(c))
			ids := verifyRuns(t, db)
			if ids != "1 2 " && (ids != "1 " || done) {
				t.Fatalf("runs %s after a crash at operation %d", ids, at)
			}
			if ids == "1 2 " && logPrefix(t, db) != 1 {
				t.Fatal("the run is ahead of the log")
			}
			mustClose(t, db)
		}
		if done {
			return
		}
	}
}

// TestRunFaults fails each operation of building a run in turn: an error and
// no run, or the end of the process and a whole run or none after the restart.
func TestRunFaults(t *testing.T) {
	for at, failed := int64(1), true; failed; at++ {
		mem := vfs.NewCrashableMem()
		var n atomic.Int64
		n.Store(math.MinInt64)
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if n.Add(1) == at {
				return syscall.ENOSPC
			}
			return nil
		})))
		var db *DB
		fatal := untilFatal(&o, func() {
			db = mustOpen(t, o)
			n.Store(0)
			err := tryRun(db, 1)
			failed = n.Load() >= at
			n.Store(math.MinInt64)
			ids := verifyRuns(t, db)
			if (err == nil) != (ids == "1 ") {
				t.Errorf("operation %d: %v, but runs %q", at, err, ids)
			}
			if err := tryRun(db, 2); err != nil {
				t.Error(err)
			}
		})
		if fatal == nil {
			mustClose(t, db)
		}
		db = mustOpen(t, testOptions(crash(mem, 0, nil)))
		ids := verifyRuns(t, db)
		if fatal != nil && ids != "" && ids != "1 " || fatal == nil && !strings.HasSuffix(ids, "2 ") {
			t.Fatalf("operation %d: fatal %v, then runs %q", at, fatal, ids)
		}
		mustClose(t, db)
	}
}

// TestRunHeaderDamage: a header row is bound to its key by its checksum.
func TestRunHeaderDamage(t *testing.T) {
	r := Run{Partition: 1, Table: 2, ID: 3, FirstSeq: 4, LastSeq: 5, FirstTime: -6, LastTime: 7, Count: 8, Bytes: 9}
	key, value := r.headerKey(), r.encodeHeader()
	got, err := decodeRun(key, value)
	if err != nil || got != r {
		t.Fatal(got, err)
	}
	for i := range value {
		value[i] ^= 4
		if _, err := decodeRun(key, value); !errors.Is(err, ErrCorrupt) {
			t.Fatal("value", i, err)
		}
		value[i] ^= 4
		if _, err := decodeRun(key, value[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatal("cut", i, err)
		}
	}
	for i := range key {
		key[i] ^= 4
		if _, err := decodeRun(key, value); !errors.Is(err, ErrCorrupt) {
			t.Fatal("key", i, err)
		}
		key[i] ^= 4
	}
}

// TestRunWithoutHeader: entries that no header follows are damage, not a run
// to be passed over.
func TestRunWithoutHeader(t *testing.T) {
	for _, more := range []bool{false, true} {
		db := mustOpen(t, testOptions(vfs.NewMem()))
		if more {
			writeRun(t, db, Run{ID: 2}, [2]uint64{1, 1})
		}
		key := entryKey(nil, Run{ID: 1}.prefix(), 1, 1)
		if err := db.pebble.Set(key, nil, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Runs(0); !errors.Is(err, ErrCorrupt) {
			t.Fatal(more, err)
		}
		mustClose(t, db)
	}
}
