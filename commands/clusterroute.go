package commands

import (
	"errors"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// This file decides, before a request is parsed, which node of a cluster carries it out.
// All requests of a round see one ClusterView.
//
// A request whose leader nobody knows is held: Add does not take it, and Do waits for
// another view, so that a connection of the event loop waits in a goroutine of its own.

const (
	errCrossSlot  = "CROSSSLOT Keys in request don't hash to the same slot"
	errNotServed  = "CLUSTERDOWN Hash slot not served"
	errNoLeader   = "CLUSTERDOWN The shard has no leader at the moment; nothing was applied"
	errStaleReads = "MASTERDOWN Link with MASTER is down for longer than cluster-replica-max-stale"
)

// The slot of a request without keys, and of one whose keys are in several.
const (
	noSlot    = -1
	manySlots = -2
)

// look takes the view for a round that begins.
func (r *Round) look() {
	c := r.srv.Cluster
	v := c.View()
	r.view, r.is, r.stale = v, v.is, false
	switch {
	case v.is == leads && c.refuted.Load() == v:
		r.is = seeks
	case v.is != leads:
		r.stale = c.isStale(v)
	}
	r.batch.Replica = r.is != leads
}

// isStale reports whether this node, a replica, has lacked something that was committed for too
// long to answer reads: no leader says what was committed, or the node cannot take it in.
func (c *Cluster) isStale(v *ClusterView) bool {
	limit, lacks := c.MaxStale(), time.Duration(0)
	if v.is == seeks && !v.own.LostAt.IsZero() {
		lacks = time.Since(v.own.LostAt)
	}
	if c.Behind != nil {
		lacks = max(lacks, c.Behind())
	}
	return limit > 0 && lacks > limit
}

// slotOf returns the slot of a request's keys.
func (c *Command) slotOf(args [][]byte) int {
	slot := noSlot
	c.Keys.each(args, func(key []byte) bool {
		s := int(store.Slot(key))
		if slot != noSlot && s != slot {
			slot = manySlots
			return false
		}
		slot = s
		return true
	})
	return slot
}

// route decides whether this node carries out a request. If not, text is the reply, or the
// request must be held.
func (p *Pipeline) route(c *Command, args [][]byte) (text string, hold bool) {
	slot, writes, plain := noSlot, c.Flags&Write != 0, c.Parse != nil
	switch {
	case c.Flags&executes != 0:
		if !p.tx.open || p.tx.failed {
			return "", false // it answers what is wrong
		}
		slot, writes, plain = p.tx.slot, p.tx.writes, len(p.watch.keys) == 0
	case c.Keys.First > 0:
		slot = c.slotOf(args)
	}
	switch {
	case slot == manySlots:
		return errCrossSlot, false
	case slot == noSlot && !writes:
		return "", false
	}
	r := p.round
	v := r.view
	switch {
	case v.is == stranger:
		return errNotServed, false
	case c.Flags&anyNode != 0 && p.srv.Cluster.Tables != nil:
		return "", false
	}
	if slot != noSlot && !v.has(slot) {
		return p.elsewhere(slot)
	}
	if slot != noSlot && len(v.own.Held) > 0 && r.is == leads && v.holds(slot) {
		return p.leaderless()
	}
	slot = v.anyOwn(slot) // without keys it concerns all of this node's shard
	switch {
	case r.is == leads:
		return "", false
	case p.ses.readonly.Load() && !writes && plain:
		if r.stale {
			return errStaleReads, false
		}
		return "", false
	case r.is == seeks:
		return p.leaderless()
	}
	return p.srv.Cluster.moved(slot, v.own.leader(), p.ses.TLS), false
}

// elsewhere is route for a slot of another shard.
func (p *Pipeline) elsewhere(slot int) (text string, hold bool) {
	s := p.round.view.shardOf(slot)
	switch {
	case s == nil:
		return errNotServed, false
	case s.Leader < 0:
		return p.leaderless()
	}
	return p.srv.Cluster.moved(slot, s.leader(), p.ses.TLS), false
}

// leaderless is route for a slot whose leader nobody knows.
func (p *Pipeline) leaderless() (text string, hold bool) {
	if p.holds.over {
		p.srv.Cluster.refuted.CompareAndSwap(p.round.view, nil) // whoever comes next asks the store
		return errNoLeader, false
	}
	p.holds.view = p.round.view
	return "", true
}

// hold is a request that waits for a leader.
type hold struct {
	view *ClusterView // in which there was none; nil: it does not wait
	end  time.Time    // of waiting; zero: it has not begun
	over bool         // it has waited for long enough
}

// lookAfterHeld is how often one that waits looks whether its client is still there.
const lookAfterHeld = time.Second

// await waits until there is another view than the one by which a request is held, or for
// no longer than HoldFor in all. It returns false if nobody wants the request to be carried out
// any more.
func (p *Pipeline) await() bool {
	c, h := p.srv.Cluster, &p.holds
	changed := c.Changed()
	if h.end.IsZero() {
		h.end = time.Now().Add(c.HoldFor())
		if p.OnHold != nil {
			p.OnHold()
		}
	}
	for c.View() == h.view {
		left := time.Until(h.end)
		if h.over = left <= 0; h.over {
			break
		}
		if p.waitFor(changed, left) {
			break
		}
		if p.ses.gone() {
			p.ses.closing.Store(true)
			c.refuted.CompareAndSwap(h.view, nil) // if nobody waits to the end, the next one asks the store
			return false
		}
	}
	h.view = nil
	return true
}

// waitFor waits for an event, at most so long, and no longer than until it is time to look after
// the client. It returns true if the event has come, or the server stops.
func (p *Pipeline) waitFor(event <-chan struct{}, left time.Duration) bool {
	p.srv.blocked.Add(1)
	defer p.srv.blocked.Add(-1)
	timer := time.NewTimer(min(left, lookAfterHeld))
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-p.srv.Stopping:
		p.holds.over = true
		return true
	case <-timer.C:
		return false
	}
}

