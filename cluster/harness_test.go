package cluster

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// testTimeout is cluster-node-timeout in tests: with less, a busy machine elects all the
// time.
const testTimeout = time.Second

// shard is some nodes in this process, with real stores in memory and a transport that can
// be cut.
type shard struct {
	first   string                 // the id of the node that begins it
	meant   atomic.Pointer[string] // the id of the node that is meant to lead it
	t       testing.TB
	faults  faults
	members []*replica
	// comeBack is Options.ComeBackAfter of the nodes that are started from now on.
	comeBack time.Duration

	restarts sync.WaitGroup
}

// replica is a node of a shard, and what outlives its process.
type replica struct {
	users sync.WaitGroup // of use
	s     *shard
	id    string
	fs    *vfs.MemFS

	full  *crashtest.FullDisk           // around fs, in this life of the node
	gate  atomic.Pointer[chan struct{}] // not nil: no fsync of the disk ends before it is closed
	waits atomic.Int64                  // fsyncs of the log that have waited for that
	gated atomic.Pointer[string]        // of which files, by a part of their path; nil: all
	// broken is how the names end of files that cannot be created; nil: none.
	broken atomic.Pointer[string]
	fatal  chan error // not nil: what Options.Fatal is told

	mu   longlock.Mutex
	node *Node // nil: not running
	net  *Net
	port int

	witness *Witness // of this life
	cut     atomic.Bool

	restarted atomic.Int64
	hangs     atomic.Int64 // calls of Options.DiskHangs
}

func newShard(t testing.TB, nodes int) *shard { return newShardOn(t, nodes, nil) }

// newShardOn makes a shard whose first node brings the data that the directory d of a file
// system holds; nil: none does.
func newShardOn(t testing.TB, nodes int, data *vfs.MemFS) *shard {
	s := &shard{t: t}
	for i := range nodes {
		id := fmt.Sprintf("%040x", i+1)
		s.members = append(s.members, &replica{s: s, id: id, fs: vfs.NewCrashableMem()})
	}
	if data != nil {
		s.members[0].fs = data
		s.members[0].found()
	}
	s.first = s.members[0].id
	s.meant.Store(&s.first)
	t.Cleanup(func() {
		s.restarts.Wait()
		for _, m := range s.members {
			m.stop()
		}
	})
	for _, m := range s.members {
		m.start()
	}
	for _, m := range s.members[1:] {
		address := m.net.Addr().String()
		s.onLeader("follow", func(n *Node) error { return n.AddNonvoter(m.id, address) })
		if data != nil { // the others need the files first, as the program sees to
			await(t, "the joiner has the files", func() bool { return m.restarted.Load() > 0 })
		}
		s.onLeader("vote", func(n *Node) error { return n.Promote(m.id, address) })
	}
	window := 24 * time.Hour // a long run sends everything again at its end
	s.onLeader("window", func(n *Node) error {
		return n.Store().AlterTable(store.DefaultTable, store.TableChange{Window: &window})
	})
	// a voter that has heard nothing yet cannot take the place of one that is cut off at once
	s.awaitApplied()
	return s
}

// found makes the node, which has data, the founder of the shard, as the program does.
func (m *replica) found() {
	l := m.s.faults.listen(0)
	m.port = l.address.Port // for start
	must(m.s.t, l.Close())
	for _, founded := range []bool{false, true} {
		d, err := OpenDirectory(m.fs, "d")
		must(m.s.t, err)
		if m.id = d.ID(); !founded {
			must(m.s.t, d.become(m.s.configuration(), true, false))
		}
		must(m.s.t, d.Close())
	}
}

// onLeader does what may be done twice, on the leader, until that is done.
func (s *shard) onLeader(what string, do func(n *Node) error) {
	s.t.Helper()
	await(s.t, what, func() bool {
		n := s.leader().running()
		return n != nil && do(n) == nil
	})
}

// configuration is one with all members.
func (s *shard) configuration() Configuration {
	id := fmt.Sprintf("%040x", 1000)
	c := Configuration{Version: 1, Cluster: id, Format: FormatLevel, Seed: [16]byte{7}, Partitions: 4,
		Shards: []Shard{{ID: id, Founder: s.members[0].id, Partitions: []Range{{0, 3}}}},
		Tables: Tables{Version: 1, Set: store.NewTables()}}
	for i, m := range s.members {
		c.Members = append(c.Members, Member{ID: m.id, Shard: id, Host: "127.0.0.1", Port: 7001 + i,
			ClusterPort: cmp.Or(m.port, 17001+i), Voter: true, Level: FormatLevel})
	}
	return c
}

