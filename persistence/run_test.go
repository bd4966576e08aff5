package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
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
	r, err = w.Finish(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := publishRuns(db, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// publishRuns makes runs part of the data directory.
func publishRuns(db *DB, runs ...Run) error {
	c := db.NewChanges()
	if err := c.PublishRuns(runs); err != nil {
		return err
	}
	return c.Commit()
}

func lookUp(t testing.TB, db *DB, r Run, hash uint64) string {
	t.Helper()
	s := ""
	var found Entries
	if err := db.LookUp(r, hash, &found); err != nil {
		t.Fatal(err)
	}
	for found.Next() {
		s += fmt.Sprintf("%d=%s ", found.Seq, found.Value)
	}
	if err := found.Err(); err != nil {
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
	a := writeRun(t, db, Run{Partition: 1, Table: 2, ID: 1, FirstSeq: 3, LastSeq: 9, FirstTime: -5,
		LastTime: 1 << 60},
		[2]uint64{0, 0}, [2]uint64{7, 3}, [2]uint64{7, 4}, [2]uint64{8, 1},
		[2]uint64{math.MaxUint64, math.MaxUint64})
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

	mustChange(t, db, func(b *Changes) { b.DropRun(a); b.DropRun(Run{Partition: 1, Table: 9, ID: 9}) })
	db.RemoveRuns([]Run{a})
	expect(t, "look-up in a run that is gone", lookUp(t, db, a, 7), "")
	if err := db.ScanRun(a, func(uint64, uint64, []byte) error { return nil }); !errors.Is(err,
		fs.ErrNotExist) {
		t.Fatal("a scan of a run that is gone:", err)
	}
	expect(t, "dropped", runsOf(t, db, 1), "1/18446744073709551615:1 2/256:0 ")
	expect(t, "others stay", runsOf(t, db, 2), "1/1:1 ")
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
		if _, err := w.Finish(Run{}); !errors.Is(err, ErrOrder) {
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
	if _, err := w.Finish(Run{}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	expect(t, "runs", runsOf(t, db, 0), "")
	if names, err := db.fs.List(db.path(runName)); err != nil || len(names) != 0 {
		t.Fatal(names, err)
	}
}

// tryRun writes and publishes a run of 500 entries.
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
	r, err := w.Finish(Run{LastSeq: 1})
	if err != nil {
		return err
	}
	return publishRuns(db, r)
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
		hook := crashtest.AtOperation(at, func() {
			crashed = append(crashed, crashtest.Left(mem, 0, nil), crashtest.Left(mem, 50, rng))
		})
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed.Load() {
				return hook(op)
			}
			return nil
		})))
		o.Fsync = oplog.Everysec
		db := mustOpen(t, manualTicks(o))
		if err := tryRun(db, 1); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, db)
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
		armed.Store(true)
		if err := errors.Join(tryRun(db, 2), db.Flush()); err != nil {
			t.Fatal(err)
		}
		armed.Store(false)
		done := crashed == nil
		if done {
			if err := db.Sync(); err != nil {
				t.Fatal(err)
			}
			crashed = append(crashed, crashtest.Left(mem, 0, nil))
		}
		mustClose(t, db)
		for _, c := range crashed {
			db := mustOpen(t, testOptions(c))
			ids := verifyRuns(t, db)
			if !strings.HasPrefix("1 2 ", ids) || done && ids != "1 2 " {
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
			if db.failure() != nil {
				return // an fsync failed: only reopening tells (G8)
			}
			ids := verifyRuns(t, db)
			if (err == nil) != (ids == "1 ") {
				t.Errorf("operation %d: %v, but runs %q", at, err, ids)
			}
			if err := tryRun(db, 2); err != nil {
				t.Error(err)
			}
		})
		stopped := fatal != nil || db.failure() != nil
		if fatal == nil {
			_ = db.Close() // its error is the injected one, if any
		}
		db = mustOpen(t, testOptions(crashtest.Left(mem, 0, nil)))
		ids := verifyRuns(t, db)
		if stopped && ids != "" && ids != "1 " || !stopped && !strings.HasSuffix(ids, "2 ") {
			t.Fatalf("operation %d: fatal %v, then runs %q", at, fatal, ids)
		}
		mustClose(t, db)
	}
}

