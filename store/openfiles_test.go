package store

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
)

// countingFS counts the files and directories that are open, and has no descriptor
// for more than most.
type countingFS struct {
	vfs.FS
	open, peak *atomic.Int64
	most       int64
}

type countedFile struct {
	vfs.File
	open *atomic.Int64
}

func (f countedFile) Close() error {
	f.open.Add(-1)
	return f.File.Close()
}

func (c countingFS) count(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return f, err
	}
	n := c.open.Add(1)
	if n > c.most {
		c.open.Add(-1)
		_ = f.Close() // it was only opened
		return nil, syscall.EMFILE
	}
	for p := c.peak.Load(); n > p && !c.peak.CompareAndSwap(p, n); p = c.peak.Load() {
	}
	return countedFile{f, c.open}, nil
}

func (c countingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return c.count(c.FS.Open(name, opts...))
}

func (c countingFS) OpenDir(name string) (vfs.File, error) { return c.count(c.FS.OpenDir(name)) }

func (c countingFS) OpenReadWrite(name string, w vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File,
	error) {
	return c.count(c.FS.OpenReadWrite(name, w, opts...))
}

func (c countingFS) Create(name string, w vfs.DiskWriteCategory) (vfs.File, error) {
	return c.count(c.FS.Create(name, w))
}

func (c countingFS) ReuseForWrite(from, to string, w vfs.DiskWriteCategory) (vfs.File, error) {
	return c.count(c.FS.ReuseForWrite(from, to, w))
}

// TestFewOpenFiles: a store that may have few files open works on with many more runs
// than that: batches, duplicates found in runs, checkpoints, merges and SAVE, and again
// after a start.
func TestFewOpenFiles(t *testing.T) {
	const tables, rounds, openFiles = 40, 30, persistence.MinOpenFiles
	fs := countingFS{FS: vfs.NewMem(), open: new(atomic.Int64), peak: new(atomic.Int64), most: openFiles}
	change := func(o *Options) {
		o.FS, o.OpenFiles = fs, openFiles
		o.Partitions, o.RecordMemory = 16, 1
		o.HotCounters, o.Fsync = 256, No
	}
	s := testStore(t, change)
	for i := range tables {
		must(t, s.CreateTable(TableOptions{Name: fmt.Sprint("t", i), Prefix: fmt.Sprintf("t%d:", i)}))
	}
	sent := 0
	send := func(round int, again bool) {
		t.Helper()
		var b Batch
		for i := range tables {
			for k := range 16 {
				op := b.Add(CIncrBy)
				op.Key, op.ID, op.Delta = []byte(fmt.Sprintf("t%d:%d", i, k)), []byte(strconv.Itoa(round)), 1
			}
		}
		s.Execute(&b)
		for i := range b.Ops {
			if op := &b.Ops[i]; op.Err != nil || op.Applied == again || op.Value != int64(round+1) {
				t.Fatalf("%s %s: %d, applied %v, %v", op.Key, op.ID, op.Value, op.Applied, op.Err)
			}
		}
		sent += len(b.Ops)
	}
	for round := range rounds {
		send(round, false)
		goal := seen.Flush
		if round > rounds/2 {
			goal = seen.Tidy
		}
		for _, p := range s.partitions {
			must(t, s.flushRecords(p, false))
			if round%8 == 7 {
				must(t, s.mergeRuns(p))
				must(t, s.takeCheckpoint(checkpoint{s: s, p: p}, goal, false))
			}
		}
	}
	if runs := s.Stats().Runs; runs < 2*openFiles {
		t.Fatalf("%d runs are too few", runs)
	}
	for round := range rounds {
		send(round, true)
	}
	must(t, s.Snapshot())
	must(t, s.Failure())
	must(t, s.Close())
	if n := fs.open.Load(); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	s = testStore(t, change)
	for round := range rounds {
		send(round, true)
	}
	must(t, s.Snapshot())
	t.Logf("at most %d files of %d were open, %d operations", fs.peak.Load(), openFiles, sent)
}