// start starts the node on what its disk holds, and connects it.
func (m *replica) start() {
	m.s.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.s.faults.listen(m.port)
	m.port = l.address.Port
	m.s.faults.listens(l.Addr().String(), m.id)
	m.full = crashtest.NewFullDisk(errorfs.Wrap(m.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken := m.broken.Load(); broken != nil && op.Kind == errorfs.OpCreate &&
			strings.HasSuffix(op.Path, *broken) {
			return syscall.EIO
		}
		gated := m.gated.Load()
		if gate := m.gate.Load(); gate != nil &&
			(op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) &&
			(gated == nil || strings.Contains(op.Path, *gated)) {
			if strings.Contains(op.Path, "/log/") {
				m.waits.Add(1)
			}
			<-*gate
		}
		return nil
	})))
	stable, err := raftgroup.OpenStable(m.full, "d")
	if err != nil {
		m.s.t.Fatal(err)
	}
	starts, err := stable.CountStart()
	must(m.s.t, err)
	m.witness, err = OpenWitness(m.full, "d")
	must(m.s.t, err)
	m.net, err = Listen(l,
		NetOptions{Self: Identity{Cluster: testID("c"), Node: m.id, Format: FormatLevel, Starts: starts},
			Witness: m.witness, Secret: testSecret, Dial: m.s.faults.dialer(m.id)})
	if err != nil {
		m.s.t.Fatal(err)
	}
	m.node, err = Start(Options{
		ID: m.id, Stable: stable, Net: m.net, Address: l.Addr().String(), Timeout: testTimeout,
		ComeBackAfter: m.s.comeBack, FS: m.full, Dir: "d", Restart: m.again,
		Found: m.id == m.s.first, First: func() string { return *m.s.meant.Load() },
		DiskHangs: func() { m.hangs.Add(1) },
		Logger:    slog.New(slog.NewTextHandler(testWriter{m}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Fatal: func(err error) {
			if m.fatal != nil {
				m.fatal <- err
				return
			}
			m.s.t.Errorf("node %s ends: %v", m.id[39:], err)
		},
		Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
			return store.Open(store.Options{
				Dir: "d", FS: m.full, Partitions: 4, Seed: [16]byte{7}, Replicated: replicated,
				Sections:         Sections,
				SnapshotInterval: 200 * time.Millisecond, LogFileSize: 256 << 10, MinFreeDisk: -1,
			})
		},
	})
	if err != nil {
		m.s.t.Fatal(err)
	}
	m.heal()
}

// others returns the other members' ids.
func (m *replica) others() (ids []string) {
	for _, o := range m.s.members {
		if o != m {
			ids = append(ids, o.id)
		}
	}
	return ids
}

// isolate cuts a node off; heal connects it again.
func (m *replica) isolate() {
	m.cut.Store(true)
	m.s.faults.isolate(m.id, m.others()...)
}

func (m *replica) heal() {
	m.s.faults.reconnect(m.id, m.others()...)
	m.cut.Store(false)
}

// stop closes the node in order.
func (m *replica) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return
	}
	m.users.Wait()
	if err := m.node.Close(); err != nil {
		m.s.t.Errorf("close node %s: %v", m.id[39:], err)
	}
	m.node = nil
	m.net.Close()
}

// hangDisk keeps the disk from answering until the returned function is called, or the test ends.
func (m *replica) hangDisk() (answer func()) {
	gate := make(chan struct{})
	m.gate.Store(&gate)
	answer = sync.OnceFunc(func() {
		m.gate.Store(nil)
		close(gate)
	})
	m.s.t.Cleanup(answer)
	return answer
}

// hangDisks is hangDisk for some members.
func (s *shard) hangDisks(which func(*replica) bool) (answer func()) {
	var answers []func()
	for _, m := range s.members {
		if which(m) {
			answers = append(answers, m.hangDisk())
		}
	}
	return func() {
		for _, answer := range answers {
			answer()
		}
	}
}

// again starts the node anew, as the program does when it has fetched what it lacks.
func (m *replica) again() {
	m.s.restarts.Go(func() {
		m.stop()
		m.start()
		m.restarted.Add(1)
	})
}

// kill ends the node as a power loss does: what was not fsynced may be lost.
func (m *replica) kill(r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isolate()
	n := m.node
	m.node = nil
	n.stopped.Store(true)
	m.net.Close()
	n.files.server.close()
	n.raft.Shutdown().Error()
	m.fs = m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: r})
	close(n.stop)
	n.log.close(store.ErrUndecided)
	n.st.GiveUp()
	n.running.Wait()
	m.users.Wait()
	n.st.CloseNow()
}

// use returns the node, if it runs. Its store stays open until the caller has called m.users.Done.
func (m *replica) use() *Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node != nil {
		m.users.Add(1)
	}
	return m.node
}

func (m *replica) running() *Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// leader waits until a node decides, and returns it.
func (s *shard) leader() *replica {
	s.t.Helper()
	for end := time.Now().Add(testwait.Limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, m := range s.members {
			if n := m.running(); n != nil && !m.cut.Load() && n.Leads() {
				return m
			}
		}
	}
	for _, m := range s.members {
		if n := m.running(); n != nil {
			s.t.Logf("node %s, cut off: %v: %v", m.id[39:], m.cut.Load(), n.raft.Stats())
		}
	}
	stacks := make([]byte, 4<<20)
	s.t.Fatalf("nobody leads\n%s", stacks[:runtime.Stack(stacks, true)])
	return nil
}

// testWriter writes a node's log lines to the test's.
type testWriter struct{ m *replica }

func (w testWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		w.m.s.t.Logf("%s %s", w.m.id[39:], b)
	}
	return len(b), nil
}
