package server

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/server/tlstest"
)

// oneShard is a cluster of one shard with three nodes, whose leader is the test's to choose.
type oneShard struct {
	commands.Cluster
	view    atomic.Pointer[commands.ClusterView]
	changed atomic.Pointer[chan struct{}]
}

// newShard returns a cluster led by a node, see lead.
func newShard(leader int) *oneShard {
	s := new(oneShard)
	s.View = s.view.Load
	s.Changed = func() <-chan struct{} { return *s.changed.Load() }
	s.lead(leader)
	return s
}

// nobody leads.
const nobody = -1

// lead makes a node the leader; this one is 0.
func (s *oneShard) lead(leader int) {
	shard := commands.ClusterShard{ID: strings.Repeat("a", 40),
		Slots: []commands.SlotRange{{First: 0, Last: 16383}}, Leader: max(leader, 0),
		Ready: true, Term: 1}
	for i := range 3 {
		shard.Nodes = append(shard.Nodes, commands.ClusterNode{ID: fmt.Sprintf("%040d", i), Host: "10.0.0.1",
			Port: 7000 + i, TLSPort: 8000 + i})
	}
	if leader == nobody {
		shard.LostAt = time.Now()
	}
	next := make(chan struct{})
	s.view.Store(commands.NewClusterView(commands.ClusterView{Node: shard.Nodes[0].ID,
		Shards: []commands.ClusterShard{shard}}))
	if before := s.changed.Swap(&next); before != nil {
		close(*before)
	}
}

// blocked waits until so many clients wait.
func (s *running) blocked(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " clients wait"), func() bool { return s.Figures().BlockedClients == n })
}

// TestRequestsWaitForALeader: what needs a leader waits for one, what came before it is
// answered, other clients notice nothing, and what follows it keeps its place.
func TestRequestsWaitForALeader(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			shard := newShard(nobody)
			s := startLoop(t, loop, Options{Store: openStore(t), Cluster: &shard.Cluster, Logger: quiet},
				"cluster-node-timeout", "600000")
			const many = 50
			waiting := make([]*client, many)
			for i := range waiting {
				waiting[i] = s.dial(t)
				waiting[i].send(frame("PING") + frame("INCR", "k") + frame("PING", "behind"))
				waiting[i].expectReply("+PONG")
			}
			s.blocked(t, many)
			other := s.dial(t)
			other.expect("+PONG", "PING")
			other.expect("+OK", "READONLY")
			other.expect("$-1", "GET", "k")
			shard.lead(0)
			seen := map[string]bool{}
			for _, c := range waiting {
				seen[c.reply()] = true
				c.expectReply("behind")
			}
			if len(seen) != many || !seen[fmt.Sprint(":", many)] {
				t.Errorf("%d different answers to %d increments", len(seen), many)
			}
			s.blocked(t, 0)

			shard.lead(nobody)
			waiting[0].send(frame("INCR", "k"))
			s.blocked(t, 1)
			shard.lead(2)
			port := 7002
			if s.secure != nil {
				port = 8002
			}
			waiting[0].expectReply(fmt.Sprint("-MOVED 7629 10.0.0.1:", port))
		})
	}
}

// TestWaitingForALeaderEnds with cluster-node-timeout, CLIENT KILL, the client, or the server; what
// waited is then not carried out.
func TestWaitingForALeaderEnds(t *testing.T) {
	for _, loop := range loops {
		t.Run(loop, func(t *testing.T) {
			shard, st := newShard(nobody), openStore(t)
			s := startLoop(t, loop, Options{Store: st, Cluster: &shard.Cluster, Logger: quiet},
				"cluster-node-timeout", "100")
			s.dial(t).expect("-CLUSTERDOWN The shard has no leader at the moment; nothing was applied",
				"INCR", "k")

			config := *s.config.Load()
			config.Cluster.NodeTimeout = time.Hour
			s.config.Store(&config)
			c, admin := s.dial(t), s.dial(t)
			id := strings.TrimPrefix(c.do("CLIENT", "ID"), ":")
			c.send(frame("INCR", "k"))
			s.blocked(t, 1)
			admin.expect(":1", "CLIENT", "KILL", "ID", id)
			s.blocked(t, 0)
			if loop != "goroutine" { // whose owner would have to read to see it
				c = s.dial(t)
				c.send(frame("INCR", "k"))
				s.blocked(t, 1)
				c.Close()
				s.blocked(t, 0)
			}
			c = s.dial(t)
			c.send(frame("INCR", "k"))
			s.blocked(t, 1)
			s.Stop(false)
			s.wait(t)
			shard.lead(0)
			again := startWith(t, Options{Store: st, Cluster: &shard.Cluster, Logger: quiet})
			again.dial(t).expect("$-1", "GET", "k")
		})
	}
}

// TestWait: WAIT and WAITAOF answer what the cluster says, and wait no longer than they
// should.
func TestWait(t *testing.T) {
	shard := newShard(0)
	var have atomic.Int32
	shard.Replicas = func(n int, timeout time.Duration) int {
		for end := time.Now().Add(timeout); int(have.Load()) < n && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return int(have.Load())
	}
	s := startWith(t, Options{Store: openStore(t), Cluster: &shard.Cluster, Logger: quiet})
	c := s.dial(t)
	c.expect(":0", "WAIT", "0", "0")
	c.expect(":0", "WAIT", "2", "10")
	c.expect("[:1 :0]", "WAITAOF", "1", "0", "0")
	c.send(frame("WAIT", "2", "0"))
	s.blocked(t, 1)
	have.Store(2)
	c.expectReply(":2")
	c.expect("[:1 :2]", "WAITAOF", "1", "2", "0")
	c.send(frame("WAIT", "3", "0"))
	s.blocked(t, 1)
	c.Close() // nobody waits for the answer any more
	s.blocked(t, 0)
	c = s.dial(t)
	c.expect("+OK", "MULTI")
	c.expect("+QUEUED", "WAIT", "3", "0")
	c.expect("[:2]", "EXEC")
}

