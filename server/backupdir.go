package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// backupDir is where backup-dir is.
func (c *Config) backupDir() string {
	if c.BackupDir == "" {
		return absolute(c.Dir) + "-backups"
	}
	return absolute(c.BackupDir)
}

// backupPath returns the directory that BACKUP writes to for a name: only one below backup-dir, wherever
// symbolic links lead. A relative name begins there.
func (c *Config) backupPath(name string) (string, error) {
	top := c.backupDir()
	path := filepath.Clean(name)
	if !filepath.IsAbs(path) {
		path = filepath.Join(top, path)
	}
	if !isBelow(top, path) {
		return "", fmt.Errorf("BACKUP writes below the setting backup-dir (%s) only: give the name of a "+
			"directory there, or - for a stream (fbfkv backup -)", top)
	}
	realTop, err := resolve(top)
	if err != nil {
		return "", err
	}
	realPath, err := resolve(path)
	if err != nil {
		return "", err
	}
	data, err := resolve(absolute(c.Dir))
	if err != nil {
		return "", err
	}
	if !isBelow(realTop, realPath) {
		return "", fmt.Errorf("BACKUP writes below the setting backup-dir (%s) only, and a symbolic link "+
			"leads from there to %s", top, realPath)
	}
	if realPath == data || isBelow(data, realPath) {
		return "", fmt.Errorf("%s is inside the data directory", path)
	}
	return path, nil
}

// isBelow reports whether a path is within a directory and not the directory itself. Both are absolute.
func isBelow(dir, path string) bool {
	inside, err := filepath.Rel(dir, path)
	return err == nil && inside != "." && inside != ".." &&
		!strings.HasPrefix(inside, ".."+string(filepath.Separator))
}

// resolve follows the symbolic links of an absolute path as far as it exists.
func resolve(path string) (string, error) {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return filepath.EvalSymlinks(path)
	case !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path):
		return "", err
	}
	parent, err := resolve(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}
