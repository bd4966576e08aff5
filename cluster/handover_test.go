package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestLeadershipReturns: after all nodes were started again, one after the other, leadership is
// where it was meant to be; and again after that node was lost for a while.
func TestLeadershipReturns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.comeBack = 200 * time.Millisecond
		first := s.members[0]
		for _, m := range s.members {
			if m.running().Leads() {
				_ = m.running().HandOver(t.Context(), "") // as SIGTERM does
			}
			m.stop()
			m.start()
			s.mustAdd("k", m.id)
		}
		await(t, "leadership is back", func() bool { return first.running().Leads() })
		first.stop()
		s.mustAdd("k", "without it")
		first.start()
		await(t, "leadership is back", func() bool { return first.running().Leads() })
		if op := s.mustAdd("k", "last"); op.Value != 5 {
			t.Errorf("the counter is %d, want 5", op.Value)
		}
	})
}

// TestMeantToLeadIsWell: the node that is meant to lead asks for it only while it has what is
// committed, a right clock and space, and hears the leader; the leader hands over to no other,
// nor to one that lacks the log, nor before it has led for a while.
func TestMeantToLeadIsWell(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		first := s.members[0]
		await(t, "it leads", func() bool {
			leader := s.leader()
			if leader != first {
				_ = leader.running().HandOver(t.Context(), first.id)
			}
			return leader == first
		})
		n := first.running()
		first.full.Fill(0)
		await(t, "it has yielded", func() bool { return s.leader() != first })
		leader := s.leader().running()
		could := func(want bool, what string) {
			t.Helper()
			await(t, what, func() bool { return n.couldLead() == want })
		}
		await(t, "another node leads", func() bool {
			return n.raft.State() == raft.Follower && time.Since(n.raft.LastContact()) < testTimeout
		})
		if n.couldLead() {
			t.Error("it asks while its disk is full")
		}
		first.full.Fill(-1)
		could(true, "its disk has space")
		for _, m := range s.members[1:] {
			if m.running().couldLead() {
				t.Error("a node asks that is not meant to lead")
			}
		}
		n.skew.Store(-time.Hour.Milliseconds())
		could(false, "its clock is wrong")
		n.skew.Store(0)
		could(true, "its clock is right")
		n.files.running.Store(true)
		could(false, "it fetches files")
		n.files.running.Store(false)

		if leader.grants(first.id) {
			t.Error("leadership returns at once")
		}
		leader.leading.Lock()
		leader.back.ledSince = time.Now().Add(-2 * comeBackAfter)
		leader.leading.Unlock()
		await(t, "leadership may return", func() bool { return leader.grants(first.id) })
		if leader.grants(s.members[1].id) || leader.grants(s.members[2].id) {
			t.Error("leadership goes to a node that is not meant to lead")
		}
		first.isolate()
		could(false, "it hears no leader")
		await(t, "the leader does not hear it", func() bool { return !leader.grants(first.id) })
		first.heal()
	})
}

// TestIdleShardIsApplied: a shard without load is not behind what only Raft knows of.
func TestIdleShardIsApplied(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		var behind uint64
		s.onLeader("an entry of Raft's own", func(n *Node) error {
			barrier := n.raft.Barrier(0)
			behind = n.raft.LastIndex()
			return barrier.Error()
		})
		for _, r := range s.members {
			await(t, "node "+r.id[39:]+" has applied everything", func() bool {
				status := r.running().Status()
				return status.Applied == status.Committed && status.Committed >= behind
			})
		}
	})
}
