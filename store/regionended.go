package store

import (
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
)

const (
	// dropBatch bounds the keys that one cycle looks at in one partition, and the rows that it reads.
	dropBatch = 256
	// maxEnded bounds the keys that memory knows to have ended. For more, rows are read again.
	maxEnded = 64 << 10
)

// ended are keys of a partition that may have something to drop.
type ended struct {
	keys []string
	next int    // of them, in the present round
	kept int    // how many of those before it stay
	news uint64 // regions.news when the round began: without any it is not worth another one

	swept bool   // no more rows must be read
	again bool   // … but once this sweep is done, all of them once more
	from  uint64 // position of the next one

	owes bool // keys of which this region or removed ones owe something are among keys
}

// endedKey notes that a key may have something to drop.
func (p *machine) endedKey(c *counter) {
	e := &p.ended
	if c.extra == nil || c.extra.ended {
		return
	}
	if len(e.keys) >= maxEnded {
		e.again = true
		return
	}
	e.keys, c.extra.ended = append(e.keys, c.key()), true
}

// endedOwed puts the keys with owed operations that this region must take back or settle, also for regions
// that are gone, among the ended ones.
func (p *machine) endedOwed() {
	e := &p.ended
	if e.owes {
		return
	}
	for key, ops := range p.regions.owed.byKey {
		if len(e.keys) >= maxEnded {
			return
		}
		if slices.ContainsFunc(ops, func(o part.Owed) bool { return p.regions.pays(o.Region) }) {
			e.keys = append(e.keys, key)
		}
	}
	e.owes = true
}

// endedBounds looks again at all keys that do not exist, as the tables are other ones: perhaps only bounds
// have kept them.
func (p *machine) endedBounds() {
	if p.regions == nil {
		return
	}
	p.ended.again = true
	p.hot.unsaved.each(func(c *counter) {
		if c.kind == TypeNone && len(c.parts()) > 0 {
			p.endedKey(c)
		}
	})
}

// noteDropped notes that a key was dropped: a digest says so (RegionDigest).
func (p *machine) noteDropped(key []byte, seq uint64) {
	first, last := slotRange(int(p.id), p.count)
	if p.dropped == nil {
		p.dropped = make([]uint64, sumsOf(first, last, true))
	}
	p.dropped[sumOf(key, first/DigestSlots, true)] = seq
}

// ownUndo reports whether the own part remembers take-backs.
func ownUndo(p part.Parts, self part.Region) bool {
	return slices.ContainsFunc(p, func(q part.Part) bool { return q.Region == self && len(q.Undo) > 0 })
}

// regionDrop drops what can go of Keys. Founds says of which something stays.
func (x *turn) regionDrop(op *Op) error {
	x.toPay = payBatch
	for i := range x.of(op) {
		r := &x.of(op)[i]
		stays := x.dropParts(r)
		if r.c.extra != nil && !stays {
			r.c.extra.ended = false
		}
		op.Founds = append(op.Founds, stays)
	}
	return nil
}

// dropParts drops what can go of a key, and reports whether something stays that can go later.
func (x *turn) dropParts(r *ref) (stays bool) {
	g := r.p.regions
	if g == nil {
		return false
	}
	if r.c.kind == TypeCounter && x.adopt(r) != nil {
		return true
	}
	parts := r.c.parts()
	if len(g.owed.byKey[string(r.key)]) > 0 {
		if x.dropSpent(r) != nil { // makes room
			return true
		}
		stays = x.pay(r)
		parts = r.c.parts()
	}
	if len(parts) == 0 || r.c.kind.isObject() {
		return stays
	}
	x.settleRights(r)
	parts = r.c.parts()
	stays = stays || parts.Waiting(g.Self)
	if r.c.kind == TypeNone && r.keepsRights() {
		return stays
	}
	self, acked := g.Self, g.acked(r.slot)
	if r.c.kind == TypeNone {
		emptied := !stays && parts.Emptied(acked, g.ids) && !r.p.levelsAny()
		if emptied || parts.Unclosed(self) {
			x.closePart(r)
			return true
		}
		x.closeFor(r)
		parts = r.c.parts()
		if !parts.Droppable(acked, g.ids) {
			return true
		}
		x.log(r.p, &entry{kind: entryForget, key: r.key, c: r.c})
		return false
	}
	if x.dropSpent(r) != nil {
		return true
	}
	return stays || ownUndo(r.c.parts(), self)
}

// dropSpent forgets the take-backs of the own part that all regions know, unless it is aside: the entry would
// take the place of the object.
func (x *turn) dropSpent(r *ref) error {
	if r.c.kind.isObject() {
		return nil
	}
	g := r.p.regions
	spent, some := r.c.parts().Spent(g.Self, g.acked(r.slot), g.ids, g.owed.byKey[string(r.key)])
	if some && r.p.levelsAny() {
		// a deletion that a removed region made may not be known yet
		spent, some = r.c.parts().Acknowledged(g.Self, spent.Upto)
	}
	if !some {
		return nil
	}
	if err := x.world.reserveMore(entryRoom + len(r.key) + len(spent.AppendTo(nil))); err != nil {
		g.news++ // the cycle comes back, though no other region says anything new
		return err
	}
	x.log(r.p, &entry{kind: entrySpent, key: r.key, c: r.c, r: &regional{spent: spent}})
	return nil
}
