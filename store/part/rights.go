package part

import (
	"encoding/binary"
	"slices"

	"github.com/fbfkv/fbfkv/store/coding"
)

// Side is a side on which a counter may have a bound. A right on a side is a right to change the counter
// by one towards its bound.
type Side int

// The sides. What lowers a counter spends rights of the side Lower, what raises it rights of Upper.
const (
	Lower Side = iota
	Upper
	Sides
)

// Rights say how far a region may change a counter with bounds, whatever the others do (escrow). A change
// spends rights of one side, and makes as many of the other. The rights that it makes count when all
// regions have said in their own streams that they took the change: so nobody sees a right spent before the
// change that made it, and no smaller rank of the operation can turn up. A take-back makes rights in
// the same way, and takes away the rights that wait for the change which it takes back.
//
// The rights of a counter begin once, in one region, which has what the bounds allow the value that it knows.
// Both sides are accounted for, whether they have a bound or not.
type Rights struct {
	// Begins: the rights of the counter began in this region. So it also has the rights from 0 to each bound.
	Begins bool
	// Net is what the region's changes made and others' grants did not, less what it spent and gave.
	Net   [Sides]sum
	Given []Grant // by region
	// Waits are rights that count when all have acknowledged Clock: the first ones, and all later ones.
	Waits [Sides][2]Waiting
}

// Grant is what a region has given to another one in all.
type Grant struct {
	To  Region
	Sum [Sides]sum
}

// Waiting are rights that do not count yet. Clock 0: none.
type Waiting struct {
	Sum   sum
	Clock uint64
}

// RightsChange is a change of a region's rights, which changes the counter not at all. The zero value opens
// the row: from then on the region's changes are accounted for.
type RightsChange struct {
	// Begins: the rights of the counter begin here, at Value.
	Begins bool
	Value  int64
	// Asks names how many rights the region lacks. It changes nothing.
	Asks [Sides]int64
	// Gives are rights that To gets.
	Gives [Sides]int64
	To    Region
	// Settles says of which sides the first rights that wait count from now on.
	Settles [Sides]bool
}

// Spends returns of which side a change spends rights, and how many.
func Spends(delta int64) (s Side, n sum) {
	if delta < 0 {
		return Lower, sum{}.sub(delta)
	}
	return Upper, sum{}.add(delta)
}

// other is the side of which a change makes rights that spends those of s.
func (s Side) other() Side { return Upper - s }

// rights returns a copy of the row to be changed: the row itself is shared.
func (q *Part) rights() *Rights {
	n := new(Rights)
	if q.Rights != nil {
		*n = *q.Rights
		n.Given = slices.Clone(n.Given)
	}
	q.Rights = n
	return n
}

// account spends and makes rights for a change at the part's clock. Without a row there is nothing to do.
func (q *Part) account(delta int64) {
	if q.Rights == nil || delta == 0 {
		return
	}
	w := q.rights()
	s, n := Spends(delta)
	w.Net[s] = w.Net[s].less(n)
	w.wait(s.other(), q.Clock, n)
}

// accountBack takes away the rights that wait for an application at dot, and lets those wait that it had
// spent.
func (q *Part) accountBack(dot uint64, delta int64) {
	if q.Rights == nil || delta == 0 {
		return
	}
	w := q.rights()
	s, n := Spends(delta)
	if made := &w.Waits[s.other()]; dot <= made[0].Clock {
		made[0].Sum = made[0].Sum.less(n)
	} else if made[1].Clock != 0 {
		made[1].Sum = made[1].Sum.less(n)
	}
	w.wait(s, q.Clock, n)
}

func (w *Rights) wait(s Side, clock uint64, n sum) {
	at := &w.Waits[s][0]
	if at.Clock != 0 {
		at = &w.Waits[s][1]
	}
	at.Sum, at.Clock = at.Sum.plus(n), clock
}

