package commands

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackup: BACKUP answers when the copy is whole, and refuses what it must.
func TestBackup(t *testing.T) {
	st := newStore(t)
	top := t.TempDir()
	c := dial(t, st, &Server{BackupPath: func(name string) (string, error) {
		if name == "elsewhere" {
			return "", errors.New("not there")
		}
		return filepath.Join(top, name), nil
	}})
	dir := filepath.Join(top, "one")
	c.play([]step{
		{"CINCRBY k 1 5", ":5"},
		{"BACKUP", "-ERR wrong number of arguments for 'backup' command"},
		{"BACKUP elsewhere", "-ERR not there"},
		{"BACKUP one", `"` + dir + `"`},
	})
	if r := dial(t, st, &Server{}).say("BACKUP " + dir + "2"); !strings.HasPrefix(r,
		"-ERR BACKUP writes to no directory") {
		t.Errorf("without a place for backups: %s", r)
	}
	if r := c.say("BACKUP one"); !strings.HasPrefix(r, "-ERR ") || !strings.Contains(r, dir+" is not empty") {
		t.Errorf("a second backup to the same place: %s", r)
	}
	if r := c.say("INFO persistence"); !strings.Contains(r, "backup_in_progress:0") {
		t.Errorf("INFO persistence: %s", r)
	}
}
