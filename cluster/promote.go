package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
)

// This file changes who votes in a Raft group. A voter that does not know of a new one refuses it
// its vote. Were the leader lost then, two healthy voters of three could elect nobody until it
// returned. So the voters have the log first, a promotion is done once they have it, and the next
// change of the voters waits for that (R9).

// voterSilence is after how many node timeouts of silence a change does not wait for a voter any more.
const voterSilence = 10

// errVotersLag is why the voters do not change now.
var errVotersLag = errors.New("the voters do not change while one of them that answers lacks a part " +
	"of the log")

// group is a Raft group, for the node that leads it.
type group struct {
	self      raft.ServerID
	raft      *raft.Raft
	transport *raftgroup.Transport
	timeout   time.Duration // the node timeout
	ledSince  time.Time
	stop      <-chan struct{}
	// gone reports whether a voter is no member any more; nil: none of them is. Nobody waits for it, since
	// it has stopped, or is about to; among those of which a majority is needed it counts.
	gone func(raft.ServerID) bool
}

// promote gives a node a vote, and returns when every voter that answers knows that.
func (g *group) promote(id raft.ServerID, address raft.ServerAddress) error {
	if !g.votes(id) {
		// Entries that are committed later do not count: one may be under way at any time.
		if err := g.awaitVoters(time.Now(), id, ""); err != nil {
			return err
		}
		if err := g.raft.AddVoter(id, address, 0, g.timeout).Error(); err != nil {
			return err
		}
	}
	return g.awaitVoters(time.Time{}, "", "")
}

// remove ends a node's membership.
func (g *group) remove(id raft.ServerID) error {
	return g.without(id, g.raft.RemoveServer)
}

// demote takes a node's vote.
func (g *group) demote(id raft.ServerID) error {
	return g.without(id, g.raft.DemoteVoter)
}

// without has Raft go on without a voter, which may lack anything.
func (g *group) without(id raft.ServerID,
	change func(id raft.ServerID, before uint64, timeout time.Duration) raft.IndexFuture) error {
	if err := g.awaitVoters(time.Time{}, "", id); err != nil {
		return err
	}
	return change(id, 0, g.timeout).Error()
}

// votes reports whether a node is a voter already.
func (g *group) votes(id raft.ServerID) bool {
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return s.Suffrage == raft.Voter
		}
	}
	return false
}

// awaitVoters waits, for a node timeout at most, until the voters have what is committed now, which
// the last change of the voters is a part of. Those that answer count, and they must have answered
// after a moment. One more is among them, or one less; "": none.
func (g *group) awaitVoters(asked time.Time, more, less raft.ServerID) error {
	index := g.raft.CommitIndex()
	for end := time.Now().Add(g.timeout); ; {
		err := g.lag(index, asked, more, less)
		if err == nil || g.raft.State() != raft.Leader || time.Now().After(end) {
			return err
		}
		select {
		case <-g.stop:
			return raft.ErrRaftShutdown
		case <-time.After(raftgroup.AnswerPeriod):
		}
	}
}

// lag says what awaitVoters waits for: that the voters have the log up to an index.
func (g *group) lag(index uint64, asked time.Time, more, less raft.ServerID) error {
	if g.raft.State() != raft.Leader {
		return raft.ErrNotLeader
	}
	voters := map[raft.ServerID]voter{}
	progress := g.transport.Progress()
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		if s.ID != less && (s.Suffrage == raft.Voter || s.ID == more) {
			voters[s.ID] = voter{progress[s.ID], g.gone != nil && g.gone(s.ID)}
		}
	}
	if more != "" && voters[more].Contact.Before(asked) {
		return fmt.Errorf("%w: the new node %s", errVotersLag, more)
	}
	voters[g.self] = voter{PeerProgress: raftgroup.PeerProgress{Index: index, Contact: time.Now()}}
	return lagOf(voters, index, asked, g.ledSince, voterSilence*g.timeout)
}

// voter is what the leader knows of a voter.
type voter struct {
	raftgroup.PeerProgress
	gone bool // see group
}

// lagOf says which of some voters lacks the log up to an index, or has not answered since a moment;
// nil: none of those that answer, and those that have it are a majority. A voter answers that is not gone and
// was heard, or led by this node, no longer ago than patience.
func lagOf(voters map[raft.ServerID]voter, index uint64, asked, ledSince time.Time,
	patience time.Duration) error {
	have := 0
	for id, v := range voters {
		heard := v.Contact
		if heard.Before(ledSince) {
			heard = ledSince
		}
		switch {
		case v.Index >= index && !v.Contact.Before(asked):
			have++
		case !v.gone && time.Since(heard) < patience:
			return fmt.Errorf("%w: the node %s", errVotersLag, id)
		}
	}
	if have <= len(voters)/2 {
		return fmt.Errorf("%w: %d of %d have it", errVotersLag, have, len(voters))
	}
	return nil
}

// group is the shard's Raft group; an error if this node does not lead it.
func (n *Node) group() (*group, error) {
	n.leading.Lock()
	defer n.leading.Unlock()
	if !n.leads.Load() {
		return nil, raft.ErrNotLeader
	}
	return &group{raft.ServerID(n.o.ID), n.raft, n.transport, n.o.Timeout, n.back.ledSince, n.stop, nil}, nil
}

// AddNonvoter lets a node follow without a vote; Promote gives it one, Remove ends its
// membership. They need the leader.
func (n *Node) AddNonvoter(id, address string) error {
	return n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, n.o.Timeout).Error()
}

// Promote gives a node that follows a vote, and returns when every voter that answers knows that.
// It can be repeated.
func (n *Node) Promote(id, address string) error {
	g, err := n.group()
	if err == nil {
		err = g.promote(raft.ServerID(id), raft.ServerAddress(address))
	}
	return err
}

// Remove ends a node's membership.
func (n *Node) Remove(id string) error {
	g, err := n.group()
	if err == nil {
		err = g.remove(raft.ServerID(id))
	}
	return err
}
