package seen

import (
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// ErrCorrupt means that the bytes of a record are not what Record.AppendTo writes.
var ErrCorrupt = errors.New("corrupt EXACT record")

// Record is what an EXACT table keeps of one operation.
type Record struct {
	Table  uint32
	Hash   uint64 // of (Key, ID), keyed
	Seq    uint64 // the sequence of its log entry
	Logged int64  // logged time at which it was applied, ms
	Key    []byte
	ID     []byte // opid
	// Packed, unless it is nil, is what AppendOp wrote of the operation into the log:
	// it is copied, so that the fields are not encoded twice.
	Packed   []byte
	Original Original
}

// Original is what a duplicate learns of the operation that it repeats.
type Original struct {
	Delta int64 // signed
	// Result is what the client was told: the counter right after the operation. It is
	// kept, and never computed again: what came between may not be known any more.
	Result int64
	UnixMs int64 // wall time at which it was applied, in its region
	Clip   int64 // Delta minus the increment that was made; 0 unless a bound was in the way
	// Other: another region applied it, Region. Otherwise this one did, and Region is 0.
	Other  bool
	Region part.Region
	// Dot is the sequence of its log entry in its region's partition. Find and Search
	// fill it in of an own one, whose record has that sequence.
	Dot uint64
	// Taken, unless it is 0, is the dot of an application of the same (key, opid) here
	// that was taken back: it counts no more, and what the record says is of the other
	// region's, which counts instead. The mark is never removed.
	Taken uint64
	// Hold, unless it is nil, says that the operation was a hold, and how it ended. Delta is the amount that
	// it set aside, Result what the client was told of it, and UnixMs when it ended.
	Hold *HoldEnd
	// Use is what the opid was used for, unless it was a hold.
	Use Use
}

// HoldEnd is how a hold ended.
type HoldEnd struct {
	How     How
	Opened  int64 // wall time, unix ms
	Settled int64 // what was added to the counter
	Result  int64 // the counter then; of a hold that expired: its time, unix ms
}

// How is what ended a hold.
type How uint8

// What ends a hold. The values are part of the format.
const (
	Settled   How = 1
	Cancelled How = 2
	Expired   How = 3
)

// Use says what an operation was. The values are part of the format.
type Use uint8

// The uses of an opid.
const (
	Increment Use = 0
	DrainSome Use = 1 // a counter was read and deleted, whose value is the result
	DrainNone Use = 2 // there was none
	Throttle  Use = 3 // Delta is its quantity, Clip a fingerprint of its rate, Result the time of the counter
	Items     Use = 4 // it was on a sketch: Delta is a fingerprint of the items, Result the answers
)

// Is reports whether the opid was used for that.
func (o *Original) Is(use Use) bool { return o.Hold == nil && o.Use == use }

// IsDrain reports whether the operation was to delete the counter.
func (o *Original) IsDrain() bool { return o.Is(DrainSome) || o.Is(DrainNone) }

// Own reports whether the operation was applied here, and counts.
func (o *Original) Own() bool { return !o.Other }

// Made is what the operation has added to the counter: what a drain answers it has taken off.
func (o *Original) Made() int64 {
	if o.Is(DrainSome) {
		return -o.Result
	}
	return o.Delta - o.Clip
}

// Before reports whether the application has a smaller rank than another one of the same
// (key, opid): of all regions' applications the one of the smallest rank counts. An own
// one's region is self. The order is total and never changes, as what it rests on does
// not: when and where the operation was applied, and the sequence of its entry.
func (o *Original) Before(other *Original, self part.Region) bool {
	return cmp.Or(
		cmp.Compare(o.UnixMs, other.UnixMs),
		cmp.Compare(o.regionOf(self), other.regionOf(self)),
		cmp.Compare(o.Dot, other.Dot),
	) < 0
}

func (o *Original) regionOf(self part.Region) part.Region {
	if o.Own() {
		return self
	}
	return o.Region
}

// The tags of fields. They are part of the format (FORMAT.md); one is never used for
// something else.
const (
	fieldClip   = 1 // Original.Clip, a varint
	fieldOrigin = 2 // Original.Region, a byte, and Dot, as appendDot writes it; not of an own one
	fieldTaken  = 3 // Original.Taken, as appendDot writes it; only behind an origin
	fieldHold   = 4 // Original.Hold: how, a byte, and the others, varints; only of an own one
	fieldUse    = 5 // Original.Use, a byte; only of an own one, but for drains
)

// AppendTo appends the record's value, as runs keep it: key, opid, delta, result, wall
// time, and then tagged fields, ascending by tag, of which those are left out that say
// nothing. A field is its tag, its length and that many bytes.
func (r *Record) AppendTo(dst []byte) []byte {
	if r.Packed != nil {
		dst = append(dst, r.Packed...)
	} else {
		dst = AppendOp(dst, r.Key, r.ID, r.Original.Delta, r.Original.Result)
	}
	dst = binary.AppendVarint(dst, r.Original.UnixMs)
	if r.Original.Clip != 0 {
		var b [binary.MaxVarintLen64]byte
		dst = binary.AppendUvarint(dst, fieldClip)
		dst = coding.AppendBytes(dst, b[:binary.PutVarint(b[:], r.Original.Clip)])
	}
	if !r.Original.Own() {
		dst = r.Original.appendOrigin(dst)
	}
	if h := r.Original.Hold; h != nil {
		var b [1 + 3*binary.MaxVarintLen64]byte
		dst = append(dst, fieldHold)
		dst = coding.AppendBytes(dst, h.AppendTo(b[:0]))
	}
	if u := r.Original.Use; u != Increment {
		dst = append(dst, fieldUse, 1, byte(u))
	}
	return dst
}

// AppendTo appends the end of a hold.
func (h *HoldEnd) AppendTo(dst []byte) []byte {
	dst = append(dst, byte(h.How))
	dst = binary.AppendVarint(dst, h.Opened)
	return binary.AppendVarint(binary.AppendVarint(dst, h.Settled), h.Result)
}

// ReadHoldEnd decodes what AppendTo has written; nil if it is anything else.
func ReadHoldEnd(b []byte) *HoldEnd {
	d := coding.Reader{Rest: b}
	h := HoldEnd{How: How(d.Byte()), Opened: d.Varint(), Settled: d.Varint(), Result: d.Varint()}
	if d.End(); d.Bad || h.How < Settled || h.How > Expired || h.How != Settled && h.Settled != 0 ||
		h.How == Cancelled && h.Result != 0 {
		return nil
	}
	return &h
}

// appendOrigin appends the fields of an operation that another region applied.
func (o *Original) appendOrigin(dst []byte) []byte {
	var b [1 + 8]byte
	dst = append(dst, fieldOrigin)
	dst = coding.AppendBytes(dst, appendDot(append(b[:0], byte(o.Region)), o.Dot))
	if o.Taken != 0 {
		dst = append(dst, fieldTaken)
		dst = coding.AppendBytes(dst, appendDot(b[:0], o.Taken))
	}
	return dst
}

// appendDot appends a sequence, not 0, to the end of a field: little-endian, without
// the zeros at its end.
func appendDot(dst []byte, dot uint64) []byte {
	for ; dot > 0; dot >>= 8 {
		dst = append(dst, byte(dot))
	}
	return dst
}

// readDot reads what appendDot has written; 0 if it is anything else.
func readDot(b []byte) (dot uint64) {
	if len(b) == 0 || len(b) > 8 || b[len(b)-1] == 0 {
		return 0
	}
	for i, x := range b {
		dot |= uint64(x) << (8 * i)
	}
	return dot
}

// readOrigin reads what follows the tag fieldOrigin; false if it is not what appendOrigin
// writes.
func (o *Original) readOrigin(field []byte) bool {
	if len(field) == 0 || field[0] >= part.MaxRegions {
		return false
	}
	o.Other, o.Region, o.Dot = true, part.Region(field[0]), readDot(field[1:])
	return o.Dot != 0
}

// ReadRecord decodes Key, ID and Original from a record's value. Fields with tags that it
// does not know are skipped. Key and, mostly, ID alias the value. Any other bytes are
// ErrCorrupt.
func ReadRecord(value []byte) (r Record, err error) {
	d := decoder{coding.Reader{Rest: value}}
	r.Key, r.ID = d.Bytes(), d.id(new([UUIDText]byte))
	r.Original = d.original()
	return r, d.err()
}

// originalOf is ReadRecord for the Original alone.
func originalOf(value []byte) (Original, error) {
	d := decoder{coding.Reader{Rest: value}}
	d.Bytes()
	d.skipID()
	o := d.original()
	return o, d.err()
}

// isOf reports whether a record's value belongs to (key, id).
func isOf(value, key, id []byte) bool {
	rest, ok := cutPrefix(value, key)
	return ok && isID(rest, id)
}

// AppendOp appends what the log's entry and the record of an operation begin with alike:
// key, opid, delta, result.
func AppendOp(dst, key, id []byte, delta, result int64) []byte {
	dst = coding.AppendBytes(dst, key)
	dst = appendID(dst, id)
	dst = binary.AppendVarint(dst, delta)
	return binary.AppendVarint(dst, result)
}

// CutOp cuts off what AppendOp wrote; rest follows it. The key aliases b; id does too, or
// it is text, which is overwritten. False if b does not begin with an operation.
func CutOp(b []byte, text *[UUIDText]byte) (key, id []byte, delta, result int64, rest []byte, ok bool) {
	d := decoder{coding.Reader{Rest: b}}
	key, id, delta, result = d.Bytes(), d.id(text), d.Varint(), d.Varint()
	return key, id, delta, result, d.Rest, !d.Bad
}

// cutPrefix cuts off what AppendBytes wrote for want; false if that is not what b
// begins with.
func cutPrefix(b, want []byte) (rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size != uint64(len(want)) || size > uint64(len(b)-n) {
		return nil, false
	}
	end := n + len(want)
	return b[end:], string(b[n:end]) == string(want)
}

// decoder reads the encodings above.
type decoder struct{ coding.Reader }

func (d *decoder) err() error {
	if d.Bad {
		return ErrCorrupt
	}
	return nil
}

// original reads what follows key and opid, to the end.
func (d *decoder) original() Original {
	o := Original{Delta: d.Varint(), Result: d.Varint(), UnixMs: d.Varint()}
	for last := uint64(0); len(d.Rest) > 0; {
		tag, field := d.Uvarint(), d.Bytes()
		if tag <= last {
			d.Fail()
		}
		ok := true
		switch last = tag; tag {
		case fieldClip:
			n := 0
			o.Clip, n = binary.Varint(field)
			ok = o.Clip != 0 && n == len(field)
		case fieldOrigin:
			ok = o.readOrigin(field)
		case fieldTaken:
			o.Taken = readDot(field)
			ok = o.Taken != 0 && !o.Own()
		case fieldHold:
			o.Hold = ReadHoldEnd(field)
			ok = o.Hold != nil && o.Own()
		case fieldUse:
			ok = len(field) == 1 && field[0]-1 < byte(Items) && o.Hold == nil
			if ok {
				o.Use = Use(field[0])
				ok = o.Own() || o.IsDrain()
			}
		}
		if !ok {
			d.Fail()
		}
	}
	if d.Bad {
		return Original{}
	}
	return o
}
