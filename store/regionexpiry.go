package store

import "github.com/fbfkv/fbfkv/store/part"

// When counters expire that several regions change. An expiry is a time by the clock of the region that has
// set it (part.Expiry.By), and the clocks of regions may be far apart. So this region looks at what it knows
// of that clock: a cursor says how far it was, and since then as much time has passed there as this region's
// logged time has. The log was under way, and this region may have been down: so it is late by that, and
// never early.
//
// Without a write only the region that has set an expiry deletes the counter (sets): another one may not know
// yet that a later expiry was set there. Until it hears the deletion, the counter is hidden.

// timeOf returns the time by which a key's expiry is judged.
func (p *machine) timeOf(c *counter, at moment) int64 {
	if c.kind.isObject() {
		return at.wall
	}
	return p.timeBy(c.parts(), c.expire, c.pos, at)
}

// timeBy is timeOf for a counter with such parts, which expires then, at a position.
func (p *machine) timeBy(parts part.Parts, expire int64, pos uint64, at moment) int64 {
	g := p.regions
	if expire == 0 || parts == nil || g == nil {
		return at.wall
	}
	by := parts.Expiry().By
	if by == g.Self || g.member(by) == nil {
		return at.wall
	}
	ahead, known := g.clocks[g.source(by, uint16(pos>>48))]
	if !known {
		return min(at.wall, expire-1) // nothing was taken from it yet, but it will be
	}
	return at.logged + ahead
}

// alive reports whether the key exists.
func (x *turn) alive(r *ref) bool { return r.p.alive(r.c, x.at(r.p)) }

func (p *machine) alive(c *counter, at moment) bool {
	return c.kind != TypeNone && (c.expire == 0 || p.timeOf(c, at) < c.expire)
}

// left is in how many ms a key expires that does.
func (x *turn) left(r *ref) int64 { return r.c.expire - r.p.timeOf(r.c, x.at(r.p)) }

// expiry is when a key expires by this region's clock; 0: never.
func (x *turn) expiry(r *ref) int64 {
	if r.c.expire == 0 {
		return 0
	}
	return x.wall + x.left(r)
}

// sets reports whether this region has set the expiry of a key, which it deletes then.
func (p *machine) sets(c *counter) bool {
	return c.parts() == nil || p.regions == nil || c.kind.isObject() || c.parts().Expiry().By == p.self()
}

// orphaned reports whether the region that has set the expiry of parts was removed, and this one inherits.
func (p *machine) orphaned(parts part.Parts) bool {
	e := parts.Expiry()
	return e.At != 0 && p.regions != nil && p.inherited(e.By)
}

// endedOrphans puts the keys in memory whose expiries this region must adopt among the ended ones: they may
// have no rows.
func (p *machine) endedOrphans() {
	for c := range p.hot.table.all {
		if c.kind == TypeCounter && p.orphaned(c.parts()) {
			p.endedKey(c)
		}
	}
}

// adopt sets the expiry of a counter again, as one of this region's, or deletes it, if the region that has
// set it was removed: nobody else would delete it in time.
func (x *turn) adopt(r *ref) error {
	if !r.p.orphaned(r.c.parts()) {
		return nil
	}
	if err := x.world.reserveMore(entryRoom + len(r.key)); err != nil {
		return err
	}
	if x.alive(r) {
		x.logExpire(r, x.expiry(r))
	} else {
		x.remove(r)
	}
	return nil
}
