package part

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/store/coding"
)

// Take-backs do not stay for ever. Once all regions have acknowledged one, every base that is not known yet
// is behind it. So it is known for ever whether a base is in the middle of it. If none is, it is forgotten.
// Else the part keeps the amount in one sum; and if the winner still counts, that of the winner in a sum for
// its region (Settled.Covers). So neither memory nor a change's work grows with operations that deletions
// have removed.
//
// A winner is taken off the value once, though several regions may have taken back applications of one
// operation. So it is known of all of them, with all debts, before one of them keeps the sum: that of the
// lowest region, when all others are gone everywhere. A chain of take-backs ends where one is forgotten whose
// own application a base has removed; the others of it are kept as long as one names them.

// at names an application.
type at struct {
	region Region
	dot    uint64
}

func (a Applied) at() at { return at{a.Region, a.Dot} }

func (c Cover) at() at { return at{c.Region, c.Dot} }

// The end of a take-back that all have acknowledged.
const (
	stays  = iota
	goes   // nobody needs it
	yields // another region's take-back stays, and takes the same winner off
	covers // its part takes the winner off from now on
)

// settler finds out what becomes of a region's take-backs.
type settler struct {
	Parts
	region Region
	least  [MaxRegions]uint64 // the sequence of each region that all have acknowledged
	undo   map[at]Undo        // by the application that it has taken back
	ends   map[at][]at        // by the winner that counts in the end: the applications taken back for it
	named  map[at]bool        // winners in other regions' take-backs
	owed   map[at]bool        // applications that are owed, and their winners
	gone   bool               // all regions know of all take-backs that have yielded
}

// Spent returns what r can forget of its take-backs, and whether that changes anything. acked says how far
// each region has taken another one's stream, as it says in its own. owed are the debts of this counter that
// are known. Only r asks, of its own parts.
func (p Parts) Spent(r Region, acked func(by, of Region) uint64, regions []Region, owed []Owed) (s Settlement,
	some bool) {
	q := p.get(r)
	if len(q.Undo) == 0 || !ackedByAll(r, q.Undo[0].Clock, acked, regions) {
		return s, false
	}
	if q.Settled != nil {
		s.Settled = *q.Settled
		s.Covers = slices.Clone(s.Covers)
	}
	if s.Base != q.Base.Clock {
		s.Base, s.Sum = q.Base.Clock, sum{}
	}
	was := s.Upto
	w := newSettler(p, r, acked, regions, owed)
	for _, u := range q.Undo {
		if u.Clock > w.least[r] {
			break // nor any later one
		}
		s.Upto = max(s.Upto, u.Clock)
		becomes, end := w.judge(u)
		some = some || becomes != stays || u.Clock > was
		if becomes == stays {
			continue
		}
		s.Clocks = append(s.Clocks, u.Clock)
		if u.splits(q.Base) {
			s.Sum = s.Sum.add(u.Delta)
		}
		s.Yields = s.Yields || becomes == yields
		if becomes == covers {
			s.cover(end, p)
		}
	}
	for i := range p {
		if p[i].Base.Clock > 0 {
			s.Bases = append(s.Bases, RegionBase{p[i].Region, p[i].Base})
		}
	}
	return s, some
}

// Acknowledged is Spent, but forgets nothing: take-backs up to a clock only take no more room.
func (p Parts) Acknowledged(r Region, upto uint64) (s Settlement, some bool) {
	if q := p.get(r); q.Settled != nil {
		s.Settled = *q.Settled
	}
	some = upto > s.Upto
	s.Upto = upto
	return s, some
}

// cover adds a winner. If a deletion has removed those before, it has seen this part as well.
func (s *Settled) cover(a Applied, p Parts) {
	i, ok := slices.BinarySearchFunc(s.Covers, a.Region, func(c Cover, r Region) int {
		return cmp.Compare(c.Region, r)
	})
	if !ok {
		s.Covers = slices.Insert(s.Covers, i, Cover{Region: a.Region})
	}
	c := &s.Covers[i]
	if !p.holds(c.at()) {
		c.Made = sum{}
	}
	c.Dot, c.Made = max(c.Dot, a.Dot), c.Made.add(a.Made)
}

func newSettler(p Parts, r Region, acked func(by, of Region) uint64, regions []Region, owed []Owed) *settler {
	w := &settler{Parts: p, region: r, undo: make(map[at]Undo), ends: make(map[at][]at),
		named: make(map[at]bool), owed: make(map[at]bool), gone: true}
	for i := range p {
		q := &p[i]
		w.least[q.Region] = math.MaxUint64
		for _, by := range regions {
			if by != q.Region {
				w.least[q.Region] = min(w.least[q.Region], acked(by, q.Region))
			}
		}
		w.gone = w.gone && (q.Settled == nil || q.Settled.Yielded <= w.least[q.Region])
		for _, u := range q.Undo {
			w.undo[at{q.Region, u.Dot}] = u
			w.named[u.Winner.at()] = w.named[u.Winner.at()] || q.Region != r
		}
	}
	for _, o := range owed {
		w.owed[o.at()], w.owed[o.Winner.at()] = true, true
	}
	for a := range w.undo {
		way := w.way(a)
		end := way[len(way)-1].at()
		w.ends[end] = append(w.ends[end], a)
	}
	return w
}

