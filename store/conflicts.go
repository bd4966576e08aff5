package store

import "github.com/fbfkv/fbfkv/store/part"

// Conflict is an operation that two regions had applied before either knew of the other: twins. One of the
// applications counts, the other one is taken back by the region that made it.
type Conflict struct {
	Key, ID       string      // a long key is cut
	Winner, Loser part.Region // whose application counts, and whose is taken back
	Delta         int64       // that is taken back
	Applied       int64       // when the winner applied it, unix ms
	Met           int64       // when this region knew both, unix ms
}

// MaxConflicts is how many a store remembers of each partition, the last ones; in all, about as many.
const MaxConflicts = 10_000

// maxConflictKey is how much of a key is remembered, bytes: an ellipsis stands for the rest.
const maxConflictKey = 256

// conflicts are the last ones of a partition. They are for people who look for the cause: nothing depends on
// them, and they end with the process.
type conflicts struct {
	ring []Conflict
	next int // the oldest, if the ring is full
}

func (c *conflicts) add(all int, o Conflict) {
	if limit := max(MaxConflicts/all, 1); len(c.ring) < limit {
		c.ring = append(c.ring, o)
		return
	}
	c.ring[c.next] = o
	c.next = (c.next + 1) % len(c.ring)
}

// metTwins notes that two applications of an operation are known. h was heard just now.
func (x *turn) metTwins(op *Op, r *ref, h *Heard, heardWins bool) {
	own := r.seen.Region
	if r.seen.Own() {
		own = r.p.self()
	}
	if heardWins {
		x.noteConflict(r, Conflict{ID: string(op.ID), Winner: h.Origin, Loser: own,
			Delta: r.seen.Made(), Applied: h.Wall})
		return
	}
	x.noteConflict(r, Conflict{ID: string(op.ID), Winner: own, Loser: h.Origin, Delta: h.applied().Made,
		Applied: r.seen.UnixMs})
}

func (x *turn) noteConflict(r *ref, o Conflict) {
	if o.Key = string(r.key[:min(len(r.key), maxConflictKey)]); len(o.Key) < len(r.key) {
		o.Key += "…"
	}
	o.Met = x.wall
	r.t.figures.Twins++
	r.p.twins.add(r.p.count, o)
}
