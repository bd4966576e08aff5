package persistence

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walFS lies between Pebble and the file system and changes two things about
// the WAL: the mark WALSYNC is kept, which says how far it is fsynced, and a
// failed write or fsync of it is final (G8). Its syncer's policy is always
// Always: what Pebble holds is derived from the op log, and is published.
type walFS struct {
	vfs.FS
	syncer
	dir string
	die func(error) // ends the process
	// serving is true between Open and Close. Pebble panics when it cannot
	// change WAL files, with a mutex half locked, which even a recover cannot
	// mend; so meanwhile the process ends here, with the cause in plain words.
	serving atomic.Bool
}

func newWALFS(o Options, dir, markDir string) *walFS {
	return &walFS{
		FS: o.FS, dir: dir, die: o.stop,
		syncer: syncer{
			what: "the WAL", now: o.Now, logger: o.Logger,
			mark: walMark{fs: o.FS, dir: markDir, name: walMarkName},
		},
	}
}

// dieIfServing ends the process after an error that makes Pebble panic.
func (w *walFS) dieIfServing(err error) {
	if err != nil && w.serving.Load() {
		w.die(fmt.Errorf("%w: %w", ErrFailed, err))
	}
}

// Create implements vfs.FS.
func (w *walFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	return w.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS. Pebble would write a WAL over the bytes of an
// older one, which clients chose, and tells the two by numbers that are easily
// guessed; so the file is a new one.
func (w *walFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := w.FS.Remove(oldname); err != nil {
		return w.wrap(newname, nil, err)
	}
	return w.Create(newname, category)
}

// OpenReadWrite implements vfs.FS.
func (w *walFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, category, opts...)
	return w.wrap(name, f, err)
}

// Remove implements vfs.FS. While it opens, Pebble may remove the only WAL file,
// replayed and flushed, before it creates the next one; a crash in between must
// not look like a loss.
func (w *walFS) Remove(name string) error {
	if num, ok := w.number(name); ok {
		if err := w.mark.release(num); err != nil {
			return fmt.Errorf("remove %s: %w", w.mark.name, err)
		}
	}
	return w.FS.Remove(name)
}

// Unwrap implements vfs.FS.
func (w *walFS) Unwrap() vfs.FS { return w.FS }

func (w *walFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	num, ok := w.number(name)
	if !ok {
		return f, err
	}
	if err != nil {
		err = w.fail("create a WAL file", err)
		w.dieIfServing(err)
		return nil, err
	}
	sf := w.begin(f, num)
	w.activate(sf)
	return walFile{sf, w}, nil
}

// number returns a file's number if it is one of this WAL, not of a backup's.
func (w *walFS) number(name string) (uint64, bool) {
	num, ok := walNumber(w.FS.PathBase(name))
	return num, ok && w.FS.PathDir(name) == w.dir
}

// walFile is the WAL file that Pebble writes.
type walFile struct {
	*syncedFile
	fs *walFS
}

// Close implements vfs.File.
func (f walFile) Close() error {
	err := f.syncedFile.Close()
	f.fs.dieIfServing(err)
	return err
}

// walNumber parses the name of a log file, such as 000007.log.
func walNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	num, err := strconv.ParseUint(digits, 10, 64)
	return num, err == nil
}
