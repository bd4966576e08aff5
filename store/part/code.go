package part

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/fbfkv/fbfkv/store/coding"
)

// The encoding, in varints (u unsigned, v signed):
//
//	number of parts u, and for each, by region:
//	region u8, fields u8, clock u, clock - live u, cum v
//	set     if bit 0: clock - its clock u, HLC u, value v
//	expire  if bit 1: clock - its clock u, HLC u, at v, by u8
//	undo    if bit 2: number u, and for each: its clock - that of the one before u,
//	        its clock - dot u, delta v, of the winner: region u8, dot u, made - delta v
//	base    if bit 3: clock u, cum v
//	high    if bit 5: high of the part v, of the base v
//	settled if bit 6: up to u, yielded u, base u, sum v, its high v, number of covers u8, and for
//	        each, by region: region u8, dot u, made v, its high v
//	more    if bit 7: more u8, with bit 0 if the part is drained, and with bit 1 if it has rights:
//	        begins u8, number of grants u8, net of each side: sum v, its high v; for each grant, by region:
//	        region u8, of each side: sum v, its high v; for each side two that wait: clock u, sum v,
//	        its high v
//
// There is one encoding of each value, and no other is accepted.
const (
	hasSet = 1 << iota
	hasExpire
	hasUndo
	hasBase
	keepsUndo // of a delta alone
	hasHigh
	hasSettled
	hasMore
	allFields = hasSet | hasExpire | hasUndo | hasBase | hasHigh | hasSettled | hasMore
)

// The bits of more.
const (
	isDrained = 1 << iota
	hasRights
)

// ErrBad means that bytes are no encoding of parts.
var ErrBad = errors.New("part: bad encoding")

// AppendTo appends the encoding.
func (p Parts) AppendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(p)))
	for i := range p {
		b = p[i].appendTo(b)
	}
	return b
}

func (q *Part) appendTo(b []byte) []byte { return q.appendWith(b, q.Undo, nil) }

// appendWith appends the part with other take-backs than its own; and as a delta, if it keeps some.
func (q *Part) appendWith(b []byte, undo []Undo, kept *keptUndo) []byte {
	at := len(b) + 1
	b = append(b, byte(q.Region), 0)
	b = binary.AppendUvarint(b, q.Clock)
	b = binary.AppendUvarint(b, q.Clock-q.Live)
	b = binary.AppendVarint(b, q.Cum)
	if q.Set.Clock != 0 {
		b[at] |= hasSet
		b = appendRegister(b, q.Clock-q.Set.Clock, q.Set.HLC, q.Set.Value)
	}
	if q.Expire.Clock != 0 {
		b[at] |= hasExpire
		b = appendRegister(b, q.Clock-q.Expire.Clock, q.Expire.HLC, q.Expire.At)
		b = append(b, byte(q.Expire.By))
	}
	if kept != nil {
		b[at] |= keepsUndo
		b = kept.appendTo(b)
	}
	if len(undo) > 0 {
		b[at] |= hasUndo
		b = binary.AppendUvarint(b, uint64(len(undo)))
		before := uint64(0)
		for _, u := range undo {
			b = appendRegister(b, u.Clock-before, u.Clock-u.Dot, u.Delta)
			b = binary.AppendUvarint(append(b, byte(u.Winner.Region)), u.Winner.Dot)
			b = binary.AppendVarint(b, u.Winner.Made-u.Delta)
			before = u.Clock
		}
	}
	if q.Base.Clock != 0 {
		b[at] |= hasBase
		b = binary.AppendUvarint(b, q.Base.Clock)
		b = binary.AppendVarint(b, q.Base.Cum)
	}
	if q.High != 0 || q.Base.High != 0 {
		b[at] |= hasHigh
		b = binary.AppendVarint(binary.AppendVarint(b, q.High), q.Base.High)
	}
	if q.Settled != nil {
		b[at] |= hasSettled
		b = q.Settled.appendTo(b)
	}
	if more := q.more(); more != 0 {
		b[at] |= hasMore
		b = append(b, more)
	}
	if q.Rights != nil {
		b = q.Rights.appendTo(b)
	}
	return b
}

// more returns which fields the part has that the first byte has no room for.
func (q *Part) more() (more byte) {
	if q.Drained {
		more |= isDrained
	}
	if q.Rights != nil {
		more |= hasRights
	}
	return more
}

func (s *Settled) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, s.Upto)
	b = binary.AppendUvarint(b, s.Yielded)
	b = appendSum(binary.AppendUvarint(b, s.Base), s.Sum)
	b = append(b, byte(len(s.Covers)))
	for _, c := range s.Covers {
		b = appendSum(binary.AppendUvarint(append(b, byte(c.Region)), c.Dot), c.Made)
	}
	return b
}

func readSettled(r *coding.Reader, clock uint64) (s Settled) {
	s = Settled{Upto: r.UpTo(clock), Yielded: r.UpTo(clock), Base: r.Uvarint(), Sum: readSum(r)}
	for i := range min(int(r.Byte()), MaxRegions+1) {
		c := Cover{Region(r.Byte()), r.Uvarint(), readSum(r)}
		if c.Region >= MaxRegions || c.Dot == 0 || i > 0 && c.Region <= s.Covers[i-1].Region {
			r.Fail()
		}
		if r.Bad {
			break
		}
		s.Covers = append(s.Covers, c)
	}
	return s
}

