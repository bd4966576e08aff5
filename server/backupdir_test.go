package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupPath: BACKUP writes below backup-dir and nowhere else, whatever names and links say.
func TestBackupPath(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	for _, dir := range []string{in("data"), in("top", "old"), in("elsewhere")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{in("top", "out"): in("elsewhere"),
		in("top", "dangling"): in("not", "there"), in("top", "up"): "..",
		in("top", "here"): in("top", "old"), in("alias"): in("top"), in("top", "data"): in("data")} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	const outside = "setting backup-dir"
	for _, c := range []struct{ top, name, want, err string }{
		{"", "monday", in("data-backups", "monday"), ""},
		{"", in("data-backups", "monday"), in("data-backups", "monday"), ""},
		{"", in("monday"), "", outside},
		{"", in("data-backups"), "", outside},
		{"", in("data-backups2", "x"), "", outside},
		{in("top"), "a/b", in("top", "a", "b"), ""},
		{in("top"), "a/../b", in("top", "b"), ""},
		{in("top"), "..a", in("top", "..a"), ""},
		{in("top"), "old", in("top", "old"), ""},
		{in("top"), "here/x", in("top", "here", "x"), ""},
		{in("top"), "", "", outside},
		{in("top"), ".", "", outside},
		{in("top"), "..", "", outside},
		{in("top"), "../elsewhere", "", outside},
		{in("top"), "a/../../elsewhere", "", outside},
		{in("top"), in("elsewhere", "x"), "", outside},
		{in("top"), "out", "", "a symbolic link leads from there to " + in("elsewhere")},
		{in("top"), "out/deep/x", "", "a symbolic link leads from there to " + in("elsewhere", "deep", "x")},
		{in("top"), "up/x", "", "a symbolic link"},
		{in("top"), "dangling/x", "", "no such file"},
		{in("alias"), "x", in("alias", "x"), ""},
		{in("alias"), "out/x", "", "a symbolic link"},
		{in(), "data/x", "", "inside the data directory"},
		{in(), "top/data/x", "", "inside the data directory"},
		{in(), "data", "", "inside the data directory"},
	} {
		config := configWith(t, "dir", in("data"), "backup-dir", c.top)
		got, err := config.backupPath(c.name)
		if got != c.want || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("backup-dir %q, BACKUP %q: %q, %v", c.top, c.name, got, err)
		}
	}
}

// TestBackupDir: the command keeps to the setting, which no client changes.
func TestBackupDir(t *testing.T) {
	t.Parallel()
	top, other := t.TempDir(), t.TempDir()
	c := start(t, "backup-dir", top).dial(t)
	c.expect("-ERR BACKUP writes below the setting backup-dir ("+top+") only: give the name of a "+
		"directory there, or - for a stream (fbfkv backup -)",
		"BACKUP", filepath.Join(other, "x"))
	c.expect(filepath.Join(top, "x"), "BACKUP", "x")
	if r := c.do("CONFIG", "SET", "backup-dir", other); !strings.HasPrefix(r, "-ERR") {
		t.Errorf("CONFIG SET: %s", r)
	}
}
