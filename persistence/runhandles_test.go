package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// runCounter counts the run files that are open, and fsyncs; late are those that come
// through another descriptor than the one written to.
type runCounter struct {
	vfs.FS
	open, peak, syncs, late *atomic.Int64
	descriptors             *atomic.Int64 // no more files can be open, if it is not 0
}

func newRunCounter(fs vfs.FS) runCounter {
	return runCounter{fs, new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64),
		new(atomic.Int64)}
}

type countedRun struct {
	vfs.File
	c       runCounter
	created bool
}

func (f countedRun) Close() error {
	f.c.open.Add(-1)
	return f.File.Close()
}

func (f countedRun) Sync() error {
	if f.c.syncs.Add(1); !f.created {
		f.c.late.Add(1)
	}
	return f.File.Sync()
}

func (c runCounter) count(name string, f vfs.File, created bool, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, runSuffix) {
		return f, err
	}
	n := c.open.Add(1)
	if most := c.descriptors.Load(); most > 0 && n > most {
		c.open.Add(-1)
		_ = f.Close() // it was only opened
		return nil, syscall.EMFILE
	}
	for p := c.peak.Load(); n > p && !c.peak.CompareAndSwap(p, n); p = c.peak.Load() {
	}
	return countedRun{f, c, created}, nil
}

func (c runCounter) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.Open(name, opts...)
	return c.count(name, f, false, err)
}

func (c runCounter) Create(name string, w vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, w)
	return c.count(name, f, true, err)
}

