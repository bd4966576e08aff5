package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// A node stands aside if its cluster must not rely on its data: it takes part in nothing any more,
// and keeps running only to say so.

// errOlder is why a node stands aside whose directory went back in time.
var errOlder = errors.New("this node's directory is older than one it ran with before: it lacks " +
	"operations that it has acknowledged, " +
	"and takes part in nothing: replace the node (fbfkv cluster replace)")

// keepsLost is why a node stands aside that has what the shard has lost.
func keepsLost(from, to uint64) error {
	return fmt.Errorf("this node has what its shard has lost: the entries %d to %d were committed, and "+
		"its leader has other entries in their place, because the directory of "+
		"another node went back in time. This node takes part in nothing. Do not wipe it and do not "+
		"replace it before you have what it has "+
		"(fbfkv cluster recover)", from, to)
}

// errWentOn is why a node stands aside whose shard goes on without what the others have acknowledged to it.
var errWentOn = errors.New("this node has what its shard has lost: the other nodes lack operations that " +
	"they have acknowledged, because their directories " +
	"went back in time, and they go on without this one. This node takes part in nothing. Do not wipe it " +
	"and do not replace it before you have " +
	"what it has (fbfkv cluster recover)")

// StandAside ends every connection, and refuses new ones for a reason.
func (n *Net) StandAside(reason error) {
	if !n.aside.CompareAndSwap(nil, &reason) {
		return
	}
	n.o.Log.Error("this node has stopped taking part in its cluster", "reason", reason)
	n.mu.Lock()
	for c := range n.open {
		c.raw.Close()
	}
	f := n.onAside
	n.mu.Unlock()
	if f != nil {
		f()
	}
}

// Aside returns why this node stands aside; nil: it does not.
func (n *Net) Aside() error {
	if reason := n.aside.Load(); reason != nil {
		return *reason
	}
	return nil
}

// OnAside has f called when the node stands aside, in a goroutine of its own.
func (n *Net) OnAside(f func()) {
	n.mu.Lock()
	n.onAside = func() { go f() }
	n.mu.Unlock()
	if n.Aside() != nil {
		go f()
	}
}

// SetEnd says where the log of this node's shard ended when the node was started. Until then the node says
// that it does not know (unknownEnd).
func (n *Net) SetEnd(end place) { n.end.Store(&end) }

// identity is what this node says of itself at present.
func (n *Net) identity() identity {
	i := n.self
	i.end = unknownEnd
	if end := n.end.Load(); end != nil {
		i.end = *end
	}
	if n.o.Version != nil {
		i.version = n.o.Version()
	}
	return i
}

// CatchesUp has f say where this node's log ends, and whether it has the entry at a place.
func (n *Net) CatchesUp(f func(had place) (end place, has bool)) { n.catchesUp.Store(&f) }

// hasCaughtUp reports whether this node's log has what another node charges it to have lost, and this node
// has followed a leader since it was started: so it has all that was committed before, not only that one
// entry. Then the log may end from now on where it ends now, as if the node were started again: otherwise a
// node that remembers what this one had acknowledged could never talk to it.
func (n *Net) hasCaughtUp(had place) bool {
	f := n.catchesUp.Load()
	if f == nil || had == unknownEnd || !n.hasFollowed() {
		return false
	}
	end, has := (*f)(had)
	if has {
		n.SetEnd(later(end, n.identity().end))
	}
	return has
}

// hasFollowed reports whether this node was one of a majority that works, at some time since its start.
func (n *Net) hasFollowed() bool { return n.isOfMajority() || n.tookPart.Load() }

// TakesPart has f say whether this node is one of a majority that works: then it does not stand
// aside at the word of a single other one. If the directories of a majority went back in time, the
// node that remembers what they have acknowledged stands aside itself: what they lost is lost, and
// there it is kept.
func (n *Net) TakesPart(f func() bool) { n.takesPart.Store(&f) }

// isOfMajority reports whether this node is one of a majority that works.
func (n *Net) isOfMajority() bool {
	f := n.takesPart.Load()
	is := f != nil && (*f)()
	if is {
		n.tookPart.Store(true)
	}
	return is
}

// noteMajority lets hasFollowed report later that this node is one of a majority that works, if it is now.
func (n *Net) noteMajority() { _ = n.isOfMajority() }

// heard takes in why another node, from, refuses this one, which may be more than that the two do not talk.
func (n *Net) heard(code answer, from string) {
	switch {
	case code == olderDirectory && !n.hasFollowed():
		n.Doubt(from)
	case code == goesOn && !n.isOfMajority():
		n.StandAside(errWentOn)
	case code == removed && n.o.Removed != nil:
		n.o.Removed()
	}
}

