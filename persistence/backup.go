package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// ErrTarget: the directory to be written by Backup or Restore exists and is
// not empty, or lies where it must not.
var ErrTarget = errors.New("target directory cannot be used")

// partialSuffix marks a directory that Backup or Restore has not finished.
// One that is left behind is removed by the next attempt.
const partialSuffix = ".fbfkv-partial"

// Backup writes a copy of the data directory, as of one instant, to dir, while
// commits go on. It is itself a data directory: Open serves from it, and a
// restore copies it. Files that never change again are linked where the file
// system allows.
//
// Until Backup calls linked the caller must neither commit snapshots nor publish or drop
// runs. When Backup calls committed it has copied the log; what was appended before must be
// committed when that returns. Views come first and the log after them, so that the log reaches at least as
// far as they do; a [Hold] lets it reach back to them, whatever is trimmed meanwhile.
//
// dir appears only when it is whole and durable, and everything in it is
// durable here too, whatever the policy (G4). ErrTarget: dir exists and is not
// empty, or is inside the data directory.
func (db *DB) Backup(dir string, linked func(), committed func() error) error {
	if err := db.usable(); err != nil {
		return err
	}
	if err := CheckTarget(db.fs, db.dir, dir); err != nil {
		return err
	}
	err := db.copyAs(dir, linked, db.log.CopyCommitted, committed, db.beginCopy())
	if err != nil {
		return wrap("back up", err)
	}
	db.BackedUp(time.Now())
	return nil
}

// Names in a data directory of the copy that goes to another replica of the shard, and of the copy
// that comes from one.
const (
	// CutName is the directory that Cut writes. Open removes it.
	CutName = "outgoing"
	// IncomingName is the directory in which a replica collects the cut of another.
	IncomingName = "incoming"
)

// Cut is Backup to the directory CutName within the data directory, in the place of an
// earlier cut, for a replica of the same shard: it becomes that replica's data directory, so META
// is the same. Entries of the copied log may be uncommitted, as in the log of any replica. The log
// notes how far it is, and that reaches as far as all that was linked.
func (db *DB) Cut(linked func()) error {
	if err := db.usable(); err != nil {
		return err
	}
	if err := db.RemoveCut(); err != nil {
		return wrap("remove the last cut", err)
	}
	err := db.copyAs(db.CutDir(), linked, db.log.CopyTo, func() error { return nil },
		func(aside string) error {
			return disk.WriteFile(db.fs, aside, metaName, db.Meta().encode())
		})
	return wrap("cut", err)
}

// CutDir is the path of the directory that Cut writes.
func (db *DB) CutDir() string { return db.path(CutName) }

// RemoveCut removes what Cut wrote.
func (db *DB) RemoveCut() error {
	return errors.Join(db.fs.RemoveAll(db.CutDir()), db.fs.RemoveAll(db.CutDir()+partialSuffix))
}

// usable returns why nothing can be copied of the data directory.
func (db *DB) usable() error {
	if db.closed.Load() {
		return ErrClosed
	}
	return db.failure()
}

// copyAs makes a copy of the data directory, which gets its META last: without it nobody
// takes the directory for whole.
func (db *DB) copyAs(dir string, linked func(), copyLog func(dir, markDir string) error,
	committed func() error, writeMeta func(aside string) error) error {
	hold := db.Hold("copy as "+dir, math.MaxUint64)
	defer hold.Release()
	return publish(db.fs, dir, func(aside string) error {
		if err := db.copyTo(aside, linked, copyLog, committed); err != nil {
			return err
		}
		return writeMeta(aside)
	})
}

// CheckTarget refuses a directory to write to that holds anything, or that is from itself or lies
// in it: ErrTarget.
func CheckTarget(fsys vfs.FS, from, dir string) error {
	for d := dir; ; d = fsys.PathDir(d) {
		if d == from {
			return fmt.Errorf("%w: %s is inside %s", ErrTarget, dir, from)
		}
		if d == fsys.PathDir(d) {
			break
		}
	}
	names, err := fsys.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrTarget, err)
	case len(names) > 0:
		return fmt.Errorf("%w: %s is not empty", ErrTarget, dir)
	}
	return nil
}

