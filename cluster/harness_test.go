package cluster

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// testTimeout is cluster-node-timeout in tests: with less, a busy machine elects all the
// time.
const testTimeout = time.Second

// shard is some nodes in this process, with real stores in memory and a transport that can
// be cut.
type shard struct {
	t       testing.TB
	members []*member
}

// member is a node of a shard, and what outlives its process.
type member struct {
	s  *shard
	id string
	fs *vfs.MemFS

	mu        sync.Mutex
	node      *Node // nil: not running
	transport *raft.InmemTransport
	cut       bool
}

func newShard(t testing.TB, nodes int) *shard {
	s := &shard{t: t}
	for i := range nodes {
		id := fmt.Sprintf("%040x", i+1)
		s.members = append(s.members, &member{s: s, id: id, fs: vfs.NewCrashableMem()})
	}
	t.Cleanup(func() {
		for _, m := range s.members {
			m.stop()
		}
	})
	for _, m := range s.members {
		m.start()
	}
	first := s.members[0]
	ctx := t.Context()
	if err := first.node.Bootstrap(ctx, s.configuration()); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.members[1:] {
		if err := first.node.Promote(m.id, m.id); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// configuration is one with all members.
func (s *shard) configuration() Configuration {
	id := fmt.Sprintf("%040x", 1000)
	c := Configuration{Version: 1, Cluster: id, Format: FormatLevel, Seed: 7, Partitions: 4, Shards: []Shard{{ID: id, Last: 3}}}
	for i, m := range s.members {
		c.Members = append(c.Members, Member{ID: m.id, Shard: id, Host: "127.0.0.1", Port: 7001 + i, ClusterPort: 17001 + i, Voter: true})
	}
	return c
}

// start starts the node on what its disk holds, and connects it.
func (m *member) start() {
	m.s.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	_, m.transport = raft.NewInmemTransportWithTimeout(raft.ServerAddress(m.id), testTimeout)
	stable, err := OpenStable(m.fs, "d")
	if err != nil {
		m.s.t.Fatal(err)
	}
	m.node, err = Start(Options{
		ID: m.id, Stable: stable, Transport: m.transport, Timeout: testTimeout,
		Logger:  slog.New(slog.NewTextHandler(testWriter{m}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Confirm: func(r *raft.Raft) error { return r.VerifyLeader().Error() },
		Fatal:   func(err error) { m.s.t.Errorf("node %s ends: %v", m.id[39:], err) },
		Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
			return store.Open(store.Options{
				Dir: "d", FS: m.fs, Partitions: 4, Seed: 7, Replicated: replicated, Sections: Sections,
				SnapshotInterval: 200 * time.Millisecond, LogFileSize: 256 << 10, MinFreeDisk: -1,
			})
		},
	})
	if err != nil {
		m.s.t.Fatal(err)
	}
	m.cut = false
	m.s.connect()
}

// connect connects all nodes that are running and not cut off.
func (s *shard) connect() {
	for _, a := range s.members {
		for _, b := range s.members {
			if a == b || a.transport == nil || b.transport == nil {
				continue
			}
			if a.cut || b.cut {
				a.transport.Disconnect(raft.ServerAddress(b.id))
			} else {
				a.transport.Connect(raft.ServerAddress(b.id), b.transport)
			}
		}
	}
}

// isolate cuts a node off; heal connects it again.
func (m *member) isolate() { m.cut = true; m.s.connect() }
func (m *member) heal()    { m.cut = false; m.s.connect() }

// stop closes the node in order.
func (m *member) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return
	}
	if err := m.node.Close(); err != nil {
		m.s.t.Errorf("close node %s: %v", m.id[39:], err)
	}
	m.node = nil
}

// kill ends the node as a power loss does: what was not fsynced may be lost.
func (m *member) kill(r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = true
	m.s.connect()
	n := m.node
	m.node = nil
	n.stopped.Store(true)
	n.raft.Shutdown().Error()
	m.fs = m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: r})
	close(n.stop)
	n.log.close(store.ErrUndecided)
	n.st.GiveUp()
	n.running.Wait()
	n.st.CloseNow()
}

func (m *member) running() *Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// leader waits until a node decides, and returns it.
func (s *shard) leader() *member {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, m := range s.members {
			if n := m.running(); n != nil && !m.cut && n.Leads() {
				return m
			}
		}
	}
	s.t.Fatal("nobody leads")
	return nil
}

// testWriter writes a node's log lines to the test's.
type testWriter struct{ m *member }

func (w testWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		w.m.s.t.Logf("%s %s", w.m.id[39:], b)
	}
	return len(b), nil
}
