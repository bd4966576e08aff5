package cluster

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// machine is the state machine that Raft drives: the store behind a Node. Raft calls it
// from one goroutine, with the committed entries, in order.
type machine struct{ n *Node }

// Apply takes in a committed command.
func (m machine) Apply(l *raft.Log) any {
	n := m.n
	<-n.begun // Raft may have something before startRaft has Raft
	if n.files.lacks.Load() {
		return nil // an entry before could not be applied
	}
	c, err := decodeCommand(l.Data)
	if err == nil {
		err = n.apply(l, &c)
	}
	if errors.Is(err, store.ErrNotReceived) {
		n.takeOthers(err)
	} else if err != nil {
		n.fail(fmt.Errorf("entry %d of the shard's log: %w", l.Index, err))
	}
	return err
}

func (n *Node) apply(l *raft.Log, c *command) error {
	known := l.Index <= n.redone // Open has redone it
	// It is committed: said before anybody can derive a view from it, which the next start
	// must reach (R5). An entry that needs a partition which this node may not have received is
	// announced only once it has been redone: the next start could not redo it either.
	counts := c.countsIn(l.Term, n.reign)
	follows := counts && !known && !n.log.isOurs(c)
	adopts := follows && store.Adopts(c.body)
	if !adopts {
		n.log.SetApplied(l.Index)
	}
	if c.kind == commandBegin && c.origin != n.log.origin {
		n.skew.Store(unknownSkew) // another's clock counts now
	}
	if c.kind != commandPasts && c.origin != n.log.origin && !known {
		n.compareClock(l)
	}
	switch c.kind {
	case commandBegin:
		if !known {
			return n.begin(l, c)
		}
	case commandPasts:
		pasts, err := decodePasts(c.body)
		if err != nil {
			return err
		}
		for id, p := range pasts {
			if w := n.witness(); w != nil {
				w.Learn(id, p)
			}
		}
	case commandSections:
		switch {
		case known:
		case !counts: // R2
			n.log.fenced.Add(1)
		case n.log.isOurs(c):
			n.log.committed(n.st.Committed)
		default:
			if n.log.undecided() { // R3: what this node decided rests on something else
				if err := n.takeBack("another node's decision was committed"); err != nil {
					return err
				}
			}
			applied := func() { n.log.SetApplied(l.Index) }
			if err := n.st.Follow(c.body, applied); err != nil {
				return err
			}
			applied() // also of what recovery had redone
		}
	}
	return nil
}

// takeBack makes anew the partitions in which this node has decided what is not committed, and never
// will be. Nothing is ours afterwards (R2, R3).
func (n *Node) takeBack(why string) error {
	n.stopLeading(why)
	first := n.log.cut() // before: who waits for it may hold what TakeBack needs
	if len(first) > 0 {
		n.o.Logger.Warn("operations that this node decided were not committed: it rebuilds their partitions",
			"partitions", len(first))
		n.rebuilds.Add(1)
	}
	return n.st.TakeBack(first)
}

// begin takes in the first command of a leader, with which a reign begins. All that was decided in an
// earlier one, and has not come yet, never will: it would be ignored if it did (R2, R3).
func (n *Node) begin(l *raft.Log, c *command) error {
	n.reign = oplog.Reign{Term: l.Term, Index: l.Index}
	n.leaders.Add(1)
	if err := n.takeBack("a new reign begins"); err != nil {
		return err
	}
	switch {
	case c.origin != n.log.origin:
		_, leader := n.raft.LeaderWithID()
		n.o.Logger.Info("another node leads the shard", "term", l.Term, "node", string(leader))
		n.yielded = false
	case n.hasWrongClock() && !n.yielded:
		n.yielded = true
		go n.yield()
	default:
		return n.startLeading()
	}
	return nil
}

// compareClock notes how much this node's clock differs from that of the leader which has just
// had an entry committed. An entry that comes late makes it look greater: so those of earlier
// terms, and those that a node catches up with, do not count, and of the others the least
// difference since the leader began.
func (n *Node) compareClock(l *raft.Log) {
	if l.AppendedAt.IsZero() || l.Term != n.raft.CurrentTerm() || n.raft.LastIndex() > l.Index+2*maxInFlight {
		return
	}
	n.skew.Store(min(n.skew.Load(), time.Since(l.AppendedAt).Milliseconds()))
}

