package persistence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRestoreTakesFilesOnly puts into a backup what none has: files of other names are left alone,
// and a link with the name of a file of a backup, or of one of its directories, is refused.
func TestRestoreTakesFilesOnly(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "file"), []byte("a secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, Options{Dir: filepath.Join(dir, "data")})
	writeSnapshot(t, db, 0, 1, []byte("content"))
	mustClose(t, db)
	restore := func(name string, change func(from string) error) (to string, err error) {
		from, to := filepath.Join(dir, name), filepath.Join(dir, name+".restored")
		if err := Restore(vfs.Default, filepath.Join(dir, "data"), from, func(int64, int64) {}); err != nil {
			t.Fatal(err)
		}
		if err := change(from); err != nil {
			t.Fatal(err)
		}
		return to, Restore(vfs.Default, from, to, func(int64, int64) {})
	}
	to, err := restore("names", func(from string) error {
		for _, name := range []string{"users.acl", "log/.hidden", "other"} {
			if err := os.Symlink(secret, filepath.Join(from, name)); err != nil {
				return err
			}
		}
		return os.Symlink(elsewhere, filepath.Join(from, "dir"))
	})
	if err != nil {
		t.Errorf("files of other names: %v", err)
	}
	for _, name := range []string{"users.acl", "log/.hidden", "other", "dir"} {
		if _, err := os.Lstat(filepath.Join(to, name)); err == nil {
			t.Errorf("%s was restored", name)
		}
	}
	if _, err := os.Stat(filepath.Join(to, snapshotName)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"SHARD", "snapshots/extra", "log/extra", "db/extra", "runs", "META"} {
		to, err := restore(strings.ReplaceAll(name, "/", "-"), func(from string) error {
			at, target := filepath.Join(from, name), secret
			switch name {
			case runName:
				target = elsewhere
			case metaName:
				target = filepath.Join(dir, "data", metaName)
			}
			if err := os.RemoveAll(at); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				return err
			}
			return os.Symlink(target, at)
		})
		if err == nil || !strings.Contains(err.Error(), "a backup has no links") {
			t.Errorf("a link %s: %v", name, err)
		}
		if _, err := os.Lstat(to); err == nil {
			t.Errorf("a link %s: there is a directory", name)
		}
	}
}
