package seen

import (
	"encoding/binary"
	"errors"
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
	UnixMs int64 // wall time at which it was applied
	Clip   int64 // Delta minus the increment that was made; 0 unless a bound was in the way
}

// fieldClip is the tag of Original.Clip, a varint. Tags of fields are part of the format
// (FORMAT.md); one is never used for something else.
const fieldClip = 1

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
		dst = appendBytes(dst, b[:binary.PutVarint(b[:], r.Original.Clip)])
	}
	return dst
}

// ReadRecord decodes Key, ID and Original from a record's value. Fields with tags that it
// does not know are skipped. Key and, mostly, ID alias the value. Any other bytes are
// ErrCorrupt.
func ReadRecord(value []byte) (r Record, err error) {
	d := decoder{rest: value}
	r.Key, r.ID = d.bytes(), d.id(new([UUIDText]byte))
	r.Original = d.original()
	return r, d.err()
}

// originalOf is ReadRecord for the Original alone.
func originalOf(value []byte) (Original, error) {
	d := decoder{rest: value}
	d.bytes()
	d.skipID()
	o := d.original()
	return o, d.err()
}

// isOf reports whether a record's value is that of (key, id).
func isOf(value, key, id []byte) bool {
	rest, ok := cutPrefix(value, key)
	return ok && isID(rest, id)
}

// AppendOp appends what the log's entry and the record of an operation begin with alike:
// key, opid, delta, result.
func AppendOp(dst, key, id []byte, delta, result int64) []byte {
	dst = appendBytes(dst, key)
	dst = appendID(dst, id)
	dst = binary.AppendVarint(dst, delta)
	return binary.AppendVarint(dst, result)
}

// CutOp cuts off what AppendOp wrote; rest follows it. The key aliases b; id does too, or
// it is text, which is overwritten. False if b does not begin with an operation.
func CutOp(b []byte, text *[UUIDText]byte) (key, id []byte, delta, result int64, rest []byte, ok bool) {
	d := decoder{rest: b}
	key, id, delta, result = d.bytes(), d.id(text), d.varint(), d.varint()
	return key, id, delta, result, d.rest, !d.bad
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// cutPrefix cuts off what appendBytes wrote for want; false if that is not what b
// begins with.
func cutPrefix(b, want []byte) (rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size != uint64(len(want)) || size > uint64(len(b)-n) {
		return nil, false
	}
	end := n + len(want)
	return b[end:], string(b[n:end]) == string(want)
}

// decoder reads the encodings above. Once something is bad, all that follows is zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) err() error {
	if d.bad {
		return ErrCorrupt
	}
	return nil
}

func (d *decoder) fail() { d.rest, d.bad = nil, true }

// read takes v, which took n bytes; 0 or less if it could not be read.
func read[T int64 | uint64](d *decoder, v T, n int) T {
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	return read(d, v, n)
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	return read(d, v, n)
}

// bytes returns a length-prefixed string, which aliases the input.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

// original reads what follows key and opid, to the end.
func (d *decoder) original() Original {
	o := Original{Delta: d.varint(), Result: d.varint(), UnixMs: d.varint()}
	for last := uint64(0); len(d.rest) > 0; {
		tag, field := d.uvarint(), d.bytes()
		if tag <= last {
			d.fail()
		}
		if last = tag; tag == fieldClip {
			clip, n := binary.Varint(field)
			if o.Clip = clip; clip == 0 || n != len(field) {
				d.fail()
			}
		}
	}
	if d.bad {
		return Original{}
	}
	return o
}
