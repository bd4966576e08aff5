package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// This file begins reigns: what follows a first command of a leader, until the next one (R2). A
// node proposes one only while nothing of its own can come into the log any more that is not there,
// so that nothing that it decided in the reign before comes behind the beginning of the next.

// begins has a first command proposed if Raft leads and this node does not. It returns at once.
func (n *Node) begins() {
	select {
	case n.toBegin <- struct{}{}:
	default: // it is asked for
	}
}

// refused ends leading after Raft did not take an entry, or a hand-over failed. If Raft still
// leads, this node begins anew: what was decided behind that entry does not count either.
func (n *Node) refused(why error) {
	n.stopLeading("Raft takes no entry: " + why.Error())
	n.log.dropQueue()
	n.begins()
}

// beginWhenElected proposes first commands, one at a time.
func (n *Node) beginWhenElected() {
	for {
		select {
		case <-n.stop:
			return
		case <-n.toBegin:
			n.proposeBegin()
		}
	}
}

// proposeBegin proposes a first command until Raft has taken it, or leads no more.
func (n *Node) proposeBegin() {
	var since time.Time // Raft leads in a term, and refuses
	var term uint64
	for n.mayBegin() && n.log.awaitAnswers() {
		c := command{kind: commandBegin, origin: n.log.origin}
		err := n.await(context.Background(), func() error {
			return n.raft.ApplyLog(raft.Log{Data: c.encode(nil)}, 0).Error()
		})
		if err == nil {
			return
		}
		if now := n.raft.CurrentTerm(); now != term {
			term, since = now, time.Now()
		}
		if n.raft.State() == raft.Leader && time.Since(since) > n.refusalLimit {
			n.fail(fmt.Errorf("Raft leads and has taken no entry for %v: a leadership transfer that does "+
				"not end (hashicorp/raft issue 696): %w", time.Since(since).Round(time.Millisecond), err))
			return
		}
		select {
		case <-n.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// refusalLimit is for how long Raft may lead and refuse entries: three election timeouts, and the
// time of a message. A transfer to a node that does not answer takes that long to end.
func refusalLimit(o Options) time.Duration {
	return time.Duration(3*electionPart*float64(o.Timeout)) + messageTime(o)
}

// mayBegin reports whether this node may propose a first command: Raft leads and is not about to
// hand over, and the node could decide but does not yet. It cuts the decisions that were not
// proposed.
func (n *Node) mayBegin() bool {
	n.leading.Lock()
	defer n.leading.Unlock()
	if n.leads.Load() || n.raft.State() != raft.Leader || n.files.lacks.Load() || len(n.handing) > 0 {
		return false
	}
	n.log.dropQueue()
	return true
}
