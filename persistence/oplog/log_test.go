package oplog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestRecordsAcrossBlocks frames records of many sizes at every kind of place in
// a block and finds each again at the position that the index gives it.
func TestRecordsAcrossBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	o := testOptions(vfs.NewMem())
	o.FileSize = 1 << 30
	db := mustOpen(t, o)
	sizes := []int{0, 1, disk.Block - chunkHeader - sectionHeader, disk.Block - 2*chunkHeader, disk.Block,
		3*disk.Block + 7}
	for rest := 0; rest <= 2*(chunkHeader+sectionHeader); rest++ { // what a record leaves of its block
		sizes = append(sizes, disk.Block-int(db.pos%disk.Block)-rest, rng.IntN(100))
	}
	want := make(map[uint64][]byte)
	for i, size := range sizes {
		// The place decides, not the list: fill up to the block's last bytes.
		if i > 6 && i%2 == 1 {
			size = disk.Block - int(db.pos%disk.Block) - chunkHeader - sectionHeader - (i-7)/2
		}
		record := crashtest.Noise[rng.IntN(1<<16):][:max(size, 0)]
		want[uint64(i+1)] = record
		mustCommit(t, db, func(b *Batch) {
			b.AppendLog(1, uint64(i+1), record)
			b.AppendLog(2, uint64(i+1), record[:len(record)/2])
		})
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	for _, p := range []uint16{1, 2} {
		n := 0
		err := db.Read(p, 0, func(seq uint64, record []byte) error {
			n++
			w := want[seq]
			if p == 2 {
				w = w[:len(w)/2]
			}
			if !bytes.Equal(record, w) {
				return fmt.Errorf("partition %d, record %d of %d bytes differs", p, seq, len(w))
			}
			return nil
		})
		if err != nil || n != len(want) {
			t.Fatal(n, err)
		}
	}
}

