package disk

import (
	"errors"
	"io"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Content that a start reads and relies on is made durable before anything rests on it. The process
// before may have been killed between a write and its fsync: then memory holds what no disk has,
// and a power loss after this start would take it, with all that was answered since. Names are made
// durable by SyncDir, and SyncName for the directory's own. Content is not made so by an fsync
// alone: that writes dirty pages only, and a failed fsync has left them clean, and on no disk. So
// Renew writes content anew that is not known to be durable.
//
// A directory needs no more than SyncDir: where its blocks cannot be written, a file system with a
// journal refuses every change from then on.

// ErrChanged means that a file was not the same when it was read once more, after Renew.
var ErrChanged = errors.New("an fsync has failed before, and the disk has other bytes than memory had: " +
	"start again")

// Renew makes the first size bytes of a file durable, of which so many are known to be: in a new
// file, which takes the place of the old one, without what lies behind them. aside is its path
// meanwhile. On a full disk the bytes that are not known to be durable are written once more where
// they are, so that a server starts there as well.
//
// Memory may drop clean pages at any time, so the caller must read the file once more before it relies on it.
func Renew(fsys vfs.FS, path, aside string, durable, size int64) error {
	if durable >= size {
		return nil
	}
	err := NoSpace(Truncate(fsys, path, aside, size))
	if !errors.Is(err, ErrNoSpace) {
		return err
	}
	if err := RemoveIfExists(fsys, aside); err != nil {
		return err
	}
	return rewrite(fsys, path, durable, size)
}

// rewrite writes the bytes of a file between two offsets once more, which makes their pages dirty,
// and fsyncs it.
func rewrite(fsys vfs.FS, path string, from, to int64) error {
	f, err := fsys.OpenReadWrite(path, WriteCategory)
	if err != nil {
		return err
	}
	piece := make([]byte, min(to-from, 1<<20))
	for err == nil && from < to {
		piece = piece[:min(to-from, int64(len(piece)))]
		if _, err = f.ReadAt(piece, from); err == nil || errors.Is(err, io.EOF) {
			_, err = f.WriteAt(piece, from)
		}
		from += int64(len(piece))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncName makes the name of a directory durable that exists already, where that is possible: what
// lies above it may be of another owner, or not to be written at all, and then no earlier process
// has made the name.
func SyncName(fsys vfs.FS, dir string) error {
	err := SyncDir(fsys, fsys.PathDir(dir))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