// hasWrongClock reports whether ids would be judged by times that differ from the last
// leader's by more than half of what the tables allow clients (R6).
func (n *Node) hasWrongClock() bool {
	least := int64(math.MaxInt64)
	for _, t := range n.st.Tables() {
		least = min(least, t.Skew.Milliseconds()/2)
	}
	skew := n.skew.Load()
	return skew != unknownSkew && max(skew, -skew) > max(least, leastSkew)
}

// clockSkew is the difference; 0 if nobody has seen one.
func (n *Node) clockSkew() time.Duration {
	if skew := n.skew.Load(); skew != unknownSkew {
		return time.Duration(skew) * time.Millisecond
	}
	return 0
}

// unknownSkew is a difference that nobody has seen.
const unknownSkew = math.MaxInt64

// leastSkew is a difference of clocks, ms, that may be the delay of a message.
const leastSkew = 500

// startLeading lets this node decide, if it still leads in the term in which its first
// command was committed. It has applied all that was committed before (R5, R6).
func (n *Node) startLeading() error {
	n.leading.Lock()
	defer n.leading.Unlock()
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != n.reign.Term || n.o.Net.Doubts() != nil {
		return nil // another one's first command will follow
	}
	n.log.setReign(n.reign)
	n.back.ledSince = time.Now()
	alone := time.Since(n.lastHeard())
	n.takeover.Store(int64(alone))
	n.takeovers.Add(1)
	n.o.Logger.Info("this node leads the shard", "term", n.reign.Term, "reason", n.whyElected(),
		"without_leader", alone.Round(time.Millisecond))
	err := n.st.Lead()
	n.leads.Store(true) // not before: who sees it asks the store, which would refuse
	n.changed()
	return err
}

// lastHeard is when this node heard a leader last: another one, or it was started then.
func (n *Node) lastHeard() time.Time {
	if heard := n.raft.LastContact(); heard.After(n.started) {
		return heard
	}
	return n.started
}

// silence says for how long this node has heard no leader.
func (n *Node) silence() string {
	return fmt.Sprintf("no leader was heard for %v", time.Since(n.lastHeard()).Round(time.Millisecond))
}

// wasHanded reports whether the former leader has just handed over to this node.
func (n *Node) wasHanded() bool {
	handed := n.transport.Handed()
	return handed.After(n.started) && time.Since(handed) < n.o.Timeout
}

// whyElected says why there was an election that this node has won.
func (n *Node) whyElected() string {
	if n.wasHanded() {
		return "the former leader handed over"
	}
	return n.silence()
}

// whyLeaderless says why this node follows nobody.
func (n *Node) whyLeaderless() string {
	n.leading.Lock()
	led := time.Since(n.back.ledUntil)
	n.leading.Unlock()
	switch {
	case n.wasHanded():
		return "the leader hands over to this node"
	case led < n.o.Timeout:
		return "this node leads no longer"
	}
	return n.silence()
}

// whyDeposed says why Raft does not take this node for the leader any more.
func (n *Node) whyDeposed() string {
	led := n.log.leads().Term
	if term := n.raft.CurrentTerm(); led > 0 && term > led {
		return fmt.Sprintf("the term %d has begun", term)
	}
	return "no majority of the nodes answers"
}

// stopLeading keeps this node from deciding.
func (n *Node) stopLeading(reason string) {
	n.leading.Lock()
	defer n.leading.Unlock()
	if !n.leads.Load() {
		return
	}
	n.leads.Store(false)
	n.back.ledUntil = time.Now()
	n.st.StopLeading(func() { n.log.setReign(oplog.Reign{}) })
	n.confirmer.Deposed()
	n.o.Logger.Info("this node no longer leads the shard", "reason", reason, "undecided", n.log.undecided())
	n.giveUpLater()
	n.changed()
}

// Snapshot has Raft take what the data directory holds for a snapshot: it trims its log.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.n.files.lacks.Load() || m.n.files.holding.Load() && m.n.keepsLog() {
		return nil, errHeld
	}
	return raftgroup.Own{Sync: m.n.log.Sync}, nil
}

// Restore refuses a snapshot: it holds no state. A node that is behind the log fetches the
// leader's files instead (catchup.go).
func (m machine) Restore(r io.ReadCloser) error {
	return errors.Join(errors.New("a snapshot of the shard was sent, which has no files"), r.Close())
}