// logNames lists the names in the log's directory.
func logNames(t *testing.T, fsys vfs.FS) string {
	t.Helper()
	names, err := fsys.List("data/log")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

// fillLogs commits records of two partitions until the log has n files.
func fillLogs(t *testing.T, db *Log, seq uint64, n int) uint64 {
	t.Helper()
	for {
		if files, _ := db.Sizes(); int(files) >= n {
			return seq
		}
		seq++
		mustCommit(t, db, func(b *Batch) {
			b.AppendLog(0, seq, crashtest.Record(seq))
			b.AppendLog(1, seq, nil)
		})
	}
}

// TestTrim: a file goes when no partition needs it any more, and not before,
// and is used again for the next one.
func TestTrim(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.FileSize = 50 << 10
	db := mustOpen(t, o)
	last := fillLogs(t, db, 0, 4)
	edge := db.closed[0].last[0] // the first file's last record
	for _, below := range []uint64{edge, edge + 1} {
		if err := db.Trim(0, below); err != nil {
			t.Fatal(err)
		}
		if files, _ := db.Sizes(); files != 4 {
			t.Fatalf("%d files: one is gone that partition 1 needs", files)
		}
	}
	if !db.KeepsOldest(1, 0) || db.KeepsOldest(0, 0) || db.KeepsOldest(1, 1<<40) {
		t.Fatal("it is partition 1 that keeps the first file")
	}
	if err := db.Trim(1, edge); err != nil {
		t.Fatal(err)
	}
	if files, _ := db.Sizes(); files != 4 {
		t.Fatal("the last record of a file is not obsolete yet")
	}
	if err := db.Trim(1, edge+1); err != nil {
		t.Fatal(err)
	}
	if names := logNames(t, mem); !strings.Contains(names, "000001.recycle") ||
		strings.Contains(names, "000001.log") {
		t.Fatal(names)
	}
	last = fillLogs(t, db, last, 6)
	if names := logNames(t, mem); strings.Contains(names, "000001.recycle") {
		t.Fatal("not used again:", names)
	}
	o.FS = crashtest.Left(mem, 0, nil)
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	if first, end, ok := db.Bounds(0); first != edge+1 || end != last || !ok {
		t.Fatal(first, end, ok)
	}
}

// TestHold: a file stays while a hold needs it, until that is acknowledged or released,
// another hold takes its name, or it is more than the limit.
func TestHold(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.FileSize = 50 << 10
	db := mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	last := uint64(0)
	files := func(end func(edge uint64)) (before, after int64) {
		t.Helper()
		last = fillLogs(t, db, last, 4)
		edge := db.closed[0].last[0]
		trim := func() int64 {
			for p := range uint16(2) {
				if err := db.Trim(p, last+1); err != nil {
					t.Fatal(err)
				}
			}
			n, _ := db.Sizes()
			return n
		}
		before = trim()
		end(edge)
		return before, trim()
	}
	h := db.Hold("a", 1<<30)
	if before, after := files(func(edge uint64) {
		for p := range uint16(2) {
			h.Acknowledge(p, edge+1)
		}
	}); before != 4 || after != 3 || h.Lost() {
		t.Errorf("acknowledged: %d files, then %d", before, after)
	}
	if before, after := files(func(uint64) { h.Release() }); before != 4 || after != 1 || !h.Lost() {
		t.Errorf("released: %d files, then %d", before, after)
	}
	h = db.Hold("a", 1<<30)
	if before, after := files(func(edge uint64) { db.Hold("a", 0) }); before != 4 || after != 1 || !h.Lost() {
		t.Errorf("replaced: %d files, then %d", before, after)
	}
	h = db.Hold("b", 60<<10)
	if before, _ := files(func(uint64) {}); before != 1 || !h.Lost() {
		t.Errorf("%d files are more than the limit", before)
	}
}

// TestRecycledFileIsEmpty: what a recycled file held under its old number is
// nothing under the new one, wherever the new content ends.
func TestRecycledFileIsEmpty(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.FileSize = 50 << 10
	db := mustOpen(t, o)
	last := fillLogs(t, db, 0, 3)
	for p := range uint16(2) {
		if err := db.Trim(p, last); err != nil {
			t.Fatal(err)
		}
	}
	for files, _ := db.Sizes(); int(files) < 4; files, _ = db.Sizes() {
		last++
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, last, crashtest.Record(last)) })
		reopened := testOptions(crashtest.Left(mem, 100, nil))
		again := mustOpen(t, reopened)
		if _, end, ok := again.Bounds(0); end != last || !ok {
			t.Fatal(end, last, ok)
		}
		expect(t, "recovery", again.Recovery(), Recovery{})
		mustClose(t, again)
	}
	mustClose(t, db)
}