// ChangeRights changes the rights of r, at its sequence seq.
func (p *Parts) ChangeRights(r Region, seq uint64, ch RightsChange) {
	q := p.next(r, seq)
	if q == nil {
		return
	}
	q.Clock = seq
	w := q.rights()
	if ch.Begins {
		w.Begins = true
		w.Net[Lower], w.Net[Upper] = w.Net[Lower].add(ch.Value), w.Net[Upper].sub(ch.Value)
	}
	for s := range Sides {
		if ch.Gives[s] != 0 && ch.To < MaxRegions {
			w.Net[s] = w.Net[s].sub(ch.Gives[s])
			g := w.given(ch.To)
			g.Sum[s] = g.Sum[s].add(ch.Gives[s])
		}
		if ch.Settles[s] {
			w.Net[s] = w.Net[s].plus(w.Waits[s][0].Sum)
			w.Waits[s] = [2]Waiting{w.Waits[s][1]}
		}
	}
}

// given returns what a region has got from this one, to be changed.
func (w *Rights) given(to Region) *Grant {
	i, ok := slices.BinarySearchFunc(w.Given, to, func(g Grant, r Region) int { return int(g.To) - int(r) })
	if !ok {
		w.Given = slices.Insert(w.Given, i, Grant{To: to})
	}
	return &w.Given[i]
}

// HaveRights reports whether the rights of the counter have begun, as far as is known, and whether
// r accounts for its changes.
func (p Parts) HaveRights(r Region) (begun, open bool) {
	for i := range p {
		if w := p[i].Rights; w != nil {
			begun, open = begun || w.Begins, open || p[i].Region == r
		}
	}
	return begun, open
}

// RightsOf returns the rights of regions of which one and the same has a say: a region, and those from which
// it has inherited. bounds are the lower and the upper bound.
func (p Parts) RightsOf(self Region, inherited func(Region) bool, bounds [Sides]int64) (has [Sides]sum) {
	own := func(r Region) bool { return r == self || inherited(r) }
	for i := range p {
		w := p[i].Rights
		if w == nil {
			continue
		}
		for s := range Sides {
			for _, g := range w.Given {
				if own(g.To) {
					has[s] = has[s].plus(g.Sum[s])
				}
			}
			if !own(p[i].Region) {
				continue
			}
			if has[s] = has[s].plus(w.Net[s]); p[i].Region != self { // all have levelled
				has[s] = has[s].plus(w.Waits[s][0].Sum).plus(w.Waits[s][1].Sum)
			}
			if w.Begins && s == Lower {
				has[s] = has[s].sub(bounds[s])
			} else if w.Begins {
				has[s] = has[s].add(bounds[s])
			}
		}
	}
	return has
}

// Left returns how many rights of a side all regions have together, as far as is known, if the bound of it
// is at bound: what is between that and the value.
func (p Parts) Left(s Side, bound int64) sum {
	if s == Lower {
		return p.sum().sub(bound)
	}
	return whole(bound, 0).less(p.sum())
}

// Settles returns of which sides the first rights of r that wait have been acknowledged by all.
func (p Parts) Settles(r Region, acked func(by, of Region) uint64, regions []Region) (sides [Sides]bool,
	some bool) {
	w := p.get(r).Rights
	for s := range Sides {
		if w != nil && w.Waits[s][0].Clock != 0 && ackedByAll(r, w.Waits[s][0].Clock, acked, regions) {
			sides[s], some = true, true
		}
	}
	return sides, some
}

// Waiting reports whether rights of r wait.
func (p Parts) Waiting(r Region) bool {
	w := p.get(r).Rights
	return w != nil && (w.Waits[Lower][0].Clock != 0 || w.Waits[Upper][0].Clock != 0)
}

// DropRights lets go of all rights. The region that does this must be the only one.
func (p *Parts) DropRights() {
	for i := range *p {
		(*p)[i].Rights = nil
	}
}

// Amount is a number of rights: more than an int64 has may be spent and made.
type Amount = sum

// Covers reports whether there are n rights.
func (s sum) Covers(n sum) bool {
	left := s.less(n)
	return left.hi >= 0
}

// Int64 is the int64 that is nearest.
func (s sum) Int64() int64 {
	v, _ := s.nearest()
	return v
}

