package persistence

import (
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeCategory labels our own files in Pebble's disk statistics.
const writeCategory = vfs.WriteCategoryUnspecified

// syncDir makes the names in a directory durable.
func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir creates dir and its missing parents, durably.
func makeDir(fsys vfs.FS, dir string) error {
	var missing []string // deepest first
	for d := dir; ; d = fsys.PathDir(d) {
		_, err := fsys.Stat(d)
		if err == nil || d == fsys.PathDir(d) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range missing {
		if err := syncDir(fsys, fsys.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces a small file atomically and durably: written aside,
// fsynced, renamed, directory fsynced.
func writeFile(fsys vfs.FS, dir, name string, content []byte) error {
	path := fsys.PathJoin(dir, name)
	f, err := fsys.Create(path+tmpSuffix, writeCategory)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, removeIfExists(fsys, path+tmpSuffix))
	}
	if err := fsys.Rename(path+tmpSuffix, path); err != nil {
		return errors.Join(err, removeIfExists(fsys, path+tmpSuffix))
	}
	return syncDir(fsys, dir)
}

// readFile reads a file of at most limit bytes, and one byte more of a longer
// one, so that the caller notices.
func readFile(fsys vfs.FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	return b, errors.Join(err, f.Close())
}

func removeIfExists(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
