package store

import (
	"fmt"

	"github.com/fbfkv/fbfkv/store/part"
)

// Escrow. In regions the bounds of a table hold over all of them: each region spends only rights that it
// holds (part.Rights). The rights of a counter begin in the living region with the lowest number, with the
// value that it knows. The others ask for some, in their logs, and a region that reads this gives half of its
// own. A change makes rights, too: they count once all regions have taken the change (settleRights).
//
// An operation that lacks rights is refused, and its opid not used: with ErrBound if the counter as it is
// known here has no room at all, else with ErrNoRights, as others have the rights. Then it has asked for
// them.
//
// SET, deletions and expiries would need all rights. They are refused.
//
// Rights are accounted for from when the regions have the table: nothing may have been counted under its
// prefix before, nor may a take-back of it be owed when rights begin (tablechange.go). A region that was
// removed may have spent rights without telling anybody: the bounds may be exceeded by so many.

// askAgain is after how many milliseconds a region asks again for the rights of a counter.
const askAgain = 100

// maxAsked bounds the counters of which memory knows when their rights were asked for. Of two with one hash,
// one waits for the other.
const maxAsked = 4096

// RightsError says that other regions have the rights that an operation needs. It is ErrNoRights.
type RightsError struct {
	Key             string
	Here, Elsewhere int64
	Scale           uint8 // of the key's table
}

// Error says how many rights there are.
func (e *RightsError) Error() string {
	return fmt.Sprintf("%s elsewhere: this region may change key %q by %s towards its bound until others give it "+
		"more, or acknowledge what made the rest: retry with the same opid", decimal(e.Elsewhere, e.Scale), e.Key,
		decimal(e.Here, e.Scale))
}

// Is makes errors.Is find ErrNoRights.
func (e *RightsError) Is(target error) bool { return target == ErrNoRights }

// escrowed returns the table of a key if its bounds are judged by rights, else nil.
func (p *machine) escrowed(key []byte) *tableDef {
	if g := p.regions; g == nil || g.alone() || !p.catalog.bounded {
		return nil
	}
	if d := p.catalog.find(key); d.Told() && d.hasBounds() {
		return d
	}
	return nil
}

// keepsRights reports whether a counter stays known though it does not exist: it may be counted by the same
// rights.
func (r *ref) keepsRights() bool {
	begun, open := r.c.parts().HaveRights(r.p.self())
	return (begun || open) && r.p.escrowed(r.key) != nil
}

// refuseWhole refuses what would need all rights of a counter: to delete it, or to let it expire. The end of
// an object is its own.
func (r *ref) refuseWhole() error {
	if r.c.kind.isObject() {
		return nil
	}
	return r.refuseSet()
}

// refuseSet refuses what would need all rights of a counter, also of one that an object hides: to set it.
func (r *ref) refuseSet() error {
	if r.p.escrowed(r.key) == nil {
		return nil
	}
	return ErrEscrow
}

// checkRights refuses a change of a counter for which this region has no rights.
func (x *turn) checkRights(r *ref, delta int64) error {
	d := r.p.escrowed(r.key)
	if d == nil || delta == 0 {
		return nil
	}
	s, need := part.Spends(delta)
	bound := [part.Sides]Bound{d.Min, d.Max}[s]
	if err := x.openRights(r); err != nil || !bound.Set {
		return err
	}
	has := r.p.rightsOf(r.key, r.c, d.bounds())[s]
	if has.Covers(need) {
		return nil
	}
	left := r.c.parts().Left(s, bound.N)
	x.askRights(r, s, need.Less(has).Int64())
	return &RightsError{Key: string(r.key), Here: max(0, has.Int64()),
		Elsewhere: max(0, left.Less(has).Int64()), Scale: d.Scale}
}

// bounds are MIN and MAX, 0 for none.
func (d *tableDef) bounds() [part.Sides]int64 { return [part.Sides]int64{d.Min.N, d.Max.N} }