// publish lets write fill a directory beside dir, which becomes dir when it is
// whole. Until then dir does not exist, or is as empty as it was.
func publish(fsys vfs.FS, dir string, write func(aside string) error) error {
	aside := dir + partialSuffix
	if err := fsys.RemoveAll(aside); err != nil {
		return err
	}
	if err := disk.MakeDir(fsys, aside); err != nil {
		return err
	}
	if err := write(aside); err != nil {
		return errors.Join(err, fsys.RemoveAll(aside))
	}
	// An empty directory may be in the way; one that is not makes this fail.
	err := disk.RemoveIfExists(fsys, dir)
	if err == nil {
		err = fsys.Rename(aside, dir)
	}
	if err != nil {
		return errors.Join(err, fsys.RemoveAll(aside))
	}
	return disk.SyncDir(fsys, fsys.PathDir(dir))
}

// copyTo fills a new, empty directory, but for META.
func (db *DB) copyTo(dir string, linked func(), copyLog func(dir, markDir string) error,
	committed func() error) error {
	// Only flushed data of Pebble is copied; the runs are those that it shows.
	if err := db.Flush(); err != nil {
		return err
	}
	if err := db.linkSnapshots(db.fs.PathJoin(dir, snapshotName)); err != nil {
		return err
	}
	if err := db.linkRuns(db.fs.PathJoin(dir, runName)); err != nil {
		return err
	}
	target := db.fs.PathJoin(dir, pebbleName)
	if err := db.checkpoint(target); err != nil {
		return err
	}
	linked()
	if err := copyLog(db.fs.PathJoin(dir, logName), dir); err != nil {
		return err
	}
	// Behind the log, which tells of partitions that were taken in.
	if err := db.linkMoved(db.fs.PathJoin(dir, snapshotName)); err != nil {
		return err
	}
	if err := committed(); err != nil {
		return err
	}
	// The copied part of the log may be written but not yet durable (G4).
	return db.Sync()
}

// writeCopyOf writes META of a copy. The copy is another incarnation, so that its sequences do not
// become those of what its original does from now on (G1).
func writeCopyOf(m Meta, fsys vfs.FS, dir string) error {
	return disk.WriteFile(fsys, dir, metaName, m.copied().encode())
}

// checkpoint copies Pebble's part. Pebble panics where it cannot fsync the new
// directory, with no lock held; that is the backup's failure and not the
// server's.
func (db *DB) checkpoint(dir string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Pebble: %v", p)
		}
	}()
	return db.pebble.Checkpoint(dir)
}

func (db *DB) linkSnapshots(dir string) error {
	if err := disk.MakeDir(db.fs, dir); err != nil {
		return err
	}
	names, err := db.fs.List(db.path(snapshotName))
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, _, ok := parseSnapshotFile(name); !ok {
			continue
		}
		if err := linkOrCopy(db.fs, db.path(snapshotName, name), db.fs.PathJoin(dir, name)); err != nil {
			return err
		}
	}
	return disk.SyncDir(db.fs, dir)
}

// linkRuns links the published runs: the others are in no header row.
func (db *DB) linkRuns(dir string) error {
	if err := disk.MakeDir(db.fs, dir); err != nil {
		return err
	}
	runs, err := db.allRuns()
	if err != nil {
		return err
	}
	for _, r := range runs {
		name := runFileName(r)
		if err := linkOrCopy(db.fs, db.path(runName, name), db.fs.PathJoin(dir, name)); err != nil {
			return err
		}
	}
	return disk.SyncDir(db.fs, dir)
}

// linkOrCopy gives a file that never changes a second name, or copies it
// durably where that is impossible.
func linkOrCopy(fsys vfs.FS, from, to string) error {
	if fsys.Link(from, to) == nil {
		return nil
	}
	return disk.CopyFile(fsys, from, to, func(int) {})
}

// BackupSize estimates the bytes of a backup, and of the unfinished one at dir
// those that are there; both for showing progress.
func (db *DB) BackupSize(dir string) (done, total int64) {
	done, _ = treeSize(db.fs, dir+partialSuffix)
	total, _ = treeSize(db.fs, db.dir)
	return min(done, total), total
}