// TestRunHeaderDamage: a header row is bound to its key by its checksum.
func TestRunHeaderDamage(t *testing.T) {
	r := Run{Partition: 1, Table: 2, ID: 3, FirstSeq: 4, LastSeq: 5, FirstTime: -6, LastTime: 7, Count: 8,
		Bytes: 9}
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

// TestRunFilesAndRows: at Open a file without a header row is removed, and a row
// without a file is damage.
func TestRunFilesAndRows(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	kept := writeRun(t, db, Run{ID: 1}, [2]uint64{1, 1})
	w, err := db.NewRun(Run{ID: 2})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Finish(Run{})
	if err != nil {
		t.Fatal(err)
	}
	path, orphan := db.path(runName, runFileName(kept)), db.path(runName, runFileName(r))
	if _, err := o.FS.Stat(orphan); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	if _, err := o.FS.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("a run that was not published is still there:", err)
	}
	expect(t, "published", lookUp(t, db, kept, 1), "1=v1 ")
	mustClose(t, db)
	if err := o.FS.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), runFileName(kept)) {
		t.Fatal("a missing run:", err)
	}
}

// TestRunBlocks writes runs of many blocks, records larger than a block and
// hashes that repeat over several blocks, and looks up every one of them.
func TestRunBlocks(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	w, err := db.NewRun(Run{ID: 1, Count: 20_000, Bytes: 20_000 * 150})
	if err != nil {
		t.Fatal(err)
	}
	size := func(i uint64) int { return int(i*7919) % 300 }
	const n, same, large = 20_000, 5000, 7000
	for i := range uint64(n) {
		hash, value := i<<49, make([]byte, size(i))
		if i > same && i < same+200 {
			hash = same << 49
		}
		if i == large {
			value = make([]byte, 70_000)
		}
		if err := w.Add(hash, i, value); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.Finish(Run{LastSeq: n})
	if err != nil {
		t.Fatal(err)
	}
	var found Entries
	for i := range uint64(n) {
		if i > same && i < same+200 {
			continue
		}
		var got []uint64
		err := db.LookUp(r, i<<49, &found)
		for found.Next() {
			if i != large && len(found.Value) != size(found.Seq) || i == large && len(found.Value) != 70_000 {
				t.Fatalf("entry %d has %d bytes", found.Seq, len(found.Value))
			}
			got = append(got, found.Seq)
		}
		err = errors.Join(err, found.Err())
		want := 1
		if i == same {
			want = 200
		}
		if err != nil || len(got) != want || got[0] != i {
			t.Fatal(i, got, err)
		}
		expect(t, "hash between two", lookUp(t, db, r, i<<49+1), "")
	}
	seen := uint64(0)
	if err := db.ScanRun(r, func(_, seq uint64, _ []byte) error {
		if seq != seen {
			t.Fatalf("entry %d at place %d", seq, seen)
		}
		seen++
		return nil
	}); err != nil || seen != n {
		t.Fatal(seen, err)
	}
}

// TestRunDamage changes each byte of a run's file and cuts it at each length:
// the damage is noticed at Open or by the reader of the damaged block, and nothing but the truth is
// ever found.
func TestRunDamage(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	db := mustOpen(t, o)
	r := writeRun(t, db, Run{ID: 1}, [2]uint64{1, 1}, [2]uint64{2, 2}, [2]uint64{3, 3})
	path := db.path(runName, runFileName(r))
	mustClose(t, db)
	whole, err := disk.ReadFile(fsys, path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, content []byte) {
		t.Helper()
		if err := disk.WriteFile(fsys, o.FS.PathDir(path), o.FS.PathBase(path), content); err != nil {
			t.Fatal(err)
		}
		db, err := Open(o)
		if errors.Is(err, ErrCorrupt) {
			return
		}
		if err != nil {
			t.Fatal(what, err)
		}
		defer mustClose(t, db)
		if err := db.ScanRun(r, func(uint64, uint64, []byte) error { return nil }); !errors.Is(err,
			ErrCorrupt) {
			t.Fatal(what, "a scan does not notice:", err)
		}
		var found Entries
		err = db.LookUp(r, 2, &found)
		if found.Next() {
			t.Fatal(what, "found", found.Seq, found.Value)
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatal(what, "a look-up does not notice:", err)
		}
	}
	for i := 0; i < len(whole); i += raced.Step {
		changed := append([]byte(nil), whole...)
		changed[i] ^= 1 << (i % 8)
		try(fmt.Sprint("byte ", i, ":"), changed)
		try(fmt.Sprint("cut at ", i, ":"), whole[:i])
	}
	try("longer:", append(append([]byte(nil), whole...), 0))
}
