package oplog

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// readingFS counts the bytes that are read.
type readingFS struct {
	vfs.FS
	read atomic.Int64
}

type readingFile struct {
	vfs.File
	fs *readingFS
}

func (f *readingFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, o...)
	return readingFile{file, f}, err
}

func (f readingFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	f.fs.read.Add(int64(n))
	return n, err
}

// followed is a log whose records are read on and on.
type followed struct {
	t    testing.TB
	l    *Log
	at   Bookmark
	want []string // records
	seen int
}

func newFollowed(t testing.TB, fsys vfs.FS) *followed {
	o := testOptions(fsys)
	o.FileSize = 100 << 10
	f := &followed{t: t, l: mustOpen(t, o)}
	t.Cleanup(func() { mustClose(t, f.l) })
	f.at = f.l.BookmarkAt(nil)
	return f
}

// commit adds a record with sections of two partitions.
func (f *followed) commit(size int) {
	n := uint64(len(f.want) + 1)
	text := fmt.Sprintf("%d.%s", n, strings.Repeat("x", size))
	mustCommit(f.t, f.l, func(b *Batch) {
		b.AppendLog(uint16(n%3), n, []byte(text))
		b.AppendLog(3, n, nil)
	})
	f.want = append(f.want, text)
}

var errHalt = errors.New("halt")

// read reads the next most records, and expects these, or all that there are.
func (f *followed) read(most int) {
	f.t.Helper()
	next, err := f.l.Follow(f.at, func(record []byte) error {
		if most == 0 {
			return errHalt
		}
		most--
		return Sections(record, func(partition uint16, seq uint64, content []byte) error {
			if partition == 3 {
				return nil
			}
			if f.seen >= len(f.want) || string(content) != f.want[f.seen] || seq != uint64(f.seen+1) {
				f.t.Fatalf("section %d of %d bytes comes after %d", seq, len(content), f.seen)
			}
			f.seen++
			return nil
		})
	})
	if err != nil && !errors.Is(err, errHalt) || err == nil && f.seen != len(f.want) {
		f.t.Fatalf("after %d of %d: %v", f.seen, len(f.want), err)
	}
	f.at = next
}

// TestFollow: whoever reads on behind bookmarks reads each record once, in order, whatever their
// sizes, over many files, and nothing that was read before.
func TestFollow(t *testing.T) {
	fsys := &readingFS{FS: vfs.NewMem()}
	f := newFollowed(t, fsys)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		for range rng.IntN(5) {
			size := rng.IntN(200)
			if rng.IntN(10) == 0 {
				size = rng.IntN(3 * disk.Block)
			}
			f.commit(size)
		}
		f.read(rng.IntN(6))
	}
	f.read(math.MaxInt)
	if files, _ := f.l.Sizes(); files < 5 {
		t.Fatalf("%d files", files)
	}
	before := fsys.read.Load()
	for range 20 {
		f.commit(10)
		f.read(math.MaxInt)
	}
	if read := fsys.read.Load() - before; read > 20*(2*disk.Block+100) {
		t.Errorf("%d bytes are read for 20 records at the end", read)
	}
	f.at, f.seen = f.l.BookmarkAt(map[uint16]uint64{0: 1}), 0
	before = fsys.read.Load()
	f.read(1)
	if read := fsys.read.Load() - before; read > 2*disk.Block {
		t.Errorf("%d bytes are read for the first record", read)
	}
}

// TestFollowRecycled: a bookmark in a file that was given up is known for it, also when that file
// is being written again; one that is newer is not.
func TestFollowRecycled(t *testing.T) {
	f := newFollowed(t, vfs.NewMem())
	old := f.at
	for range 90 {
		f.commit(10 << 10)
		if len(f.want) == 5 {
			f.read(2)
			old = f.at
			f.read(math.MaxInt)
		}
	}
	hold := f.l.Hold("reader", math.MaxUint64)
	hold.Acknowledge(EntryPartition, math.MaxUint64)
	trim := func(below uint64) {
		for p := range uint16(4) {
			if err := f.l.Trim(p, below); err != nil {
				t.Fatal(err)
			}
		}
	}
	trim(60)
	f.read(math.MaxInt) // all is held
	for p := range uint16(4) {
		hold.Acknowledge(p, 60)
	}
	trim(61)
	gone := func() {
		t.Helper()
		if _, err := f.l.Follow(old, func([]byte) error { return errHalt }); !errors.Is(err, ErrBookmark) {
			t.Fatalf("the file is gone: %v", err)
		}
	}
	gone()
	for range 60 { // recycled files are written again
		f.commit(10 << 10)
		f.read(math.MaxInt)
		gone()
	}
	f.at, f.seen = f.l.BookmarkAt(map[uint16]uint64{0: 66, 1: 142}), 0
	if n := f.l.current.num - f.at.file; n < 3 {
		t.Fatalf("it begins %d files before the end", n)
	}
	_, err := f.l.Follow(f.at, func(record []byte) error {
		return Sections(record, func(partition uint16, seq uint64, _ []byte) error {
			if partition == 0 {
				f.seen = int(seq)
				return errHalt
			}
			return nil
		})
	})
	if !errors.Is(err, errHalt) || f.seen > 66 {
		t.Errorf("it begins with sequence %d, and then %v", f.seen, err)
	}
	if at := f.l.BookmarkAt(map[uint16]uint64{1: 1 << 40}); at.file != f.l.current.num {
		t.Errorf("file %d has what is to come", at.file)
	}
}

// TestFollowForged: a bookmark counts for the file that it was made in, and for no other one of its number.
func TestFollowForged(t *testing.T) {
	f := newFollowed(t, vfs.NewMem())
	f.commit(10)
	f.read(1)
	f.at.tag++
	if _, err := f.l.Follow(f.at, func([]byte) error { return nil }); !errors.Is(err, ErrBookmark) {
		t.Errorf("another tag: %v", err)
	}
}

// TestFollowDamage: damage of written bytes is an error before the newest file's end.
func TestFollowDamage(t *testing.T) {
	fsys := vfs.NewMem()
	f := newFollowed(t, fsys)
	for range 20 {
		f.commit(10 << 10)
	}
	mustFlip(t, fsys, "data/log/"+fileName(1), 70<<10)
	n := 0
	at, err := f.l.Follow(f.at, func([]byte) error { n++; return nil })
	if !errors.Is(err, disk.ErrCorrupt) || n == 0 || n > 7 || at.at == 0 {
		t.Errorf("%d records, then %v", n, err)
	}
}