// way returns the winners that counted one after the other in the place of an application.
func (w *settler) way(a at) (way []Applied) {
	for range MaxRegions {
		u, is := w.undo[a]
		if !is {
			break
		}
		way, a = append(way, u.Winner), u.Winner.at()
	}
	return way
}

// judge says what becomes of a take-back that all have acknowledged, and which winner counts in the end.
func (w *settler) judge(u Undo) (becomes int, end Applied) {
	own := at{w.region, u.Dot}
	if q := w.get(w.region); !u.splits(q.Base) {
		if w.named[own] || w.owed[own] {
			return stays, end
		}
		return goes, end
	}
	way := w.way(own)
	end = way[len(way)-1]
	q := w.get(end.Region)
	switch {
	case len(w.ends[end.at()]) > MaxRegions: // each has applied it once: somebody lies
		return stays, end
	case w.owes(own, way) || end.Dot > max(q.Clock, q.Base.Clock):
		return stays, end
	case end.Dot <= q.Base.Clock:
		return goes, end
	case end.Dot > w.least[end.Region] || !w.gone:
		return stays, end
	}
	becomes = covers
	for _, o := range w.ends[end.at()] {
		v, by, way := w.undo[o], w.get(o.region), w.way(o)
		switch {
		case o == own || slices.ContainsFunc(way, func(a Applied) bool { return a.at() == own }):
			// it ends at what this one has taken back then, which is gone
		case v.Clock > w.least[o.region] || w.owes(o, way):
			return stays, end
		case v.splits(by.Base) && o.region < w.region:
			becomes = yields
		case v.splits(by.Base) && becomes == covers:
			becomes = stays // until that one has yielded
		}
	}
	return becomes, end
}

// owes reports whether something of a way is owed, so that it may go on.
func (w *settler) owes(from at, way []Applied) bool {
	return w.owed[from] || slices.ContainsFunc(way, func(a Applied) bool { return w.owed[a.at()] })
}

// Settle forgets take-backs of r, at r's sequence seq.
func (p *Parts) Settle(r Region, seq uint64, s Settlement) {
	p.mergeBases(s.Bases)
	q := p.next(r, seq)
	if q == nil {
		return
	}
	settled := s.Settled
	settled.Upto, settled.Yielded = min(s.Upto, seq), 0
	if q.Settled != nil {
		settled.Yielded = q.Settled.Yielded
	}
	if s.Yields {
		settled.Yielded = seq
	}
	q.Clock, q.Undo, q.Settled = seq, q.undoWithout(s.Clocks), &settled
	if len(q.Undo) == 0 && settled.Sum == (sum{}) && len(settled.Covers) == 0 && settled.Yielded == 0 {
		q.Settled = nil
	}
}

// AppendTo appends the encoding:
//
//	number of clocks u, and for each: the difference to the one before u
//	what is settled as in a part, yields u8, and the bases (AppendBases)
func (s *Settlement) AppendTo(b []byte) []byte {
	b = s.Settled.appendTo((&keptUndo{s.Clocks}).appendTo(b))
	yields := byte(0)
	if s.Yields {
		yields = 1
	}
	return AppendBases(append(b, yields), s.Bases)
}

// ReadSettlement reads what AppendTo has appended.
func ReadSettlement(r *coding.Reader) (s Settlement) {
	s.Clocks = readKept(r, math.MaxUint64).dropped
	s.Settled = readSettled(r, math.MaxUint64)
	s.Yields = r.UpTo(1) == 1
	s.Bases = ReadBases(r)
	return s
}

// baseHigh is added to the region of a base whose High follows.
const baseHigh = 0x80

// AppendBases appends the number of bases u8, and for each, by region: region u8, clock u, cum v, and if
// baseHigh the High v.
func AppendBases(b []byte, bases []RegionBase) []byte {
	b = append(b, byte(len(bases)))
	for _, base := range bases {
		at := len(b)
		b = binary.AppendUvarint(append(b, byte(base.Region)), base.Clock)
		b = binary.AppendVarint(b, base.Cum)
		if base.High != 0 {
			b[at] |= baseHigh
			b = binary.AppendVarint(b, base.High)
		}
	}
	return b
}

// ReadBases reads what AppendBases has appended.
func ReadBases(r *coding.Reader) (bases []RegionBase) {
	for i := range min(int(r.Byte()), MaxRegions+1) {
		region := r.Byte()
		base := RegionBase{Region(region &^ baseHigh), Base{Clock: r.Uvarint(), Cum: r.Varint()}}
		high := region&baseHigh != 0
		if high {
			base.High = r.Varint()
		}
		if base.Region >= MaxRegions || base.Clock == 0 || high != (base.High != 0) ||
			i > 0 && base.Region <= bases[i-1].Region {
			r.Fail()
		}
		if r.Bad {
			return nil
		}
		bases = append(bases, base)
	}
	return bases
}
