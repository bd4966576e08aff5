package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/fbfkv/fbfkv/store/coding"
)

// What a pull answers: entries of what a region itself did in one of its partitions, as its op log has it;
// or entries that tell a page of its state (regionstate.go).
// In varints (u unsigned, v signed), numbers of bytes and strings behind their length:
//
//	version u8, group u, region u8, partition u, incarnation u, era u
//	first and last slot u, after u, up to - after u, wall u, proof (of up to)
//	number of tables u, and for each, by id: id u, name
//	of a page: whose operations u8, version of the regions u, places where it begins and ends
//	sections to the end: number of entries u, wall - that of the section before v, its last sequence -
//	    that of the section before u, and for each entry: sequence - that of the entry before - 1 u, the
//	    entry as in the op log
//
// The entries of a page are numbered from 1 on. Its first page alone has a proof.
//
// There is one encoding of each value, and no other is accepted. If it becomes smaller so, it travels
// packed, in any way that S2 has: a byte packedVersion, and all of it as a block of S2.

// What a pull answers begins with one of these.
const (
	pulledVersion = 1
	packedVersion = 2
	pageVersion   = 3
)

// maxPacking bounds how many times its packed size an answer may have, so that the reader's memory
// grows with the bytes that have arrived.
const maxPacking = 64

// maxPulled bounds what a pull answers, bytes: a section of the op log may be as large.
const maxPulled = 1<<30 + 1<<20

// pulled is what a pull answers, with its sections still encoded. It aliases its bytes.
type pulled struct {
	RegionSource
	group, incarnation uint64
	era                uint64 // of all that is told (regionflush.go)
	first, last        uint16 // slots of the keys
	after, upTo        uint64 // it has all that the region did in its era behind after, up to upTo
	wall               int64  // of the source, unix ms; no section's is later
	proof              Proof  // of upTo
	tables             []pulledTable
	page               *statePage // nil: it is of the log
	sections           []byte
}

// pulledTable is the name of a table in the source.
type pulledTable struct {
	id   uint32
	name []byte
}

func (d *pulled) appendTo(b []byte) []byte {
	version := byte(pulledVersion)
	if d.page != nil {
		version = pageVersion
	}
	b = binary.AppendUvarint(append(b, version), d.group)
	b = d.RegionSource.appendTo(b)
	b = binary.AppendUvarint(b, d.incarnation)
	b = binary.AppendUvarint(b, d.era)
	b = binary.AppendUvarint(b, uint64(d.first))
	b = binary.AppendUvarint(b, uint64(d.last))
	b = binary.AppendUvarint(b, d.after)
	b = binary.AppendUvarint(b, d.upTo-d.after)
	b = binary.AppendUvarint(b, uint64(d.wall))
	b = d.proof.appendTo(b)
	b = binary.AppendUvarint(b, uint64(len(d.tables)))
	for _, t := range d.tables {
		b = binary.AppendUvarint(b, uint64(t.id))
		b = coding.AppendBytes(b, t.name)
	}
	if d.page != nil {
		b = d.page.appendTo(b)
	}
	return append(b, d.sections...)
}

// Pack returns b packed, or as it is. It must not begin with packedVersion.
func Pack(b []byte) []byte {
	if len(b) > maxPulled {
		return b
	}
	packed := make([]byte, 1+s2.MaxEncodedLen(len(b)))
	packed[0] = packedVersion
	packed = packed[:1+len(s2.EncodeBetter(packed[1:], b))]
	if len(packed) >= len(b) || len(b) > maxPacking*len(packed) {
		return b
	}
	return packed
}

// Unpack is the inverse of Pack. It may use dst, and else returns b. Its memory is bounded by what arrived.
func Unpack(dst, b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] != packedVersion {
		return b, nil
	}
	n, err := s2.DecodedLen(b[1:])
	if err != nil || n > maxPulled || n > maxPacking*len(b) {
		return nil, ErrPulled
	}
	if b, err = s2.Decode(dst[:cap(dst)], b[1:]); err != nil {
		return nil, ErrPulled
	}
	return b, nil
}

// pulledMemory is what decodePulled needs, to be used again when its answer is not needed any more.
type pulledMemory struct{ unpacked, again, entries []byte }

