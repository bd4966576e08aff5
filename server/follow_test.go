package server

import (
	"strings"
	"testing"
)

// TestFollowCommand: CFOLLOW answers what has changed behind a cursor, waits for it without holding up
// others, and shows no more than the client may read.
func TestFollowCommand(t *testing.T) {
	s := start(t)
	c, other := s.dial(t), s.dial(t)
	cursorOf := func(reply string) string { return strings.TrimPrefix(strings.Fields(reply)[0], "[") }
	c.do("CINCRBY", "a:1", "x", "5")
	c.do("CINCRBY", "b:1", "x", "5")
	now := cursorOf(c.do("CFOLLOW", "g", "now"))
	reply := c.do("CFOLLOW", "g", "START", "PREFIX", "a:")
	if !strings.Contains(reply, " add a:1 x :5 :5 :") || strings.Contains(reply, "b:1") {
		t.Errorf("the changes of a: are %s", reply)
	}
	if reply := c.do("CFOLLOW", "g", now); reply != "["+now+" []]" {
		t.Errorf("nothing has changed: %s", reply)
	}
	all, at := "", "SNAPSHOT"
	for before := ""; before != at; {
		reply := c.do("CFOLLOW", "g", at, "PREFIX", "b:")
		all, before, at = all+reply, at, cursorOf(reply)
	}
	if strings.Count(all, " value b:1 ") != 1 || strings.Contains(all, "a:1") {
		t.Errorf("the counters of b: are %s", all)
	}
	if info := c.do("INFO", "fbf"); !strings.Contains(info, "\nfollower0:name=g,lag_bytes=0,kept_bytes=0\r\n") {
		t.Errorf("INFO has no group g without a lag:\n%s", info)
	}
	c.send(frame("CFOLLOW", "g", now, "BLOCK", "60000", "PREFIX", "a:"))
	other.do("CINCRBY", "b:1", "y", "5")
	other.expect(":7", "CINCRBY", "a:1", "y", "2")
	if reply = c.reply(); !strings.Contains(reply, " add a:1 y :2 :7 :") || strings.Contains(reply, "b:1") {
		t.Errorf("after a wait: %s", reply)
	}
	c.expect("+OK", "ACL", "SETUSER", "u", "on", "nopass", "+cfollow", "~b:*")
	other.expect("+OK", "AUTH", "u", "x")
	if reply := other.do("CFOLLOW", "h", "START"); strings.Contains(reply, "a:1") || !strings.Contains(reply, "b:1") {
		t.Errorf("a user who may read b: is told %s", reply)
	}
	for _, bad := range [][]string{{"g"}, {"g", "x"}, {"g", "NOW", "COUNT", "0"}, {"g", "NOW", "BLOCK", "60001"},
		{"g", "NOW", "BLOCK"}, {"g", "NOW", "PREFIX"}, {"a b", "NOW"}, {"g", "NOW", "NOW"}} {
		if reply := c.do(append([]string{"CFOLLOW"}, bad...)...); !strings.HasPrefix(reply, "-ERR ") {
			t.Errorf("CFOLLOW %q: %s", bad, reply)
		}
	}
}
