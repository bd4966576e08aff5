package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Sentinels of this package, found with errors.Is. The wrapping error is one
// plain sentence that says what a person can do about it.
var (
	// ErrInUse: another process has the data directory open.
	ErrInUse = errors.New("data directory is in use")
	// ErrNewerFormat: a later release wrote the data directory.
	ErrNewerFormat = errors.New("data directory has a newer format")
	// ErrOldFormat: the data directory is older than the first release.
	ErrOldFormat = errors.New("it was written by a development version before 0.1 and cannot be opened")
	// ErrNotADataDirectory: the directory holds files, but no META of ours.
	ErrNotADataDirectory = errors.New("not a data directory")
	// ErrOtherSeed: the data directory's hashes have another seed than Options.Seed.
	ErrOtherSeed = errors.New("it has another hash seed than the one given")
	// ErrUnwritable: the data directory cannot be created or written.
	ErrUnwritable = errors.New("data directory is not writable")
	// ErrCorrupt: bytes on disk are not what was written.
	ErrCorrupt = disk.ErrCorrupt
	// ErrNoSpace: the disk has no space for the write. Nothing was written, nothing has failed, and
	// it may be tried again.
	ErrNoSpace = disk.ErrNoSpace
	// ErrClosed: the DB was closed.
	ErrClosed = disk.ErrClosed
	// ErrBadOptions: Options outside their documented range.
	ErrBadOptions = disk.ErrBadOptions
	// ErrOrder: entries of a run were added out of order.
	ErrOrder = errors.New("run entries must ascend by hash and sequence")
	// ErrFailed: an earlier commit or fsync failed, the outcome of the writes under way is unknown
	// and nothing more is accepted until reopening (G8).
	ErrFailed = disk.ErrFailed
)

// tableInError finds the number of an sstable in an error of Pebble, which does
// not always tell the file's name.
var tableInError = regexp.MustCompile(`\bfile (\d{6,})\b`)

// wrap adds what was being done, and the sentinel of the kind of failure, to
// an error from Pebble or the file system. nil stays nil.
func wrap(doing string, err error) error {
	if err != nil {
		if f := tableInError.FindStringSubmatch(err.Error()); f != nil &&
			!strings.Contains(err.Error(), f[1]+".sst") {
			doing += ": " + pebbleName + "/" + f[1] + ".sst"
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCorrupt):
		return fmt.Errorf("%s: %w", doing, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// unwritable reports whether the file system refuses writes for a reason that
// a person has to resolve: rights, or a read-only mount.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
