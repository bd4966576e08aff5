package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
)

// TestVotersLag: a change of the voters waits for each one that answers, and for a majority whoever answers.
func TestVotersLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		const patience = 10 * time.Second
		now := time.Now()
		ago := func(d time.Duration, index uint64) voter {
			return voter{PeerProgress: raftgroup.PeerProgress{Index: index, Contact: now.Add(-d)}}
		}
		gone := voter{gone: true}
		for what, tt := range map[string]struct {
			voters map[raft.ServerID]voter
			led    time.Duration // for how long this node leads
			waits  bool
		}{
			"all have it": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": ago(0, 10)}, time.Hour, false},
			"one lacks an entry": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": ago(0, 8)}, time.Hour, true},
			"one has not answered since": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": ago(2*time.Second, 9)}, time.Hour, true},
			"one is silent for long": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": ago(patience, 8)}, time.Hour, false},
			"one was not heard since the start": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": {}}, time.Hour, false},
			"one was not heard by a new leader": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": {}}, time.Second, true},
			"one is gone": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": gone}, time.Second, false},
			"half of them have it, and the others are gone": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(0, 9), "c": gone, "d": gone}, time.Second, true},
			"half of them have it": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(patience, 9)}, time.Hour, true},
			"a minority has it": {map[raft.ServerID]voter{"a": ago(0, 9),
				"b": ago(patience, 8), "c": ago(patience, 8)}, time.Hour, true},
		} {
			err := lagOf(tt.voters, 9, now.Add(-time.Second), now.Add(-tt.led), patience)
			if (err != nil) != tt.waits || err != nil && !errors.Is(err, errVotersLag) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestPromotionIsKnown: a voter whose disk hangs does not know of a new voter, so that the
// promotion is not done, and no voter goes. Once it is done, the leader may be lost at once: the
// two others elect one of them.
func TestPromotionIsKnown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader, others := s.followers()
		late, fresh := others[0], others[1]
		n, address := leader.running(), fresh.net.Addr().String()
		must(t, n.Remove(fresh.id))
		must(t, n.AddNonvoter(fresh.id, address))
		s.mustAdd("k", "1")
		s.awaitApplied()
		answer := late.hangDisk()
		if err := n.Promote(fresh.id, address); err == nil {
			t.Error("the promotion is done, and a voter does not know it")
		}
		if err := n.Remove(fresh.id); err == nil {
			t.Error("the next change is done")
		}
		answer()
		s.onLeader("the promotion", func(n *Node) error { return n.Promote(fresh.id, address) })
		leader = s.leader()
		leader.isolate()
		if s.leader() == leader {
			t.Error("the lost leader leads")
		}
	})
}

// TestPromotionWaitsForVoters: no node is promoted while a voter is silent.
func TestPromotionWaitsForVoters(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 4)
		leader, others := s.followers()
		late, fresh := others[0], others[1]
		n, address := leader.running(), fresh.net.Addr().String()
		must(t, n.Remove(fresh.id))
		must(t, n.AddNonvoter(fresh.id, address))
		s.mustAdd("k", "1")
		s.awaitApplied()
		s.faults.cut(leader.id, late.id)
		if err := n.Promote(fresh.id, address); err == nil {
			t.Error("the promotion is done")
		}
		if server, _ := n.server(fresh.id); server.Suffrage != raft.Nonvoter {
			t.Errorf("the new node is a %v", server.Suffrage)
		}
		s.faults.heal(leader.id, late.id)
		s.onLeader("the promotion", func(n *Node) error { return n.Promote(fresh.id, address) })
	})
}
