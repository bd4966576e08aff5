package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// add sends one operation to a node.
func (m *replica) add(key, id string) *store.Op {
	var b store.Batch
	op := b.Add(store.CIncrBy)
	op.Key, op.ID, op.Delta = []byte(key), []byte(id), 1
	m.running().Store().Execute(&b)
	return &b.Ops[0]
}

// mustAdd sends one operation to whoever leads, until it is answered.
func (s *shard) mustAdd(key, id string) *store.Op {
	s.t.Helper()
	for end := time.Now().Add(testwait.Limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if op := s.leader().add(key, id); op.Err == nil {
			return op
		}
	}
	s.t.Fatal("nothing is answered")
	return nil
}

// strand cuts the leader off while it decides an operation, and returns it, the record, and
// how the operation ended once another node leads.
func (s *shard) strand(key, id string) (old *replica, record []byte, ended chan error) {
	s.t.Helper()
	s.mustAdd(key, "before "+id)
	old = s.leader()
	l := old.running().log
	old.isolate()
	ended = make(chan error, 1)
	go func() { ended <- old.add(key, id).Err }()
	for end := time.Now().Add(testwait.Limit); record == nil; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		for _, p := range slices.Concat(l.flying, l.queue) {
			record = p.record
		}
		l.mu.Unlock()
		if time.Now().After(end) {
			s.t.Fatal("the leader does not decide")
		}
	}
	s.leader()
	return old, record, ended
}

// awaitApplied waits until all nodes have applied what the leader has.
func (s *shard) awaitApplied() {
	s.t.Helper()
	l := load{s: s}
	for _, m := range s.members {
		l.awaitApplied(m.running(), s.leader().running())
	}
}

// TestStaleEntry: what was decided in an earlier reign, of this term or another, and comes into the
// log of a later one, is ignored by every node, and by those that start again (R2).
func TestStaleEntry(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		old, record, _ := s.strand("k", "stale")
		leader := s.leader().running()
		reign := leader.log.leads()
		for _, stale := range []oplog.Reign{{Term: reign.Term - 1, Index: reign.Index}, {Term: reign.Term,
			Index: reign.Index - 1}} {
			c := command{kind: commandSections, reign: stale, origin: old.running().log.origin,
				number: 1 << 40, body: record}
			if err := leader.raft.ApplyLog(raft.Log{Data: c.encode(nil)}, 0).Error(); err != nil {
				t.Fatal(err)
			}
		}
		old.heal()
		if op := s.mustAdd("k", "after"); op.Value != 2 {
			t.Errorf("the counter is %d, want 2", op.Value)
		}
		s.awaitApplied()
		for _, m := range s.members {
			if n := m.running().Status().Fenced; n != 2 {
				t.Errorf("node %s has ignored %d entries", m.id[39:], n)
			}
		}
		for _, m := range s.members {
			m.stop()
		}
		for _, m := range s.members {
			m.start()
		}
		if op := s.mustAdd("k", "stale"); op.Value != 3 || !op.Applied {
			t.Errorf("what was ignored, sent again: %d, applied %v", op.Value, op.Applied)
		}
		s.reads("k", 3)
	})
}

// TestFollowerStarts: a follower that starts knows in which reign it is, although its log does not
// begin one anew (R2).
func TestFollowerStarts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "before")
		s.awaitApplied()
		for _, m := range s.members {
			if m != s.leader() {
				m.stop()
				m.start()
			}
		}
		s.mustAdd("k", "after")
		s.reads("k", 2)
	})
}

// reads expects every replica to have a value.
func (s *shard) reads(key string, value int64) {
	s.t.Helper()
	s.awaitApplied()
	for _, m := range s.members {
		var b store.Batch
		b.Replica = true
		b.Add(store.Get).Key = []byte(key)
		m.running().Store().Execute(&b)
		if op := &b.Ops[0]; op.Err != nil || op.Value != value {
			s.t.Errorf("node %s reads %d, %v", m.id[39:], op.Value, op.Err)
		}
	}
}

// TestLeadsAgain: a node leads again that has decided what was never committed, while nobody
// decided anything in that partition: its state does not hold it any more (R3, R6).
func TestLeadsAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		old, _, ended := s.strand("k", "lost")
		old.heal()
		if err := <-ended; !retried(err) {
			t.Fatalf("the operation ends with %v", err)
		}
		s.awaitApplied()
		for end := time.Now().Add(testwait.Limit); s.leader() != old; time.Sleep(10 * time.Millisecond) {
			if err := s.leader().running().HandOver(t.Context(), old.id); err != nil {
				t.Log(err)
			}
			if time.Now().After(end) {
				t.Fatal("the node does not lead again")
			}
		}
		if op := s.mustAdd("k", "lost"); op.Value != 2 || !op.Applied {
			t.Errorf("what was taken back, sent again: %d, applied %v", op.Value, op.Applied)
		}
		s.reads("k", 2)
	})
}

// TestViewsAreReached: checkpoints follow the last entry that the log has, and a power loss
// follows them: the next start redoes as much as they hold (R5).
func TestViewsAreReached(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		for i := range 20 {
			s.mustAdd("k", fmt.Sprint(i))
		}
		s.awaitApplied()
		for _, m := range s.members {
			if err := m.running().Store().Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		r := rand.New(rand.NewPCG(1, 1))
		for _, m := range s.members {
			m.kill(r)
		}
		for _, m := range s.members {
			m.start()
		}
		if op := s.mustAdd("k", "0"); op.Applied || op.Value != 1 {
			t.Errorf("a retry is answered %d, applied %v", op.Value, op.Applied)
		}
	})
}

// TestFullDiskDoesNotLead: a leader whose disk is full lets another lead, so that writes go on; it
// neither ends nor loses what it has (R8).
func TestFullDiskDoesNotLead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "before")
		full := s.leader()
		full.full.Fill(0)
		for end := time.Now().Add(testwait.Limit); s.leader() == full; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it leads on")
			}
		}
		if n := s.leader().running(); n.Status().Takeovers == 0 || !n.transport.Handed().After(n.started) {
			t.Errorf("its successor says %q", n.whyElected())
		}
		if op := s.mustAdd("k", "after"); op.Value != 2 {
			t.Errorf("the counter is %d, want 2", op.Value)
		}
		full.full.Fill(-1)
		s.awaitApplied()
		if op := s.mustAdd("k", "before"); op.Value != 1 || op.Applied {
			t.Errorf("sent again: %d, applied %v", op.Value, op.Applied)
		}
	})
}

// TestWrongClockYields: a node whose clock differs from the last leader's does not lead while
// another can (R6).
func TestWrongClockYields(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "1")
		s.awaitApplied()
		old := s.leader()
		next := s.members[0]
		if next == old {
			next = s.members[1]
		}
		n := next.running()
		n.skew.Store(-(24 * time.Hour).Milliseconds())
		_ = old.running().HandOver(t.Context(), next.id)
		await(t, "the node has yielded", func() bool {
			for _, m := range s.members {
				if m != next && m.running().Leads() && n.Status().Takeovers == 0 && n.Status().Changes > 1 {
					return true
				}
			}
			return false
		})
		if op := s.mustAdd("k", "1"); op.Applied || op.Value != 1 {
			t.Errorf("a retry is answered %d, applied %v", op.Value, op.Applied)
		}
	})
}
