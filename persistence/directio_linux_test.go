package persistence

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// inPageCache reports whether the page cache has the page of a file at an offset
// (mincore(2), which does not bring it there).
func inPageCache(t *testing.T, path string, off int64) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := int64(os.Getpagesize())
	b, err := unix.Mmap(int(f.Fd()), off/page*page, 1, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	var resident byte
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), 1,
		uintptr(unsafe.Pointer(&resident)))
	if errno != 0 {
		t.Fatal(errno)
	}
	return resident&1 != 0
}

// needDirect skips where a file in dir cannot pass by the page cache.
func needDirect(t *testing.T, dir string) {
	t.Helper()
	f, err := vfs.Default.Create(vfs.Default.PathJoin(dir, "probe"), disk.WriteCategory)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !setDirect(f, true) {
		t.Skip("no O_DIRECT on this file system")
	}
	if direct, err := writeDirect(f, takeBuffer(new(sync.Pool), directPiece)[:directAlign]); !direct ||
		err != nil {
		t.Skipf("no direct writes of %d bytes on this file system: %v", directAlign, err)
	}
}

// evenly returns n pairs whose hashes are spread as hashes are.
func evenly(n int) (pairs [][2]uint64) {
	for i := range n {
		pairs = append(pairs, [2]uint64{uint64(i) * (1 << 63 / uint64(n) * 2), uint64(i + 1)})
	}
	return pairs
}

// openDirect opens a data directory on a file system with direct I/O.
func openDirect(t *testing.T, o Options) *DB {
	t.Helper()
	dir := t.TempDir()
	needDirect(t, dir)
	o.Dir, o.Fsync = dir+"/data", oplog.Everysec
	db := mustOpen(t, o)
	t.Cleanup(func() { mustClose(t, db) })
	return db
}

// writeExpected writes a run of which the writer is told how large it will be.
func writeExpected(t *testing.T, db *DB, pairs [][2]uint64) Run {
	t.Helper()
	n := uint64(len(pairs))
	return writeRun(t, db, Run{Partition: 1, Table: 1, ID: 1, Count: n, Bytes: 7 * n}, pairs...)
}

// mustHold goes through a run that writeRun wrote.
func mustHold(t *testing.T, db *DB, r Run, pairs [][2]uint64) {
	t.Helper()
	i := 0
	err := db.ScanRun(r, func(hash, seq uint64, value []byte) error {
		if p := pairs[i]; hash != p[0] || seq != p[1] || string(value) != fmt.Sprintf("v%d", seq) {
			return fmt.Errorf("entry %d: (%x, %d) %q", i, hash, seq, value)
		}
		i++
		return nil
	})
	if err != nil || i != len(pairs) {
		t.Errorf("%d entries, %v", i, err)
	}
}

// TestDirectRun: a large run passes by the page cache when it is written and when
// it is gone through, a small one does not; both hold what was written.
func TestDirectRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		records int
		direct  bool
	}{
		{"large", 60_000, true}, // more than one write, and than one read
		{"small", 5000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := openDirect(t, Options{})
			pairs := evenly(c.records)
			r := writeExpected(t, db, pairs)
			path := db.path(runName, runFileName(r))
			if got := !inPageCache(t, path, 0); got != c.direct {
				t.Errorf("written past the page cache: %v, not %v", got, c.direct)
			}
			mustHold(t, db, r, pairs)
			if got := !inPageCache(t, path, 0); got != c.direct {
				t.Errorf("read past the page cache: %v, not %v", got, c.direct)
			}
			for i := 0; i < len(pairs); i += 97 {
				if got, want := lookUp(t, db, r, pairs[i][0]), fmt.Sprintf("%d=v%d ", i+1, i+1); got != want {
					t.Fatalf("look-up %d: %q", i, got)
				}
			}
		})
	}
}

// mustHoldSnapshot reads the only snapshot of partition 0.
func mustHoldSnapshot(t *testing.T, db *DB, content []byte) {
	t.Helper()
	list, err := db.Snapshots(0)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if got, err := readSnapshot(db, list[0]); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes of %d, %v", len(got), len(content), err)
	}
}

// TestDirectSnapshot: a large snapshot passes by the page cache when it is written,
// all but its last page, a small one does not; all hold what was written.
func TestDirectSnapshot(t *testing.T) {
	for _, c := range []struct {
		name   string
		bytes  int
		direct bool
	}{
		{"large", 1 << 20, true}, // more than one write
		{"one piece", minDirect + 1, true},
		{"small", minDirect / 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := openDirect(t, Options{})
			content := randomBytes(c.bytes)
			writeSnapshot(t, db, 0, 1, content)
			path := db.path(snapshotName, snapshotFile(0, 1))
			for off := int64(0); off < int64(alignDown(uint64(c.bytes))); off += directAlign {
				if got := !inPageCache(t, path, off); got != c.direct {
					t.Fatalf("written past the page cache at %d: %v, not %v", off, got, c.direct)
				}
			}
			mustHoldSnapshot(t, db, content)
		})
	}
}

// refusingFS refuses direct writes and reads though its files take O_DIRECT, as
// file systems do that want larger units.
type refusingFS struct {
	vfs.FS
	refused *int
}

type refusingFile struct {
	vfs.File
	refused *int
}

func (fs refusingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return refusingFile{f, fs.refused}, err
}

func (fs refusingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return refusingFile{f, fs.refused}, nil
}

func (f refusingFile) refuses() bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_DIRECT == 0 {
		return false
	}
	*f.refused++
	return true
}

func (f refusingFile) Write(b []byte) (int, error) {
	if f.refuses() {
		return 0, &os.PathError{Op: "write", Err: syscall.EINVAL}
	}
	return f.File.Write(b)
}

func (f refusingFile) ReadAt(b []byte, off int64) (int, error) {
	if f.refuses() {
		return 0, &os.PathError{Op: "read", Err: syscall.EINVAL}
	}
	return f.File.ReadAt(b, off)
}

// TestDirectRefused: a file system that takes O_DIRECT and then refuses is used
// through the page cache.
func TestDirectRefused(t *testing.T) {
	refused := 0
	db := openDirect(t, Options{FS: refusingFS{vfs.Default, &refused}})
	pairs := evenly(60_000)
	r := writeExpected(t, db, pairs)
	if refused != 1 {
		t.Errorf("%d direct writes were refused, not 1", refused)
	}
	mustHold(t, db, r, pairs)
	if refused != 2 {
		t.Errorf("%d direct reads were refused, not 1", refused-1)
	}
	content := randomBytes(1 << 20)
	writeSnapshot(t, db, 0, 1, content)
	if refused != 3 {
		t.Errorf("%d direct writes of a snapshot were refused, not 1", refused-2)
	}
	mustHoldSnapshot(t, db, content)
}

// TestDirectBuffers: direct reads and writes need buffers that begin at a page.
func TestDirectBuffers(t *testing.T) {
	var rs runFiles
	var pool sync.Pool
	for range 20 {
		for name, b := range map[string][]byte{"write": takeBuffer(&pool, directPiece),
			"read": rs.readBuffer(), "grown": grow(nil, 3<<20+1)} {
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); at%directAlign != 0 {
				t.Fatalf("a %s buffer of %d bytes begins at %x", name, cap(b), at)
			}
		}
	}
}
