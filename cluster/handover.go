package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
)

// This file changes the leader in order: when a node stops, when it cannot lead well, and when
// leadership returns to where it was meant to be.

// HandOver lets another node lead: the one with an id, or any if that is "". It returns when
// this node does not lead any more, or when ctx ends. Raft may still hand over then.
func (n *Node) HandOver(ctx context.Context, id string) error {
	return n.handsOver(ctx, func() (<-chan error, error) {
		if !n.Leads() {
			return nil, nil
		}
		n.stopLeading("it hands over")
		// Raft refuses entries while it hands over, and might take later ones: there are none.
		for n.log.undecided() {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-n.stop:
				return nil, raft.ErrRaftShutdown
			case <-time.After(time.Millisecond):
			}
		}
		return n.transfer(id)
	})
}

// handsOver asks Raft for a hand-over, of which there is one at a time, and waits for the answer
// until ctx ends. If the hand-over fails, this node leads on, but not before Raft has answered:
// Raft might take the beginning of a reign first, hand over after that, and refuse one entry of the
// reign and not the next.
func (n *Node) handsOver(ctx context.Context, ask func() (answer <-chan error, err error)) error {
	select {
	case n.handing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stop:
		return raft.ErrRaftShutdown
	}
	answer, err := ask()
	if answer == nil {
		return n.handed(err)
	}
	select {
	case err := <-answer:
		return n.handed(err)
	case <-n.stop:
		return raft.ErrRaftShutdown // it may never answer
	case <-ctx.Done():
	}
	go func() {
		select {
		case err := <-answer:
			_ = n.handed(err)
		case <-n.stop:
		}
	}()
	return ctx.Err()
}

// handed takes in how a hand-over ended. A reign may begin again.
func (n *Node) handed(err error) error {
	<-n.handing
	if err != nil {
		n.refused(err)
	} else {
		n.begins() // Raft may have been elected meanwhile
	}
	return err
}

// transfer makes Raft hand over leadership, to the node with an id or to any if that is "", while
// nothing is undecided.
func (n *Node) transfer(id string) (answer <-chan error, err error) {
	if id == "" {
		id = n.successor()
	}
	server, known := n.server(id)
	if !known {
		return nil, fmt.Errorf("node %.50q is not a member that answers", id)
	}
	n.transport.HandOver()
	return asked(n.transferTo(server)), nil
}

// transferTo returns a question to Raft, whether it has handed over leadership to a node.
func (n *Node) transferTo(to raft.Server) func() error {
	return n.raft.LeadershipTransferToServer(to.ID, to.Address).Error
}

// asked returns where the answer to a question will be.
func asked(ask func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- ask() }()
	return done
}

// await waits for an answer of Raft, which may never come once Raft shuts down.
func (n *Node) await(ctx context.Context, ask func() error) error {
	select {
	case err := <-asked(ask):
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stop:
		return raft.ErrRaftShutdown
	}
}

// successor returns the voter that may lead next: of those that answer, the one that has most
// of the log; "" if there is none. Raft itself might pick one that is dead.
func (n *Node) successor() (id string) {
	var best raftgroup.PeerProgress
	progress := n.transport.Progress()
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		p := progress[s.ID]
		if s.Suffrage != raft.Voter || string(s.ID) == n.o.ID || time.Since(p.Contact) > n.o.Timeout {
			continue
		}
		if id == "" || p.Index > best.Index {
			id, best = string(s.ID), p
		}
	}
	return id
}

// yield offers leadership to the others, once; if nobody can take it, this node leads.
func (n *Node) yield() {
	n.o.Logger.Warn("this node's clock is wrong: it offers leadership to the others", "by_ms", n.skew.Load())
	ctx, cancel := context.WithTimeout(context.Background(), giveUpPart*n.o.Timeout)
	defer cancel()
	_ = n.handsOver(ctx, func() (<-chan error, error) { return n.transfer("") }) // else this node leads
}

// Times of a leader whose disk is full.
const (
	spacePeriod = 250 * time.Millisecond // to look at it
	yieldPeriod = time.Minute            // for the others' disks may be full, too
)

