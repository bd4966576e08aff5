package persistence

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestDamagedBeforeMark: damage below the durable offset is not a lost tail.
func TestDamagedBeforeMark(t *testing.T) {
	damaged := holedDirectory(t)
	mark, ok, err := readMark(damaged, "data", logMarkName)
	if err != nil || !ok || mark.Offset == 0 {
		t.Fatal(mark, ok, err)
	}
	for _, offset := range []int64{6, 30, mark.Offset / 2, mark.Offset - 1} {
		damaged := holedDirectory(t)
		flip(t, damaged, fmt.Sprintf("data/log/%06d.log", mark.File), offset)
		if _, err := Open(testOptions(damaged)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("flip at %d: %v", offset, err)
		}
	}
	// A file that ends before the mark has lost durable bytes, too.
	damaged = holedDirectory(t)
	path := fmt.Sprintf("data/log/%06d.log", mark.File)
	if err := truncateFile(damaged, path, "data/aside", mark.Offset-1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testOptions(damaged)); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	// And so has a directory without the file.
	damaged = holedDirectory(t)
	if err := damaged.Rename(path, "data/log/000099.log"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testOptions(damaged)); !errors.Is(err, ErrCorrupt) {
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
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, recordOf(seq)) })
	}
	written := db.log.sync.current().written.Load()
	for _, offset := range []int64{6, 100, written / 3, written / 2, written - 4000, written - 1} {
		damaged := crash(mem, 100, nil)
		flip(t, damaged, "data/log/"+logFileName(db.log.current.num), offset)
		o.FS = damaged
		if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("flip at %d: %v", offset, err)
		}
	}
	mustClose(t, db)
}

// flip inverts one bit of a file.
func flip(t testing.TB, fsys vfs.FS, path string, offset int64) {
	t.Helper()
	f, err := fsys.OpenReadWrite(path, writeCategory)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
