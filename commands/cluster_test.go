package commands

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/store"
)

// island is a cluster whose views are the test's.
type island struct {
	Cluster
	view    atomic.Pointer[ClusterView]
	changed atomic.Pointer[chan struct{}]
	hold    time.Duration
}

// nodeID is the id of node n of shard s.
func nodeID(s, n int) string { return fmt.Sprintf("%040x", 16*(s+1)+n) }

// twoShards are two shards of two nodes each; this node is the first one of the first
// shard, which has the slots below 8192.
func twoShards() ClusterView {
	v := ClusterView{Node: nodeID(0, 0), Epoch: 3}
	for s, slots := range [][]SlotRange{{{0, 8190}, {8191, 8191}}, {{8192, 16383}}} {
		shard := ClusterShard{ID: fmt.Sprintf("%040x", s+1), Slots: slots, Ready: true, Term: 7}
		for n := range 2 {
			shard.Nodes = append(shard.Nodes,
				ClusterNode{ID: nodeID(s, n), Host: fmt.Sprintf("10.0.%d.%d", s, n), Port: 7000,
					TLSPort: 7001, ClusterPort: 17000})
		}
		v.Shards = append(v.Shards, shard)
	}
	return v
}

// newIsland returns a cluster that begins with a view.
func newIsland(v ClusterView) *island {
	l := &island{hold: time.Hour}
	l.Cluster = Cluster{
		View:     l.view.Load,
		Changed:  func() <-chan struct{} { return *l.changed.Load() },
		HoldFor:  func() time.Duration { return l.hold },
		MaxStale: func() time.Duration { return 10 * time.Minute },
		Endpoint: func() string { return EndpointIP },
	}
	l.show(v)
	return l
}

// show makes v the view.
func (l *island) show(v ClusterView) {
	next := make(chan struct{})
	l.view.Store(NewClusterView(v))
	if before := l.changed.Swap(&next); before != nil {
		close(*before)
	}
}

// The views that tests begin with.
var (
	asLeader   = func(*ClusterView) {}
	asReplica  = func(v *ClusterView) { v.Shards[0].Leader = 1 }
	asCaptain  = func(v *ClusterView) { v.Shards[0].Ready = false } // elected, and not ready yet
	dying      = func(v *ClusterView) { v.Shards[0].Leader, v.Shards[0].Nodes[1].Failed = 1, true }
	leaderless = func(v *ClusterView) { v.Shards[0].Leader, v.Shards[0].LostAt = 1, time.Now() }
	longLost   = func(v *ClusterView) {
		v.Shards[0].Leader, v.Shards[0].LostAt = 1, time.Now().Add(-11*time.Minute)
	}
	noMember = func(v *ClusterView) { v.Shards = nil }
	unserved = func(v *ClusterView) { v.Shards = v.Shards[:1] }
)

// after is twoShards with changes.
func after(changes ...func(*ClusterView)) ClusterView {
	v := twoShards()
	for _, change := range changes {
		change(&v)
	}
	return v
}

const (
	here      = "{bar}" // slot 5061
	alsoHere  = "aa"    // slot 1180
	elsewhere = "foo"   // slot 12182
	crossed   = "-CROSSSLOT Keys in request don't hash to the same slot"
	noLeader  = "-CLUSTERDOWN The shard has no leader at the moment; nothing was applied"
	toOther   = "-MOVED 12182 10.0.1.0:7000"
	toLeader  = "-MOVED 5061 10.0.0.1:7000"
)

