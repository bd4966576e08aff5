package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// machine is the state machine that Raft drives: the store behind a Node. Raft calls it
// from one goroutine, with what is committed, in order.
type machine struct{ n *Node }

// Apply takes in a committed command.
func (m machine) Apply(l *raft.Log) any {
	n := m.n
	c, err := decodeCommand(l.Data)
	if err == nil {
		err = n.apply(l, &c)
	}
	if err != nil {
		n.fail(fmt.Errorf("entry %d of the shard's log: %w", l.Index, err))
	}
	return err
}

func (n *Node) apply(l *raft.Log, c *command) error {
	known := l.Index <= n.redone // Open has redone it
	// It is committed: said before anybody can derive a view from it, which the next start
	// must reach (R5).
	n.log.SetApplied(l.Index)
	switch c.kind {
	case commandConfig:
		if err := n.takeConfiguration(c.body); err != nil {
			return err
		}
	case commandBegin:
		if !known {
			return n.begin(l, c)
		}
	case commandSections:
		switch {
		case known:
		case c.fence != l.Term: // R2
			n.log.fenced.Add(1)
		case n.log.isOurs(c):
			n.log.committed(n.st.Committed)
		default:
			return n.st.Follow(c.body)
		}
	}
	return nil
}

// begin takes in the first command of a leader. All that was decided in an earlier term, and
// has not come yet, never will: it would be ignored if it did (R2, R3).
func (n *Node) begin(l *raft.Log, c *command) error {
	n.stopLeading()
	n.leaders.Add(1)
	first, err := n.log.firstUndecided()
	if err != nil {
		return err
	}
	n.log.cut() // before: who waits for it may hold what TakeBack needs
	if len(first) > 0 {
		n.o.Logger.Warn("what this node decided was not committed: the state is made anew", "partitions", len(first))
		n.rebuilds.Add(1)
	}
	if err := n.st.TakeBack(first); err != nil {
		return err
	}
	switch {
	case c.origin != n.log.origin:
		n.compareClock(c.wall)
	case n.hasWrongClock() && !n.yielded:
		n.yielded = true
		go n.yield()
	default:
		return n.startLeading(l.Term)
	}
	return nil
}

// compareClock notes how much this node's clock differs from that of a leader that has just
// begun.
func (n *Node) compareClock(wall int64) {
	n.skew.Store(time.Now().UnixMilli() - wall)
	n.yielded = false
	if n.hasWrongClock() {
		n.o.Logger.Warn("this node's clock differs from the leader's: it is not to lead", "by_ms", n.skew.Load())
	}
}

// hasWrongClock reports whether ids would be judged by times that differ from the last
// leader's by more than half of what the tables allow clients (R6).
func (n *Node) hasWrongClock() bool {
	least := int64(math.MaxInt64)
	for _, t := range n.st.Tables() {
		least = min(least, t.Skew.Milliseconds()/2)
	}
	skew := n.skew.Load()
	return max(skew, -skew) > max(least, leastSkew)
}

// leastSkew is a difference of clocks, ms, that may be the delay of a message.
const leastSkew = 500

// yield offers leadership to the others, once; if nobody can take it, this node leads.
func (n *Node) yield() {
	n.o.Logger.Warn("this node's clock is wrong: it offers leadership to the others", "by_ms", n.skew.Load())
	_ = n.transfer("") // else this node leads
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
		n.o.Logger.Warn("no other node has taken over: this one refuses writes until its disk has space", "error", err)
	}
}

// startLeading lets this node decide, if it still leads in the term in which its first
// command was committed. It has applied all that was committed before (R5, R6).
func (n *Node) startLeading(term uint64) error {
	n.leading.Lock()
	defer n.leading.Unlock()
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return nil // another one's first command will follow
	}
	n.log.setFence(term)
	n.leads.Store(true)
	n.o.Logger.Info("this node leads the shard", "term", term)
	err := n.st.Lead()
	n.changed()
	return err
}

// stopLeading keeps this node from deciding.
func (n *Node) stopLeading() {
	n.leading.Lock()
	defer n.leading.Unlock()
	if !n.leads.Load() {
		return
	}
	n.leads.Store(false)
	n.st.StopLeading(func() { n.log.setFence(0) })
	n.confirmer.Deposed()
	n.o.Logger.Info("this node leads the shard no longer", "undecided", n.log.undecided())
	n.giveUpLater()
	n.changed()
}

// Snapshot gives Raft what it keeps beside the data directory, which holds the rest: the
// configuration.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.n.files.holding.Load() && m.n.keepsLog() {
		return nil, errHeld
	}
	b, err := m.n.keptContent()
	return kept{b, m.n.log.Sync}, err
}

// Restore refuses a snapshot: it holds no state. A node that is behind the log fetches the
// leader's files instead (catchup.go).
func (m machine) Restore(r io.ReadCloser) error {
	return errors.Join(errors.New("a snapshot of the shard was sent, which has no files"), r.Close())
}

// kept is the content of a snapshot.
type kept struct {
	content []byte
	sync    func() error // makes durable what was applied
}

func (k kept) Persist(sink raft.SnapshotSink) error {
	// Raft begins behind the snapshot at the next start, so that recovery must reach it.
	err := k.sync()
	if err == nil {
		sink.(*snapshotSink).own = true
		_, err = sink.Write(k.content)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (k kept) Release() {}
