package commands

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestClientTracking: as Redis answers a client that never turned it on.
func TestClientTracking(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	c.play([]step{
		{"CLIENT TRACKING OFF", "+OK"},
		{"CLIENT TRACKING x", "-ERR syntax error"},
		{"CLIENT TRACKING ON OPTIN", "-ERR CLIENT TRACKING is not supported: there is no client-side " +
			"caching here"},
		{"CLIENT CACHING YES", "-ERR CLIENT CACHING can be called only when the client is in tracking " +
			"mode with OPTIN or OPTOUT mode enabled"},
		{"CLIENT GETREDIR", ":-1"},
		{"CLIENT TRACKINGINFO", `["flags" ["off"] "redirect" :-1 "prefixes" []]`},
		{"CLIENT UNBLOCK 12", "-ERR CLIENT UNBLOCK is not supported: no command waits for keys"},
		{"CLIENT NO-TOUCH on", "-ERR CLIENT NO-TOUCH is not supported: keys have no access times"},
		{"CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range"},
		{"CLIENT KILL MAXAGE 0", "-ERR maxage is not an integer or out of range"},
		{"CLIENT KILL MAXAGE 1000 SKIPME no", ":0"},
	})
	c.session.created = time.Now().Add(-1001 * time.Second)
	c.play([]step{{"CLIENT KILL MAXAGE 1000", ":0"}, {"CLIENT KILL MAXAGE 1000 SKIPME no", ":1"}})
	if !c.session.Closing() {
		t.Error("it goes on")
	}
}

// TestClientInfoFields expects the fields of Redis 7.0.15's CLIENT LIST in their
// order, then those that 7.2 added.
func TestClientInfoFields(t *testing.T) {
	const fields = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem " +
		"multi-mem rbs rbp " +
		"obl oll omem tot-mem events cmd user redir resp lib-name lib-ver"
	c := dial(t, newStore(t), new(Server))
	c.send("CLIENT SETNAME me", "GET k")
	for _, say := range []string{"CLIENT INFO", "CLIENT LIST"} {
		_, line, _ := strings.Cut(c.send(say), "\r\n")
		var names []string
		for _, m := range regexp.MustCompile(`([a-z-]+)=`).FindAllStringSubmatch(line, -1) {
			names = append(names, m[1])
		}
		if got := strings.Join(names, " "); got != fields {
			t.Errorf("%s has %s", say, got)
		}
		if cmd := " cmd=" + strings.ToLower(strings.Replace(say, " ", "|", 1)) +
			" "; !strings.Contains(line, cmd) || !strings.Contains(line, " name=me ") {
			t.Errorf("%s: %s", say, line)
		}
	}
	c.send("MULTI", "GET k")
	if line := c.session.describe(time.Now()); !strings.Contains(line, " flags=x ") ||
		!strings.Contains(line, " multi=1 ") {
		t.Error(line)
	}
}

// TestStandalone: answers of a server without replicas, cluster and modules.
func TestStandalone(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	const disabled = "-ERR This instance has cluster support disabled"
	c.play([]step{
		{"CLUSTER INFO", disabled}, {"CLUSTER SLOTS", disabled}, {"READONLY", disabled},
		{"READWRITE", disabled}, {"ASKING", disabled},
		{"CLUSTER", "-ERR wrong number of arguments for 'cluster' command"},
		{"REPLICAOF no one", "+OK"}, {"CLUSTER SLAVES x", disabled},
		{"SLAVEOF NO ONE", "-ERR SLAVEOF is not supported: its name is REPLICAOF"},
		{"REPLICAOF localhost 6379", "-ERR REPLICAOF is not supported: nodes of a cluster replicate " +
			"counters, see fbfkv cluster"},
		{"FAILOVER", "-ERR FAILOVER requires connected replicas."},
		{"PSYNC ? -1",
			"-ERR PSYNC is not supported: nodes of a cluster replicate counters, see fbfkv cluster"},
		{"MODULE LIST", "[]"},
		{"MODULE LOAD x", "-ERR MODULE LOAD is not supported: there are no modules here"},
		{"SHUTDOWN ABORT", "-ERR No shutdown in progress."}, {"SHUTDOWN SAVE NOSAVE", "-ERR syntax error"},
		{"SHUTDOWN ABORT NOW", "-ERR syntax error"},
	})
	if got := c.say("DEBUG SLEEP 0"); !strings.HasPrefix(got, "-ERR DEBUG") {
		t.Error(got)
	}
}

// TestKilledOnce: a client that was killed is gone for other commands at once,
// although its connection may take a moment to close.
func TestKilledOnce(t *testing.T) {
	srv := new(Server)
	other := NewSession(8, "127.0.0.1:50001", "127.0.0.1:6379", srv)
	c := dial(t, newStore(t), srv)
	srv.Sessions = func() []*Session { return []*Session{c.session, other} }
	srv.Kill = func(match func(*Session) bool) (n int) {
		for _, s := range srv.Sessions() {
			n += int(bit(match(s)))
		}
		return n
	}
	c.play([]step{{"CLIENT KILL TYPE normal", ":1"}, {"CLIENT KILL TYPE normal", ":0"},
		{"CLIENT KILL ID 8", ":0"}})
	if got := c.say("CLIENT LIST"); strings.Contains(got, "id=8 ") {
		t.Error(got)
	}
}
