package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store"
)

// looks has a node's log look at its disk as if so much time had passed.
func looks(n *Node, passed time.Duration) {
	for ; passed > 0; passed -= time.Second {
		n.log.Look(min(passed, time.Second))
	}
}

// hangs keeps the disk of the shard's leader from answering while an operation of it is under way,
// and returns it and what becomes of the operation.
func (s *shard) hangs() (leader *replica, answer func(), operation chan error) {
	leader = s.leader()
	n := leader.running()
	answer = leader.hangDisk()
	operation = make(chan error, 1)
	go func() { operation <- leader.add("k", "hangs").Err }()
	await(s.t, "the operation waits for the disk", func() bool {
		return leader.waits.Load() > 0 && n.log.undecided()
	})
	looks(n, time.Millisecond) // this one sees it
	return leader, answer, operation
}

// TestHungDiskOfALeader: a leader whose disk does not answer for five seconds says nothing to the
// others any more, so that one of them leads, and asks for leadership no more for ten minutes.
// Those that wait are told in time.
func TestHungDiskOfALeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "first")
		old, answer, operation := s.hangs()
		n := old.running()
		looks(n, 3*time.Second) // less than five with the log's own looks
		if n.transport.Silent() || !n.Leads() {
			t.Fatal("it gave up leading too early")
		}
		if n.log.Hangs().Count != 1 {
			t.Errorf("%d hangs were counted", n.log.Hangs().Count)
		}
		looks(n, 3*time.Second)
		await(t, "another node leads", func() bool {
			for _, m := range s.members {
				if m != old && m.running().Leads() {
					return true
				}
			}
			return false
		})
		if n.Leads() {
			t.Error("two nodes lead")
		}
		s.mustAdd("k", "second")
		if err := <-operation; err == nil {
			t.Error("an operation was acknowledged that no majority has")
		}
		answer()
		await(t, "it follows", func() bool {
			return n.raft.State() == raft.Follower && time.Since(n.raft.LastContact()) < testTimeout
		})
		s.awaitApplied()
		if n.transport.Silent() {
			t.Error("it is silent, though it does not lead")
		}
		s.meant.Store(&old.id)
		if n.couldLead() {
			t.Error("leadership returns to a node whose disk has just not answered")
		}
		n.hung.Set(time.Now().Add(-hangShy))
		await(t, "leadership may return", n.couldLead)
		if op := s.mustAdd("k", "hangs"); op.Value != 3 {
			t.Errorf("the counter is %d, want 3", op.Value)
		}
	})
}

// TestHungFileOfTheNode: a leader gives up leading for an fsync of the node's own values as for one
// of the log, and the meta group hears of it as well.
func TestHungFileOfTheNode(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		old := s.leader()
		n := old.running()
		file := persistence.ValuesName
		old.gated.Store(&file)
		answer := old.hangDisk()
		set := make(chan error, 1)
		go func() { set <- n.o.Stable.Set([]byte("k"), []byte("v")) }()
		await(t, "it waits for the disk", func() bool {
			_, busy := n.o.Stable.Work().Counts()
			return busy
		})
		looks(n, time.Millisecond) // this one sees it
		if looks(n, 3*time.Second); !n.Leads() || old.hangs.Load() > 0 {
			t.Fatal("it gave up leading too early")
		}
		looks(n, 3*time.Second)
		await(t, "another node leads", func() bool {
			return slices.ContainsFunc(s.members, func(m *replica) bool {
				return m != old && m.running().Leads()
			})
		})
		if old.hangs.Load() == 0 {
			t.Error("the meta group did not hear of it")
		}
		answer()
		must(t, <-set)
		s.awaitApplied()
	})
}

// TestHungDiskOfAMetaLeader: a leader of the meta group whose disk does not answer becomes silent,
// so that the others can go on to change the configuration.
func TestHungDiskOfAMetaLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		old := g.leader()
		gate := make(chan struct{})
		answer := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(answer)
		old.gate.Store(&gate)
		set := make(chan error, 1)
		go func() { set <- old.stable.Set([]byte("k"), []byte("v")) }()
		await(t, "it waits for the disk", func() bool {
			_, busy := old.stable.Work().Counts()
			return busy
		})
		old.meta.DiskHangs()
		var next *metaNode
		await(t, "another node leads", func() bool {
			i := slices.IndexFunc(g.nodes, func(n *metaNode) bool {
				return n != old && n.meta.raft.State() == raft.Leader
			})
			if i >= 0 {
				next = g.nodes[i]
			}
			return i >= 0
		})
		g.configure(next, rename(old.id, "other"))
		answer()
		must(t, <-set)
		g.awaitSame(old.id, "other")
		await(t, "it speaks again", func() bool { return !old.meta.transport.Silent() })
	})
}

