package cluster

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestOneWordIsNoEvidence: a node that hears from one other node that its directory is older gives
// no vote and sends nothing until it is one of a majority that works. It stands aside when another
// node says the same.
func TestOneWordIsNoEvidence(t *testing.T) {
	n, _ := listen(t, "1", NetOptions{Secret: testSecret})
	raftMessages := n.Transport(KindRaft, n.Addr().String(), time.Second)
	defer raftMessages.Close()
	var works atomic.Bool
	n.TakesPart(works.Load)
	n.Voters(func() int { return 3 })
	votes := func() bool {
		granted := raft.RPCResponse{Response: &raft.RequestVoteResponse{Granted: true}}
		return raftMessages.given(&raft.RequestVoteRequest{}, granted).Error == nil &&
			raftMessages.given(&raft.RequestPreVoteRequest{}, granted).Error == nil
	}
	if !votes() || raftMessages.mute(&raft.RequestVoteRequest{}) != nil {
		t.Fatal("it does not vote")
	}
	for range 2 {
		n.heard(olderDirectory, testID("2"))
	}
	if n.Doubts() == nil || n.Aside() != nil {
		t.Fatalf("the word of one node: %v, %v", n.Doubts(), n.Aside())
	}
	if votes() || raftMessages.mute(&raft.RequestVoteRequest{}) == nil ||
		raftMessages.mute(&raft.AppendEntriesRequest{}) == nil {
		t.Error("it votes, stands or leads")
	}
	if raftMessages.given(&raft.AppendEntriesRequest{}, raft.RPCResponse{}).Error != nil {
		t.Error("it follows nobody")
	}
	works.Store(true)
	await(t, "the doubt ends", votes)
	works.Store(false)
	n.heard(olderDirectory, testID("2"))
	if n.Aside() != nil {
		t.Error("a word counts again")
	}
	n.heard(olderDirectory, testID("3"))
	await(t, "it stands aside", func() bool { return errors.Is(n.Aside(), errOlder) })
}

// TestFalseWord: a node that is taken for older by one other node that is wrong takes part again as
// soon as it follows the leader.
func TestFalseWord(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader, others := s.followers()
		told, wrong := others[0], others[1]
		s.mustAdd("k", "1")
		s.awaitApplied()
		wrong.witness.Learn(told.id, Past{Starts: told.net.self.starts, Acked: place{1 << 40, 1 << 40}})
		told.stop()
		told.start()
		s.faults.isolate(told.id, leader.id) // so that it asks the other one for its vote
		await(t, "it doubts itself", func() bool { return told.running().Status().Aside != nil })
		s.faults.reconnect(told.id, leader.id)
		await(t, "it follows", func() bool { return told.running().Status().Aside == nil })
		s.mustAdd("k", "2")
		s.awaitApplied()
	})
}
