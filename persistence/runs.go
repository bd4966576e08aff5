package persistence

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MaxOpenRuns is how many run files stay open. Beyond it a file that was there when the
// process began is opened for each use, so that many partitions do not use up the
// process's descriptors.
const MaxOpenRuns = 1024

// runFiles are the run files that this process knows.
type runFiles struct {
	mu    sync.RWMutex
	files map[runID]*runFile
	open  atomic.Int32
	// readBufs are RunIterators': *[]byte.
	readBufs sync.Pool
}

type runID struct {
	partition uint16
	table     uint32
	id        uint64
}

func (r Run) key() runID { return runID{r.Partition, r.Table, r.ID} }

// runFile is one of them. Its file is closed when nobody uses it any more.
type runFile struct {
	path     string
	f        vfs.File // nil: to be opened for each use
	index    runIndex
	filter   runFilter
	unsynced bool // only its publisher asks
	refs     atomic.Int32
}

// readBuffer returns memory for a RunIterator, recycle takes it back.
func (rs *runFiles) readBuffer() []byte { return takeBuffer(&rs.readBufs, runReadSize+2*directAlign) }
func (rs *runFiles) recycle(b []byte)   { recycleBuffer(&rs.readBufs, b, runReadSize) }

// OpenRuns is how many run files are open.
func (db *DB) OpenRuns() int { return int(db.runs.open.Load()) }

// add makes a run known.
func (rs *runFiles) add(r Run, f *runFile) {
	f.refs.Store(1)
	if f.f != nil {
		rs.open.Add(1)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.files == nil {
		rs.files = make(map[runID]*runFile)
	}
	rs.files[r.key()] = f
}

// acquire returns a run's file for use until release, nil if it is not known.
func (rs *runFiles) acquire(r Run) *runFile {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	f := rs.files[r.key()]
	if f != nil {
		f.refs.Add(1)
	}
	return f
}

// known reports whether a run has not been forgotten.
func (rs *runFiles) known(r Run) bool {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.files[r.key()] != nil
}

func (rs *runFiles) release(f *runFile) {
	if f.refs.Add(-1) == 0 && f.f != nil {
		rs.open.Add(-1)
		// It was only read, or fsynced before: closing cannot lose anything.
		_ = f.f.Close()
	}
}

// forget makes a run unknown; who uses it still can.
func (rs *runFiles) forget(id runID) {
	rs.mu.Lock()
	f := rs.files[id]
	delete(rs.files, id)
	rs.mu.Unlock()
	if f != nil {
		rs.release(f)
	}
}

// close forgets all runs.
func (rs *runFiles) close() {
	rs.mu.Lock()
	ids := make([]runID, 0, len(rs.files))
	for id := range rs.files {
		ids = append(ids, id)
	}
	rs.mu.Unlock()
	for _, id := range ids {
		rs.forget(id)
	}
}

// openRuns brings the directory of runs and the header rows together: files
// without a row are what a crash left, rows without a file are damage.
func (db *DB) openRuns() error {
	runs, err := db.allRuns()
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(runs))
	for _, r := range runs {
		wanted[runFileName(r)] = true
	}
	names, err := db.fs.List(db.path(runName))
	if err != nil {
		return wrap("list runs", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, runSuffix) && !wanted[name] {
			if err := removeIfExists(db.fs, db.path(runName, name)); err != nil {
				return wrap("remove a run that was not published", err)
			}
		}
	}
	for _, r := range runs {
		if err := db.loadRun(r); err != nil {
			return err
		}
	}
	return nil
}

// loadRun reads the index of a published run and makes the run known.
func (db *DB) loadRun(r Run) error {
	path := db.path(runName, runFileName(r))
	f, err := db.fs.Open(path, vfs.RandomReadsOption)
	if errors.Is(err, fs.ErrNotExist) {
		return corruptf("%s is missing", db.inDir(path))
	}
	if err != nil {
		return wrap("open a run", err)
	}
	info, err := f.Stat()
	var index runIndex
	if err == nil {
		index, err = readRunIndex(f, info.Size(), r)
	}
	if err != nil {
		return errors.Join(wrap(db.inDir(path), err), f.Close())
	}
	file := &runFile{path: path, f: f, index: index}
	if db.runs.open.Load() >= MaxOpenRuns {
		file.f = nil
		err = f.Close()
	}
	db.runs.add(r, file)
	return err
}

// inDir returns a path relative to the data directory, for messages.
func (db *DB) inDir(path string) string {
	return db.fs.PathJoin(runName, db.fs.PathBase(path))
}

// useRun returns a run's file, open, for use until leaveRun; both are nil for a
// run that was removed.
func (db *DB) useRun(r Run) (file *runFile, f vfs.File, err error) {
	if db.closed.Load() {
		return nil, nil, ErrClosed
	}
	file = db.runs.acquire(r)
	if file == nil && db.readOnly {
		if err := db.loadRun(r); err != nil {
			return nil, nil, err
		}
		file = db.runs.acquire(r)
	}
	if file == nil {
		return nil, nil, nil
	}
	if file.f != nil {
		return file, file.f, nil
	}
	f, err = db.fs.Open(file.path, vfs.RandomReadsOption)
	if err != nil {
		db.runs.release(file)
		if errors.Is(err, fs.ErrNotExist) && !db.runs.known(r) {
			return nil, nil, nil // removed just now
		}
		return nil, nil, wrap("open a run", err)
	}
	return file, f, nil
}

// leaveRun ends the use of what useRun returned.
func (db *DB) leaveRun(file *runFile, f vfs.File) {
	if file.f == nil {
		_ = f.Close() // it was only read
	}
	db.runs.release(file)
}

// RemoveRuns deletes the files of runs that are not published, or whose header
// rows are durably gone. Look-ups under way finish. What cannot be removed now
// the next Open removes.
func (db *DB) RemoveRuns(runs []Run) {
	for _, r := range runs {
		db.runs.forget(r.key())
		if err := removeIfExists(db.fs, db.path(runName, runFileName(r))); err != nil {
			db.logger.Warn("an old run could not be removed; the next start will", "run", runFileName(r), "error", err)
		}
	}
}