// Less subtracts.
func (s sum) Less(o sum) sum { return s.less(o) }

func (w *Rights) appendTo(b []byte) []byte {
	begins := byte(0)
	if w.Begins {
		begins = 1
	}
	b = append(b, begins, byte(len(w.Given)))
	b = appendSum(appendSum(b, w.Net[Lower]), w.Net[Upper])
	for _, g := range w.Given {
		b = appendSum(appendSum(append(b, byte(g.To)), g.Sum[Lower]), g.Sum[Upper])
	}
	for s := range Sides {
		for _, wait := range w.Waits[s] {
			b = appendSum(binary.AppendUvarint(b, wait.Clock), wait.Sum)
		}
	}
	return b
}

// readRights reads the rights of a part at a clock.
func readRights(r *coding.Reader, clock uint64) *Rights {
	begins, given := r.UpTo(1), r.UpTo(MaxRegions)
	w := &Rights{Begins: begins == 1, Net: [Sides]sum{readSum(r), readSum(r)}}
	for i := range int(given) {
		g := Grant{Region(r.Byte()), [Sides]sum{readSum(r), readSum(r)}}
		if g.To >= MaxRegions || i > 0 && g.To <= w.Given[i-1].To {
			r.Fail()
		}
		if r.Bad {
			break
		}
		w.Given = append(w.Given, g)
	}
	for s := range Sides {
		for i := range w.Waits[s] {
			w.Waits[s][i] = Waiting{Clock: r.UpTo(clock), Sum: readSum(r)}
		}
		first, rest := w.Waits[s][0], w.Waits[s][1]
		if first.Clock == 0 && (first != Waiting{} || rest != Waiting{}) ||
			rest != (Waiting{}) && rest.Clock <= first.Clock {
			r.Fail()
		}
	}
	return w
}

const (
	rightsBegin = 1 << iota
	rightsAsk
	rightsGive
	rightsSettleLower
	rightsSettleUpper
	allRights = 1<<iota - 1
)

// AppendTo appends the encoding: what it does u8; the value v, if it begins; what it asks for of each side
// v; to which region it gives u8, and what of each side v.
func (ch *RightsChange) AppendTo(b []byte) []byte {
	at := len(b)
	b = append(b, 0)
	if ch.Begins {
		b[at] |= rightsBegin
		b = binary.AppendVarint(b, ch.Value)
	}
	if ch.Asks != [Sides]int64{} {
		b[at] |= rightsAsk
		b = binary.AppendVarint(binary.AppendVarint(b, ch.Asks[Lower]), ch.Asks[Upper])
	}
	if ch.Gives != [Sides]int64{} {
		b[at] |= rightsGive
		b = append(b, byte(ch.To))
		b = binary.AppendVarint(binary.AppendVarint(b, ch.Gives[Lower]), ch.Gives[Upper])
	}
	if ch.Settles[Lower] {
		b[at] |= rightsSettleLower
	}
	if ch.Settles[Upper] {
		b[at] |= rightsSettleUpper
	}
	return b
}

// ReadRightsChange reads what AppendTo has appended. Nobody asks for less than nothing, nor gives it.
func ReadRightsChange(r *coding.Reader) (ch RightsChange) {
	does := r.UpTo(allRights)
	if ch.Begins = does&rightsBegin != 0; ch.Begins {
		ch.Value = r.Varint()
	}
	if does&rightsAsk != 0 {
		ch.Asks = readAmounts(r)
	}
	if does&rightsGive != 0 {
		if ch.To = Region(r.Byte()); ch.To >= MaxRegions {
			r.Fail()
		}
		ch.Gives = readAmounts(r)
	}
	ch.Settles = [Sides]bool{does&rightsSettleLower != 0, does&rightsSettleUpper != 0}
	return ch
}

// readAmounts reads an amount for each side, not all of them 0.
func readAmounts(r *coding.Reader) (a [Sides]int64) {
	for s := range a {
		if a[s] = r.Varint(); a[s] < 0 {
			r.Fail()
		}
	}
	if a == [Sides]int64{} {
		r.Fail()
	}
	return a
}
