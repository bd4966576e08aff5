package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// The answers to a region that takes another one's state (regionstate.go): pages, each either of
// keys or of ids. In varints (u unsigned, v signed), numbers of bytes and strings behind their length:
//
//	version u8, group u, region u8, partition u, incarnation u, era u, version of the regions u
//	first and last slot u, of u8: whose operations the ids are
//	sequence u, wall u
//	at: the place where the page begins, next: the one to go on at, "" behind the last page
//	on the first page, what the region has taken of others: number u, and for each, by source:
//	    region u8, partition u, sequence u
//	… and of which regions that are gone it has said that it has levelled: number u, and for each, by region:
//	    as entry 28, with the sequence
//	… and the proof of the sequence
//	to the end, of a page of keys, by slot: key, parts (package part), how many operations
//	    regions that are gone owe u, and these, as in entry 27
//	of a page of ids: key and opid as the op log has them, delta v, result v, dot u, wall u, clip v
//
// A place is a string: "" the beginning; 1, the position of a key, and the key: behind that; 2, the table's
// number u, and a hash: the ids from that on. Positions and hashes are eight bytes, the most significant
// first, and the source's own: they are keyed with a secret of its.
//
// There is one encoding of each value, and no other is accepted.

// statePageVersion is the first byte of a page.
const statePageVersion = 1

const (
	// maxStatePage bounds a page, bytes: what may be asked for, and one key or the ids of one hash more.
	maxStatePage = MaxStatePage + 2<<20
	// MaxStatePage bounds StateQuery.Most.
	MaxStatePage = 64 << 20
	// MaxStatePlace bounds the place where a page begins.
	MaxStatePlace = 1 + 8 + MaxKey
)

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

// statePage is a page, with its items still encoded. It aliases its bytes.
type statePage struct {
	RegionSource
	group, incarnation uint64
	era                uint64 // of all that the page tells (regionflush.go)
	version            uint64 // of the regions, as the source knows them
	first, last        uint16 // slots of the keys
	of                 part.Region
	seq                uint64 // of the source: all that it did up to it is in the state
	wall               int64  // of the source then, unix ms
	at, next           []byte
	vector             []RegionTaken
	levelled           []levelled
	proof              Proof // of seq, on the first page
	items              []byte

	heirOf []part.Region // the source is the heir of these; not in the page
}

func (d *statePage) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, statePageVersion), d.group)
	b = d.RegionSource.appendTo(b)
	b = binary.AppendUvarint(b, d.incarnation)
	b = binary.AppendUvarint(b, d.era)
	b = binary.AppendUvarint(b, d.version)
	b = binary.AppendUvarint(b, uint64(d.first))
	b = binary.AppendUvarint(b, uint64(d.last))
	b = binary.AppendUvarint(append(b, byte(d.of)), d.seq)
	b = binary.AppendUvarint(b, uint64(d.wall))
	b = coding.AppendBytes(b, d.at)
	b = coding.AppendBytes(b, d.next)
	if len(d.at) == 0 {
		b = appendTaken(b, d.vector)
		b = binary.AppendUvarint(b, uint64(len(d.levelled)))
		for i := range d.levelled {
			b = d.levelled[i].appendTo(b)
		}
		b = d.proof.appendTo(b)
	}
	return append(b, d.items...)
}

// decodeStatePage reads what appendTo wrote, and checks all of it.
func decodeStatePage(b []byte) (d statePage, err error) {
	r := reader{coding.Reader{Rest: b}}
	if r.Byte() != statePageVersion || len(b) > maxStatePage {
		r.Fail()
	}
	d.group, d.RegionSource, d.incarnation, d.era, d.version = r.Uvarint(), r.source(), r.Uvarint(),
		r.Uvarint(), r.Uvarint()
	d.first, d.last = uint16(r.UpTo(slots-1)), uint16(r.UpTo(slots-1))
	d.of = part.Region(r.Byte())
	d.seq, d.wall = r.Uvarint(), int64(r.UpTo(math.MaxInt64))
	d.at, d.next = r.Bytes(), r.Bytes()
	if len(d.at) == 0 {
		d.vector = r.taken()
		d.levelled = r.allLevelled(d.RegionSource)
		d.proof = r.proof()
	}
	if d.first > d.last || d.of >= part.MaxRegions || d.seq == 0 {
		r.Fail()
	}
	if d.items = r.Rest; r.err() != nil {
		return statePage{}, ErrPulled
	}
	head := d
	head.items = nil
	if !bytes.Equal(head.appendTo(nil), b[:len(b)-len(d.items)]) { // a varint can be longer than need be
		return statePage{}, ErrPulled
	}
	if err := d.check(); err != nil {
		return statePage{}, err
	}
	return d, nil
}

