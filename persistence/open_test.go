package persistence

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

func put(t testing.TB, fsys vfs.FS, dir, name, content string) {
	t.Helper()
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile(fsys, dir, name, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

// metaOf returns META text with a valid checksum.
func metaOf(lines string) string {
	return fmt.Sprintf("%schecksum %08x\n", lines, crc32.Checksum([]byte(lines), disk.Castagnoli))
}

// TestRefusals: each reason not to open gives one plain sentence that says what
// to do, and changes nothing.
func TestRefusals(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "data/LOCK", Err: syscall.EACCES}
	readOnly := &fs.PathError{Op: "mkdir", Path: "data", Err: syscall.EROFS}
	for _, c := range []struct {
		name string
		prep func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault)
		want error
		text string
	}{
		{"in use", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			mustOpen(t, testOptions(mem))
		}, ErrInUse, "stop that process or choose another directory"},
		{"newer format", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			put(t, mem, "data", metaName, metaOf(metaMagic+"\nformat 99\nwhatever comes\n"))
		}, ErrNewerFormat, "a later release wrote it; use that release"},
		{"older than the first release", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			put(t, mem, "data", metaName, metaOf("fbfkv data directory\nformat 4\npartitions 16\nseed "+
				"8f3b0c5d1e2a4967\n"))
		}, ErrOldFormat, "it was written by a development version before 0.1 and cannot be opened; start " +
			"with an empty directory"},
		{"foreign", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			put(t, mem, "data", "thesis.tex", "")
		}, ErrNotADataDirectory, "it holds thesis.tex but no META; choose an empty or a new directory"},
		{"damaged META", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			put(t, mem, "data", metaName, "damaged")
		}, ErrCorrupt, "restore a backup"},
		{"no rights to lock", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			f.Arm(denied, crashtest.On("LOCK", errorfs.OpLock))
		}, ErrUnwritable, "check its owner, its permissions and its mount"},
		{"no rights to create", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			f.Arm(readOnly, crashtest.On("data", errorfs.OpMkdirAll))
		}, ErrUnwritable, "check its owner, its permissions and its mount"},
		{"no rights to write", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			f.Arm(denied, crashtest.On(metaName, errorfs.OpCreate))
		}, ErrUnwritable, "check its owner, its permissions and its mount"},
		{"damaged mark", func(t *testing.T, mem *vfs.MemFS, f *crashtest.Fault) {
			mustClose(t, mustOpen(t, testOptions(mem)))
			put(t, mem, "data", oplog.MarkName, strings.Repeat("x", disk.MarkFileSize))
		}, ErrCorrupt, "LOGSYNC has no valid slot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem, f := vfs.NewMem(), &crashtest.Fault{}
			c.prep(t, mem, f)
			before := mem.String()
			_, err := Open(testOptions(errorfs.Wrap(mem, f)))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
				!strings.HasPrefix(err.Error(), "data directory data: ") ||
				strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
			if c.name == "foreign" {
				expect(t, "directory", mem.String(), before)
			}
		})
	}
}