// TestFileOfTwoNames: a crash may leave a file under both names of the rename that puts it to use
// again; nothing is written under either of them.
func TestFileOfTwoNames(t *testing.T) {
	o := testOptions(vfs.Default)
	o.Dir, o.MarkDir = t.TempDir(), t.TempDir()
	o.FileSize = 50 << 10
	db := mustOpen(t, o)
	last := fillLogs(t, db, 0, 4)
	mustClose(t, db)
	path := func(name string) string { return filepath.Join(o.Dir, name) }
	num := db.current.num + 1
	if err := os.Remove(path(fileName(num))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path(fileName(1)))
	if err == nil {
		err = os.WriteFile(path("000001.recycle"), old, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	next, err := db.create(num, "000001.recycle")
	if err := errors.Join(err, next.file.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"000001.recycle", "000007.recycle"} {
		if err := os.Link(path(fileName(num)), path(name)); err != nil {
			t.Fatal(err)
		}
	}
	db = mustOpen(t, o)
	last = fillLogs(t, db, last, 10)
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	if first, end, ok := db.Bounds(0); first != 1 || end != last || !ok {
		t.Fatal(first, end, last, ok)
	}
}

// TestMissingLogFile: a file may be missing neither in the middle nor at the end.
func TestMissingLogFile(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	o.FileSize = 50 << 10
	db := mustOpen(t, o)
	fillLogs(t, db, 0, 4)
	mustClose(t, db)
	for _, num := range []uint64{2, 3, 4} {
		name := "data/log/" + fileName(num)
		if err := mem.Rename(name, "aside"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(o); !errors.Is(err, disk.ErrCorrupt) ||
			!strings.Contains(err.Error(), fileName(num)) {
			t.Fatal(num, err)
		}
		if err := mem.Rename("aside", name); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, mustOpen(t, o))
}

// FuzzSections: what a record holds is found, or refused, without a panic.
func FuzzSections(f *testing.F) {
	f.Add(AppendSection(AppendSection(nil, 1, 2, []byte("ops")), 3, 4, nil))
	f.Add([]byte{sectionKind})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var again []byte
		err := parseSections(payload, func(s section) error {
			again = AppendSection(again, s.partition, s.seq, s.content)
			if !bytes.Equal(payload[s.at:s.at+len(s.content)], s.content) {
				t.Fatal("a section is not where it is said to be")
			}
			return nil
		})
		if err == nil && !bytes.Equal(again, payload) {
			t.Fatal("read and written again it is another")
		}
	})
}

// TestReadAgain reads a log that has been written to since Open, while others write and
// trim it.
func TestReadAgain(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.FileSize = 8 << 10
	l := mustOpen(t, o)
	defer func() { mustClose(t, l) }()
	l.EndRecovery()
	want, content := "", strings.Repeat("x", 100)
	write := func(seq uint64) {
		mustCommit(t, l, func(b *Batch) {
			b.AppendLog(1, seq, fmt.Appendf(nil, "%d", seq))
			b.AppendLog(2, seq, []byte(content))
		})
		want += fmt.Sprintf("%d=%d ", seq, seq)
	}
	for seq := uint64(1); seq <= 500; seq++ {
		write(seq)
	}
	expect(t, "before", logOf(t, l, 1, 1), "")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for seq := uint64(501); ; seq++ {
			select {
			case <-stop:
				return
			default:
				mustCommit(t, l, func(b *Batch) { b.AppendLog(3, seq, []byte(content)) })
			}
		}
	})
	if err := l.BeginRecovery(1); err != nil {
		t.Fatal(err)
	}
	for p := range uint16(4) {
		if err := l.Trim(p, 501); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "while others write", logOf(t, l, 1, 1), want)
	expect(t, "another partition", logOf(t, l, 2, 1), "")
	first, last, ok := l.Bounds(1)
	expect(t, "bounds", fmt.Sprint(first, last, ok), "1 500 true")
	l.EndRecovery()
	close(stop)
	writer.Wait()
	if err := l.Trim(1, 501); err != nil {
		t.Fatal(err)
	}
	if err := l.BeginRecovery(1); err != nil {
		t.Fatal(err)
	}
	if got := logOf(t, l, 1, 1); got == want {
		t.Fatal("what was given up is still there")
	}
	l.EndRecovery()
}

// TestHoldNewest: the newest files stay for a reader, up to a limit, until it is too far behind.
func TestHoldNewest(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.FileSize = 50 << 10
	l := mustOpen(t, o)
	defer func() { mustClose(t, l) }()
	last := uint64(0)
	grow := func(to int) (files int64) {
		t.Helper()
		for files, _ = l.Sizes(); files < int64(to); files, _ = l.Sizes() {
			last++
			mustCommit(t, l, func(b *Batch) { b.AppendLog(0, last, make([]byte, 1000)) })
		}
		if err := l.Trim(0, last+1); err != nil {
			t.Fatal(err)
		}
		files, _ = l.Sizes()
		return files
	}
	const limit = 350 << 10
	h := l.HoldNewest("a", limit)
	expect(t, "files within the limit", grow(4), 4)
	at, err := l.BookmarkAt(map[uint16]uint64{0: 1}), error(nil)
	for range 2 {
		before := h.Lag()
		var read uint64
		at, err = l.Follow(at, func(record []byte) error {
			read += uint64(len(record))
			return nil
		})
		if err != nil || before < read || before > read*11/10 {
			t.Errorf("%d bytes of records, %d of lag (%v)", read, before, err)
		}
		if h.ReadTo(at); h.Lag() != 0 {
			t.Errorf("a reader that has all lags by %d bytes", h.Lag())
		}
		if files := grow(6); files < 3 || h.Kept() > limit || h.Lost() {
			t.Errorf("%d files are kept for a reader that has read the others, %d bytes", files, h.Kept())
		}
	}
	if files := grow(12); files != 1 || !h.Lost() {
		t.Errorf("%d files are kept for a reader that has not read those before", files)
	}
}
