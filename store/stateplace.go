package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// A place in a state is a string: "" the beginning; 1, the position of a key, and the key: behind that; 2,
// the table's number u, and a hash: the ids from that on. Positions and hashes are eight bytes, the most
// significant first, and the source's own: they are keyed with a secret of its.

// MaxStatePlace bounds a place, bytes.
const MaxStatePlace = 1 + 8 + MaxKey

// statePlace is a place in the state of a slot range.
type statePlace struct {
	key   []byte // behind this one; nil: the first one
	pos   uint64 // of key
	ids   bool   // or: the ids
	table uint32 // … of this table, or of a later one
	hash  uint64 // … from this on, in that table
}

func (c statePlace) appendTo(b []byte) []byte {
	switch {
	case c.ids:
		b = binary.AppendUvarint(append(b, 2), uint64(c.table))
		return binary.BigEndian.AppendUint64(b, c.hash)
	case len(c.key) > 0:
		return append(binary.BigEndian.AppendUint64(append(b, 1), c.pos), c.key...)
	}
	return b
}

// decodePlace reads what appendTo wrote. It aliases b.
func decodePlace(b []byte) (c statePlace, ok bool) {
	if len(b) == 0 {
		return c, true
	}
	switch b[0] {
	case 1:
		if len(b) < 9 {
			return c, false
		}
		c.pos, c.key = binary.BigEndian.Uint64(b[1:]), b[9:]
		return c, checkKey(c.key) == nil && Slot(c.key) == uint16(c.pos>>48)
	case 2:
		r := coding.Reader{Rest: b[1:]}
		c.ids, c.table = true, r.Uint32()
		if len(r.Rest) != 8 || r.Bad {
			return c, false
		}
		c.hash = binary.BigEndian.Uint64(r.Rest)
		return c, bytes.Equal(c.appendTo(nil), b)
	}
	return c, false
}

// before reports whether a place comes before another one.
func (c statePlace) before(o statePlace) bool {
	return cmp.Or(int(bit(c.ids))-int(bit(o.ids)), cmp.Compare(c.pos, o.pos), bytes.Compare(c.key, o.key),
		cmp.Compare(c.table, o.table), cmp.Compare(c.hash, o.hash)) < 0
}

// statePage says which part of a state an answer has. It aliases the bytes of that.
type statePage struct {
	of       part.Region // whose operations it tells
	version  uint64      // of the regions, as the source knows them
	at, next []byte      // places where it begins, and where the next page does; "": there is none

	hasIDs bool // it begins behind the keys
}

func (d *statePage) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(d.of)), d.version)
	return coding.AppendBytes(coding.AppendBytes(b, d.at), d.next)
}

// statePage reads what appendTo wrote. It refuses places that do not follow each other.
func (r *reader) statePage() *statePage {
	d := &statePage{of: part.Region(r.Byte()), version: r.Uvarint(), at: r.Bytes(), next: r.Bytes()}
	at, ok := decodePlace(d.at)
	next, good := decodePlace(d.next)
	follows := at.before(next)
	if len(d.next) == 0 { // behind the ids a state ends
		follows = at.ids
	}
	d.hasIDs = at.ids
	if !ok || !good || !follows || d.of >= part.MaxRegions {
		r.Fail()
	}
	return d
}

// errStateBusy: the state cannot be read now; who asks tries again.
var errStateBusy = errors.New("the partition is being changed: try again")