// tellOlder tells a node that was dialed and refused that its directory is older: it may never dial
// by itself. It tells the start that was refused and no other: a later one may have been met before
// the answer of an earlier one was judged.
func (n *Net) tellOlder(node, address string, kind byte, err error) {
	refused := (*refusal)(nil)
	if !errors.As(err, &refused) || refused.code != olderDirectory || refused.start == 0 ||
		kind == KindOlder || n.Aside() != nil {
		return
	}
	go func() {
		if c, err := n.dial(n.ctx, node, address, KindOlder, refused.charge); err == nil {
			c.Close() // it cannot be: the node was refused
		}
	}()
}

// end returns where the log ends.
func (n *Node) end() (p place, err error) {
	meta, err := n.o.Stable.Last()
	if err != nil {
		return p, err
	}
	if meta != nil {
		p = place{meta.Term, meta.Index}
	}
	if _, last := n.log.EntryBounds(); last > 0 {
		var e oplog.Entry
		if err := n.log.Entry(last, &e); err != nil {
			return p, err
		}
		p = later(p, place{e.Term, e.Index})
	}
	return p, nil
}

// catchesUp returns where the log ends, and reports whether it has the entry at a place.
func (n *Node) catchesUp(had place) (end place, has bool) {
	term, err := n.termOf(had.Index)
	if err != nil || term != had.Term {
		return end, false
	}
	end, err = n.end()
	return end, err == nil
}

// lost is told that the shard's leader has other entries in the place of some that were committed.
func (n *Node) lost(from, to uint64) { n.o.Net.StandAside(keepsLost(from, to)) }

// contradicts reports whether the leader has an entry at a place that was committed, beside which
// what was committed here cannot be; zero: it knows of none. Then this node stands aside, and keeps
// what it has.
func (n *Node) contradicts(theirs place) bool {
	at := n.log.Applied()
	term, err := n.termOf(at)
	if err != nil {
		meta, err := n.o.Stable.Last()
		if err != nil || meta == nil || meta.Index != at {
			return false
		}
		term = meta.Term
	}
	own := place{term, at}
	if t, err := n.termOf(theirs.Index); err == nil && theirs.Index < at {
		own = place{t, theirs.Index}
	}
	if theirs == (place{}) || !own.excludes(theirs) {
		return false
	}
	n.lost(min(theirs.Index, at), at)
	return true
}

// takesPart reports whether this node is one of a majority that works: it decides, or follows a
// leader of which it knows that something was committed in its term.
func (n *Node) takesPart() bool {
	if n.Leads() {
		return true
	}
	if n.raft.State() != raft.Follower || time.Since(n.raft.LastContact()) > n.o.Timeout {
		return false
	}
	term, err := n.termOf(n.raft.CommitIndex())
	return err == nil && term == n.raft.CurrentTerm()
}

// witness is the net's, nil if it has none.
func (n *Node) witness() *Witness { return n.o.Net.o.Witness }

// noteProgress notes what the voters have acknowledged, if this node leads.
func (n *Node) noteProgress() {
	w, term := n.witness(), n.raft.CurrentTerm()
	progress, commit := n.transport.Progress(), n.raft.CommitIndex()
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return
	}
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		p := progress[s.ID]
		if string(s.ID) == n.o.ID {
			p = raftgroup.PeerProgress{Index: commit, Starts: n.o.Net.self.starts}
		}
		if s.Suffrage != raft.Voter || p.Index == 0 {
			continue
		}
		var e oplog.Entry
		if n.log.Entry(min(p.Index, commit), &e) == nil {
			w.Learn(string(s.ID), Past{Starts: p.Starts, Acked: place{e.Term, e.Index}})
		}
	}
}

// witnessPeriod is how often a leader tells the others what it has noted, at most.
const witnessPeriod = time.Second

// told is what a leader has told the others.
type told struct {
	index uint64 // that of the entry
	pasts map[string]Past
}

// keepTelling tells the others, until the node stops.
func (n *Node) keepTelling() {
	var last told
	tick := time.NewTicker(witnessPeriod)
	defer tick.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-tick.C:
			n.o.Net.noteMajority()
			if n.Leads() && !n.st.DiskFull() {
				n.noteProgress()
				n.tellPasts(&last)
			}
		}
	}
}

// tellPasts has an entry of the log tell the others what the voters have acknowledged, if that is more than
// the last such entry.
func (n *Node) tellPasts(last *told) {
	pasts, changed := map[string]Past{}, false
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		id := string(s.ID)
		now, was := n.witness().of(id), last.pasts[id]
		index := now.Acked.Index
		if index == last.index {
			index-- // that was the entry which told of the others
		}
		changed = changed || index > was.Acked.Index || now.Starts != was.Starts
		pasts[id] = now
	}
	body, err := encodePasts(pasts)
	if !changed || err != nil {
		return
	}
	c := command{kind: commandPasts, body: body}
	future := n.raft.ApplyLog(raft.Log{Data: c.encode(nil)}, witnessPeriod/10)
	// else it is tried again, by the next leader if this node lost the lead
	if n.await(context.Background(), future.Error) == nil {
		*last = told{future.Index(), pasts}
	}
}
