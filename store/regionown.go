package store

import (
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
)

// What own operations note for the other regions, and for redo. Everything that changes a key
// with parts carries a note, and in a region that is not alone so does what gives a key parts:
// SET, EXPIRE and PERSIST, which need a time, and deletions. A deleted key keeps its parts until
// all regions know of its end: an older deletion of another region, which comes later, must not
// be taken off what is counted anew. Plain increments never make parts.

// givesParts reports whether other than increments of a key carry a note.
func (x *turn) givesParts(r *ref) bool {
	g := r.p.regions
	return g != nil && (r.c.parts() != nil || !g.alone() && r.p.catalog.find(r.key).Told())
}

// isShared reports whether other regions may also count the key.
func (r *ref) isShared() bool {
	return r.p.regions != nil && (r.c.parts() != nil || r.p.catalog.find(r.key).Told())
}

// addNote gives an entry a note.
func (e *entry) addNote(n regionNote) {
	e.flags |= flagRegional
	e.r = &regional{note: n}
}

// noteSetting notes when a register or an expiry is set, which is now, and what that has seen of other
// regions.
func (x *turn) noteSetting(e *entry, r *ref, bases []part.RegionBase) {
	e.addNote(regionNote{HLC: x.hlcFor(r.c.parts()), By: r.p.self(), Bases: bases})
}

// hlcFor is the time of a register or an expiry that is set now: the wall time, or if that is not
// later than all that is known of the key, just behind that. So what is said last wins here
// at once, and everywhere, whatever the clocks of others are. A clock that is far ahead wins only against
// what is said elsewhere at the same time, and cannot be told from a key that was set under one: so
// what is heard is not bounded by clocks, but by part.MaxHLC alone.
func (x *turn) hlcFor(parts part.Parts) uint64 {
	hlc := uint64(x.wall)
	for i := range parts {
		hlc = max(hlc, after(parts[i].Set.HLC), after(parts[i].Expire.HLC))
	}
	return hlc
}

func after(hlc uint64) uint64 { return min(hlc+1, part.MaxHLC) }

// noteIncr notes the expiry that an increment is made under, or that it sets. A counter that begins
// has no expiry unless the increment sets one. If another region has set an expiry of the deleted
// counter, it is told that this expiry is over: else others would show it, and this region none.
func (x *turn) noteIncr(e *entry, r *ref, sets bool) {
	if r.p.regions == nil {
		return
	}
	parts := r.c.parts()
	begins := !x.alive(r) && parts.Expiry().HLC != 0
	if begins || sets && x.givesParts(r) {
		x.noteSetting(e, r, nil)
	} else if parts != nil {
		under := parts.Expiry()
		e.addNote(regionNote{HLC: under.HLC, By: under.By})
	}
	if parts.Drained() { // it does not exist if it is 0 then
		parts = parts.Clone()
		parts.Increment(r.p.self(), math.MaxUint64, e.delta-e.clip, part.Expiry{})
		e.r.note.Absent = !parts.Alive()
	}
}

// noteSet notes when a SET was made, and what it has seen of other regions.
func (x *turn) noteSet(e *entry, r *ref) {
	if x.givesParts(r) {
		x.noteSetting(e, r, r.c.parts().Seen(r.p.self()))
	}
}

// noteExpire notes when an expiry was set.
func (x *turn) noteExpire(e *entry, r *ref) {
	if !r.c.kind.isObject() && x.givesParts(r) {
		x.noteSetting(e, r, nil)
	}
}

// noteDelete notes what a deletion of a counter has seen of other regions.
func (x *turn) noteDelete(e *entry, r *ref) {
	if x.givesParts(r) && !r.c.kind.isObject() {
		e.addNote(regionNote{Bases: r.c.parts().Seen(r.p.self())})
	}
}

// noteDrain notes the expiry under which a drain was made, as of an increment, and what it leaves: what is
// owed (drained), or nothing.
func (x *turn) noteDrain(e *entry, r *ref) {
	if !x.givesParts(r) {
		return
	}
	parts := r.c.asParts(r.p.self()).Clone()
	under := parts.Expiry()
	parts.Drain(r.p.self(), math.MaxUint64, e.value, under)
	e.setExpire(r.c.expire)
	e.addNote(regionNote{HLC: under.HLC, By: under.By, Absent: !parts.Alive(), Left: shown(parts)})
}

// closePart logs the deletion of a key that does not exist any more: it closes the own part.
func (x *turn) closePart(r *ref) {
	e := entry{kind: entryDelete, key: r.key, c: r.c}
	e.addNote(regionNote{Absent: true, Bases: r.c.parts().Seen(r.p.self())})
	x.log(r.p, &e)
}

// expireFirst logs, before an increment, that a key has expired: so the others see that what is
// counted from now on is a new counter.
func (x *turn) expireFirst(r *ref) {
	if r.p.regions != nil && r.c.kind == TypeCounter && !x.alive(r) {
		x.remove(r)
	}
}

// endObjects logs, before a write, that objects under its keys have expired, if other regions count
// under the same names: a key holds that now.
func (x *turn) endObjects(op *Op) error {
	if !op.Kind.Write() || op.Kind == removeExpired {
		return nil
	}
	for i := range x.of(op) {
		r := &x.of(op)[i]
		if r.p.regions == nil || r.c == nil || !r.c.kind.isObject() || r.c.parts() == nil ||
			x.alive(r) {
			continue
		}
		if err := x.world.reserveMore(entryRoom + len(r.key)); err != nil {
			return err
		}
		x.remove(r)
	}
	return nil
}

// total is the value of a key after an increment; false if there is no room for it. In a member
// neither the own part nor the total may leave 64 bits; what others counted meanwhile may have
// taken the total out of them, where it is shown as the nearest number.
func (x *turn) total(r *ref, delta int64) (int64, bool) {
	if !x.alive(r) {
		return delta, true
	}
	c, p, parts := r.c, r.p, r.c.parts()
	if parts == nil || p.regions == nil {
		return sum(c.value, delta)
	}
	if !parts.Room(p.self(), c.value, delta) {
		return 0, false
	}
	if c.value != math.MaxInt64 && c.value != math.MinInt64 { // else it may be the nearest number
		return c.value + delta, true
	}
	next := slices.Clone(parts)
	next.Increment(p.self(), math.MaxUint64, delta, part.Expiry{})
	v, _ := next.Value()
	return v, true
}
