package cluster

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
)

// TestOneWordIsNoEvidence: a node that hears from one other node that its directory is older gives
// no vote and sends nothing until it is one of a majority that works. It stands aside when another
// node says the same.
func TestOneWordIsNoEvidence(t *testing.T) {
	n, this := startTransport(t, "1", NetOptions{Secret: testSecret})
	_, other := startTransport(t, "2", NetOptions{Secret: testSecret})
	for _, of := range []*raftgroup.Transport{this, other} {
		go agree(t, of)
	}
	var works atomic.Bool
	n.TakesPart(works.Load)
	n.Voters(func() int { return 3 })
	type node struct {
		name string
		*raftgroup.Transport
	}
	one, two := node{"1", this}, node{"2", other}
	asks := func(from, to node) [3]bool { // which of its requests are answered
		id, at := raft.ServerID(testID(to.name)), to.LocalAddr()
		header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(testID(from.name)), Addr: []byte("x")}
		return [3]bool{
			from.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: header},
				new(raft.RequestVoteResponse)) == nil,
			from.RequestPreVote(id, at, &raft.RequestPreVoteRequest{RPCHeader: header},
				new(raft.RequestPreVoteResponse)) == nil,
			from.AppendEntries(id, at, heartbeat(from.name, 1), new(raft.AppendEntriesResponse)) == nil,
		}
	}
	all, none, follows := [3]bool{true, true, true}, [3]bool{}, [3]bool{2: true}
	if asks(two, one) != all || asks(one, two) != all {
		t.Fatal("it does not vote")
	}
	for range 2 {
		n.heard(olderDirectory, testID("2"))
	}
	if n.Doubts() == nil || n.Aside() != nil {
		t.Fatalf("the word of one node: %v, %v", n.Doubts(), n.Aside())
	}
	if got := asks(one, two); got != none {
		t.Errorf("it stands or leads: %v", got)
	}
	if got := asks(two, one); got != follows {
		t.Errorf("it votes, or follows nobody: %v", got)
	}
	works.Store(true)
	await(t, "the doubt ends", func() bool { return asks(two, one) == all })
	works.Store(false)
	n.heard(olderDirectory, testID("2"))
	if n.Doubts() != nil {
		t.Error("it believes the word of a node that it has followed a leader without")
	}
	n.Doubt(testID("2")) // which says what is missing
	if n.Aside() != nil {
		t.Error("a word counts again")
	}
	n.Doubt(testID("3"))
	await(t, "it stands aside", func() bool { return errors.Is(n.Aside(), errOlder) })
}

// agree grants all that others ask a node for, until the test ends.
func agree(t *testing.T, node *raftgroup.Transport) {
	for {
		select {
		case rpc := <-node.Consumer():
			switch rpc.Command.(type) {
			case *raft.RequestVoteRequest:
				rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
			case *raft.RequestPreVoteRequest:
				rpc.Respond(&raft.RequestPreVoteResponse{Granted: true}, nil)
			default:
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			}
		case <-t.Context().Done():
			return
		}
	}
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
