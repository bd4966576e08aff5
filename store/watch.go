package store

// Watching keys: WATCH notes what a key is like, and the transaction that
// relies on it begins with a query whether the key is still the same. The query
// is an operation of the transaction's own batch, so nothing can come between
// the answer and what depends on it: the partitions are locked.
//
// What is noted is the partition's sequence (every change of a key that exists,
// and every tombstone in memory, has a higher one from then on), whether the
// key existed, and how often a key of its position was evicted: a key that is
// missing now may have been made, deleted and evicted meanwhile, and then
// memory knows nothing of it. Nothing is kept in the store for a watcher. It may
// be told of a change where there was none (another key of its position was
// evicted, a key that had expired before WATCH was only now removed, FLUSHALL
// came upon a missing key), and never misses one.

// watch notes what keys are like.
func (x *decider) watch(op *Op) error {
	for i := range x.of(op) {
		r := &x.of(op)[i]
		op.Values = append(op.Values, int64(r.p.seq), r.watchMark(x.at.wall))
	}
	return nil
}

// watchMark is what a sequence does not tell of a key: whether it exists, and
// the evictions.
func (r *ref) watchMark(wall int64) int64 {
	return int64(*r.p.hot.stamp(r.c.pos))<<1 | bit(r.c.alive(wall))
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// ifUnchanged compares keys with what was noted of them.
func (x *decider) ifUnchanged(op *Op) error {
	refs := x.of(op)
	if len(op.Deltas) != 2*len(refs) {
		return ErrOption
	}
	op.Applied = true
	for i := range refs {
		r := &refs[i]
		x.saw(r)
		if r.changed(uint64(op.Deltas[2*i]), op.Deltas[2*i+1], x.at.wall) {
			op.Applied = false
		}
	}
	return nil
}

// changed reports whether a key may have changed since a sequence and a mark
// were noted.
func (r *ref) changed(seq uint64, mark, wall int64) bool {
	now := r.watchMark(wall)
	switch {
	case r.c.seq > seq || r.p.floor > seq:
		return true
	case now&1 != mark&1: // it expired
		return true
	default:
		return now&1 == 0 && now != mark
	}
}
