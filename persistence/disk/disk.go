// Package disk has what the op log and the rest of a data directory do alike to the
// disk: files that are replaced whole, marks that say how far a file is durable, the
// scan of a file of chunks, and the error that is final (G8).
package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	// ErrCorrupt: bytes on disk are not what was written: a checksum, a
	// length, a name or an order does not hold.
	ErrCorrupt = errors.New("data on disk is damaged")
	// ErrNoSpace: the disk has no space for the write. Nothing was written, nothing has failed, and
	// it may be tried again.
	ErrNoSpace = errors.New("no space left on the disk")
	// ErrFailed: an earlier commit or fsync failed, the outcome of the writes under way is unknown
	// and nothing more is accepted until reopening (G8).
	ErrFailed = errors.New("storage failed, only reopening clears it")
	// ErrBadOptions: options outside their documented range.
	ErrBadOptions = errors.New("bad options")
	// ErrClosed: the directory was closed.
	ErrClosed = errors.New("persistence is closed")
)

// WriteCategory labels our own files in Pebble's disk statistics.
const WriteCategory = vfs.WriteCategoryUnspecified

// TmpSuffix ends the name of a file that is being written, to be renamed.
const TmpSuffix = ".tmp"

// Castagnoli is the table of all our checksums.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Corruptf returns an ErrCorrupt with the particulars.
func Corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// NoSpace marks an error that says that the disk is full as ErrNoSpace.
func NoSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// Wrap says what was being done when err came. nil stays nil.
func Wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Failure is the first error after which nothing more is accepted (G8). The zero value stands for
// no failure. Safe for concurrent use.
type Failure struct{ first atomic.Pointer[error] }

// Err returns it, nil while all is well.
func (f *Failure) Err() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}

// Set makes err the failure unless there is one, and returns the failure.
func (f *Failure) Set(err error) error {
	f.first.CompareAndSwap(nil, &err)
	return f.Err()
}

var zeros [256 << 10]byte

// Fill writes zeros to a file behind the offset from, and returns up to where, which
// is at least to unless there is an error.
func Fill(f io.WriterAt, from, to int64) (int64, error) {
	for from < to {
		n, err := f.WriteAt(zeros[:], from)
		from += int64(n)
		if err != nil {
			return from, NoSpace(err)
		}
	}
	return from, nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDir creates dir and its missing parents, durably, for this user alone. It makes each durable
// before the one below: so what exists lies in directories that are durable, and only its own name
// may not be.
func MakeDir(fsys vfs.FS, dir string) error {
	var missing []string // deepest first
	at := dir
	for ; ; at = fsys.PathDir(at) {
		_, err := fsys.Stat(at)
		if err == nil || at == fsys.PathDir(at) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, at)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := SyncName(fsys, at); err != nil {
		return err
	}
	for _, d := range slices.Backward(missing) {
		if err := fsys.MkdirAll(d, 0o700); err != nil {
			return err
		}
		if err := SyncDir(fsys, fsys.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile replaces a small file atomically and durably: written aside,
// fsynced, renamed, directory fsynced.
func WriteFile(fsys vfs.FS, dir, name string, content []byte) error {
	path := fsys.PathJoin(dir, name)
	f, err := fsys.Create(path+TmpSuffix, WriteCategory)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, RemoveIfExists(fsys, path+TmpSuffix))
	}
	if err := fsys.Rename(path+TmpSuffix, path); err != nil {
		return errors.Join(err, RemoveIfExists(fsys, path+TmpSuffix))
	}
	return SyncDir(fsys, dir)
}

// ReadFile reads a file of at most limit bytes, and one byte more of a longer
// one, so that the caller notices.
func ReadFile(fsys vfs.FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	return b, errors.Join(err, f.Close())
}

// RemoveIfExists removes a file that need not be there.
func RemoveIfExists(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CopyFile copies a file durably; the directory is the caller's to sync.
func CopyFile(fsys vfs.FS, from, to string, copied func(n int)) error {
	in, err := fsys.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	out, err := fsys.Create(to, WriteCategory)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.CopyBuffer(counted{out, copied}, struct{ io.Reader }{in}, make([]byte, 1<<20))
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, in.Close(), out.Close())
}

// counted says after each piece that was written how long it was.
type counted struct {
	io.Writer
	copied func(n int)
}

// Write implements io.Writer.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.copied(n)
	return n, err
}
