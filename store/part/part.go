package part

import (
	"cmp"
	"slices"
)

// MaxRegions bounds how many regions there are; a Region is less than it.
const MaxRegions = 16

// MaxUndo is the room that a part has for take-backs that not all regions have acknowledged (Settled.Upto).
// Without room nothing is taken back (CanTakeBack): the region owes it until there is some.
const MaxUndo = 1024

// MaxHLC bounds the time of a register or an expiry. A region that sets one makes it later than
// those that it knows, as long as there is a later one. Clocks never get there.
const MaxHLC = 1 << 62

// Region is the number of a region, 0 to MaxRegions-1. It is given once and never again.
type Region uint8

// Part is what one region did to a counter. Only that region changes it; all others have a
// copy, which may be behind.
type Part struct {
	Region Region
	// Drained: the newest change that made the counter exist was a Drain.
	Drained bool
	// Clock is the sequence of the region's newest change of this counter, whatever changed.
	// 0: nothing is known of the part but its base.
	Clock uint64
	// Live is the sequence of the newest change that makes a counter exist: an increment or
	// a SET. Neither EXPIRE nor a take-back does. At most Clock; 0: none.
	Live uint64
	// Cum is the sum of what the region applied since it last deleted the counter itself,
	// modulo 2^64, and High the number of 2^64 beside it: take-backs may lead out of int64.
	Cum    int64
	High   int64
	Set    Register
	Expire Expiry
	Undo   []Undo // by Clock; only appended to in place, so copies may share it (Clone)
	// Settled is what is kept of take-backs that were forgotten; nil: nothing. It is never changed in place.
	Settled *Settled
	Rights  *Rights // nil: the region does not account for bounds. Never changed in place.
	Base    Base    // what deletions removed; joined by itself, not with the rest
}

// Base is what deletions have removed of a part: everything up to Clock, at which the sum
// was Cum and High. Clock 0: nothing.
type Base struct {
	Clock uint64
	Cum   int64
	High  int64
}

// RegionBase is the base that a deletion gives to the part of a region.
type RegionBase struct {
	Region Region
	Base
}

// Register is what a SET left. HLC is its time, by the hybrid logical clock of its region.
// Clock 0: none.
type Register struct {
	Clock, HLC uint64
	Value      int64
}

// Expiry is when the counter expires: At is in Unix milliseconds by the clock of the region By, which has
// set it, 0 for PERSIST. HLC is the time of the EXPIRE, Clock that of the change that asserted it here.
// Clock 0: none.
type Expiry struct {
	Clock, HLC uint64
	At         int64
	By         Region
}

// Undo remembers a take-back: at Clock, Delta was taken back, which had been applied at Dot, as Winner
// is the application of that operation which counts.
type Undo struct {
	Dot, Clock uint64
	Delta      int64
	Winner     Applied
}

// Settled is what a part keeps of all take-backs that it has forgotten (Settle).
type Settled struct {
	Upto uint64 // all regions have acknowledged the take-backs up to here
	// Yielded is when one was forgotten last though its winner counts, since another region's names it.
	Yielded uint64
	// Sum is what those had taken back in whose middle the base with the clock Base is.
	Base uint64
	Sum  sum
	// Covers are the winners that such a base has removed with their operations, by region, one of each.
	Covers []Cover
}

// Cover is what operations of a region made that deletions have removed elsewhere: Made, the last of them at
// Dot. A later deletion has seen all or none of them.
type Cover struct {
	Region Region
	Dot    uint64
	Made   sum
}

// Settlement says that take-backs at Clocks, which ascend, are forgotten, what is kept of them, and which
// bases that rests on.
type Settlement struct {
	Clocks  []uint64
	Settled // but for Yielded
	Yields  bool
	Bases   []RegionBase
}

// Applied is an application of an operation: Region added Made at Dot.
type Applied struct {
	Region Region
	Dot    uint64
	Made   int64
}

// Parts are what is known of a counter, by region. The zero value is a counter that nobody
// has touched. Methods with a pointer receiver change it in place.
type Parts []Part

// Clone returns a copy that can be changed apart from p.
func (p Parts) Clone() Parts {
	p = slices.Clone(p)
	for i := range p {
		p[i].Undo = slices.Clip(p[i].Undo)
	}
	return p
}

// FromCounter is the part of region r of a counter that only r has incremented, and whose
// newest change was at seq.
func FromCounter(r Region, value int64, seq uint64) Part {
	return Part{Region: r, Clock: seq, Live: seq, Cum: value}
}

