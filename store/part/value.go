package part

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// splits reports whether the base contains what was applied, but not that it was taken back.
func (u Undo) splits(b Base) bool { return u.Dot <= b.Clock && b.Clock < u.Clock }

// remaining is what deletions left of the part's sum. A base newer than the part contains
// everything that the part has.
func (q *Part) remaining() sum {
	if q.Base.Clock >= q.Clock {
		return sum{}
	}
	v := q.sum().less(q.Base.sum())
	if q.Base.Clock == 0 {
		return v
	}
	if s := q.Settled; s != nil && s.Base == q.Base.Clock {
		v = v.plus(s.Sum) // any later base has seen the take-backs
	}
	for _, u := range slices.Backward(q.Undo) {
		if u.Clock <= q.Base.Clock {
			break // this base has seen it, and all before
		}
		if u.splits(q.Base) {
			v = v.add(u.Delta)
		}
	}
	return v
}

// sum is the sum of what the region applied, whole.
func (q *Part) sum() sum { return whole(q.Cum, q.High) }

func (q *Part) setSum(s sum) { q.Cum, q.High = s.split() }

// asBase is the base of a deletion that has seen all of the part.
func (q *Part) asBase() Base { return Base{q.Clock, q.Cum, q.High} }

func (b *Base) sum() sum { return whole(b.Cum, b.High) }

// Alive reports whether the counter exists: some region incremented or set it, and no
// deletion has seen that; nor is it empty as it was drained.
func (p Parts) Alive() bool { return p.Undeleted() && !(p.Drained() && p.sum() == sum{}) }

// Undeleted reports whether some region incremented, set or drained the counter, and no deletion has seen
// that.
func (p Parts) Undeleted() bool {
	return slices.ContainsFunc(p, func(q Part) bool { return q.Live > q.Base.Clock })
}

// Drained reports whether a drain was the last thing that some region did to the counter.
func (p Parts) Drained() bool {
	return slices.ContainsFunc(p, func(q Part) bool { return q.Drained && q.Live > q.Base.Clock })
}

// MayBeAlive is Alive of parts without the take-backs that they keep (Delta.Heads): of some they
// cannot tell.
func (p Parts) MayBeAlive() (may, must bool) { return p.Undeleted(), p.Undeleted() && !p.Drained() }

// Value is the sum of all parts, and of the register with the highest time (of two, that of the
// higher region). If it is no int64, the nearest one is returned, and clamped is true.
func (p Parts) Value() (v int64, clamped bool) { return p.sum().nearest() }

// AsTakenBack is the value after a TakeBack, and whether the counter exists then.
func (p Parts) AsTakenBack(o Owed) (v int64, exists bool) {
	if o.Dot > p.get(o.Region).Base.Clock && !slices.ContainsFunc(p.covered(), func(c Cover) bool {
		return c.at() == o.at()
	}) { // as nearly always
		left := p.sum().sub(o.Made)
		v, _ = left.nearest()
		return v, p.Undeleted() && !(p.Drained() && left == sum{})
	}
	p = p.Clone()
	p.TakeBack(math.MaxUint64, o)
	v, _ = p.Value()
	return v, p.Alive()
}

// sum is the value, whole.
func (p Parts) sum() (s sum) {
	for i := range p {
		s = s.plus(p[i].remaining())
	}
	for _, a := range p.covered() {
		s = s.less(a.Made)
	}
	last, _ := p.register()
	return s.add(last.Value)
}

// covered are the applications that do not count any more, although no deletion has seen them and nobody
// has taken them back: deletions have removed others of the same operations. Such a base is between dot and
// clock of a take-back, which names the application that counts; or, if that was taken back as well, this is
// found by the take-back which says so. Of those that were forgotten there is one for each region.
func (p Parts) covered() (all []Cover) {
	var ends []Applied
	for i := range p {
		q := &p[i]
		for _, u := range slices.Backward(q.Undo) {
			if u.Clock <= q.Base.Clock || q.Base.Clock == 0 {
				break
			}
			if u.splits(q.Base) {
				ends = append(ends, u.Winner)
			}
		}
	}
	more := len(ends) > 0
	for n := 0; more && n < MaxRegions; n++ { // as many regions at most have applied it
		slices.SortFunc(ends, Applied.Compare)
		ends = slices.CompactFunc(ends, func(a, b Applied) bool { return a.Compare(b) == 0 })
		more = p.follow(ends)
	}
	for _, a := range ends {
		all = append(all, Cover{a.Region, a.Dot, whole(a.Made, 0)})
	}
	for i := range p {
		if s := p[i].Settled; s != nil {
			all = append(all, s.Covers...)
		}
	}
	return slices.DeleteFunc(all, func(c Cover) bool { return !p.holds(c.at()) })
}

