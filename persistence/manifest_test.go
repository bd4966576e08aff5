package persistence

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// manifestBase returns a directory whose MANIFEST has several edits, as kill -9
// leaves it, and the MANIFEST's name and size.
func manifestBase(t *testing.T) (mem *vfs.MemFS, name string, size int64) {
	t.Helper()
	live := vfs.NewCrashableMem()
	db := mustOpen(t, testOptions(live))
	for seq := uint64(1); seq <= 5; seq++ {
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, recordOf(seq)) })
		if err := db.pebble.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mem = crash(live, 100, nil)
	mustClose(t, db)
	names, err := mem.List("data/db")
	if err != nil {
		t.Fatal(err)
	}
	name, num := currentManifest(names)
	info, err := mem.Stat("data/db/" + name)
	if err != nil {
		t.Fatal(err)
	}
	mark, ok, err := readMark(mem, "data", manifestMarkName)
	if err != nil || !ok || mark.File != num || mark.Offset != info.Size() {
		t.Fatal("the mark does not follow the MANIFEST:", mark, ok, err, num, info.Size())
	}
	return mem, name, info.Size()
}

// TestManifestDamage: Pebble takes damage in the MANIFEST for its end and opens
// an older database; here it is refused.
func TestManifestDamage(t *testing.T) {
	base, name, size := manifestBase(t)
	refused := func(mem *vfs.MemFS, what, file string) {
		t.Helper()
		db, err := Open(testOptions(mem))
		if err == nil {
			mustClose(t, db)
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "restore a backup") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for offset := int64(0); offset < size; offset += 7 {
		mem := crash(base, 100, nil)
		flip(t, mem, "data/db/"+name, offset)
		refused(mem, "flip", name)
		mem = crash(base, 100, nil)
		if err := truncateFile(mem, "data/db/"+name, "data/aside", offset); err != nil {
			t.Fatal(err)
		}
		refused(mem, "cut", name)
	}
	names, err := base.List("data/db")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, markerPrefix) || n == name {
			mem := crash(base, 100, nil)
			if err := mem.Remove("data/db/" + n); err != nil {
				t.Fatal(err)
			}
			refused(mem, "remove "+n, name)
		}
	}
}

// TestManifestTornTail: what a power loss leaves behind the last fsynced edit
// is no damage.
func TestManifestTornTail(t *testing.T) {
	base, name, _ := manifestBase(t)
	f, err := base.OpenReadWrite("data/db/"+name, writeCategory)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("half of an edit"), info.Size()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	verifyCrashed(t, base, Always, 5, 5)
}