// TestHungDiskEndsTheProcess: a disk that does not answer for half a minute ends the process, and
// nobody reaches it before that.
func TestHungDiskEndsTheProcess(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader := s.leader()
		leader.fatal = make(chan error, 1)
		_, answer, _ := s.hangs()
		n := leader.running()
		looks(n, 25*time.Second)
		select {
		case err := <-leader.fatal:
			t.Fatal("it ends too early:", err)
		default:
		}
		looks(n, 5*time.Second)
		select {
		case <-leader.fatal:
		case <-time.After(5 * time.Second): // virtual
			t.Fatal("it goes on")
		}
		if conn, err := n.o.Net.o.Dial(t.Context(), n.o.Net.Addr().String()); err == nil {
			conn.Close()
			t.Error("its cluster port still answers")
		}
		answer()
	})
}

// TestFullReplicaHears: a replica that cannot store what the leader sends knows what is committed.
func TestFullReplicaHears(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		_, others := s.followers()
		full := others[0]
		s.awaitApplied()
		full.full.Fill(0)
		for i := 0; ; i++ {
			s.mustAdd("k", fmt.Sprint("op", i))
			status := full.running().Status()
			if status.Heard.Commit > status.Applied+20 && status.Applied < status.Heard.Commit {
				break
			}
		}
		await(t, "it hears that more is committed than it has", func() bool {
			status := full.running().Status()
			return time.Since(status.Heard.At) < testTimeout && status.Heard.Commit > status.Applied
		})
		full.full.Fill(-1)
		await(t, "it has everything", func() bool {
			status := full.running().Status()
			return status.Applied >= status.Heard.Commit &&
				status.Applied >= s.leader().running().raft.CommitIndex()
		})
	})
}

// TestFailedStoreEndsTheProcess: a leader whose store refuses writes after a disk error ends, so
// that another node leads.
func TestFailedStoreEndsTheProcess(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "first")
		old := s.leader()
		old.fatal = make(chan error, 10)
		tables := ".sst"
		old.broken.Store(&tables)
		_ = old.running().st.Snapshot() // it fails, whatever it says
		if err := <-old.fatal; !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("the process ends with %v", err)
		}
		old.kill(rand.New(rand.NewPCG(1, 1)))
		if op := s.mustAdd("k", "second"); op.Value != 2 {
			t.Errorf("the counter is %d, want 2", op.Value)
		}
	})
}

// TestHungDiskAlone: a shard's only voter leads on while its disk does not answer: nobody else could.
func TestHungDiskAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		leader, answer, operation := s.hangs()
		n := leader.running()
		looks(n, 20*time.Second)
		if !n.Leads() || n.transport.Silent() {
			t.Error("it leads no more")
		}
		answer()
		if err := <-operation; err != nil {
			t.Error(err)
		}
	})
}

// TestProgressIsOfATerm: what a peer had in an earlier term counts for nothing in the present one,
// in which it may have been cut.
func TestProgressIsOfATerm(t *testing.T) {
	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	go obey(t, to)
	id := raft.ServerID(testID("2"))
	var term atomic.Uint64
	from.Observe(&raftgroup.Watcher{Term: term.Load, Answered: func(raft.ServerID, time.Time, uint64) {},
		Sends: func(raft.ServerID, raft.ServerAddress, uint64) bool { return false }})
	for _, now := range []uint64{7, 8} {
		term.Store(now)
		if got := from.Progress()[id].Index; got != 0 {
			t.Errorf("before it answers in term %d the peer has the log up to %d", now, got)
		}
		request := heartbeat("1", now)
		request.PrevLogEntry, request.PrevLogTerm, request.Entries = 10, 1, []*raft.Log{{Index: 11}}
		if err := from.AppendEntries(id, to.LocalAddr(), request,
			new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		if got := from.Progress()[id].Index; got != 11 {
			t.Errorf("in term %d the peer has the log up to %d, want 11", now, got)
		}
	}
}