// follow puts in the place of applications, which are ordered, the winners to which they were taken back, and
// reports whether there was one.
func (p Parts) follow(all []Applied) (more bool) {
	from := slices.Clone(all)
	for i := range p {
		for _, u := range p[i].Undo {
			at, is := slices.BinarySearchFunc(from, Applied{Region: p[i].Region, Dot: u.Dot}, Applied.Compare)
			if is && all[at] == from[at] {
				all[at], more = u.Winner, true
			}
		}
	}
	return more
}

// Compare orders applications.
func (a Applied) Compare(b Applied) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Dot, b.Dot))
}

// register is the one that counts, and whose it is.
func (p Parts) register() (last Register, of Region) {
	for i := range p {
		q := &p[i]
		if q.Set.Clock > q.Base.Clock && q.Set.HLC >= last.HLC {
			last, of = q.Set, q.Region
		}
	}
	return last, of
}

// Share is r's share of the value: the rest of its sum, without covered operations, and with the
// register of a SET if it is r's that counts. The shares of all regions add up to the value, unless one
// is no int64: then it is the nearest one.
func (p Parts) Share(r Region) int64 {
	q := p.get(r)
	s := q.remaining()
	for _, a := range p.covered() {
		if a.Region == r {
			s = s.less(a.Made)
		}
	}
	if last, of := p.register(); of == r {
		s = s.add(last.Value)
	}
	v, _ := s.nearest()
	return v
}

// Expiry is when the counter expires: what was said last; of two at the same time, the later
// expiry. HLC 0: nobody has said. At 0: never.
func (p Parts) Expiry() (e Expiry) {
	for i := range p {
		if x := p[i].Expire; x.Clock > p[i].Base.Clock && x.compare(e) > 0 {
			e = x
		}
	}
	return e
}

// compare orders expiries by which one counts.
func (e Expiry) compare(o Expiry) int {
	return cmp.Or(cmp.Compare(e.HLC, o.HLC), cmp.Compare(e.At, o.At), cmp.Compare(e.By, o.By))
}

// Room reports whether r may add delta to a counter that shows value: neither its own part nor the value
// leaves int64. Changes of other regions, or take-backs, may have taken them out of it meanwhile; then only
// what leads back has room.
func (p Parts) Room(r Region, value, delta int64) bool {
	before := whole(value, 0)
	if value == math.MaxInt64 || value == math.MinInt64 { // perhaps the nearest one
		before = p.sum()
	}
	q := p.get(r)
	return q.remaining().room(delta) && before.room(delta)
}

// Owes reports whether a region is still to take something back: the parts have that or the winner, which no
// deletion has removed, and not the take-back. here is false if nothing is known of the region up to dot:
// either that has not arrived, or the counter was dropped since. That a take-back was forgotten (Spent)
// cannot be seen.
func (p Parts) Owes(o Owed) (owes, here bool) {
	q := p.get(o.Region)
	if o.Dot > q.Clock && o.Dot > q.Base.Clock {
		return false, false
	}
	return (o.Dot > q.Base.Clock || p.Holds(p.Ends()(o.Winner))) && !q.tookBack(o.Dot), true
}

// Owed is an application that its region is to take back, as Winner counts.
type Owed struct {
	Applied
	Winner Applied
}

// AsPaid returns the parts as if what is owed had been taken back: a drain hands out no more than that. They
// are no parts that can be changed, or told.
func (p Parts) AsPaid(owed []Owed) Parts {
	paid := p.Clone()
	for _, o := range owed {
		if owes, here := p.Owes(o); !owes || !here {
			continue
		}
		q := paid.at(o.Region)
		if q.Base.Clock >= q.Clock {
			q.setSum(q.Base.sum())
			q.Undo = nil
		}
		q.Clock = math.MaxUint64
		q.setSum(q.sum().sub(o.Made))
		q.Undo = append(q.Undo, Undo{o.Dot, q.Clock, o.Made, o.Winner})
	}
	return paid
}