func appendSum(b []byte, s sum) []byte {
	v, high := s.split()
	return binary.AppendVarint(binary.AppendVarint(b, v), high)
}

func readSum(r *coding.Reader) sum { return whole(r.Varint(), r.Varint()) }

// AppendAgreed appends the state of a counter that regions with the same changes share; nothing if it does
// not exist. A region that has forgotten it, as it was dead, and hears of it anew lacks the closed parts, and
// of those that were closed the bases, whose sums are 0 (closed): these are left out. For what such a base
// does beyond its sum the last byte says whether the part makes the counter exist.
func (p Parts) AppendAgreed(b []byte) []byte {
	if !p.Alive() {
		return b
	}
	for _, q := range p {
		if q.closed() {
			continue
		}
		lives := byte(0)
		if q.Live > q.Base.Clock {
			lives = 1
		}
		if q.Base.sum() == (sum{}) {
			q.Base = Base{}
		}
		b = append(q.appendTo(b), lives)
	}
	return b
}

// appendRegister appends what a register, an expiry and an undo consist of.
func appendRegister(b []byte, x, y uint64, v int64) []byte {
	b = binary.AppendUvarint(b, x)
	b = binary.AppendUvarint(b, y)
	return binary.AppendVarint(b, v)
}

// Decode reads what AppendTo wrote, and nothing else: also of bytes that anyone may have
// written, the result is parts that the changes of this package can lead to. It keeps nothing of b.
func Decode(b []byte) (Parts, error) {
	r := coding.Reader{Rest: b}
	p := make(Parts, r.UpTo(MaxRegions))
	for i := range p {
		p[i].read(&r, allFields)
		if i > 0 && p[i].Region <= p[i-1].Region {
			r.Fail()
		}
	}
	r.End()
	var again [256]byte
	if r.Bad || !bytes.Equal(p.AppendTo(again[:0]), b) { // a varint can be longer than need be
		return nil, ErrBad
	}
	if len(p) == 0 {
		return nil, nil
	}
	return p, nil
}

// read reads a part, which may have some fields; kept is not nil if it is one of a delta that keeps
// take-backs.
func (q *Part) read(r *coding.Reader, may byte) (kept *keptUndo) {
	q.Region = Region(r.Byte())
	fields := r.Byte()
	q.Clock = r.Uvarint()
	q.Live = q.Clock - r.UpTo(q.Clock)
	q.Cum = r.Varint()
	if fields&hasSet != 0 {
		q.Set = Register{Clock: q.Clock - r.UpTo(q.Clock), HLC: r.Uvarint(), Value: r.Varint()}
	}
	if fields&hasExpire != 0 {
		q.Expire = Expiry{q.Clock - r.UpTo(q.Clock), r.Uvarint(), r.Varint(), Region(r.Byte())}
	}
	if fields&keepsUndo != 0 {
		kept = readKept(r, q.Clock)
	}
	if fields&hasUndo != 0 {
		q.readUndo(r)
	}
	if fields&hasBase != 0 {
		q.Base = Base{Clock: r.Uvarint(), Cum: r.Varint()}
	}
	if fields&hasHigh != 0 {
		q.High, q.Base.High = r.Varint(), r.Varint()
	}
	if fields&hasSettled != 0 {
		s := readSettled(r, q.Clock)
		q.Settled = &s
	}
	more := byte(0)
	if fields&hasMore != 0 {
		if more = r.Byte(); more == 0 || more > isDrained|hasRights {
			r.Fail()
		}
	}
	if q.Drained = more&isDrained != 0; more&hasRights != 0 {
		q.Rights = readRights(r, q.Clock)
	}
	nothing := q.Clock == 0 && (q.Base.Clock == 0 || q.sum() != sum{} || q.Settled != nil || q.Rights != nil)
	if nothing || q.Base.Clock == 0 && q.Base != (Base{}) {
		r.Fail()
	}
	if q.Region >= MaxRegions || fields&^may != 0 || q.Set.Clock > q.Live ||
		max(q.Set.HLC, q.Expire.HLC) > MaxHLC || q.Expire.By >= MaxRegions || q.Drained && q.Live == 0 {
		r.Fail()
	}
	return kept
}

// readUndo reads the take-backs. Each takes six bytes or more, so memory is bounded by input.
func (q *Part) readUndo(r *coding.Reader) {
	n := r.UpTo(uint64(len(r.Rest) / 6))
	q.Undo = make([]Undo, 0, n)
	before := uint64(0)
	for range n {
		clock := before + r.UpTo(q.Clock-before)
		u := Undo{Clock: clock, Dot: clock - r.UpTo(clock), Delta: r.Varint()}
		u.Winner = Applied{Region(r.Byte()), r.Uvarint(), r.Varint()}
		u.Winner.Made += u.Delta
		if u.Clock == before || u.Dot == 0 || u.Dot == u.Clock || u.Winner.Region >= MaxRegions {
			r.Fail()
		}
		if r.Bad {
			return
		}
		q.Undo, before = append(q.Undo, u), clock
	}
}
