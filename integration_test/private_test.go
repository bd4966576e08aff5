//go:build unix

package integration

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"testing"
)

// TestFilesArePrivate: what the server, a backup and a restore create is for their user alone.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	backup, restored := filepath.Join(dir, "deep", "backup"), filepath.Join(dir, "restored")
	s := startServer(t, "--backup-dir", dir)
	c := s.dial()
	c.want(":1", "CINCRBY", "k", "id", "1")
	c.want(":1", "FBF.ADD", "f", "x")
	c.want("+OK", "SAVE")
	c.want(strconv.Quote(backup), "BACKUP", "deep/backup")
	if out, code := fbfkv(t, "restore", backup, restored); code != 0 {
		t.Fatal(out)
	}
	seen := 0
	look := func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || path == s.dir { // which the test has created
			return err
		}
		info, err := d.Info()
		if seen++; err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	}
	for _, root := range []string{dir, s.dir} {
		if err := filepath.WalkDir(root, look); err != nil {
			t.Fatal(err)
		}
	}
	if seen < 20 {
		t.Errorf("%d files and directories", seen)
	}
}
