package commands

import (
	"strings"
	"testing"
)

// moneyCommands are the commands of holds, of drains and of throttles, and whether they write. All of them
// tell something of the key.
var moneyCommands = map[string]bool{
	"CHOLD {bar} h 2 EX 100": true, "CSETTLE {bar} h 1": true, "CCANCEL {bar} x": true, "CHELD {bar}": false,
	"CHOLDS {bar}": false, "CGETDEL {bar} d": true, "CL.THROTTLE {bar} 1 1 1": true,
	"CL.THROTTLE {bar} 1 1 1 1 OPID t": true,
}

// TestMoneyNeedsPermission: each of them needs permission to read the key, and what writes also to write it.
func TestMoneyNeedsPermission(t *testing.T) {
	for line, writes := range moneyCommands {
		for _, tt := range []struct {
			rule    string
			allowed bool
		}{{"+@all %RW~{bar}", true}, {"+@all %R~{bar}", !writes}, {"+@all %W~{bar}", false},
			{"+@all ~foo", false}, {"+@all -@counter ~*", false}, {"+@read ~*", !writes}} {
			c := dial(t, newStore(t), new(Server))
			c.play([]step{{"ACL SETUSER u on nopass " + tt.rule, "+OK"}, {"AUTH u x", "+OK"}})
			if got := c.say(line); strings.Contains(got, "NOPERM") == tt.allowed {
				t.Errorf("%s with %s: %s", line, tt.rule, got)
			}
		}
	}
}

// TestMoneyIsRouted: a replica sends all of them to the leader, or answers those that only read once the
// client has said READONLY; keys of another shard are sent there.
func TestMoneyIsRouted(t *testing.T) {
	for line, writes := range moneyCommands {
		l := newIsland(after(asReplica))
		l.hold = 0
		c := dial(t, newStore(t), &Server{Cluster: &l.Cluster})
		c.play([]step{{line, toLeader}, {strings.Replace(line, "{bar}", "foo", 1), toOther}, {"READONLY", "+OK"}})
		if got := c.say(line); (got == toLeader) != writes {
			t.Errorf("%s behind READONLY: %s", line, got)
		}
	}
}

// TestMoneyInRESP3: the replies are as in RESP2.
func TestMoneyInRESP3(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	c.say("HELLO 3")
	c.play([]step{
		{"CHOLD k h 5 EX 100 WITHSTATUS", "[:5 :1]"}, {"CHELD k", "[:0 :5 :0 :1]"},
		{"CHOLD k old 1 PXAT 32503680000000", ":6"},
		{"CSETTLE k h 3 WITHSTATUS", "[:3 :1]"}, {"CSETTLE k h 3", ":3"},
		{"CSETTLE k h 2", "-ENDED hold was settled with 3"}, {"CCANCEL k none", "-NOHOLD no hold with this opid is known"},
		{"CHOLDS k", `["0" [["old" :1 :32503680000000]]]`}, {"CCANCEL k old WITHSTATUS", "[:3 :1]"},
		{"CGETDEL k d", `"3"`}, {"CGETDEL k d", `"3"`}, {"CGETDEL k d2", "nil"}, {"CHELD k", "[:0 :0 :0 :0]"},
		{"CL.THROTTLE t 2 1 60", "[:0 :3 :2 :-1 :60]"},
	})
}
