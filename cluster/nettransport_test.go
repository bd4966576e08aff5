package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// testSecret is the secret of the clusters of tests.
const testSecret = "sixteen bytes or more"

// testID returns an id made of one digit.
func testID(digit string) string { return strings.Repeat(digit, 40) }

// testNode is a Raft node in memory over a Net.
type testNode struct {
	id        raft.ServerID
	net       *Net
	transport *Transport
	raft      *raft.Raft
	confirmer *Confirmer
}

// noMachine is a state machine without a state.
type noMachine struct{}

func (noMachine) Apply(*raft.Log) any                 { return nil }
func (noMachine) Snapshot() (raft.FSMSnapshot, error) { return noMachine{}, nil }
func (noMachine) Restore(r io.ReadCloser) error       { return r.Close() }
func (noMachine) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (noMachine) Release()                            {}

// startNodes starts voters of one cluster, whose names are single digits, with faults
// between them.
func startNodes(t testing.TB, f *faults, names ...string) map[string]*testNode {
	t.Helper()
	nodes := map[string]*testNode{}
	var configuration raft.Configuration
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.listens(l.Addr().String(), name)
		n, err := Listen(l, NetOptions{Self: Identity{Cluster: testID("c"), Node: testID(name), Format: 1}, Secret: testSecret, Dial: f.dialer(name)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		node := &testNode{id: raft.ServerID(testID(name)), net: n}
		node.transport = n.Transport(n.Addr().String(), 300*time.Millisecond)
		configuration.Servers = append(configuration.Servers, raft.Server{ID: node.id, Address: node.transport.LocalAddr()})
		nodes[name] = node
	}
	for _, node := range nodes {
		c := raft.DefaultConfig()
		c.LocalID, c.Logger = node.id, hclog.NewNullLogger()
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
		logs, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(c, logs, logs, snapshots, node.transport, configuration); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(c, noMachine{}, logs, logs, snapshots, node.transport)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		})
		node.raft, node.confirmer = r, NewConfirmer(r, node.transport, node.id)
	}
	return nodes
}

// leader waits until one of the nodes leads and has committed an entry of its term.
func leader(t testing.TB, nodes map[string]*testNode, among ...string) (string, *testNode) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, name := range among {
			if n := nodes[name]; n.raft.State() == raft.Leader && n.raft.Barrier(time.Second).Error() == nil {
				return name, n
			}
		}
	}
	t.Fatal("no leader")
	return "", nil
}

// others returns the names without one.
func others(names []string, without string) (rest []string) {
	for _, name := range names {
		if name != without {
			rest = append(rest, name)
		}
	}
	return rest
}

// TestRaftOverNet elects, replicates, hands leadership over and goes on without its
// leader.
func TestRaftOverNet(t *testing.T) {
	t.Parallel()
	var f faults
	names := []string{"1", "2", "3"}
	nodes := startNodes(t, &f, names...)
	name, first := leader(t, nodes, names...)
	for i := range 200 {
		if err := first.raft.Apply(fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 10_000)), time.Minute).Error(); err != nil {
			t.Fatal(err)
		}
	}
	to := nodes[others(names, name)[0]]
	if err := first.raft.LeadershipTransferToServer(to.id, to.transport.LocalAddr()).Error(); err != nil {
		t.Fatal(err)
	}
	name, second := leader(t, nodes, names...)
	rest := others(names, name)
	f.isolate(name, rest...)
	name, third := leader(t, nodes, rest...)
	if err := third.raft.Apply([]byte("without it"), time.Minute).Error(); err != nil {
		t.Fatal(err)
	}
	f.reconnect(name, others(names, name)...)
	f.reconnect(rest[0], others(names, rest[0])...)
	f.reconnect(rest[1], others(names, rest[1])...)
	for second.raft.AppliedIndex() < third.raft.AppliedIndex() {
		time.Sleep(time.Millisecond)
	}
}

// TestConfirm confirms a leader, and nobody else.
func TestConfirm(t *testing.T) {
	t.Parallel()
	var f faults
	names := []string{"1", "2", "3"}
	nodes := startNodes(t, &f, names...)
	name, l := leader(t, nodes, names...)
	for range 20 {
		if err := l.confirmer.Confirm(t.Context(), l.raft.CurrentTerm()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.confirmer.Confirm(t.Context(), l.raft.CurrentTerm()-1); err != raft.ErrNotLeader {
		t.Errorf("of an earlier term: %v", err)
	}
	f.isolate(name, others(names, name)...)
	term := l.raft.CurrentTerm()
	leader(t, nodes, others(names, name)...)
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if err := l.confirmer.Confirm(ctx, term); err == nil {
		t.Error("a deposed leader is confirmed")
	}
}
