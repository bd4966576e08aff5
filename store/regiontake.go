package store

import (
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
)

// Taking what other regions did: one atomic batch, whose operations are a regionMerge for each
// key, a regionHear for each opid, and a regionCursor last. So all of it is one log record.

// regionMerge applies what other regions did to a counter, in one step: its parts are logged as
// they are afterwards. A key whose time has come goes first, if this region deletes it. If nothing is left
// of the own part because another region's deletion has seen all of it, it is closed, so that
// the key can be dropped; under an object once that is gone.
func (x *turn) regionMerge(op *Op) error {
	r := &x.of(op)[0]
	changes, ok := op.Object.([]Change)
	if !ok {
		return ErrOption
	}
	if r.p.regions == nil {
		return ErrNoRegions
	}
	if r.c.kind != TypeNone && !x.alive(r) && r.p.sets(r.c) {
		x.remove(r)
	}
	before := r.c.asParts(r.p.self())
	parts := append(x.parts[:0], before...)
	owed := len(r.p.regions.owed.byKey[string(r.key)]) > 0
	var taken, settled []part.Owed
	settles := false
	for i := range changes {
		ch := &changes[i]
		if m := r.p.regions.member(ch.Region); ch.Kind != ChangeParts && m != nil && m.Gone {
			// others have taken what is known of it here
			return streamError("region %d was removed", ch.Region)
		}
		if owed && ch.Kind != ChangeAdd && ch.Kind != ChangeExpire {
			settles, taken = true, ch.settles(parts, taken)
		}
		ch.apply(&parts)
	}
	x.parts = parts
	if settles || owed && r.p.someRemoved(r.key, parts) { // once for all changes
		settled = r.p.settledBy(r.key, parts, taken)
	}
	same := len(parts) == 0 || samePartsClocks(before, parts) // so is a state's copy of a plain counter
	if same && len(settled) == 0 {
		return nil
	}
	aside := r.c.kind.isObject()
	if aside {
		x.control = parts.AppendTo(x.control[:0]) // its row may be newer
	} else {
		x.control = part.AppendDelta(x.control[:0], r.c.parts(), parts)
	}
	if err := x.world.reserveMore(len(x.control) + entryRoom + len(r.key) +
		r.owedRoom(len(settled))); err != nil {
		return err
	}
	if same {
		x.settle(r, settled)
		return nil
	}
	e := x.regionalEntry(r, entryMerge)
	e.packed, e.r.parts, e.value = x.control, parts, shown(parts)
	if !aside {
		e.r.change = e.value - r.c.value
	}
	switch is := parts.Alive(); {
	case is && r.c.kind == TypeNone:
		e.flags |= flagCreated
	case !is && r.c.kind == TypeCounter:
		e.r.merged = mergeEnds
	case aside:
		e.r.merged = mergeAside
		r.p.aside++
	}
	x.log(r.p, e)
	x.settle(r, settled)
	if !aside && r.c.parts().Unclosed(r.p.self()) && !r.keepsRights() {
		x.closePart(r)
	}
	for i := range changes {
		if ch := &changes[i]; ch.Kind == ChangeRights && ch.Rights.Asks != [part.Sides]int64{} {
			x.giveRights(r, ch.Region, ch.Rights.Asks)
		}
	}
	op.Applied = true
	return nil
}

// samePartsClocks reports whether nothing has changed: no part and no base has another clock.
func samePartsClocks(a, b part.Parts) bool {
	return slices.EqualFunc(a, b, func(a, b part.Part) bool {
		return a.Region == b.Region && a.Clock == b.Clock && a.Base.Clock == b.Base.Clock
	})
}

// regionCursor takes note of how far a source has been taken.
func (x *turn) regionCursor(op *Op) error {
	p := x.of(op)[0].p
	c, ok := op.Object.(*RegionCursor)
	if !ok {
		return ErrOption
	}
	if p.regions == nil {
		return ErrNoRegions
	}
	if m := p.regions.member(c.Region); m == nil || m.Gone || c.Region == p.self() ||
		int(c.Partition) >= m.Partitions {
		return fmt.Errorf("%w: partition %d of region %d", ErrOption, c.Partition, c.Region)
	}
	if err := x.world.sameLife(p, c.life); err != nil {
		return err
	}
	e := entry{kind: entryCursor, r: &regional{cursor: *c}}
	if err := x.world.reserveMore(len(appendTaken(nil, c.Vector)) + entryRoom); err != nil {
		return err
	}
	x.log(p, &e)
	op.Applied = true
	return nil
}