// TestNodesSettings: what a node may not do is refused at the start, in a line each with
// all other faults, and by CONFIG SET.
func TestNodesSettings(t *testing.T) {
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("node", time.Now().Add(time.Hour))
	const secret = "0123456789abcdef"
	for _, tt := range []struct {
		settings string
		want     []string
	}{
		{"", nil},
		{"cluster-enabled no appendfsync no", nil},
		{"appendfsync everysec", []string{"appendfsync everysec: a node of a cluster (cluster-enabled " +
			"yes) needs always"}},
		{"appendfsync no port 60000", []string{"appendfsync no: a node", "cluster-port would be 70000, " +
			"which is no port: set it"}},
		{"port 60000 cluster-port 16379", nil},
		{"port 7000 cluster-port 7000", []string{"cluster-port is 7000, as is a port for clients: give " +
			"it its own"}},
		{"port 0", []string{"cluster-enabled yes needs a port, or a cluster-port"}},
		{"bind *", []string{"with cluster-enabled yes and bind *, others could pose as nodes: set " +
			"tls-cluster to yes, or set a cluster-secret"}},
		{"bind -::1,10.0.0.1", []string{"with cluster-enabled yes and bind -::1 10.0.0.1, others could"}},
		{"bind 127.0.0.1,::1,localhost", nil},
		{"bind * cluster-secret " + secret, nil},
		{"cluster-secret choose-a-secret-of-the-nodes", []string{"cluster-secret is the placeholder of " +
			"the shipped cluster.conf"}},
		{"cluster-enabled no cluster-secret choose-a-secret-of-the-nodes", nil},
		{"bind * tls-cluster yes", []string{"tls-cluster needs tls-cert-file and tls-key-file",
			"tls-cluster yes needs the authorities to trust"}},
		{"bind * tls-cluster yes tls-cert-file " + cert + " tls-key-file " + key + " tls-ca-cert-file " +
			ca.File, nil},
		{"bind * cluster-enabled no", nil},
	} {
		c := configWith(t, "cluster-enabled", "yes")
		for words := strings.Fields(tt.settings); len(words) > 1; words = words[2:] {
			if err := LookUp(words[0]).Set(c, strings.ReplaceAll(words[1], ",", " ")); err != nil {
				t.Fatal(err)
			}
		}
		faults := c.Check()
		if len(faults) != len(tt.want) || slices.ContainsFunc(faults, func(f string) bool {
			return strings.Contains(f, "\n") || strings.Contains(f, secret)
		}) {
			t.Errorf("%s: %q, want %q", tt.settings, faults, tt.want)
			continue
		}
		for i := range faults {
			if !strings.HasPrefix(faults[i], tt.want[i]) {
				t.Errorf("%s: %q, want %q", tt.settings, faults[i], tt.want[i])
			}
		}
	}
	for _, bad := range [][2]string{{"cluster-secret", "short"}, {"cluster-node-timeout",
		"50"}, {"cluster-announce-ip", "a b"},
		{"cluster-announce-hostname", "a:1"}, {"cluster-announce-hostname", "a\r\nb"},
		{"cluster-preferred-endpoint-type", "x"}} {
		if err := LookUp(bad[0]).Set(DefaultConfig(), bad[1]); err == nil ||
			strings.Contains(err.Error(), "short") {
			t.Errorf("%s %q: %v", bad[0], bad[1], err)
		}
	}

	s := startWith(t, Options{Store: openStore(t), Cluster: &newShard(0).Cluster, Logger: quiet},
		"cluster-enabled", "yes", "cluster-secret", secret)
	c := s.dial(t)
	c.expect("-ERR CONFIG SET failed (possibly related to argument 'appendfsync') - a node of a cluster "+
		"(cluster-enabled yes) needs always",
		"CONFIG", "SET", "timeout", "7", "appendfsync", "everysec")
	c.expect("[timeout 0]", "CONFIG", "GET", "timeout")
	c.expect("+OK", "CONFIG", "SET", "appendfsync", "always", "cluster-replica-max-stale", "7",
		"cluster-preferred-endpoint-type", "hostname")
	c.expect("[cluster-secret (redacted)]", "CONFIG", "GET", "cluster-secret")
	for i := range clusterSettings {
		if set := &clusterSettings[i]; !set.Mutable {
			c.expect("-ERR CONFIG SET failed (possibly related to argument '"+set.Name+"') - can't set immutable config", "CONFIG", "SET", set.Name, secret)
		}
	}
	c.expect("+OK", "CONFIG", "SET", "slowlog-log-slower-than", "0")
	c.do("CONFIG", "SET", "cluster-secret", secret)
	if log := c.do("SLOWLOG", "GET", "-1"); strings.Contains(log, secret) ||
		!strings.Contains(log, "cluster-secret (redacted)") {
		t.Errorf("the slow log: %s", log)
	}
}