// find returns the place of r's part, and whether it is there.
func (p Parts) find(r Region) (int, bool) {
	for i := range p {
		if p[i].Region >= r {
			return i, p[i].Region == r
		}
	}
	return len(p), false
}

// get returns r's part, or one that is empty. The caller may not change it.
func (p Parts) get(r Region) Part {
	if i, ok := p.find(r); ok {
		return p[i]
	}
	return Part{Region: r}
}

// Of returns r's part, or one that is empty. The caller may not change it.
func (p Parts) Of(r Region) Part { return p.get(r) }

// at returns r's part to be changed, and makes it if need be.
func (p *Parts) at(r Region) *Part {
	i, ok := p.find(r)
	if !ok {
		*p = slices.Insert(*p, i, Part{Region: r})
	}
	return &(*p)[i]
}

// next returns r's part if a change at seq is new to it, else nil: what the part has already,
// from r's stream or inside a whole part, changes nothing.
func (p *Parts) next(r Region, seq uint64) *Part {
	if r >= MaxRegions || seq <= p.get(r).Clock {
		return nil
	}
	return p.at(r)
}

// Increment adds made, at r's sequence seq. under is the expiry that the increment was made
// under (Expiry of r's parts; HLC 0: none): it is asserted again, so that a deletion which
// did not see the increment does not take the expiry away from it.
func (p *Parts) Increment(r Region, seq uint64, made int64, under Expiry) {
	q := p.next(r, seq)
	if q == nil {
		return
	}
	q.Clock, q.Live, q.Drained = seq, seq, false
	q.setSum(q.sum().add(made))
	q.account(made)
	if under.HLC != 0 {
		under.Clock = seq
		q.Expire = under
	}
}

// Drain takes off what was handed out, at r's sequence seq. It is an increment by as much less, and no
// deletion: so what two regions hand out at once is subtracted twice, and a drain is taken back as an
// increment is. But as long as the value is 0, the counter does not exist.
func (p *Parts) Drain(r Region, seq uint64, amount int64, under Expiry) {
	if p.next(r, seq) != nil {
		p.Increment(r, seq, -amount, under)
		p.at(r).Drained = true
	}
}

// Seen returns the bases of a deletion that r makes now: those of all other parts that have
// something to remove. They travel with the deletion. If there are take-backs, it ends some of them, and
// the bases go with it that have removed their winners before.
func (p Parts) Seen(r Region) (bases []RegionBase) {
	ends := slices.ContainsFunc(p, func(q Part) bool { return len(q.Undo) > 0 || q.Settled != nil })
	for i := range p {
		switch q := &p[i]; {
		case q.Region == r:
		case q.Clock > q.Base.Clock:
			bases = append(bases, RegionBase{q.Region, q.asBase()})
		case ends:
			bases = append(bases, RegionBase{q.Region, q.Base})
		}
	}
	return bases
}

// Delete removes what r saw, at r's sequence seq: of other regions the bases, of its own part
// all. So its own part is closed: it counts from 0 again, and its base is 0. Hence a
// region that has forgotten the counter and one that has the base see the same later.
func (p *Parts) Delete(r Region, seq uint64, bases []RegionBase) {
	p.mergeBases(bases)
	q := p.next(r, seq)
	if q == nil {
		return
	}
	*q = Part{Region: r, Clock: seq, Base: q.Base}
	q.mergeBase(Base{Clock: seq})
}

// Assign is a SET to value at r's sequence seq and time hlc: it removes what r saw, as a
// deletion does, and leaves a register. expire is the expiry that it sets (HLC 0: none).
func (p *Parts) Assign(r Region, seq, hlc uint64, value int64, bases []RegionBase, expire Expiry) {
	p.mergeBases(bases)
	q := p.next(r, seq)
	if q == nil {
		return
	}
	q.mergeBase(q.asBase())
	q.Clock, q.Live, q.Drained = seq, seq, false
	q.Set = Register{Clock: seq, HLC: hlc, Value: value}
	q.Expire, q.Undo, q.Settled = Expiry{}, nil, nil
	if expire.HLC != 0 {
		q.Expire = Expiry{Clock: seq, HLC: expire.HLC, At: expire.At, By: r}
	}
}

// SetExpiry is an EXPIRE, or with at 0 a PERSIST, at r's sequence seq and time hlc. It does
// not keep the counter alive.
func (p *Parts) SetExpiry(r Region, seq, hlc uint64, at int64) {
	if q := p.next(r, seq); q != nil {
		q.Clock = seq
		q.Expire = Expiry{Clock: seq, HLC: hlc, At: at, By: r}
	}
}

