package persistence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrReplaced: the data directory was deleted or replaced while it was open.
var ErrReplaced = errors.New("the data directory was deleted or replaced while it was in use")

// dirLock is held while a process has a data directory open. Two things are locked:
// the directory itself, which nobody can delete and make anew without its being
// another one, and before anything is created in it; and LOCK, which is seen from
// outside, and works where a directory cannot be locked.
type dirLock struct {
	dir  vfs.File
	file io.Closer
}

func lockDir(fsys vfs.FS, dir string) (l dirLock, err error) {
	if l.dir, err = fsys.OpenDir(dir); err != nil {
		return l, err
	}
	if err = lockHandle(l.dir); err == nil {
		l.file, err = lockFile(fsys, fsys.PathJoin(dir, lockName))
	}
	if err != nil {
		return dirLock{}, errors.Join(err, l.dir.Close())
	}
	return l, nil
}

func lockFile(fsys vfs.FS, path string) (io.Closer, error) {
	lock, err := fsys.Lock(path)
	if err == nil {
		return lock, nil
	}
	// The file system tells failing to create the file, which is a PathError,
	// from finding it locked, which is a bare errno or a text.
	var perr *fs.PathError
	if errors.As(err, &perr) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create %s: %w", lockName, err)
	}
	return nil, ErrInUse
}

// Close releases the directory.
func (l dirLock) Close() error {
	if l.dir == nil {
		return nil
	}
	return errors.Join(l.file.Close(), l.dir.Close())
}

// identity is what must stay the same while a directory is open.
type identity map[string][2]uint64 // by name: its file's

// identify notes what the directory consists of, by device and inode.
func (db *DB) identify() {
	db.identity = make(identity)
	for _, name := range []string{"", metaName, logName, pebbleName, runName, snapshotName} {
		db.identifyFile(name)
	}
}

func (db *DB) identifyFile(name string) {
	if info, err := db.fs.Stat(db.path(name)); err == nil {
		db.identity[name], _ = fileID(info)
	}
}

// CheckIdentity returns ErrReplaced if the directory, or what is essential in it, is
// no longer what Open found: whatever is written by name then goes elsewhere, and the
// process must end.
func (db *DB) CheckIdentity() error {
	for name, was := range db.identity {
		info, err := db.fs.Stat(db.path(name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %s is gone", ErrReplaced, db.path(name))
		}
		if err != nil {
			continue // not known
		}
		if is, ok := fileID(info); ok && is != was {
			return fmt.Errorf("%w: %s is another one", ErrReplaced, db.path(name))
		}
	}
	return nil
}