// rightsOf returns the rights that this region has of a counter: without those that a removed region's
// operations made which are still to be taken back.
func (p *machine) rightsOf(key []byte, c *counter, bounds [part.Sides]int64) [part.Sides]part.Amount {
	has := c.asParts(p.self()).RightsOf(p.self(), p.inherited, bounds)
	for _, o := range p.regions.owed.byKey[string(key)] {
		if p.inherited(o.Region) {
			s, n := part.Spends(-o.Made)
			has[s] = has[s].Less(n)
		}
	}
	return has
}

// openRights lets the rights of a counter begin here, if they have not anywhere and this is the region for
// that; else it opens this region's row of them.
func (x *turn) openRights(r *ref) error {
	begun, open := r.c.parts().HaveRights(r.p.self())
	begins := !begun && r.p.beginsRights()
	switch {
	case open && !begins:
		return nil
	case begins && r.checkCaughtUp() != nil:
		return r.checkCaughtUp()
	case begins && r.c.kind == TypeCounter && r.c.expire != 0:
		return ErrEscrowExpiry
	}
	ch := part.RightsChange{Begins: begins}
	if begins {
		ch.Value = x.valueOf(r)
	}
	return x.logRights(r, ch)
}

// beginsRights reports whether rights that nobody has used begin in this region: it has the lowest number of
// those that live, and knows all that these know of others.
func (p *machine) beginsRights() bool { return p.regions.ids[0] == p.self() && !p.levelsAny() }

func (x *turn) logRights(r *ref, ch part.RightsChange) error {
	if err := x.world.reserveMore(entryRoom + len(r.key) + len(ch.AppendTo(nil))); err != nil {
		return err
	}
	x.log(r.p, &entry{kind: entryRights, key: r.key, c: r.c, r: &regional{rights: ch}})
	return nil
}

// askRights asks the other regions for rights, unless it has just done so.
func (x *turn) askRights(r *ref, s part.Side, n int64) {
	p := r.p
	if at, ok := p.asked[r.keyHash]; ok && x.wall-at < askAgain && x.wall >= at {
		return
	}
	if p.asked == nil || len(p.asked) >= maxAsked {
		p.asked = make(map[uint64]int64)
	}
	p.asked[r.keyHash] = x.wall
	var ch part.RightsChange
	ch.Asks[s] = max(1, n)
	_ = x.logRights(r, ch) // without room in the log the next one asks
}

// giveRights gives half of the rights that this region has to one that has asked for some.
func (x *turn) giveRights(r *ref, to part.Region, asks [part.Sides]int64) {
	d := r.p.escrowed(r.key)
	if d == nil || r.c.kind.isObject() || !r.p.regions.living(to) || x.openRights(r) != nil {
		return
	}
	has := r.p.rightsOf(r.key, r.c, d.bounds())
	ch := part.RightsChange{To: to}
	for s, bound := range []Bound{d.Min, d.Max} {
		if n := has[s].Int64(); asks[s] > 0 && bound.Set && n > 0 {
			ch.Gives[s] = n - n/2
		}
	}
	if ch.Gives != [part.Sides]int64{} {
		_ = x.logRights(r, ch) // else the region asks again
	}
}

// settleRights lets rights count that all regions have acknowledged, unless an operation which made some may
// still have to be taken back.
func (x *turn) settleRights(r *ref) {
	g := r.p.regions
	if len(g.owed.of(r.key, g.Self)) > 0 {
		return
	}
	sides, some := r.c.parts().Settles(g.Self, g.acked(r.slot), g.ids)
	if !some || r.p.levelsAny() { // a removed region may have applied the same operation
		return
	}
	if x.logRights(r, part.RightsChange{Settles: sides}) != nil {
		g.news++ // the cycle comes back, though no other region says anything new
	}
}

// changeRights tells others of a change of rights.
func (e *entry) changeRights(ch Change, _ part.Expiry) (Change, bool) {
	ch.Kind, ch.Rights = ChangeRights, e.r.rights
	return ch, true
}