// displaced returns the reply to an operation that the store has refused, or whose outcome it
// cannot tell, because leadership of the shard was lost (R7), and the reply to any other error.
// slot is the slot of its keys. Only an idempotent operation may be answered "try again".
func (s *Server) displaced(err error, seen *ClusterView, slot int, tls, idempotent bool) string {
	c := s.Cluster
	switch {
	case c == nil || !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrUndecided):
		return errorText(err)
	case errors.Is(err, store.ErrUndecided) && idempotent:
		return "TRYAGAIN " + err.Error()
	case errors.Is(err, store.ErrUndecided):
		return "UNKNOWN leadership of the shard was lost before this was committed: it may have been " +
			"applied or not"
	}
	// It was certainly not applied, so whoever leads may be asked at once. If nobody is known
	// to yet, that is this node, which holds the request.
	v := c.View()
	held := v.own != nil && slot >= 0 && (v.holds(slot) || !v.has(slot))
	if seen != nil && seen.is == leads && !held {
		c.refuted.Store(seen)
	}
	if held && !v.has(slot) {
		if s := v.shardOf(slot); s != nil && s.leader() != nil {
			return c.moved(slot, s.leader(), tls)
		}
	}
	if v.own == nil || v.own.leader() == nil {
		return errNoLeader
	}
	to := v.own.leader()
	switch {
	case v.is == seeks && (seen == nil || seen.is != leads):
		return errNoLeader // a replica that cannot answer: nobody holds its queries
	case v.is == seeks:
		to = &v.own.Nodes[v.self]
	}
	return c.moved(v.anyOwn(slot), to, tls)
}

// opError is the reply to an operation that failed.
func (p *Pipeline) opError(op *store.Op) string {
	return p.srv.displaced(op.Err, p.round.view, slotOfOp(op), p.ses.TLS, isIdempotent(op))
}

// slotOfOp returns the slot of an operation's keys.
func slotOfOp(op *store.Op) int {
	switch {
	case len(op.Key) > 0:
		return int(store.Slot(op.Key))
	case len(op.Keys) > 0:
		return int(store.Slot(op.Keys[0]))
	}
	return noSlot
}

// isIdempotent reports whether an operation may be repeated although it may have been applied.
func isIdempotent(op *store.Op) bool { return len(op.ID) > 0 || !op.Kind.Write() }

// unseated returns an operation of a transaction that failed because the node has lost its
// shard, with which all of it failed; nil: none. slots are the transaction's slots.
func (r *Round) unseated(slots []slot) *store.Op {
	for i := range slots {
		if slots[i].kind != slotOp {
			continue
		}
		if op := &r.batch.Ops[slots[i].op]; errors.Is(op.Err, store.ErrNotLeader) ||
			errors.Is(op.Err, store.ErrUndecided) {
			return op
		}
	}
	return nil
}

// execError is the reply to a transaction that failed with one of its operations, or with the
// question whether its watched keys are unchanged.
func (p *Pipeline) execError(failed *store.Op, slots []slot) string {
	idempotent := true
	for i := range slots {
		idempotent = idempotent && (slots[i].kind != slotOp || isIdempotent(&p.round.batch.Ops[slots[i].op]))
	}
	return p.srv.displaced(failed.Err, p.round.view, slotOfOp(failed), p.ses.TLS, idempotent)
}

// join adds the slot of a queued command's keys.
func (t *transaction) join(slot int) {
	switch {
	case t.slot == noSlot:
		t.slot = slot
	case slot != noSlot && slot != t.slot:
		t.slot = manySlots
	}
}

// misroute notes that a request is another node's: a transaction that it belongs to will not
// be executed, and the one that it was to execute is over.
func (p *Pipeline) misroute(c *Command) {
	p.tx.fail()
	if c.Flags&executes != 0 {
		p.leaveMulti()
	}
}

// ofCluster reports whether a command is one of CLUSTER's.
func (c *Command) ofCluster() bool { return c.parent != nil && c.parent.Name == "cluster" }