// CanTakeBack says what a region does when it learns that it must take back what it applied. held is false if
// deletions have removed that and the winner: then only the record is marked, and nothing is sent. full means
// that there is no room for another take-back (room: MaxUndo): the region owes it until there is. Only it
// asks, of its own parts; others do what it did.
//
// If a deletion has removed only what the region applied, the take-back tells that it has removed the
// operation: the undo that it leaves takes the winner off the value.
func (p Parts) CanTakeBack(o Owed, room int) (held, full bool) {
	q := p.get(o.Region)
	if held = o.Dot <= q.Clock; o.Dot <= q.Base.Clock {
		held = p.Holds(p.Ends()(o.Winner))
	}
	if len(q.Undo) >= room && q.Settled != nil {
		from, _ := slices.BinarySearchFunc(q.Undo, q.Settled.Upto+1, func(u Undo, clock uint64) int {
			return cmp.Compare(u.Clock, clock)
		})
		q.Undo = q.Undo[from:]
	}
	return held, len(q.Undo) >= room
}

// Holds reports whether the parts have an application that no deletion has removed; also if it was taken
// back.
func (p Parts) Holds(a Applied) bool { return p.holds(a.at()) }

func (p Parts) holds(a at) bool {
	q := p.get(a.region)
	return a.dot > q.Base.Clock && a.dot <= q.Clock
}

// Ends returns a function that tells which application counts in the place of one, if that was taken back, as
// far as the parts say.
func (p Parts) Ends() func(a Applied) Applied {
	var winners map[at]Applied
	return func(a Applied) Applied {
		if len(p.get(a.Region).Undo) == 0 {
			return a
		}
		if winners == nil {
			winners = make(map[at]Applied)
			for i := range p {
				for _, u := range p[i].Undo {
					winners[at{p[i].Region, u.Dot}] = u.Winner
				}
			}
		}
		for range MaxRegions { // as many at most have applied it
			w, is := winners[a.at()]
			if !is {
				break
			}
			a = w
		}
		return a
	}
}

// TakeBack takes back what a region owes, at its sequence seq. It does not keep the counter alive. A base
// between dot and seq contains what is taken back, hence the undo.
func (p *Parts) TakeBack(seq uint64, o Owed) {
	if o.Dot == 0 || o.Dot >= seq {
		return
	}
	q := p.next(o.Region, seq)
	if q == nil {
		return
	}
	q.Clock = seq
	q.setSum(q.sum().sub(o.Made))
	q.accountBack(o.Dot, o.Made)
	q.Undo = append(q.Undo, Undo{Dot: o.Dot, Clock: seq, Delta: o.Made, Winner: o.Winner})
}

// undoWithout returns the take-backs but for those at these clocks, which ascend.
func (q *Part) undoWithout(clocks []uint64) (kept []Undo) {
	for _, u := range q.Undo {
		for len(clocks) > 0 && clocks[0] < u.Clock {
			clocks = clocks[1:]
		}
		if len(clocks) == 0 || clocks[0] != u.Clock {
			kept = append(kept, u)
		}
	}
	return kept
}

// Merge joins the parts with another region's copy of them.
func (p *Parts) Merge(other Parts) {
	for i := range other {
		p.MergePart(other[i])
	}
}

// MergePart joins one part: the higher clock wins, of the part and of the base by itself.
func (p *Parts) MergePart(o Part) {
	if o.Region >= MaxRegions || o.Clock == 0 && o.Base.Clock == 0 {
		return
	}
	q := p.at(o.Region)
	base := q.Base
	if o.Clock > q.Clock {
		*q = o
		q.Undo, q.Base = slices.Clip(o.Undo), base
	}
	q.mergeBase(o.Base)
}

// Only returns the parts of some regions, and of all others what deletions have removed.
func (p Parts) Only(of func(Region) bool) (only Parts) {
	for _, q := range p {
		if !of(q.Region) {
			q = Part{Region: q.Region, Base: q.Base}
		}
		only.MergePart(q)
	}
	return only
}

// mergeBases joins bases that a deletion carries. They count also if the deletion itself is
// known: a whole part that came before it did not bring the bases of other parts.
func (p *Parts) mergeBases(bases []RegionBase) {
	for _, b := range bases {
		p.MergePart(Part{Region: b.Region, Base: b.Base})
	}
}

// mergeBase joins one base.
func (q *Part) mergeBase(b Base) {
	if b.Clock > q.Base.Clock {
		q.Base = b
	}
}
