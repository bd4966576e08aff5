package commands

import (
	"strings"
	"testing"
)

// TestReadsNeedReadPermission: each command that tells what a key holds or remembers needs
// permission to read it.
func TestReadsNeedReadPermission(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	c.play([]step{{"CTABLE CREATE t PREFIX k TOP 1", "+OK"}, {"FBF.ADD f x", ":1"}, {"CINCRBY k id 1", ":1"},
		{"ACL SETUSER w on nopass +@all %W~*", "+OK"},
		{"ACL SETUSER r on nopass +@all %R~*", "+OK"}})
	for user, allowed := range map[string]bool{"w": false, "r": true} {
		c.play([]step{{"AUTH " + user + " x", "+OK"}})
		for _, line := range []string{"CSEEN k id", "FBF.EXISTS f x", "FBF.MEXISTS f x y", "FBF.CARD f",
			"FBF.INFO f", "CGET k", "GET k", "CTOP k 1"} {
			if got := c.say(line); strings.Contains(got, "NOPERM") == allowed {
				t.Errorf("%s of the user %s: %s", line, user, got)
			}
		}
	}
}
