package raftgroup

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Confirmer proves that this node still led after a moment in time, so that what it read
// then was the latest. The proof is that a majority of the voters, this node included if
// it is one, has answered, with the term of the proof, an AppendEntries that was sent
// after that moment: no voter of this majority knew a newer term then, so no other leader
// can have had anything committed. (raft.VerifyLeader alone proves less: it also counts
// answers to what was sent before it was asked.)
//
// All who ask while a proof is under way share the next one. Methods are safe for
// concurrent use.
type Confirmer struct {
	self   raft.ServerID
	term   func() uint64 // in which this node leads; 0: it does not
	voters func() []raft.ServerID
	ask    func() // for an answer of every voter; may block

	mu      sync.Mutex
	answers map[raft.ServerID]answered
	current *round // under way
	next    *round // begins when current has ended
}

// answered is the latest AppendEntries that a voter has answered.
type answered struct {
	term uint64    // of the answer
	sent time.Time // the request
}

// round is one proof for all who wait for it.
type round struct {
	term  uint64
	asked time.Time // after everyone's call began
	done  chan struct{}
	err   error // before done is closed
}

// NewConfirmer returns a Confirmer for the node self, whose Raft r uses t.
func NewConfirmer(r *raft.Raft, t *Transport, self raft.ServerID) *Confirmer {
	c := &Confirmer{
		self: self, answers: map[raft.ServerID]answered{},
		term: func() uint64 {
			if r.State() != raft.Leader {
				return 0
			}
			return r.CurrentTerm()
		},
		voters: func() []raft.ServerID { return Voters(r) },
		// it has every peer sent a heartbeat; what it finds is not what we ask
		ask: func() { r.VerifyLeader() },
	}
	t.Observe(Watch(r, c.note))
	return c
}

// Watch returns the Watcher of a Raft, which tells answered of every AppendEntries that was answered.
func Watch(r *raft.Raft, answered func(peer raft.ServerID, sent time.Time, term uint64)) *Watcher {
	return &Watcher{
		Term:     r.CurrentTerm,
		Follows:  func(term uint64) bool { return r.State() == raft.Follower && r.CurrentTerm() == term },
		Answered: answered,
		Sends: func(peer raft.ServerID, address raft.ServerAddress, term uint64) bool {
			return r.State() == raft.Leader && r.CurrentTerm() == term &&
				slices.ContainsFunc(r.GetConfiguration().Configuration().Servers,
					func(s raft.Server) bool { return s.ID == peer && s.Address == address })
		},
	}
}

// Voters returns the nodes of a group that vote.
func Voters(r *raft.Raft) (voters []raft.ServerID) {
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s.ID)
		}
	}
	return voters
}

// Confirm returns nil once it is proved that this node led in term after the call began.
// The term is that for which the caller's state is complete (that of the reign it decides in).
// The error is raft.ErrNotLeader if the node is known to have lost that leadership, or
// ctx's: a leader that is cut off learns nothing.
func (c *Confirmer) Confirm(ctx context.Context, term uint64) error {
	c.mu.Lock()
	if c.next == nil {
		c.next = &round{term: term, done: make(chan struct{})}
	}
	r := c.next
	if r.term != term { // another one has begun between two calls
		c.mu.Unlock()
		return raft.ErrNotLeader
	}
	c.advance()
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Deposed tells those who wait that this node does not lead.
func (c *Confirmer) Deposed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range []*round{c.current, c.next} {
		if r != nil {
			r.end(raft.ErrNotLeader)
		}
	}
	c.current, c.next = nil, nil
}

// note learns that a peer has answered an AppendEntries that was sent at this time, with
// this term.
func (c *Confirmer) note(peer raft.ServerID, sent time.Time, term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.answers[peer]; term > a.term || term == a.term && sent.After(a.sent) {
		c.answers[peer] = answered{term, sent}
		c.advance()
	}
}

// advance ends the proof under way if it can be, and begins the next; c.mu is held.
func (c *Confirmer) advance() {
	for {
		if c.current == nil {
			if c.next == nil {
				return
			}
			c.current, c.next = c.next, nil
			c.current.asked = time.Now()
			go c.ask()
		}
		switch r := c.current; {
		case c.term() != r.term:
			r.end(raft.ErrNotLeader)
		case c.proved(r):
			r.end(nil)
		default:
			return
		}
		c.current = nil
	}
}

// proved reports whether a majority of the voters has answered as a round needs it. The present
// term is the round's term.
func (c *Confirmer) proved(r *round) bool {
	voters, count := c.voters(), 0
	for _, id := range voters {
		if a := c.answers[id]; id == c.self || a.term == r.term && a.sent.After(r.asked) {
			count++
		}
	}
	return count > len(voters)/2
}

// end tells everyone in the round.
func (r *round) end(err error) {
	r.err = err
	close(r.done)
}
