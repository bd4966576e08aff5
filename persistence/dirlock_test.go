//go:build unix

package persistence

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestMissingLockFile: who has deleted LOCK has not freed the directory. A second
// process is refused before it has created anything there.
func TestMissingLockFile(t *testing.T) {
	o := Options{Dir: t.TempDir(), MemTableSize: 1 << 20}
	db := mustOpen(t, o)
	defer mustClose(t, db)
	lock := filepath.Join(o.Dir, lockName)
	// Under another name, for a process knows the names that it has locked itself.
	o.Dir = filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Remove(lock), os.Symlink(db.dir, o.Dir)); err != nil {
		t.Fatal(err)
	}
	if second, err := Open(o); !errors.Is(err, ErrInUse) {
		t.Fatal("a second server has opened the directory:", second, err)
	}
	if second, err := OpenReadOnly(o); !errors.Is(err, ErrInUse) {
		t.Fatal("check has opened the directory:", second, err)
	}
	if err := Restore(db.fs, o.Dir, t.TempDir(), func(int64, int64) {}); !errors.Is(err, ErrInUse) {
		t.Fatal("restore has read the directory:", err)
	}
	if _, err := os.Stat(lock); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("it was touched:", err)
	}
	if err := db.CheckIdentity(); err != nil {
		t.Fatal("the directory is what it was:", err)
	}
}

// TestReplacedDirectory: a directory that is moved, deleted or replaced, even by a copy
// under its name, is noticed.
func TestReplacedDirectory(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+"2") },
		"deleted": os.RemoveAll,
		"emptied": func(dir string) error { return os.Remove(filepath.Join(dir, metaName)) },
		"log":     func(dir string) error { return os.RemoveAll(filepath.Join(dir, logName)) },
		"runs":    func(dir string) error { return os.RemoveAll(filepath.Join(dir, runName)) },
		"snapshots": func(dir string) error {
			return os.Rename(filepath.Join(dir, snapshotName), filepath.Join(dir, "old"))
		},
		"copied": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"2"), os.CopyFS(dir, os.DirFS(dir+"2")))
		},
		"restored in place": func(dir string) error {
			meta := filepath.Join(dir, metaName)
			b, err := os.ReadFile(meta)
			return errors.Join(err, os.WriteFile(meta+"2", b, 0o600), os.Rename(meta+"2", meta))
		},
		"another file": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: filepath.Join(t.TempDir(), "data"), MemTableSize: 1 << 20}
			db := mustOpen(t, o)
			if err := db.CheckIdentity(); err != nil {
				t.Fatal(err)
			}
			if err := change(o.Dir); err != nil {
				t.Fatal(err)
			}
			if err := db.CheckIdentity(); !errors.Is(err, ErrReplaced) {
				t.Fatal("it is not noticed:", err)
			}
			_ = db.Close() // may fail: what it writes by name is gone
		})
	}
}