// lacksSpace reports whether this node is to offer leadership to the others because its disk is
// full (R8). It says so once in a while.
func (n *Node) lacksSpace() bool {
	n.leading.Lock()
	defer n.leading.Unlock()
	if !n.st.DiskFull() || time.Since(n.yieldAt) < yieldPeriod {
		return false
	}
	n.yieldAt = time.Now()
	return true
}

// yieldForSpace hands leadership over, or leads on if nobody can take it.
func (n *Node) yieldForSpace() {
	n.o.Logger.Warn("this node's disk is full: it offers leadership to the others")
	ctx, cancel := context.WithTimeout(context.Background(), giveUpPart*n.o.Timeout)
	defer cancel()
	if err := n.HandOver(ctx, ""); err != nil {
		n.o.Logger.Warn("no other node has taken over: this one refuses writes until its disk has space",
			"error", err)
	}
}

// Leadership returns to where it was meant to be: to the first node of the configuration that
// votes. That node knows best whether it is well, so it asks for leadership itself: once it has
// followed for a while without a break, with all that is committed, a right clock (R6) and space on
// its disk (R8). The leader hands over if it agrees that the node has the log, and has led for that
// while itself: so leadership returns no more often than that, whatever happens.

// comeBackAfter is that while, unless Options say another.
const comeBackAfter = 30 * time.Second

// comeBack is what a node knows of the return of leadership to it.
type comeBack struct {
	wellSince time.Time   // since when this node could lead; zero: it could not. watch's goroutine
	wishes    chan string // ids of nodes that want to lead; to watch's goroutine
	ledSince  time.Time   // under leading, as ledUntil
	ledUntil  time.Time
}

// meantToLead returns the node that is meant to lead.
func (n *Node) meantToLead() string {
	if n.o.First == nil {
		return ""
	}
	return n.o.First()
}

// couldLead reports whether this node is meant to lead, does not, and is well.
func (n *Node) couldLead() bool {
	if n.meantToLead() != n.o.ID || n.raft.State() != raft.Follower ||
		time.Since(n.raft.LastContact()) > n.o.Timeout {
		return false
	}
	return n.log.Applied()+nearEnough >= n.raft.LastIndex() && !n.files.running.Load() &&
		!n.files.lacks.Load() && !n.hasWrongClock() && !n.st.DiskFull() && !n.hasHung()
}

// wishToLead asks the leader to hand over to this node, if it is time.
func (n *Node) wishToLead() {
	switch since := n.back.wellSince; {
	case !n.couldLead():
		n.back.wellSince = time.Time{}
	case since.IsZero():
		n.back.wellSince = time.Now()
	case time.Since(since) >= n.o.ComeBackAfter:
		n.back.wellSince = time.Now()
		n.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), n.o.Timeout)
			defer cancel()
			address, id := n.raft.LeaderWithID()
			if id == "" || string(id) == n.o.ID {
				return
			}
			if _, err := n.o.Net.Ask(ctx, string(id), string(address), wire.Ask{Verb: verbLead,
				Within: n.o.Timeout}); err != nil {
				n.o.Logger.Info("this node is the preferred leader, and cannot ask for leadership", "error",
					err)
			}
		})
	}
}

// verbLead asks for leadership.
const verbLead = "lead"

// onWish takes in that a node wants to lead.
func (n *Node) onWish(c *wire.Call, _ struct{}) (any, []byte, error) {
	select {
	case n.back.wishes <- c.From:
	default: // there is one
	}
	return nil, nil, nil
}

// grants reports whether this node hands over to another that wants to lead.
func (n *Node) grants(id string) bool {
	n.leading.Lock()
	led := time.Since(n.back.ledSince)
	n.leading.Unlock()
	if !n.Leads() || n.meantToLead() != id || led < n.o.ComeBackAfter {
		return false
	}
	p := n.transport.Progress()[raft.ServerID(id)]
	return time.Since(p.Contact) <= n.o.Timeout && p.Index+nearEnough >= n.raft.LastIndex()
}

// giveBack hands over to the node that is meant to lead.
func (n *Node) giveBack(id string) {
	n.o.Logger.Info("leadership returns to the preferred leader", "node", id)
	ctx, cancel := context.WithTimeout(context.Background(), giveUpPart*n.o.Timeout)
	defer cancel()
	if err := n.HandOver(ctx, id); err != nil {
		n.o.Logger.Warn("the preferred leader has not taken over: this node still leads", "error", err)
	}
}
