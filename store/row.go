package store

import (
	"encoding/binary"
	"fmt"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// Rows. A row's value is: version, sequence, value, expiry. With version 2 there follow, in one
// byte, what the key is, and its parts to the end: in a member of regions a key that was
// deleted has a row, too, until all regions know of its end.

const (
	rowVersion      = 1
	partsRowVersion = 2
)

// Kinds of keys with parts.
const (
	rowEnded   = 0 // it does not exist
	rowCounter = 1
	rowAside   = 2 // it holds an object here; what others count is kept, and not shown
)

// row is the decoded value of a counter's row.
type row struct {
	kind   Type // TypeCounter, or TypeNone: the key does not exist
	seq    uint64
	value  int64
	expire int64
	parts  part.Parts
	aside  bool // rowAside; else, if it is no counter, rowEnded
}

// hasRow reports whether the key is to have a row.
func (c *counter) hasRow() bool { return c.kind == TypeCounter || c.parts() != nil }

func (c *counter) appendRow(dst []byte) []byte {
	parts := c.parts()
	expire, is := c.expire, byte(rowCounter)
	switch {
	case c.kind.isObject():
		expire, is = 0, rowAside
	case c.kind == TypeNone:
		if is = rowEnded; parts.Alive() {
			is = rowAside // of an object that is lost
		}
	}
	if parts == nil {
		dst = append(dst, rowVersion)
	} else {
		dst = append(dst, partsRowVersion)
	}
	dst = binary.AppendUvarint(dst, c.seq)
	dst = binary.AppendVarint(dst, c.value)
	dst = binary.AppendVarint(dst, expire)
	if parts != nil {
		dst = parts.AppendTo(append(dst, is))
	}
	return dst
}

func decodeRow(b []byte) (row, error) {
	r := reader{coding.Reader{Rest: b}}
	v := r.Byte()
	if r.err() == nil && v != rowVersion && v != partsRowVersion {
		return row{}, fmt.Errorf("%w: row version %d", errCorruptEntry, v)
	}
	out := row{kind: TypeCounter, seq: r.Uvarint(), value: r.Varint(), expire: r.Varint()}
	if v == partsRowVersion {
		out.readParts(&r)
	}
	r.End()
	return out, r.err()
}

// showRow makes a counter that was just put into memory what its row says.
func (c *counter) showRow(r *row) {
	c.kind, c.value, c.expire, c.seq = r.kind, r.value, r.expire, r.seq
	c.setParts(r.parts)
	c.is |= isInRow
}

// readParts reads what version 2 has more. A key that does not exist has no value.
func (w *row) readParts(r *reader) {
	is := r.Byte()
	if is != rowCounter {
		w.kind, w.aside = TypeNone, is == rowAside
	}
	var err error
	if w.parts, err = part.Decode(r.Rest); err != nil || w.parts == nil || is > rowAside ||
		is != rowAside && w.parts.Alive() != (is == rowCounter) ||
		w.kind == TypeNone && (w.value != 0 || w.expire != 0) {
		r.Fail()
		return
	}
	r.Rest = nil
}