// decodePulled reads what appendTo wrote, packed or not, and checks all of it.
func decodePulled(b []byte, m *pulledMemory) (d pulled, err error) {
	packed := len(b) > 0 && b[0] == packedVersion
	if b, err = Unpack(m.unpacked, b); err != nil {
		return pulled{}, err
	}
	if packed {
		m.unpacked = b
	}
	r := reader{coding.Reader{Rest: b}}
	version := r.Byte()
	if version != pulledVersion && version != pageVersion || len(b) > maxPulled {
		r.Fail()
	}
	d.group, d.RegionSource, d.incarnation, d.era = r.Uvarint(), r.source(), r.Uvarint(), r.Uvarint()
	d.first, d.last = uint16(r.UpTo(slots-1)), uint16(r.UpTo(slots-1))
	d.after = r.Uvarint()
	d.upTo = d.after + r.UpTo(math.MaxUint64-d.after)
	d.wall = int64(r.UpTo(math.MaxInt64))
	d.proof = r.proof()
	for n := r.UpTo(min(2*MaxTables, uint64(len(r.Rest)/2))); n > 0; n-- {
		t := pulledTable{r.Uint32(), r.Bytes()}
		if i := len(d.tables); i > 0 && t.id <= d.tables[i-1].id || len(t.name) == 0 ||
			len(t.name) > MaxTableName {
			r.Fail()
		}
		d.tables = append(d.tables, t)
	}
	if version == pageVersion {
		d.page = r.statePage()
	}
	if d.first > d.last || d.page != nil && (d.after > 0 || d.upTo == 0) {
		r.Fail()
	}
	if d.sections = r.Rest; r.err() != nil {
		return pulled{}, ErrPulled
	}
	head := d
	head.sections = nil
	if !bytes.Equal(head.appendTo(nil), b[:len(b)-len(d.sections)]) { // a varint can be longer than need be
		return pulled{}, ErrPulled
	}
	again := slices.Grow(m.again[:0], len(d.sections))
	w := sectionWriter{last: d.after, end: d.after, entries: m.entries}
	err = d.each(func(e *pulledEntry) error {
		if err := d.check(e); err != nil {
			return err
		}
		again = w.add(again, e)
		return nil
	})
	if m.again, m.entries = w.finish(again), w.entries[:0]; err == nil && !bytes.Equal(m.again, d.sections) {
		err = ErrPulled
	}
	if err != nil {
		return pulled{}, err
	}
	return d, nil
}

// pulledEntry is an entry of another region's log.
type pulledEntry struct {
	entry
	seq   uint64
	wall  int64  // of its section
	end   uint64 // last sequence of its section, in which are entries that are not told
	first bool   // of its section
	size  int    // bytes
}

// each calls fn for each entry. An entry is valid until the next.
func (d *pulled) each(fn func(e *pulledEntry) error) error {
	r := sectionReader{reader: reader{coding.Reader{Rest: d.sections}}, r: new(regional)}
	e, last := pulledEntry{seq: d.after, end: d.after}, d.upTo
	if d.page != nil {
		last = math.MaxUint64
	}
	for len(r.Rest) > 0 {
		n := r.Uvarint()
		wall, end := e.wall+r.Varint(), r.UpTo(last-e.end)+e.end
		if n == 0 || wall < 0 || wall > d.wall || end < e.seq {
			return ErrPulled
		}
		e.end = end
		for e.wall, e.first = wall, true; n > 0; n, e.first = n-1, false {
			skip := r.UpTo(math.MaxUint64 - 1)
			before := len(r.Rest)
			if r.err() != nil || skip >= end-e.seq || !r.next(&e.entry) {
				return ErrPulled
			}
			e.seq += skip + 1
			e.size = before - len(r.Rest)
			if err := fn(&e); err != nil {
				return err
			}
		}
	}
	if r.err() != nil {
		return ErrPulled
	}
	return nil
}

// check refuses an entry that no pull answers, or that is about another key than was asked for.
func (d *pulled) check(e *pulledEntry) error {
	if d.page == nil && !e.told(d.Region) || d.page != nil && !e.inState(d.page) {
		return fmt.Errorf("%w: kind %d", ErrPulled, e.kind)
	}
	if e.kind.row().key == noKey {
		if c := &e.r.cursor; len(c.Vector) > 0 || c.Proof != (Proof{}) {
			return ErrPulled
		}
		return nil
	}
	if checkKey(e.key) != nil {
		return fmt.Errorf("%w: a key of %d bytes", ErrPulled, len(e.key))
	}
	if slot := Slot(e.key); slot < d.first || slot > d.last {
		return fmt.Errorf("%w: slot %d", ErrPulled, slot)
	}
	if e.kind.is(hasOpid) && (len(e.id) == 0 || len(e.id) > MaxOpID || d.table(e.table) == nil) {
		return fmt.Errorf("%w: opid or table", ErrPulled)
	}
	if back := e.kind == entryTakeBack || e.kind == entryPaid; back &&
		(e.r.back.Dot == 0 || e.r.back.Dot >= e.seq) {
		return fmt.Errorf("%w: a take-back of entry %d", ErrPulled, e.r.back.Dot)
	}
	return nil
}

// table returns the name of a table; nil if the source has not told it.
func (d *pulled) table(id uint32) []byte {
	for _, t := range d.tables {
		if t.id == id {
			return t.name
		}
	}
	return nil
}

// sectionWriter encodes entries by sections.
type sectionWriter struct {
	last    uint64 // sequence of the entry before
	wall    int64  // of the section before
	end     uint64 // … and its last sequence
	count   uint64 // entries of the section at hand
	next    int64  // its wall time
	nextEnd uint64 // its last sequence
	entries []byte
}

// add appends the section before to dst, if e begins one.
func (w *sectionWriter) add(dst []byte, e *pulledEntry) []byte {
	if e.first {
		dst = w.finish(dst)
		w.next, w.nextEnd = e.wall, e.end
	}
	w.count++
	w.entries = binary.AppendUvarint(w.entries, e.seq-w.last-1)
	w.entries = e.appendTo(w.entries)
	w.last = e.seq
	return dst
}

// finish appends the last section to dst.
func (w *sectionWriter) finish(dst []byte) []byte {
	if w.count == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, w.count)
	dst = binary.AppendVarint(dst, w.next-w.wall)
	dst = binary.AppendUvarint(dst, w.nextEnd-w.end)
	dst = append(dst, w.entries...)
	w.wall, w.end, w.count, w.entries = w.next, w.nextEnd, 0, w.entries[:0]
	return dst
}
