package commands

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// newRegion returns a server that may become a region, and a client of it.
func newRegion(t *testing.T) (*Server, *client) {
	st := newStore(t)
	n, err := regions.Open(regions.Options{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	srv := &Server{Regions: n}
	return srv, dial(t, st, srv)
}

// answering listens, and answers all requests with a reply.
func answering(t *testing.T, reply func() string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
					if _, err := c.Write([]byte(reply())); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// said is the string that a reply is.
func said(t *testing.T, reply string) string {
	t.Helper()
	_, rest, ok := strings.Cut(reply, "\r\n")
	if !ok || reply[0] != '$' {
		t.Fatalf("the reply is %q", reply)
	}
	return strings.TrimSuffix(rest, "\r\n")
}

// TestRegion makes one server the first region, and another one the second.
func TestRegion(t *testing.T) {
	a, first := newRegion(t)
	_, second := newRegion(t)
	first.play([]step{
		{"REGION MEMBERS", "-" + string(noRegion)}, {"REGION PAUSE x", "-" + string(noRegion)},
		{"REGION LEAVE yes", "-" + string(noRegion)},
		{"REGION TOKEN", "-" + string(noRegion)}, {"REGION CONFLICTS", "-" + string(noRegion)}, {"REGION WAIT x 0", "-" + string(noRegion)},
		{"REGION ADMIT {}",
			`-ERR the name of a region is 1 to 64 letters, digits, dots, dashes and underscores, and not ""`},
		{"REGION CREATE eu", "-ERR the address at which others reach this region is missing: HOST:PORT"},
		{"REGION CREATE eu a:1 b", "-" + errSyntax.Error()},
		{"REGION", "-ERR wrong number of arguments for 'region' command"},
		{"REGION NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try REGION HELP."},
		{"MULTI", "+OK"}, {"REGION STATUS", "-ERR Command not allowed inside a transaction"},
		{"DISCARD", "+OK"},
	})
	eu := answering(t, func() string {
		set, _ := a.Regions.Members()
		return fmt.Sprintf("$%d\r\n%s\r\n", len(set.Encode()), set.Encode())
	})
	created := said(t, first.send("REGION CREATE eu "+eu))
	if got := said(t, first.send("REGION MEMBERS")); got != created {
		t.Errorf("the members are %s, and were created as %s", got, created)
	}
	if got := said(t, first.send("REGION CONFLICTS")); got != "[]" {
		t.Errorf("the first region has conflicts: %s", got)
	}
	token := said(t, first.send("REGION TOKEN k"))
	first.play([]step{
		{"REGION WAIT " + token + " 0 k", ":1"}, {"REGION WAIT " + token + " 1000 k", ":1"},
		{"REGION WAIT " + token + " 0 k k", "-" + errSyntax.Error()},
		{"REGION WAIT " + token + " -1 k", "-ERR timeout is negative"},
		{"REGION WAIT " + token + " x", "-ERR timeout is not an integer or out of range"},
		{"REGION WAIT " + token[1:] + " 0", "-ERR this is not a token of REGION TOKEN"},
		{"REGION TOKEN k k", "-" + errSyntax.Error()},
		{"REGION CREATE us 127.0.0.1:1", "-ERR this server is the region eu already"},
		{"REGION PAUSE eu", "-ERR this is the region eu itself"},
		{"REGION RESUME us", `-ERR there is no region "us"`}, {"REGION ADMIT [", "-" + string(badRegionJSON)},
		{"REGION ADMIT " + strings.Repeat("x", maxAdmission+1), "-" + string(badRegionJSON)},
		{"REGION JOIN {}", "-" + string(badRegionJSON)},
	})
	var st regions.NodeStatus
	if err := json.Unmarshal([]byte(said(t, second.send("REGION STATUS"))), &st); err != nil || st.Member {
		t.Fatalf("%v, %+v", err, st)
	}
	st.Admission.Name, st.Admission.Address = "us", answering(t, func() string {
		return "-NOREGION this server is not a region\r\n"
	})
	request, _ := json.Marshal(st.Admission)
	set := said(t, first.send(`REGION ADMIT '`+string(request)+`'`))
	second.play([]step{
		{`REGION JOIN '` + set + `'`, "+OK"}, {`REGION JOIN '` + set + `'`, "+OK"},
		{`REGION ADMIT '` + string(request) + `'`, "-ASK " + eu + " the region eu decides who is a member"},
		{"REGION FLUSH", "-ASK " + eu + " the region eu decides who is a member"},
		{"REGION PAUSE eu", "+OK"}, {"REGION RESUME eu", "+OK"},
	})
	if err := json.Unmarshal([]byte(said(t, second.send("REGION STATUS"))), &st); err != nil || !st.Member ||
		len(st.Peers) != 1 || st.Peers[0].Name != "eu" {
		t.Errorf("%v, %+v", err, st)
	}
	if got, _ := a.Regions.Members(); string(got.Encode()) == set || len(got.Members) != 2 {
		t.Errorf("%s", set) // each set says whose it is
	}
	first.play([]step{
		{"REGION LEAVE maybe", "-" + errSyntax.Error()}, {"SET k 1", "+OK"},
	})
	if ends := map[string]uint64{}; json.Unmarshal([]byte(said(t, first.send("REGION LEAVE YES"))),
		&ends) != nil || len(ends) != a.Regions.Store.Meta().Partitions {
		t.Errorf("it leaves at %v", ends)
	}
	first.play([]step{{"INCR k", "-READONLY nothing was applied: " + store.ErrLeaving.Error()},
		{"GET k", `"1"`}})
	if err := json.Unmarshal([]byte(said(t, first.send("REGION STATUS"))), &st); err != nil || !st.Leaving ||
		len(st.Ills) != 1 {
		t.Errorf("%v, %+v", err, st)
	}
	if got := said(t, first.send("REGION LEAVE no")); got != "{}" {
		t.Errorf("it stays: %s", got)
	}
	first.play([]step{
		{"INCR k", ":2"},
		{"REGION REMOVE us", "-ERR wrong number of arguments for 'region|remove' command"},
		{"REGION REMOVE us us", "-ERR the region us cannot be its own heir"},
		{"REGION REMOVE eu x", `-ERR there is no region "x"`},
		{"REGION REMOVE x us", `-ERR there is no region "x" to be the heir`},
		{"REGION FLUSH now", "-ERR wrong number of arguments for 'region|flush' command"},
		{"SET k 1", "+OK"}, {"FLUSHALL", "-ERR " + store.ErrRegionFlush.Error()}, {"REGION FLUSH", "+OK"},
		{"DBSIZE", ":0"},
		{"REGION REMOVE eu us us", "+OK"}, {"REGION REMOVE eu us", "+OK"},
		{"REGION REMOVE eu us x", `-ERR there is no region "x"`},
	})
	if got, _ := a.Regions.Members(); len(got.Members) != 2 || !got.Members[1].Gone || got.Era != 1 {
		t.Errorf("%+v", got)
	}
}

// TestRegionElsewhere: a node outside a cluster refuses all of REGION; and a node of a cluster that
// knows too little tells other regions nothing.
func TestRegionElsewhere(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	for _, line := range []string{"REGION CREATE a b:1",
		"REGION ADMIT {}", "REGION JOIN {}", "REGION MEMBERS", "REGION STATUS", "REGION PAUSE a",
		"REGION RESUME a", "REGION REMOVE a b", "REGION LEAVE yes", "REGION FLUSH"} {
		if got := c.say(line); got != "-"+string(noRegionCluster) {
			t.Errorf("%s: %s", line, got)
		}
	}
	st := newStore(t)
	own := store.RegionMember{Name: "r0", Partitions: st.Meta().Partitions,
		Incarnation: st.Meta().Incarnation}
	other := store.RegionMember{Region: 1, Name: "r1", Partitions: own.Partitions}
	if err := st.SetRegions(store.RegionSet{Group: 1,
		Members: []store.RegionMember{own, other}}); err != nil {
		t.Fatal(err)
	}
	if got := dial(t, st, &Server{}).say("REGION STATUS"); got != "-ERR this server is the region r0, and "+
		"cannot become a node of a cluster: start it with cluster-enabled no" {
		t.Errorf("a region: %s", got)
	}
	srv, _ := newRegion(t)
	l := newIsland(after(longLost))
	l.hold, srv.Cluster = time.Second, &l.Cluster
	c = dial(t, newStore(t), srv)
	if got := c.say("REGION.PULL MEMBERS 1 0"); got != "-ERR the shard has no leader" {
		t.Errorf("without a leader: %s", got)
	}
}