// check refuses places that do not follow each other, and items that are not between them.
func (d *statePage) check() error {
	at, ok := decodePlace(d.at)
	next, good := decodePlace(d.next)
	ends := len(d.next) == 0
	if !ok || !good || at.ids && !ends && !at.before(next) || !at.ids &&
		(ends || !next.ids && !at.before(next)) {
		return fmt.Errorf("%w: places", ErrPulled)
	}
	if at.ids {
		return d.eachID(func(id *stateID) error { return d.checkKey(id.key) })
	}
	// Of the keys' positions only the slots are known here.
	last, end := uint16(at.pos>>48), uint16(slots-1)
	if !next.ids {
		end = uint16(next.pos >> 48)
	}
	var keys [][]byte
	err := d.eachKey(func(k *stateKey) error {
		if err := d.checkKey(k.key); err != nil {
			return err
		}
		slot := Slot(k.key)
		if slot < last || slot > end {
			return fmt.Errorf("%w: the order of keys", ErrPulled)
		}
		last, keys = slot, append(keys, k.key)
		return nil
	})
	if err == nil && Repeat(keys) {
		err = fmt.Errorf("%w: a key is there twice", ErrPulled)
	}
	return err
}

// before reports whether a place comes before another one of its kind.
func (c statePlace) before(o statePlace) bool {
	if c.ids {
		return o.ids && cmp.Or(cmp.Compare(c.table, o.table), cmp.Compare(c.hash, o.hash)) < 0
	}
	return cmp.Or(cmp.Compare(c.pos, o.pos), bytes.Compare(c.key, o.key)) < 0
}

func (d *statePage) checkKey(key []byte) error {
	if checkKey(key) != nil {
		return fmt.Errorf("%w: a key of %d bytes", ErrPulled, len(key))
	}
	if slot := Slot(key); slot < d.first || slot > d.last {
		return fmt.Errorf("%w: slot %d", ErrPulled, slot)
	}
	return nil
}

// stateKey is what a region knows of a key.
type stateKey struct {
	key   []byte
	parts part.Parts
	owed  []owedOp // by the source, and by regions that are gone
}

func (k *stateKey) appendTo(b []byte) []byte {
	b = coding.AppendBytes(b, k.key)
	b = coding.AppendBytes(b, k.parts.AppendTo(nil))
	return appendOwed(b, k.owed)
}

// errItem is what is wrong with an item, unless that is known better.
var errItem = fmt.Errorf("%w: a key or an id", ErrPulled)

// eachKey calls fn for each key of a page of keys.
func (d *statePage) eachKey(fn func(k *stateKey) error) error {
	r := reader{coding.Reader{Rest: d.items}}
	var again []byte
	for len(r.Rest) > 0 {
		before := r.Rest
		k := stateKey{key: r.Bytes(), parts: r.parts(), owed: r.owedOps()}
		if again = k.appendTo(again[:0]); r.err() != nil || len(k.parts) == 0 ||
			!bytes.HasPrefix(before, again) {
			return errItem
		}
		if err := fn(&k); err != nil {
			return err
		}
	}
	if r.err() != nil {
		return errItem
	}
	return nil
}

// stateID is an operation that a region has applied.
type stateID struct {
	key, id []byte
	seen.Original
}

func (o *stateID) appendTo(b []byte) []byte {
	b = seen.AppendOp(b, o.key, o.id, o.Delta, o.Result)
	b = binary.AppendUvarint(b, o.Dot)
	b = binary.AppendUvarint(b, uint64(o.UnixMs))
	return binary.AppendVarint(b, o.Clip)
}

// eachID calls fn for each operation of a page of ids.
func (d *statePage) eachID(fn func(o *stateID) error) error {
	r := reader{coding.Reader{Rest: d.items}}
	var again []byte
	for len(r.Rest) > 0 {
		before := r.Rest
		o, ok := stateID{}, false
		if o.key, o.id, o.Delta, o.Result, r.Rest, ok = seen.CutOp(before, new([seen.UUIDText]byte)); !ok {
			return errItem
		}
		o.Dot, o.UnixMs, o.Clip = r.Uvarint(), int64(r.UpTo(math.MaxInt64)), r.Varint()
		again = o.appendTo(again[:0])
		if r.err() != nil || o.Dot == 0 || len(o.id) == 0 || len(o.id) > MaxOpID ||
			!bytes.HasPrefix(before, again) {
			return errItem
		}
		if err := fn(&o); err != nil {
			return err
		}
	}
	if r.err() != nil {
		return errItem
	}
	return nil
}

// errStateBusy: the state cannot be read now; who asks tries again.
var errStateBusy = errors.New("the partition is being changed: try again")