// TestRouting says, for each standing of the node, what becomes of a request.
func TestRouting(t *testing.T) {
	for _, tt := range []struct {
		name  string
		as    func(*ClusterView)
		steps []step
	}{
		{"the leader", asLeader, []step{
			{"INCR {bar}", ":1"}, {"CINCRBY {bar} id 2", ":3"}, {"GET foo", toOther},
			{"CINCR foo id", toOther},
			{"MGET {bar} {bar}1", `["3" nil]`}, {"MGET {bar} aa", crossed}, {"MSET {bar} 1 foo 1", crossed},
			{"CMINCRBY op 2 {bar} 1 {bar}2 1", "[:4 :1]"}, {"CMINCRBY op2 2 {bar} 1 aa 1", crossed},
			{"CMINCRBY op2 9 {bar} 1 aa 1", "-ERR numkeys does not match the number of arguments"},
			{"WATCH {bar} aa", crossed}, {"EXISTS foo foo", toOther}, {"FBF.ADD {bar}f x", ":1"},
			{"OBJECT ENCODING foo", toOther},
			{"DBSIZE", ":3"}, {"PING", "+PONG"}, {"CTABLE CREATE t PREFIX t:", "+OK"}, {"FLUSHALL", "+OK"},
			{"DBSIZE", ":0"},
			{"GET", "-ERR wrong number of arguments for 'get' command"},
			{"SELECT 0", "+OK"}, {"SELECT 1", "-ERR SELECT is not allowed in cluster mode"},
			{"REPLICAOF NO ONE", "-ERR REPLICAOF not allowed in cluster mode."},
			{"RENAME {bar} foo", "-ERR RENAME is not supported: " + identityReason},
		}},
		{"a replica", asReplica, []step{
			{"GET {bar}", toLeader}, {"INCR {bar}", toLeader}, {"GET foo", toOther}, {"READONLY", "+OK"},
			{"GET {bar}", "nil"}, {"MGET {bar} aa", crossed}, {"GET foo", toOther}, {"INCR {bar}", toLeader},
			{"CSEEN {bar} id", "nil"},
			{"WATCH {bar}", toLeader}, {"FLUSHALL", "-MOVED 0 10.0.0.1:7000"},
			{"CTABLE CREATE t PREFIX t:", "-MOVED 0 10.0.0.1:7000"},
			{"CTABLE LIST", `["default" ""]`}, {"DBSIZE", ":0"}, {"READWRITE", "+OK"},
			{"GET {bar}", toLeader},
			{"READONLY", "+OK"}, {"RESET", "+RESET"}, {"GET {bar}", toLeader},
			{"WAIT 1 1", "-" + errWaitOnReplica.Error()},
		}},
		{"a replica that has lost its leader", leaderless, []step{
			{"GET {bar}", noLeader}, {"GET foo", toOther}, {"FLUSHALL", noLeader}, {"READONLY", "+OK"},
			{"GET {bar}", "nil"}, {"INCR {bar}", noLeader},
		}},
		{"a stale replica", longLost, []step{
			{"GET {bar}", noLeader}, {"READONLY", "+OK"},
			{"GET {bar}", "-MASTERDOWN Link with MASTER is down for longer than cluster-replica-max-stale"},
			{"DBSIZE", ":0"},
			{"CFOLLOW g NOW", "-MASTERDOWN Link with MASTER is down for longer than cluster-replica-max-stale"},
		}},
		{"a replica whose leader has just died", dying, []step{
			{"GET {bar}", noLeader}, {"READONLY", "+OK"}, {"GET {bar}", "nil"}, {"INCR {bar}", noLeader},
		}},
		{"elected", asCaptain, []step{{"GET {bar}", noLeader}, {"GET foo", toOther}, {"PING", "+PONG"}}},
		{"no member", noMember, []step{
			{"GET {bar}", "-CLUSTERDOWN Hash slot not served"}, {"MGET {bar} aa", crossed},
			{"FLUSHALL", "-CLUSTERDOWN Hash slot not served"},
			{"CTABLE CREATE t PREFIX t:", "-CLUSTERDOWN Hash slot not served"}, {"PING", "+PONG"},
			{"CLUSTER SLOTS", "[]"},
			{"CLUSTER MYSHARDID", "-ERR this node is not a member of a cluster yet"},
		}},
		{"a slot that nobody has", unserved,
			[]step{{"GET foo", "-CLUSTERDOWN Hash slot not served"}, {"GET {bar}", "nil"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newIsland(after(tt.as))
			l.hold = 0
			dial(t, newStore(t), &Server{Cluster: &l.Cluster}).play(tt.steps)
		})
	}
}

// late are the tables of a cluster of which a shard does not answer.
type late struct{ *store.Store }

func (l late) DropTable(string) error {
	return fmt.Errorf("shard 7 is late: %w", store.ErrUndecided)
}

// TestReplicaThatLacksSomething: a replica that hears its leader answers reads until it has lacked
// something that was committed for too long; and the leader is asked for nothing of the kind.
func TestReplicaThatLacksSomething(t *testing.T) {
	behind := 9 * time.Minute
	l := newIsland(after(asReplica))
	l.hold, l.Cluster.Behind = 0, func() time.Duration { return behind }
	c := dial(t, newStore(t), &Server{Cluster: &l.Cluster})
	c.play([]step{{"READONLY", "+OK"}, {"GET {bar}", "nil"}})
	behind = 11 * time.Minute
	c.play([]step{
		{"GET {bar}", "-MASTERDOWN Link with MASTER is down for longer than cluster-replica-max-stale"},
		{"INCR {bar}", toLeader},
		{"READWRITE", "+OK"}, {"GET {bar}", toLeader},
	})
	l.show(after(asLeader))
	c.play([]step{{"GET {bar}", "nil"}})
}

// TestTablesAnywhere: whatever a member is in its shard, CTABLE changes the tables of the cluster.
func TestTablesAnywhere(t *testing.T) {
	for name, as := range map[string]func(*ClusterView){
		"leader": asLeader, "replica": asReplica, "elected": asCaptain, "dying": dying,
		"leaderless": leaderless, "lost": longLost,
	} {
		l, all := newIsland(after(as)), newStore(t)
		l.hold, l.Cluster.Tables = 0, late{all}
		dial(t, newStore(t), &Server{Cluster: &l.Cluster}).play([]step{
			{"CTABLE CREATE t PREFIX t:", "+OK"}, {"CTABLE CREATE t PREFIX t:", "+OK"},
			{"CTABLE ALTER t WINDOW 5000", "+OK"},
			{"CTABLE ALTER u WINDOW 5000", "-ERR no such table"}, {"CTABLE LIST", `["default" ""]`},
			{"CTABLE DROP t", "-TRYAGAIN shard 7 is late: " + store.ErrUndecided.Error()},
		})
		if tables := all.Tables(); len(tables) != 2 || tables[1].Window != 5*time.Second {
			t.Errorf("%s: %+v", name, tables)
		}
	}
	l := newIsland(after(noMember))
	l.Cluster.Tables = late{newStore(t)}
	dial(t, newStore(t),
		&Server{Cluster: &l.Cluster}).play([]step{{"CTABLE DROP t", "-CLUSTERDOWN Hash slot not served"}})
}

// TestRoutingOfTransactions: a queued command that is another node's makes EXEC abort, and
// EXEC answers for the keys of all of them.
func TestRoutingOfTransactions(t *testing.T) {
	const aborted = "-EXECABORT Transaction discarded because of previous errors."
	l := newIsland(after(asLeader))
	l.hold = 0
	c := dial(t, newStore(t), &Server{Cluster: &l.Cluster})
	c.play([]step{
		{"MULTI", "+OK"}, {"INCR {bar}", "+QUEUED"}, {"GET foo", toOther}, {"EXEC", aborted},
		{"MULTI", "+OK"}, {"MGET {bar} aa", crossed}, {"EXEC", aborted},
		{"MULTI", "+OK"}, {"INCR {bar}", "+QUEUED"}, {"PING", "+QUEUED"}, {"INCR aa", "+QUEUED"},
		{"EXEC", crossed}, {"EXEC", "-ERR EXEC without MULTI"},
		{"MULTI", "+OK"}, {"INCR {bar}", "+QUEUED"}, {"PING", "+QUEUED"}, {"INCR {bar}1", "+QUEUED"},
		{"EXEC", "[:1 +PONG :1]"},
		{"WATCH aa", "+OK"}, {"MULTI", "+OK"}, {"GET {bar}", "+QUEUED"}, {"EXEC", `["1"]`},
		{"MULTI", "+OK"}, {"EXEC", "[]"},
		{"MULTI", "+OK"}, {"INCR {bar}", "+QUEUED"},
	})
	l.show(after(asReplica)) // between the queue and EXEC
	c.play([]step{
		{"EXEC", toLeader}, {"EXEC", "-ERR EXEC without MULTI"},
		{"READONLY", "+OK"}, {"MULTI", "+OK"}, {"GET {bar}", "+QUEUED"}, {"EXEC", `["1"]`},
		{"MULTI", "+OK"}, {"GET {bar}", "+QUEUED"}, {"INCR {bar}", toLeader}, {"EXEC", aborted},
		{"MULTI", "+OK"}, {"DBSIZE", "+QUEUED"}, {"FLUSHALL", "-MOVED 0 10.0.0.1:7000"}, {"EXEC", aborted},
	})
}

// TestPortsAndNames: a redirection names the port of the kind of connection that asks, and the
// node as cluster-preferred-endpoint-type says.
func TestPortsAndNames(t *testing.T) {
	v := twoShards()
	v.Shards[1].Nodes[0].Hostname = "b.example"
	for _, tt := range []struct {
		tls      bool
		endpoint string
		lacks    int // a port that the node does not have
		want     string
	}{
		{false, EndpointIP, 0, "10.0.1.0:7000"}, {true, EndpointIP, 0, "10.0.1.0:7001"},
		{true, EndpointIP, 7001, "10.0.1.0:7000"},
		{false, EndpointIP, 7000, "10.0.1.0:7001"}, {false, EndpointHostname, 0, "b.example:7000"},
		{false, EndpointUnknown, 0, ":7000"},
	} {
		shown := v
		shown.Shards = append([]ClusterShard(nil), v.Shards...)
		n := shown.Shards[1].Nodes[0]
		if n.Port == tt.lacks {
			n.Port = 0
		} else if n.TLSPort == tt.lacks {
			n.TLSPort = 0
		}
		shown.Shards[1].Nodes = []ClusterNode{n}
		l := newIsland(shown)
		l.Endpoint = func() string { return tt.endpoint }
		c := dial(t, newStore(t), &Server{Cluster: &l.Cluster})
		c.session.TLS = tt.tls
		if got := c.say("GET foo"); got != "-MOVED 12182 "+tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
		if tt.endpoint == EndpointHostname {
			if got := c.say("GET {bar}"); got != "nil" {
				t.Error(got)
			}
			l.show(after(asReplica))
			if got := c.say("GET {bar}"); got != "-MOVED 5061 ?:7000" {
				t.Errorf("a node without a hostname: %s", got)
			}
		}
	}
}

// TestReplicaBatches: a round is Replica unless this node leads, and keeps one view.
func TestReplicaBatches(t *testing.T) {
	l := newIsland(after(asReplica))
	var replica []bool
	srv := &Server{Cluster: &l.Cluster}
	st := newStore(t)
	srv.Execute = func(b *store.Batch) {
		replica = append(replica, b.Replica)
		st.Execute(b)
	}
	c := dial(t, st, srv)
	c.say("READONLY")
	c.say("GET {bar}")
	l.show(after(asLeader))
	c.say("GET {bar}")
	if fmt.Sprint(replica) != "[true false]" {
		t.Errorf("Replica: %v", replica)
	}

	r := NewRound(st, srv, true)
	r.Join(c.p)
	c.p.Add(toArgs([]string{"GET", "{bar}"}))
	l.show(after(asReplica))
	c.p.Add(toArgs([]string{"INCR", "{bar}"})) // decided by the view that the round began with
	r.Execute()
	c.p.Answer(&c.w)
	if got := string(c.w.Bytes()); got != "$-1\r\n:1\r\n" {
		t.Errorf("a round across two views: %q", got)
	}
}

// TestHeld: a request that finds no leader does not join a shared round; Do waits for
// another view, and answers CLUSTERDOWN when the time is over.
func TestHeld(t *testing.T) {
	l := newIsland(after(leaderless))
	st, stopping := newStore(t), make(chan struct{})
	srv := &Server{Cluster: &l.Cluster, Stopping: stopping}
	c := dial(t, st, srv)
	shared := NewRound(st, srv, true)
	shared.Join(c.p)
	if c.p.Add(toArgs([]string{"INCR", "{bar}"})) {
		t.Fatal("a shared round took it")
	}
	NewRound(st, srv, false).Join(c.p)

	flushed := 0
	c.p.OnHold = func() { flushed++ }
	answers := make(chan string, 1)
	ask := func(line string) { go func() { answers <- c.say(line) }() }
	answer := func() string {
		t.Helper()
		select {
		case a := <-answers:
			return a
		case <-time.After(testwait.Limit):
			t.Fatal("no answer")
		}
		return ""
	}
	held := func() {
		t.Helper()
		for end := time.Now().Add(testwait.Limit); srv.Blocked() == 0; {
			if time.Now().After(end) {
				t.Fatal("nobody waits")
			}
			time.Sleep(time.Millisecond)
		}
	}
	ask("INCR {bar}")
	held()
	l.show(after(asCaptain)) // not yet
	l.show(after(asLeader))
	if got := answer(); got != ":1" || flushed != 1 {
		t.Errorf("once there is a leader: %s, OnHold %d times", got, flushed)
	}
	l.show(after(leaderless))
	ask("INCR {bar}")
	held()
	l.show(after(asReplica))
	if got := answer(); got != toLeader {
		t.Errorf("once another leads: %s", got)
	}
	l.show(after(leaderless))
	l.hold = 20 * time.Millisecond
	begin := time.Now()
	ask("INCR {bar}")
	if got := answer(); got != noLeader || time.Since(begin) < l.hold {
		t.Errorf("%s after %v", got, time.Since(begin))
	}
	l.hold = time.Hour
	ask("INCR {bar}")
	held()
	close(stopping)
	if got := answer(); got != noLeader {
		t.Errorf("when the server stops: %s", got)
	}
	if n := srv.Blocked(); n != 0 {
		t.Errorf("%d wait in the end", n)
	}
}

// TestHeldClientsThatLeave are not carried out.
func TestHeldClientsThatLeave(t *testing.T) {
	l := newIsland(after(leaderless))
	l.hold = time.Hour
	c := dial(t, newStore(t), &Server{Cluster: &l.Cluster})
	c.session.Gone = func() bool { return true }
	if got := c.send("INCR {bar}"); got != "" || !c.session.Closing() {
		t.Errorf("%q, closing %v", got, c.session.Closing())
	}
	l.show(after(asLeader))
	if got := dial(t, c.p.round.st, &Server{}).say("GET {bar}"); got != "nil" {
		t.Errorf("it was carried out: %s", got)
	}
}

// TestLostLeadership: what the store did certainly not apply goes to whoever leads, or is held;
// what it cannot tell may be repeated only if that is harmless.
func TestLostLeadership(t *testing.T) {
	l := newIsland(after(asLeader))
	var fails error
	srv, st := &Server{Cluster: &l.Cluster}, newStore(t)
	srv.Execute = func(b *store.Batch) {
		if fails == nil {
			st.Execute(b)
			return
		}
		for i := range b.Ops {
			b.Ops[i].Err = fails
		}
	}
	c := dial(t, st, srv)
	const (
		again   = "-TRYAGAIN leadership was lost: outcome unknown, retry with the same opid"
		unknown = "-UNKNOWN leadership of the shard was lost before this was committed: it may have been " +
			"applied or not"
		toSelf = "-MOVED 5061 10.0.0.0:7000"
	)
	fails = store.ErrUndecided
	c.play([]step{
		{"CINCR {bar} id", again}, {"CMINCRBY id 1 {bar} 1", again}, {"GET {bar}", again},
		{"INCREX {bar} IDMP p i", again},
		{"INCR {bar}", unknown}, {"DEL {bar}", unknown}, {"INCREX {bar}", unknown}, {"FLUSHALL", unknown},
		{"FBF.ADD {bar}f x", unknown},
		{"MULTI", "+OK"}, {"CINCR {bar} id", "+QUEUED"}, {"GET {bar}", "+QUEUED"}, {"EXEC", again},
		{"MULTI", "+OK"}, {"CINCR {bar} id", "+QUEUED"}, {"INCR {bar}", "+QUEUED"}, {"EXEC", unknown},
		{"PING", "+PONG"},
	})
	fails = store.ErrNotLeader
	c.play([]step{{"MULTI", "+OK"}, {"INCR {bar}", "+QUEUED"}, {"PING", "+QUEUED"}, {"EXEC", toSelf}})
	// The node has not noticed yet that it does not lead: whoever asks again is held.
	l.hold = time.Millisecond
	c.play([]step{{"INCR {bar}", noLeader}})
	c.play([]step{{"INCR {bar}", toSelf}}) // and then the store is asked again
	l.hold = time.Hour                     // longer than any client waits
	impatient := dial(t, st, srv)
	impatient.session.Gone = func() bool { return true }
	impatient.send("INCR {bar}") // held, until it is looked after
	c.play([]step{{"INCR {bar}", toSelf}})
	l.show(after(asLeader))
	fails = nil
	c.play([]step{{"INCR {bar}", ":1"}})

	// A replica that has decided what is not committed yet answers nobody, and nobody is held.
	l.show(after(leaderless))
	fails = store.ErrNotLeader
	c.play([]step{{"READONLY", "+OK"}, {"GET {bar}", noLeader}})

	// While the batch was decided, another node was elected, or nobody yet.
	for _, next := range []struct {
		as   func(*ClusterView)
		want string
	}{{asReplica, toLeader}, {leaderless, toSelf}, {noMember, noLeader}} {
		l.show(after(asLeader))
		srv.Execute = func(b *store.Batch) {
			b.Ops[0].Err = store.ErrNotLeader
			l.show(after(next.as))
		}
		c := dial(t, st, srv)
		c.play([]step{{"CINCR {bar} id", next.want}})
	}
}

// TestClusterIsOff: without a cluster its commands answer as Redis', and those that it
// does not have name ours with one.
func TestClusterIsOff(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	const off = "-ERR This instance has cluster support disabled"
	for _, line := range []string{"CLUSTER SLOTS", "CLUSTER NODES", "CLUSTER MEET a 1", "CLUSTER KEYSLOT k",
		"READONLY", "READWRITE", "ASKING",
		"CLUSTER FBFKV status", "CLUSTER FAILOVER"} {
		if got := c.say(line); got != off {
			t.Errorf("%s: %s", line, got)
		}
	}
	c.play([]step{{"CLUSTER NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP."},
		{"WAIT 1 1", ":0"}, {"MGET aa foo", "[nil nil]"}})
	l := newIsland(twoShards())
	c = dial(t, newStore(t), &Server{Cluster: &l.Cluster})
	for line, ours := range map[string]string{"CLUSTER MEET a 1": "add-node", "CLUSTER ADDSLOTS 1": "create",
		"CLUSTER FORGET x":    "remove-node",
		"CLUSTER REPLICATE x": "add-node", "CLUSTER RESET": "remove-node"} {
		if got := c.say(line); !strings.HasPrefix(got,
			"-ERR "+strings.Join(strings.Fields(line)[:2], " ")+" is not supported: fbfkv cluster ") ||
			!strings.Contains(got, ours) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestNotReady says when a node does not serve its shard.
func TestNotReady(t *testing.T) {
	behind := ClusterProgress{Committed: 5000, Applied: 3000}
	for _, tt := range []struct {
		as       func(*ClusterView)
		progress ClusterProgress
		want     string
	}{
		{asLeader, ClusterProgress{}, ""}, {asReplica, ClusterProgress{Committed: 10, Applied: 5}, ""},
		{dying, ClusterProgress{}, ""},
		{leaderless, ClusterProgress{}, ""}, {longLost, ClusterProgress{}, "no leader"},
		{noMember, ClusterProgress{}, "not a member"},
		{asCaptain, ClusterProgress{}, "becoming the leader"}, {asReplica, behind, "catching up"},
		{func(v *ClusterView) { v.Shards[0].Leader = -1 }, ClusterProgress{}, "no leader"},
	} {
		l := newIsland(after(tt.as))
		l.hold = 5 * time.Minute
		l.Progress = func() ClusterProgress { return tt.progress }
		if got := l.NotReady(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
