package persistence

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// ownNames are what Open makes in a data directory, but for LOCK. META is the first to go and
// the last to come: nothing is taken for a whole directory without it.
var ownNames = []string{metaName, metaName + disk.TmpSuffix, pebbleName, logName, snapshotName, runName,
	buildName,
	oplog.MarkName, manifestMarkName, spareName, backupName, RegionsName, FollowersName}

// Erase empties a data directory that no process has open: it deletes what Open has made
// there, for ever, and leaves what others keep there. A directory that does not exist is
// empty. It can be repeated after an interruption, and must be: until then the directory is
// damaged.
func Erase(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := lockDir(fsys, dir)
	if err != nil {
		return wrap("erase", err)
	}
	for _, name := range ownNames {
		if err = fsys.RemoveAll(fsys.PathJoin(dir, name)); err == nil {
			err = disk.SyncDir(fsys, dir)
		}
		if err != nil {
			break
		}
	}
	return wrap("erase", errors.Join(err, lock.Close()))
}

// Adopt moves the whole data directory from, on the same file system, into dir, which Erase
// has emptied, and deletes from. It can be repeated after an interruption, and must be.
func Adopt(fsys vfs.FS, from, dir string) error {
	lock, err := lockDir(fsys, dir)
	if err != nil {
		return wrap("adopt", err)
	}
	for i := range ownNames {
		name := ownNames[len(ownNames)-1-i]
		err = fsys.Rename(fsys.PathJoin(from, name), fsys.PathJoin(dir, name))
		if err == nil {
			err = disk.SyncDir(fsys, dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		err = nil
	}
	if err == nil {
		err = disk.SyncDir(fsys, dir) // an interrupted call may have moved what is not durable yet
	}
	if err == nil {
		err = fsys.RemoveAll(from)
	}
	if err == nil {
		err = disk.SyncDir(fsys, fsys.PathDir(from))
	}
	return wrap("adopt", errors.Join(err, lock.Close()))
}
