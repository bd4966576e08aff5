package persistence

import (
	"errors"
	"os"
	"path"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// spareName is the file that holds space for what must not meet a full disk.
const spareName = "SPARE"

// spareSize is what a start needs: new files of Pebble's, a file of the op log, marks.
const spareSize = 1 << 20

// tableSuffix ends the names of sstables.
const tableSuffix = ".sst"

// spare keeps blocks of the disk in a file that is never read: it is removed when the
// disk is full and
//
//   - Open needs space: what is stored must be served also from a full disk;
//   - Pebble extends its MANIFEST, whose failure is final (G8).
//
// Until it is there again, which is tried each second, writes are refused: all other needs come
// from them. Another user of the disk may be quicker than the one for which the spare was removed;
// a file system offers no way to prevent that.
type spare struct {
	fs    vfs.FS
	path  string
	lacks atomic.Bool // there is less of it than there should be

	mu   longlock.Mutex // held while the file grows
	size int64
}

// keep brings the spare to its full size.
func (s *spare) keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size >= spareSize {
		return nil
	}
	err := s.grow()
	s.lacks.Store(err != nil)
	return err
}

func (s *spare) grow() error {
	f, err := s.fs.OpenReadWrite(s.path, disk.WriteCategory)
	if err != nil {
		return disk.NoSpace(err)
	}
	// As far as it goes: something is better than nothing.
	for err == nil && s.size < spareSize {
		if err = f.Preallocate(s.size, spareStep); err == nil {
			s.size += spareStep
		} else if !errors.Is(disk.NoSpace(err), ErrNoSpace) {
			s.size, err = disk.Fill(f, s.size, s.size+spareStep) // it cannot preallocate
		}
	}
	return errors.Join(disk.NoSpace(err), f.Sync(), f.Close())
}

// spareStep is by how much the spare grows at a time.
const spareStep = 256 << 10

// release gives the blocks back to the file system.
func (s *spare) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = 0
	s.lacks.Store(true)
	_ = s.fs.Remove(s.path) // it may not be there
}

// spareFS is a file system on which Open, and what of Pebble must not fail, get the
// spare's space when the disk is full.
type spareFS struct {
	vfs.FS         // for all else
	opening vfs.FS // while Open is under way
	vital   vfs.FS
	opened  atomic.Bool
	pebble  string // Pebble's directory
	flushes *flushes
}

func newSpareFS(under vfs.FS, s *spare, f *flushes, pebble string) *spareFS {
	fs := &spareFS{FS: under, pebble: pebble, flushes: f}
	fs.opening = vfs.OnDiskFull(under, func() {
		if !fs.opened.Load() {
			s.release()
		}
	})
	fs.vital = vfs.OnDiskFull(under, s.release)
	return fs
}

// of returns the file system for what creates or extends a file.
func (s *spareFS) of(name string) vfs.FS {
	switch {
	case s.FS.PathDir(name) == s.pebble && path.Ext(name) != tableSuffix:
		return s.vital
	case !s.opened.Load():
		return s.opening
	}
	return s.FS
}

// Create implements vfs.FS.
func (s *spareFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if path.Ext(name) == tableSuffix {
		s.flushes.pause(c)
	}
	return s.of(name).Create(name, c)
}

// ReuseForWrite implements vfs.FS.
func (s *spareFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.of(to).ReuseForWrite(from, to, c)
}

// OpenReadWrite implements vfs.FS.
func (s *spareFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File,
	error) {
	return s.of(name).OpenReadWrite(name, c, opts...)
}

// Rename implements vfs.FS.
func (s *spareFS) Rename(from, to string) error { return s.of(to).Rename(from, to) }

// MkdirAll implements vfs.FS.
func (s *spareFS) MkdirAll(dir string, perm os.FileMode) error { return s.of(dir).MkdirAll(dir, perm) }

// Unwrap implements vfs.FS.
func (s *spareFS) Unwrap() vfs.FS { return s.FS }

// CheckSpace reports, by ErrNoSpace, whether the disk is so full that nothing more is
// to be written, after it has tried to get what space it needs.
func (db *DB) CheckSpace() error {
	if err := db.flushes.retry(); errors.Is(err, ErrNoSpace) {
		return err
	}
	if err := db.spare.keep(); err != nil {
		return err
	}
	if err := db.log.Reserve(oplog.Slack); err != nil {
		return err
	}
	db.log.Release(oplog.Slack, 0)
	return nil
}