// TestReadOnlyIsNoDataDirectory: where nothing may be created, the advice is not to choose an empty
// directory.
func TestReadOnlyIsNoDataDirectory(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // empty, and with a file of another program
		_, err := OpenReadOnly(testOptions(mem))
		if !errors.Is(err, ErrNotADataDirectory) ||
			!strings.Contains(err.Error(), "; name a data directory") {
			t.Error(err)
		}
		put(t, mem, "data", "thesis.tex", "")
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Dir: "d", Partitions: -1}, {Dir: "d", Partitions: 3}, {Dir: "d", Partitions: 2048},
		{Dir: "d", Fsync: 3},
	} {
		o.FS = vfs.NewMem()
		if _, err := Open(o); !errors.Is(err, ErrBadOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := oplog.ParseFsync("sometimes"); !errors.Is(err, ErrBadOptions) {
		t.Error(err)
	}
	for f := oplog.Always; f <= oplog.No; f++ {
		if g, err := oplog.ParseFsync(f.String()); err != nil || g != f {
			t.Error(f, g, err)
		}
	}
}

func TestAfterClose(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	b := db.log.NewBatch()
	b.AppendLog(0, 1, nil)
	mustClose(t, db)
	_, _, row := db.Row(nil, RowKey{})
	_, run := db.NewRun(Run{})
	_, snapshot := db.CreateSnapshot(0, 1)
	read := db.log.Read(0, 0, nil)
	for what, err := range map[string]error{
		"Apply": b.Apply(), "Sync": db.Sync(), "SetFsync": db.log.SetFsync(oplog.No), "Row": row,
		"NewRun":         run,
		"CreateSnapshot": snapshot, "Read": read,
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMetaDamage: META's checksum and canonical form leave no byte unwatched.
func TestMetaDamage(t *testing.T) {
	m := Meta{Format: format, Partitions: 1024,
		Seed: [16]byte{0xfe, 15: 0x10}, ID: [16]byte{1, 15: 255}, Incarnation: 7}
	b := m.encode()
	if got, err := decodeMeta(b); err != nil || got != m {
		t.Fatal(got, err)
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if _, err := decodeMeta(b); !errors.Is(err, ErrCorrupt) {
				t.Fatal("flip", i, err)
			}
			b[i] ^= 1 << bit
		}
		if _, err := decodeMeta(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatal("cut", i, err)
		}
	}
	for _, lines := range []string{
		"", "something else\nformat 1\n", metaMagic + "\n", metaMagic + "\nformat 0\npartitions 1\nseed 0\n",
		metaMagic + "\nformat 1\npartitions 3\nseed 0000000000000000\n",
		metaMagic + "\nformat 1\npartitions 4\nseed 0\n", // not canonical
		metaMagic + "\nformat 1\npartitions 4\n", metaMagic + "\nformat x\n",
		metaMagic + "\nformat 1\npartitions 4\nseed 0000000000000000\nmore 1\n",
		metaMagic + "\nformat 1\npartitions 4\nseed 0000000000000000\nid 0\nincarnation 0000000000000000\n",
		metaMagic + "\nformat 1\npartitions 4\nseed 0000000000000000\nid " +
			"0000000000000000000000000000000G\nincarnation 0000000000000000\n",
		metaMagic + "\nformat 1\npartitions 4\nseed 0000000000000000\nid " +
			"000000000000000000000000000000000\nincarnation 0000000000000000\n",
		metaMagic + "\nformat 1\npartitions 4\nseed 0000000000000000\nid " +
			"00000000000000000000000000000000\nincarnation 0\n",
	} {
		if _, err := decodeMeta([]byte(metaOf(lines))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", lines, err)
		}
	}
}

// TestSeed: a new directory takes the given seed, or draws one of its own. Opening it with another
// seed is refused, and changes nothing.
func TestSeed(t *testing.T) {
	mem, other := vfs.NewMem(), vfs.NewMem()
	given := func(seed byte) Options {
		o := testOptions(mem)
		o.Seed[0] = seed
		return o
	}
	for _, seed := range []byte{7, 7, 0} {
		db := mustOpen(t, given(seed))
		if got := db.Meta().Seed; got != [16]byte{7} {
			t.Errorf("given %d: the seed is %d, not 7", seed, got)
		}
		mustClose(t, db)
	}
	if db, err := Open(given(8)); !errors.Is(err, ErrOtherSeed) ||
		!strings.Contains(err.Error(), "another cluster") {
		t.Errorf("another seed: %v, %v", db, err)
	}
	db, drawn := mustOpen(t, given(7)), mustOpen(t, testOptions(other))
	if seed := drawn.Meta().Seed; seed == [16]byte{7} || [12]byte(seed[4:]) == [12]byte{} {
		t.Errorf("a seed of %d was drawn", seed)
	}
	mustClose(t, db)
	mustClose(t, drawn)
}

// TestInterruptedCreation: leftovers of an interrupted creation are no obstacle.
func TestInterruptedCreation(t *testing.T) {
	mem := vfs.NewMem()
	put(t, mem, "data", lockName, "")
	put(t, mem, "data", metaName+disk.TmpSuffix, "half")
	if err := mem.MkdirAll("data/lost+found", 0o755); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, testOptions(mem)))
}

// TestLeftovers: what a crash left half written is removed at Open.
func TestLeftovers(t *testing.T) {
	mem := vfs.NewMem()
	mustClose(t, mustOpen(t, testOptions(mem)))
	put(t, mem, "data/snapshots", "p0000-00000000000000000001.fbf.tmp", "half")
	put(t, mem, "data/snapshots", "notes.txt", "somebody's")
	put(t, mem, "data/tmp", "run-1.sst", "half")
	db := mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	expect(t, "snapshots", snapshotNames(t, db), "notes.txt")
	if names, err := mem.List("data/tmp"); err != nil || len(names) != 0 {
		t.Fatal(names, err)
	}
}
