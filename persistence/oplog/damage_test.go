package oplog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestDamagedBeforeMark: damage below the durable offset is not a lost tail.
func TestDamagedBeforeMark(t *testing.T) {
	damaged := holedDirectory(t)
	mark, ok, err := disk.ReadMark(damaged, "data", MarkName)
	if err != nil || !ok || mark.Offset == 0 {
		t.Fatal(mark, ok, err)
	}
	for _, offset := range []int64{6, 30, mark.Offset / 2, mark.Offset - 1} {
		damaged := holedDirectory(t)
		mustFlip(t, damaged, fmt.Sprintf("data/log/%06d.log", mark.File), offset)
		if _, err := Open(testOptions(damaged)); !errors.Is(err, disk.ErrCorrupt) {
			t.Fatalf("flip at %d: %v", offset, err)
		}
	}
	// A file that ends before the mark has also lost durable bytes.
	damaged = holedDirectory(t)
	path := fmt.Sprintf("data/log/%06d.log", mark.File)
	if err := disk.Truncate(damaged, path, "data/aside", mark.Offset-1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testOptions(damaged)); !errors.Is(err, disk.ErrCorrupt) {
		t.Fatal(err)
	}
	// And so has a directory without the file.
	damaged = holedDirectory(t)
	if err := damaged.Rename(path, "data/log/000099.log"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testOptions(damaged)); !errors.Is(err, disk.ErrCorrupt) {
		t.Fatal(err)
	}
}

// TestDamagedUnderAlways: one flipped bit in a synced log is refused, down to
// the last commit, after kill -9.
func TestDamagedUnderAlways(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	db := mustOpen(t, o)
	for seq := uint64(1); seq <= 20; seq++ {
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
	}
	written := db.sync.current().written.Load()
	for _, offset := range []int64{6, 100, written / 3, written / 2, written - 4000, written - 1} {
		damaged := crashtest.Left(mem, 100, nil)
		mustFlip(t, damaged, "data/log/"+fileName(db.current.num), offset)
		o.FS = damaged
		if _, err := Open(o); !errors.Is(err, disk.ErrCorrupt) {
			t.Fatalf("flip at %d: %v", offset, err)
		}
	}
	mustClose(t, db)
}

// TestDamageAheadOfTheMark: LOGSYNC is not fsynced with each commit, and may lag behind
// after a power loss. Bytes that a later record calls durable may not be damaged either.
func TestDamageAheadOfTheMark(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	db := mustOpen(t, o)
	defer mustClose(t, db)
	var mark []byte
	for seq := uint64(1); seq <= 20; seq++ {
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
		if seq == 1 {
			var err error
			if mark, err = disk.ReadFile(mem, "data/"+MarkName, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	current := db.sync.current()
	for _, part := range []int64{3, 2} {
		lost := crashtest.Left(mem, 100, nil)
		if err := disk.WriteFile(lost, "data", MarkName, mark); err != nil {
			t.Fatal(err)
		}
		o.FS = lost
		again, err := Open(o)
		if err != nil {
			t.Fatal("a mark that lags behind is refused:", err)
		}
		mustClose(t, again)
		lost = crashtest.Left(mem, 100, nil)
		if err := disk.WriteFile(lost, "data", MarkName, mark); err != nil {
			t.Fatal(err)
		}
		mustFlip(t, lost, "data/log/"+fileName(current.num), current.written.Load()/part)
		o.FS = lost
		if _, err := Open(o); !errors.Is(err, disk.ErrCorrupt) {
			t.Errorf("damage at a %d. of the log: %v", part, err)
		}
	}
}
