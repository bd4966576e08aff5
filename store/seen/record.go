package seen

import (
	"encoding/binary"
	"errors"

	"github.com/fbfkv/fbfkv/store/coding"
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
		dst = coding.AppendBytes(dst, b[:binary.PutVarint(b[:], r.Original.Clip)])
	}
	return dst
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

// isOf reports whether a record's value is that of (key, id).
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
		if last = tag; tag == fieldClip {
			clip, n := binary.Varint(field)
			if o.Clip = clip; clip == 0 || n != len(field) {
				d.Fail()
			}
		}
	}
	if d.Bad {
		return Original{}
	}
	return o
}