// treeSize sums the sizes of the files below dir that a copy takes. Files that vanish meanwhile are
// left out.
func treeSize(fsys vfs.FS, dir string) (bytes int64, err error) {
	err = walk(fsys, dir, "", func(path string, info vfs.FileInfo) error {
		if copied(path) {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, err
}

// walk calls fn for all files in root and in those of its directories that a backup has, with their
// path from there.
func walk(fsys vfs.FS, root, below string, fn func(path string, info vfs.FileInfo) error) error {
	names, err := fsys.List(fsys.PathJoin(root, below))
	if err != nil {
		return err
	}
	for _, name := range names {
		path := fsys.PathJoin(below, name)
		info, err := fsys.Stat(fsys.PathJoin(root, path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.IsDir():
			if below == "" && slices.Contains([]string{pebbleName, logName, snapshotName, runName}, name) {
				err = walk(fsys, root, path, fn)
			}
		default:
			err = fn(path, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Restore copies the data directory or backup from to a new directory dir,
// which appears only when it is whole and durable. Nothing is linked: a server
// goes on writing in dir, and from stays as it is. progress is told the bytes
// copied so far and in all.
func Restore(fsys vfs.FS, from, dir string, progress func(done, total int64)) error {
	if err := CheckTarget(fsys, from, dir); err != nil {
		return err
	}
	lock, err := lockDir(fsys, from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	var meta Meta
	var b []byte
	if err = noLinks(fsys, from, metaName); err == nil {
		b, err = disk.ReadFile(fsys, fsys.PathJoin(from, metaName), metaMaxSize)
	}
	if err == nil {
		meta, err = decodeMeta(b)
	}
	total := int64(0)
	if err == nil {
		total, err = treeSize(fsys, from)
	}
	if err == nil {
		err = publish(fsys, dir, func(aside string) error {
			done := int64(0)
			err := copyTree(fsys, from, aside, func(n int) {
				done += int64(n)
				progress(done, total)
			})
			if err != nil {
				return err
			}
			return writeCopyOf(meta, fsys, aside)
		})
	}
	return wrap("restore", errors.Join(err, lock.Close()))
}

// passing reports whether a file of a data directory belongs to the process that has or had it
// open: the lock, the spare, when it was backed up, a node's own values, where other regions are,
// another replica's files, and what Open would remove; or is written anew: META.
func passing(path string) bool {
	if strings.HasPrefix(path, CutName) || strings.HasPrefix(path, IncomingName) {
		return true
	}
	return path == lockName || path == spareName || path == metaName || path == backupName ||
		path == ValuesName || path == WitnessName || path == RegionsName || path == FollowersName ||
		strings.HasSuffix(path, disk.TmpSuffix) || strings.HasSuffix(path, oplog.RecycledSuffix)
}

// copied reports whether Restore takes a file: one that a backup has. A data directory may hold
// others, a log file or the server's users, which are not data.
func copied(path string) bool {
	return backupPath.MatchString(filepath.ToSlash(path)) && !passing(path)
}

// noLinks refuses a path below root that leads over a link, or to a device. A link in a backup can
// lead to files that its author must not read.
func noLinks(fsys vfs.FS, root, path string) error {
	if vfs.Root(fsys) != vfs.Default {
		return nil // it has no links
	}
	at := root
	for name := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		at = fsys.PathJoin(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if mode := info.Mode(); !mode.IsRegular() && !mode.IsDir() {
			return fmt.Errorf("%s is neither a file nor a directory (%v): a backup has no links", at,
				mode.Type())
		}
	}
	return nil
}

// copyTree copies all files that a backup has, durably.
func copyTree(fsys vfs.FS, from, to string, progress func(n int)) error {
	return walk(fsys, from, "", func(path string, _ vfs.FileInfo) error {
		if !copied(path) {
			return nil
		}
		if err := noLinks(fsys, from, path); err != nil {
			return err
		}
		target := fsys.PathJoin(to, path)
		if err := disk.MakeDir(fsys, fsys.PathDir(target)); err != nil {
			return err
		}
		if err := disk.CopyFile(fsys, fsys.PathJoin(from, path), target, progress); err != nil {
			return err
		}
		return disk.SyncDir(fsys, fsys.PathDir(target))
	})
}
