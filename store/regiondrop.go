package store

import (
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/part"
)

// A key that does not exist keeps its parts until all regions have said, in their logs, that they
// took its end; and take-backs are kept until all have said the same of them. The cycle looks for
// what can go: in memory are the keys that ended since the views were loaded, and rows are read
// for the others, a few at a time.

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

	swept bool   // no rows are to be read
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

// endedOwed notes that something is to be taken back here, also for regions that are gone, or to be settled.
func (p *machine) endedOwed() {
	e := &p.ended
	if e.owes {
		return
	}
	for key, ops := range p.regions.owed.byKey {
		if len(e.keys) >= maxEnded {
			return
		}
		if slices.ContainsFunc(ops, func(o owedOp) bool { return p.regions.pays(o.Region) }) {
			e.keys = append(e.keys, key)
		}
	}
	e.owes = true
}

// candidates returns keys to look at now: those that memory knows, else some from rows, read with
// the partition unlocked.
func (s *Store) candidates(p *partition) (keys []string, swept bool, err error) {
	if !p.lockNow() {
		return nil, false, nil
	}
	e := &p.ended
	if p.regions == nil || p.frozen.Load() != nil || p.movedRows != nil || p.flushDue {
		p.mu.Unlock()
		return nil, false, nil
	}
	if e.next >= len(e.keys) && e.news != p.regions.news {
		e.keys, e.next, e.kept, e.news = e.keys[:e.kept], 0, 0, p.regions.news
	}
	p.endedOwed()
	if n := min(len(e.keys)-e.next, dropBatch); n > 0 {
		keys = append(keys, e.keys[e.next:e.next+n]...)
		p.mu.Unlock()
		return keys, false, nil
	}
	if e.swept && !e.again {
		p.mu.Unlock()
		return nil, false, nil
	}
	if e.swept {
		e.swept, e.again = false, false
	}
	first, last := slotRange(int(p.id), p.count)
	from, to := max(e.from, position(first, 0)), position(last+1, 0)
	p.mu.Unlock()
	next := to
	var bad error
	n, seen := 0, from
	err = s.db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
		pos := k.Position()
		if n++; n > dropBatch && pos > seen {
			next = pos
			return false
		}
		seen = pos
		if len(value) > 0 && value[0] == partsRowVersion {
			var r row
			if r, bad = decodeRow(value); bad != nil {
				return false
			}
			if r.hasEnded() {
				keys = append(keys, string(k.Key))
			}
		}
		return true
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.from = next; next >= to {
		e.from, e.swept, e.again = 0, !e.again, false
	}
	return keys, true, nil
}

// hasEnded reports whether there is something to drop of a key with this row, sooner or later.
func (w *row) hasEnded() bool {
	if w.kind == TypeNone {
		return !w.aside
	}
	return slices.ContainsFunc(w.parts, func(q part.Part) bool { return len(q.Undo) > 0 })
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

// dropEnded drops what can go of some keys of a partition.
func (s *Store) dropEnded(p *partition, b *Batch) {
	keys, swept, err := s.candidates(p)
	if err != nil {
		s.log.Error("cannot delete expired keys", "error", err)
	}
	if len(keys) == 0 {
		return
	}
	b.Reset()
	op := b.Add(regionDrop)
	for _, k := range keys {
		op.Keys = append(op.Keys, []byte(k))
	}
	s.Execute(b)
	if op.Err != nil || !p.lockNow() {
		return
	}
	defer p.mu.Unlock()
	e := &p.ended
	if swept {
		for i, stays := range op.Founds {
			if stays && len(e.keys) < maxEnded {
				e.keys = append(e.keys, keys[i])
			} else if stays {
				e.again = true
			}
		}
		return
	}
	for i, stays := range op.Founds {
		if e.next >= len(e.keys) || e.keys[e.next] != keys[i] {
			return // the views were made anew
		}
		if stays {
			e.keys[e.kept] = e.keys[e.next]
			e.kept++
		}
		e.next++
	}
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
	g, parts := r.p.regions, r.c.parts()
	if g == nil {
		return false
	}
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
	self, acked := g.Self, g.acked(r.slot)
	if r.c.kind == TypeNone {
		if parts.Unclosed(self) {
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

// dropSpent forgets the take-backs of the own part that all regions know.
func (x *turn) dropSpent(r *ref) error {
	g := r.p.regions
	spent := r.c.parts().Spent(g.Self, g.acked(r.slot), g.ids)
	if len(spent) == 0 {
		return nil
	}
	if err := x.world.reserveMore(entryRoom + len(r.key) + 10*len(spent)); err != nil {
		g.news++ // the cycle comes back, though no other region says anything new
		return err
	}
	x.log(r.p, &entry{kind: entrySpent, key: r.key, c: r.c, r: &regional{clocks: spent}})
	return nil
}
