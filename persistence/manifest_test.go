package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// manifestBase returns a directory whose MANIFEST has several edits, as kill -9
// leaves it, and the MANIFEST's name and size.
func manifestBase(t *testing.T) (mem *vfs.MemFS, name string, size int64) {
	t.Helper()
	live := vfs.NewCrashableMem()
	db := mustOpen(t, testOptions(live))
	for seq := uint64(1); seq <= 5; seq++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
		if err := db.pebble.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mem = crashtest.Left(live, 100, nil)
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
	mark, ok, err := disk.ReadMark(mem, "data", manifestMarkName)
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
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), file) ||
			!strings.Contains(err.Error(), "restore a backup") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for offset := int64(0); offset < size; offset += 7 {
		mem := crashtest.Left(base, 100, nil)
		if err := crashtest.Flip(mem, "data/db/"+name, offset); err != nil {
			t.Fatal(err)
		}
		refused(mem, "flip", name)
		mem = crashtest.Left(base, 100, nil)
		if err := disk.Truncate(mem, "data/db/"+name, "data/aside", offset); err != nil {
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
			mem := crashtest.Left(base, 100, nil)
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
	f, err := base.OpenReadWrite("data/db/"+name, disk.WriteCategory)
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
	verifyCrashed(t, base, oplog.Always, 5, 5)
}

// chunk builds a chunk of a MANIFEST.
func chunk(part disk.Part, payload string) []byte {
	b := make([]byte, manifestHeader, manifestHeader+len(payload))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6] = byte(part)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, maskedCRC(b[6:]))
	return b
}

func TestScanManifest(t *testing.T) {
	full, first, middle, last := chunk(disk.Full, "full"), chunk(disk.First, "fir"),
		chunk(disk.Middle, "mid"), chunk(disk.Last, "last")
	rotten := chunk(disk.Full, "rotten")
	rotten[len(rotten)-1]++
	padded := append(slices.Clone(full), make([]byte, disk.Block-len(full))...) // zero pages: lost
	n, f := int64(len(full)), int64(len(first))
	for _, c := range []struct {
		name  string
		parts [][]byte
		want  disk.Tail
	}{
		{"empty", nil, disk.Tail{Bad: -1}},
		{"clean end", [][]byte{full, full}, disk.Tail{Good: 2 * n, Bad: -1, Valid: 2 * n}},
		{"whole record", [][]byte{first, middle, last}, disk.Tail{Good: 3*f + 1, Bad: -1, Valid: 3*f + 1}},
		{"torn record", [][]byte{full, first, middle}, disk.Tail{Good: n, Bad: -1, Valid: n + 2*f}},
		{"bad in a record", [][]byte{full, first, rotten, full},
			disk.Tail{Good: n, Bad: n + f, Valid: n + f, Stray: n + f + int64(len(rotten)) + n}},
		{"a last part without a first", [][]byte{full, last, full},
			disk.Tail{Good: n, Bad: n, Valid: n, Stray: 3 * n}},
		{"a middle part without a first", [][]byte{middle, last, full}, disk.Tail{Bad: 0, Stray: f + 2*n}},
		{"a record inside another", [][]byte{full, first, full, last},
			disk.Tail{Good: n, Bad: n + f, Valid: n + f, Stray: 3*n + f}},
		{"another kind", [][]byte{full, chunk(disk.Last+1, "of a log"), full},
			disk.Tail{Good: n, Bad: n, Valid: n}},
		{"lost pages", [][]byte{padded, full}, disk.Tail{Good: n, Bad: n, Valid: n, Stray: disk.Block + n}},
	} {
		got, err := disk.Scan(bytes.NewReader(bytes.Join(c.parts, nil)), 0, parseChunk,
			func(disk.Part, int64, []byte) {})
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestMarkerOrder: when a marker's name may be on the disk, so are the names
// before it; and the new marker when the old one may be gone.
func TestMarkerOrder(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := disk.MakeDir(mem, "d"); err != nil {
		t.Fatal(err)
	}
	m := markerFS{FS: mem}
	create := func(name string) {
		f, err := m.Create("d/"+name, disk.WriteCategory)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name string) bool {
		_, err := crashtest.Left(mem, 0, nil).Stat("d/" + name)
		return err == nil
	}
	create("MANIFEST-1")
	create("marker.new")
	if !has("MANIFEST-1") || has("marker.new") {
		t.Fatal("the marker may precede what it names")
	}
	if err := m.Remove("d/marker.old"); err == nil || !has("marker.new") {
		t.Fatal("the old marker may go before the new one", err)
	}
}
