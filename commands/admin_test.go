package commands

import (
	"strings"
	"testing"
)

// TestBackup: BACKUP answers when the copy is whole, and refuses what it must.
func TestBackup(t *testing.T) {
	st := newStore(t)
	c := dial(t, st, &Server{})
	dir := t.TempDir() + "/one"
	c.play([]step{
		{"CINCRBY k 1 5", ":5"},
		{"BACKUP", "-ERR wrong number of arguments for 'backup' command"},
		{"BACKUP relative/dir", "-ERR BACKUP needs an absolute path, or -, NEXT or VERIFIED"},
		{"BACKUP " + dir, "+OK"},
	})
	if r := c.say("BACKUP " + dir); !strings.HasPrefix(r, "-ERR ") || !strings.Contains(r, dir+" is not empty") {
		t.Errorf("a second backup to the same place: %s", r)
	}
	if r := c.say("INFO persistence"); !strings.Contains(r, "backup_in_progress:0") {
		t.Errorf("INFO persistence: %s", r)
	}
}