// tookBack reports whether the part remembers that it took back what was applied at dot. That was later.
func (q *Part) tookBack(dot uint64) bool {
	for _, u := range slices.Backward(q.Undo) {
		if u.Dot == dot {
			return true
		}
		if u.Clock <= dot {
			return false
		}
	}
	return false
}

// Unclosed reports whether r should close its part of a counter that does not exist any more, by a
// deletion of its own: another region's has removed what there was. Until then nobody drops the counter.
func (p Parts) Unclosed(r Region) bool {
	q := p.get(r)
	return !q.closed() && !p.Undeleted()
}

// Emptied reports whether r should delete a counter that does not exist as drains have left nothing: when all
// regions have taken all of it (acked, as in Droppable), so that nobody takes a drain back any more. There
// must be nothing owed.
func (p Parts) Emptied(acked func(by, of Region) uint64, regions []Region) bool {
	return p.Undeleted() && !p.Alive() && !slices.ContainsFunc(p, func(q Part) bool {
		return !ackedByAll(q.Region, q.Clock, acked, regions)
	})
}

// closed reports whether the part has nothing but a clock and a base of sum 0, as its region's own deletion
// leaves it: a region that forgets it has the same copy as before of whatever its region does next, but for
// that base. If another region's deletion was the last one, what it removed is still there, and would stay in
// the copies of regions that have not forgotten it: take-backs (even if they leave a sum of 0), and times.
func (q *Part) closed() bool {
	return q.Live == 0 && q.Expire.Clock == 0 && len(q.Undo) == 0 && q.Settled == nil && q.Rights == nil &&
		q.Base.Clock >= q.Clock && q.Base.sum() == sum{}
}

// Droppable reports whether the counter may be forgotten: all parts are closed, and all regions
// have taken every change. acked(by, of) says how far region by has taken of's stream; it must
// be what by said in its own stream, so that what by did before has arrived here. regions are
// all that there are, with the own one, for which acked is its cursors.
func (p Parts) Droppable(acked func(by, of Region) uint64, regions []Region) bool {
	for i := range p {
		if q := &p[i]; !q.closed() || !ackedByAll(q.Region, q.Base.Clock, acked, regions) {
			return false
		}
	}
	return true
}

// ackedByAll reports whether all regions have taken of's change at clock.
func ackedByAll(of Region, clock uint64, acked func(by, of Region) uint64, regions []Region) bool {
	for _, by := range regions {
		if by != of && acked(by, of) < clock {
			return false
		}
	}
	return true
}

// sum is a signed number of 128 bits.
type sum struct {
	hi int64
	lo uint64
}

// whole is the sum of v and high times 2^64.
func whole(v, high int64) sum { return sum{high + v>>63, uint64(v)} }

// split is the reverse.
func (s sum) split() (v, high int64) { return int64(s.lo), s.hi - int64(s.lo)>>63 }

// plus adds another one.
func (s sum) plus(o sum) sum {
	lo, carry := bits.Add64(s.lo, o.lo, 0)
	return sum{s.hi + o.hi + int64(carry), lo}
}

// less subtracts another one.
func (s sum) less(o sum) sum {
	lo, borrow := bits.Sub64(s.lo, o.lo, 0)
	return sum{s.hi - o.hi - int64(borrow), lo}
}

// room reports whether delta may be added: that is an int64, or leads back to one.
func (s sum) room(delta int64) bool {
	after := s.add(delta).sign()
	return after == 0 || after == s.sign() && (after > 0) == (delta < 0)
}

// add adds v. Operations never lead out of 128 bits.
func (s sum) add(v int64) sum { return s.plus(whole(v, 0)) }

// sub subtracts v.
func (s sum) sub(v int64) sum { return s.add(^v).add(1) }

// nearest is the int64 that is nearest to s; clamped: it is another one.
func (s sum) nearest() (v int64, clamped bool) {
	switch s.sign() {
	case 0:
		return int64(s.lo), false
	case 1:
		return math.MaxInt64, true
	}
	return math.MinInt64, true
}

// sign is 0 if s is an int64, else 1 or -1.
func (s sum) sign() int {
	switch {
	case s.hi == int64(s.lo)>>63:
		return 0
	case s.hi < 0:
		return -1
	}
	return 1
}
