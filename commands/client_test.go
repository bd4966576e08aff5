package commands

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/commands/tracking"
	"github.com/fbfkv/fbfkv/store"
)

// TestClientTracking: as Redis answers a client that never turned it on.
func TestClientTracking(t *testing.T) {
	c := dial(t, newStore(t), new(Server))
	c.play([]step{
		{"CLIENT TRACKING OFF", "+OK"},
		{"CLIENT TRACKING x", "-ERR syntax error"},
		{"CLIENT TRACKING ON OPTIN", "-" + errOnlyBcast.Error()},
		{"CLIENT TRACKING ON PREFIX a", "-" + errOnlyBcast.Error()},
		{"CLIENT TRACKING ON BCAST OPTOUT", "-ERR OPTIN and OPTOUT are not compatible with BCAST"},
		{"CLIENT TRACKING ON BCAST REDIRECT 3", "-" + errRedirect.Error()},
		{"CLIENT TRACKING ON BCAST REDIRECT x", "-ERR value is not an integer or out of range"},
		{"CLIENT TRACKING ON BCAST", "-ERR CLIENT TRACKING needs RESP3: send HELLO 3 first"},
		{"CLIENT TRACKING ON BCAST PREFIX", "-ERR syntax error"},
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

// TestTrackingInACluster: where other nodes may begin to answer, or a replica lacks what was committed for
// too long, a client is told that any key may have changed.
func TestTrackingInACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := twoShards()
		l := newIsland(v)
		var told, behind atomic.Int64
		l.Behind = func() time.Duration { return time.Duration(behind.Load()) }
		srv := &Server{Cluster: &l.Cluster, Push: func(_ *Session, b []byte) error {
			told.Add(int64(strings.Count(string(b), string(tracking.All))))
			return nil
		}}
		c := dial(t, new(store.Store), srv)
		c.say("HELLO 3")
		if got := c.say("CLIENT TRACKING ON BCAST"); got != "+OK" {
			t.Fatal(got)
		}
		c.session.Answered()
		expect := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := told.Swap(0) > 0; got != want {
				t.Errorf("%s: told %v", what, got)
			}
		}
		expect("nothing happens", false)
		v.Shards[0].Leader = 1
		l.show(v)
		expect("another node leads", true)
		l.show(v)
		expect("the view changes again", true)
		time.Sleep(time.Minute)
		expect("time goes by", false)
		behind.Store(int64(time.Hour))
		time.Sleep(2 * time.Second)
		expect("a replica is behind", true)
		c.session.End()
	})
}

// TestTrackedPrefixesAreFew: what a client may name is bounded, also over several requests.
func TestTrackedPrefixesAreFew(t *testing.T) {
	c := dial(t, new(store.Store), &Server{Push: func(*Session, []byte) error { return nil }})
	c.say("HELLO 3")
	request := func(letter string, n, length int) (r string) {
		r = "CLIENT TRACKING ON BCAST"
		for i := range n {
			r += fmt.Sprintf(" PREFIX %s%0*d%05d", letter, length, 0, i)
		}
		return r
	}
	c.play([]step{
		{request("a", 1025, 1), "-" + errPrefixes.Error()},
		{request("a", 1, 64<<10), "-" + errPrefixes.Error()},
		{request("a", 1000, 2), "+OK"},
		{request("a", 25, 1), "-" + errPrefixes.Error()},
		{request("a", 1, 60<<10), "-" + errPrefixes.Error()},
		{request("b", 24, 1), "+OK"},
	})
	c.session.End()
}
