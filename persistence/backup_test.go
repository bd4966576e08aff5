package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

func checkCopiedLog(t *testing.T, db *DB, least uint64) {
	t.Helper()
	last := uint64(0)
	err := db.log.Read(0, 0, func(seq uint64, record []byte) error {
		if seq != last+1 || !bytes.Equal(record, crashtest.Record(seq)) {
			return fmt.Errorf("record %d after %d", seq, last)
		}
		last = seq
		return nil
	})
	if err != nil || last < least {
		t.Errorf("the copy ends at %d, want at least %d: %v", last, least, err)
	}
}

// TestBackupIsDurableHere: what the backup contains is durable in the data
// directory too, whatever the policy (G4): a power loss right after it leaves
// no less than the backup.
func TestBackupIsDurableHere(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.Fsync = oplog.No
	db := mustOpen(t, manualTicks(o))
	for seq := uint64(1); seq <= 30; seq++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
	}
	if err := db.Backup("backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	after := crashtest.Left(mem, 0, nil)
	mustClose(t, db)
	for _, dir := range []string{"data", "backup"} {
		o := testOptions(after)
		o.Dir = dir
		db := mustOpen(t, o)
		checkCopiedLog(t, db, 30)
		mustClose(t, db)
	}
}

// TestBackupFails: a backup that fails, at whichever file operation in its
// directory, leaves nothing and does no harm to the server.
func TestBackupFails(t *testing.T) {
	for n, failed := int64(0), true; failed; n += raced.Step {
		mem := vfs.NewMem()
		var count atomic.Int64
		var armed atomic.Bool
		injected := errors.New("injected")
		fsys := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !armed.Load() || !strings.HasPrefix(op.Path, "backup") || op.Kind == errorfs.OpRemoveAll {
				return nil
			}
			if count.Add(1) == n+1 {
				return injected
			}
			return nil
		}))
		o := testOptions(fsys)
		o.Fatal = func(err error) { t.Errorf("operation %d: the server would stop: %v", n, err) }
		db := mustOpen(t, o)
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
		armed.Store(true)
		err := db.Backup("backup", func() {}, func() error { return nil })
		armed.Store(false)
		failed = count.Load() > n
		_, statErr := mem.Stat("backup")
		if failed && err != nil && statErr == nil && !published(mem) {
			t.Errorf("operation %d: an unfinished backup is in place", n)
		}
		if !failed && err != nil {
			t.Errorf("without an error at %d: %v", n, err)
		}
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 2, crashtest.Record(2)) })
		mustClose(t, db)
		if !failed && n < 20 {
			t.Errorf("only %d operations", n)
		}
	}
}

// published reports whether the backup is whole: only the last fsync, of the
// directory that names it, failed.
func published(mem *vfs.MemFS) bool {
	o := testOptions(mem)
	o.Dir = "backup"
	db, err := OpenReadOnly(o)
	return err == nil && db.Close() == nil
}

// TestBackupOfDroppedRun: a backup has the files of all runs whose headers it has, also
// while only memory knows that one was dropped.
func TestBackupOfDroppedRun(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	r := writeRun(t, db, Run{Partition: 1, Table: 2, ID: 3}, [2]uint64{1, 1})
	mustFlush(t, db)
	mustChange(t, db, func(c *Changes) { c.DropRun(r) })
	if err := db.Backup("backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem)
	o.Dir = "backup"
	copied := mustOpen(t, o)
	expect(t, "runs", runsOf(t, copied, 1), "")
	mustClose(t, copied)
}

// TestBackupOfAShard: the backup of a replica has everything that was applied, and opens as a
// directory of its own: it has no entries, since they belong to the replica's Raft.
func TestBackupOfAShard(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	o.Sections = func(e *oplog.Entry) (from, to int, begins bool, err error) {
		return 0, len(e.Data), false, nil
	}
	db := mustOpen(t, o)
	for i := uint64(1); i <= 5; i++ { // a section is 15 bytes and its content
		data := append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(i), 0, 0, 0, 1}, 'a'+byte(i))
		if err := db.log.AppendEntries([]oplog.Entry{{Index: i, Term: 1, Data: data}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	db.log.SetApplied(3)
	if err := db.Backup("backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if _, err := Open(testOptions(mem)); !errors.Is(err, oplog.ErrReplicated) {
		t.Fatal("a node without a cluster has opened a replica:", err)
	}
	o = testOptions(mem)
	o.Dir = "backup"
	db = mustOpen(t, o)
	defer mustClose(t, db)
	if first, last, ok := db.log.Bounds(0); first != 1 || last != 3 || !ok {
		t.Fatal(first, last, ok)
	}
}

// TestCut: a cut is the directory that it was made of, with the same META, and replaces the
// one before. It is in no copy of the directory, and gone when that is opened again.
func TestCut(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	for round := uint64(1); round <= 2; round++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, round, crashtest.Record(round)) })
		if err := db.Cut(func() {}); err != nil {
			t.Fatal(err)
		}
		o := testOptions(mem)
		o.Dir = db.CutDir()
		cut, err := OpenReadOnly(o)
		if err != nil {
			t.Fatal(err)
		}
		if cut.Meta() != db.Meta() {
			t.Errorf("META says %+v, not %+v", cut.Meta(), db.Meta())
		}
		checkCopiedLog(t, cut, round)
		mustClose(t, cut)
	}
	meta := db.Meta()
	mustClose(t, db)
	if err := mem.MkdirAll("data/incoming/log", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Restore(mem, "data", "copy", func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{CutName, IncomingName} {
		if _, err := mem.Stat("copy/" + name); err == nil {
			t.Errorf("the copy has %s", name)
		}
	}
	db = mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	if _, err := mem.Stat(db.CutDir()); err == nil || db.Meta() != meta {
		t.Errorf("the cut is still there: %v", err)
	}
}