// TestRunHandles: no more run files than may be are open while runs are written,
// looked up in by many, gone through all at once, as a merge does, and removed;
// before and after a start. Each is fsynced once before it is published.
func TestRunHandles(t *testing.T) {
	const most, all = leastRuns, 5 * leastRuns
	fs := newRunCounter(vfs.NewMem())
	o := testOptions(fs)
	o.OpenFiles = MinOpenFiles
	db := mustOpen(t, o)
	var runs []Run
	for id := range uint64(all) {
		w, err := db.NewRun(Run{ID: id})
		if err == nil {
			err = w.Add(id, id+1, fmt.Append(nil, id))
		}
		if err != nil {
			t.Fatal(err)
		}
		if id%3 == 0 {
			w.Abort()
			continue
		}
		r, err := w.Finish(Run{})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	use := func(when string) {
		t.Helper()
		var work sync.WaitGroup
		for g := range 8 {
			work.Go(func() {
				for i := range runs {
					r := runs[(i+g*31)%len(runs)]
					if got, want := lookUp(t, db, r, r.ID), fmt.Sprintf("%d=%d ", r.ID+1, r.ID); got != want {
						t.Errorf("%s: %q instead of %q", when, got, want)
					}
				}
			})
		}
		var its []*RunIterator
		for _, r := range runs {
			it, err := db.IterateRun(r)
			if err != nil {
				t.Fatal(when, err)
			}
			its = append(its, it)
		}
		for i, it := range its {
			if e := it.Next(); len(e) != 1 || e[0].Hash != runs[i].ID {
				t.Fatal(when, e)
			}
		}
		for _, it := range its {
			if e := it.Next(); len(e) > 0 {
				t.Fatal(when, e)
			}
			if err := it.Close(); err != nil {
				t.Fatal(when, err)
			}
		}
		work.Wait()
		if n := fs.peak.Load(); n > most {
			t.Fatalf("%s: %d run files were open at a time", when, n)
		}
	}
	use("written")
	if n := fs.syncs.Load(); n > int64(len(runs))-most/4 {
		t.Errorf("%d of %d runs were fsynced before they were published", n, len(runs))
	}
	if err := publishRuns(db, runs...); err != nil {
		t.Fatal(err)
	}
	if n, late := fs.syncs.Load(), fs.late.Load(); n != int64(len(runs)) || late > 0 {
		t.Errorf("%d fsyncs for %d runs, %d of them through another descriptor", n, len(runs), late)
	}
	use("published")
	mustClose(t, db)
	if n := fs.open.Load(); n != 0 {
		t.Fatalf("%d run files are open after Close", n)
	}
	db = mustOpen(t, o)
	use("after a start")
	db.RemoveRuns(runs)
	if n := fs.open.Load(); n != 0 {
		t.Errorf("%d files of removed runs are open", n)
	}
	mustClose(t, db)
}

// TestRunsGiveDescriptors: where the process has fewer descriptors than runs may use, runs
// are written, published and read all the same.
func TestRunsGiveDescriptors(t *testing.T) {
	fs := newRunCounter(vfs.NewMem())
	fs.descriptors.Store(leastRuns / 2)
	o := testOptions(fs)
	o.OpenFiles = MinOpenFiles
	db := mustOpen(t, o)
	var runs []Run
	for id := range uint64(2 * leastRuns) {
		runs = append(runs, writeRun(t, db, Run{ID: id}, [2]uint64{id, 1}))
	}
	for range 2 {
		for _, r := range runs {
			expect(t, "look-up", lookUp(t, db, r, r.ID), "1=v1 ")
		}
		mustClose(t, db)
		db = mustOpen(t, o)
	}
	mustClose(t, db)
}

// TestRunHandlesAreWaitedFor: who needs a file while all that may be open are being
// read waits until one is not.
func TestRunHandlesAreWaitedFor(t *testing.T) {
	fs := newRunCounter(vfs.NewMem())
	o := testOptions(fs)
	o.OpenFiles = MinOpenFiles
	db := mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	var files []*runFile
	for id := range uint64(leastRuns + 1) {
		r := writeRun(t, db, Run{ID: id}, [2]uint64{id, 1})
		files = append(files, db.runs.acquire(r))
	}
	for _, f := range files[:leastRuns] {
		if _, err := db.runs.read(&f.cached); err != nil {
			t.Fatal(err)
		}
	}
	last := &files[leastRuns].cached
	opened := make(chan error)
	go func() {
		_, err := db.runs.read(last)
		opened <- err
	}()
	for db.runs.waiting.Load() == 0 {
		select {
		case err := <-opened:
			t.Fatal("a file was opened, another closed under its reader", err)
		default:
			runtime.Gosched()
		}
	}
	db.runs.done(&files[3].cached)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if n := fs.peak.Load(); n > leastRuns || files[3].cached.f.Load() != nil {
		t.Errorf("%d files were open", n)
	}
	for i, f := range files {
		if i != 3 {
			db.runs.done(&f.cached)
		}
		db.runs.release(f)
	}
}

// TestRunIsRemovedInUse: a look-up and an iterator under way when their run is removed
// read on, though its file is closed and opened again meanwhile; who comes later finds
// nothing, and the file goes with the last of them.
func TestRunIsRemovedInUse(t *testing.T) {
	var db *DB
	var remove atomic.Pointer[Run]
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, runSuffix) {
			if r := remove.Swap(nil); r != nil {
				db.RemoveRuns([]Run{*r})
			}
		}
		return nil
	})))
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	gone := func(r Run) bool {
		_, err := db.fs.Stat(db.path(runName, runFileName(r)))
		return errors.Is(err, fs.ErrNotExist)
	}
	closeIt := func(r Run) {
		file := db.runs.acquire(r)
		defer db.runs.release(file)
		db.runs.mu.Lock()
		defer db.runs.mu.Unlock()
		if !db.runs.closeIdle(&file.cached) {
			t.Fatal("the file was not closed")
		}
	}
	r := writeRun(t, db, Run{Table: 1, ID: 1}, [2]uint64{7, 1})
	closeIt(r)
	remove.Store(&r) // when the look-up opens it
	expect(t, "under way", lookUp(t, db, r, 7), "1=v1 ")
	expect(t, "removed", lookUp(t, db, r, 7), "")
	if !gone(r) {
		t.Fatal("the run is still there")
	}
	r = writeRun(t, db, Run{Table: 1, ID: 2}, [2]uint64{7, 1})
	it, err := db.IterateRun(r)
	if err != nil {
		t.Fatal(err)
	}
	closeIt(r)
	db.RemoveRuns([]Run{r})
	if e := it.Next(); len(e) != 1 || gone(r) {
		t.Errorf("%v, %v", e, it.Close())
	}
	if e := it.Next(); len(e) != 0 || it.Close() != nil || !gone(r) {
		t.Error("the run is still there", e, it.Close())
	}
}

// TestHoldKeepsFiles: runs and snapshots stay while a hold is there, and go afterwards,
// or when more than its limit is kept.
func TestHoldKeepsFiles(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer func() { mustClose(t, db) }()
	there := func(path string) bool {
		_, err := db.fs.Stat(path)
		return err == nil
	}
	for _, limit := range []uint64{1 << 20, 2} {
		h := db.Hold("follower", limit)
		r := writeRun(t, db, Run{Table: 1, ID: limit}, [2]uint64{7, 1}, [2]uint64{8, 1})
		run, snapshot := db.path(runName, runFileName(r)), db.path(snapshotName, snapshotFile(0, 1))
		for seq := uint64(1); seq <= 3; seq++ {
			writeSnapshot(t, db, 0, seq, nil)
		}
		if !there(snapshot) {
			t.Fatal("the oldest snapshot is gone")
		}
		db.RemoveRuns([]Run{r})
		if held := limit > 100; there(run) != held || h.Lost() == held {
			t.Errorf("limit %d: %v %v", limit, there(run), h.Lost())
		}
		h.Release()
		writeSnapshot(t, db, 0, 4, nil)
		if there(run) || there(snapshot) {
			t.Error("files stay after the hold")
		}
	}
}
