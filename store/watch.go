package store

import "slices"

// Watching keys: WATCH notes what a key is like, and the transaction that
// relies on it begins with a query whether the key is still the same. The query
// is an operation of the transaction's own batch, so nothing can come between
// the answer and what depends on it: the partitions are locked.
//
// WATCH notes the partition's sequence, and whether the key existed: from then on
// every change of a key that exists, and every tombstone in memory, has a higher
// sequence. It also notes how often a key of its position was evicted or flushed,
// and how often one was made: a key that is missing now may have been made, deleted
// and evicted meanwhile, or made and flushed, and then memory knows nothing of it.
// Open holds are of a key, too, though it need not exist: holdings knows when those of
// a key changed last, and WATCH notes the time, as a hold's end shows before it is logged.
// Nothing is kept in the store for a watcher. It may be told of a change where
// there was none (one key of its position was evicted or flushed and another one
// made, a key that had expired before WATCH was only now removed), and never
// misses one.

// watch notes what keys are like.
func (x *turn) watch(op *Op) error {
	for i := range x.of(op) {
		r := &x.of(op)[i]
		op.Values = append(op.Values, int64(r.p.seq), int64(x.watchMark(r)), x.wall)
	}
	return nil
}

// watchNumbers is how many numbers WATCH notes of a key.
const watchNumbers = 3

// watchMark is what a sequence does not tell of a key: whether it exists, in two
// bits, the evictions in 32, and what was made in the rest.
type watchMark int64

const (
	watchExists watchMark = 1 << iota
	watchExpired
)

func (x *turn) watchMark(r *ref) watchMark {
	m := watchMark(r.p.hot.made[byte(r.c.pos)])<<34 | watchMark(*r.p.hot.stamp(r.c.pos))<<2
	switch {
	case x.alive(r):
		m |= watchExists
	case r.c.kind != TypeNone:
		m |= watchExpired
	}
	return m
}

// ifUnchanged compares keys with their notes of WATCH.
func (x *turn) ifUnchanged(op *Op) error {
	refs := x.of(op)
	if len(op.Deltas) != watchNumbers*len(refs) {
		return ErrOption
	}
	op.Applied = true
	for i := range refs {
		r := &refs[i]
		note := op.Deltas[watchNumbers*i:]
		seq := uint64(note[0])
		if x.changed(r, seq, watchMark(note[1])) || r.holdsChanged(seq, note[2], x.wall) {
			op.Applied = false
		}
	}
	return nil
}

// changed reports whether a key may have changed since a sequence and a mark
// were noted.
func (x *turn) changed(r *ref, seq uint64, mark watchMark) bool {
	different := x.watchMark(r) ^ mark
	evicted, made := uint32(different>>2) != 0, different>>34 != 0
	switch {
	case r.c.seq > seq || different&watchExists != 0: // it may have expired
		return true
	case mark&watchExists != 0:
		return false
	default:
		return evicted && (made || mark&watchExpired != 0)
	}
}

// holdsChanged reports whether a key's open holds may have changed since a sequence and a time were noted.
func (r *ref) holdsChanged(seq uint64, noted, wall int64) bool {
	h := &r.p.holds
	k := h.keys[string(r.key)]
	if max(h.loaded, h.ends[byte(r.c.pos)]) > seq || k != nil && k.changed > seq {
		return true
	}
	return k != nil && slices.ContainsFunc(h.expired(wall, maxUnended), func(o *hold) bool {
		return o.of == k && o.expires > noted // CHELD leaves it out already
	})
}

// holdEnded notes for WATCH that the last entry about a key's holds ended one.
func (p *machine) holdEnded(k *keyHolds, seq uint64) {
	if k.changed = seq; k.count == 0 { // it is known no longer
		p.holds.ends[byte(p.hashes.position([]byte(k.key)))] = seq
	}
}

// flushHolds ends all holds, as FLUSHALL does.
func (p *machine) flushHolds(seq uint64) {
	h := &p.holds
	loaded, ends := h.loaded, h.ends
	for key := range h.keys {
		ends[byte(p.hashes.position([]byte(key)))] = seq
	}
	p.memory.add(-h.clear())
	h.loaded, h.ends = loaded, ends
}
