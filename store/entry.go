package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// entryFlags modify an entry.
type entryFlags uint8

const (
	flagCreated   entryFlags = 1 << iota // the key did not exist: DBSIZE grows
	flagExact                            // the operation must be kept as a record
	flagHasExpire                        // expire follows
	flagHasTime                          // the client's time of the operation follows
	flagWasObject                        // the key held an object, which goes
	flagClipped                          // the clip of a bounded increment follows
	// the counter's time had come: it goes, or a new one takes its place; of a take-back: it goes
	flagExpired
	flagRegional // a note for other regions follows (regionentry.go)
)

// entry is one outcome. Its fields up to the blank line are what is logged;
// the rest is resolved from state before redo, live and in recovery alike.
type entry struct {
	kind   entryKind
	flags  entryFlags
	typ    Type // of the key, where it is logged
	table  uint32
	key    []byte
	id     []byte // opid; an encoded event or catalogue; what an object's type has encoded
	delta  int64
	value  int64 // post-image
	expire int64 // unix ms
	time   int64 // the client's time of the operation, unix ms
	clip   int64 // delta minus the increment that was made

	end *seen.HoldEnd // of entryHoldEnd
	use seen.Use      // of entryDrain

	r *regional // what only members of regions log; nil: nothing

	c       *counter
	t       *tableState
	hash    uint64 // of (key, id)
	keyHash uint64 // in the table of hot counters; only of an entry that was read from the log
	// packed are key, id, delta and value of an operation as they are logged,
	// and as they begin its record. Valid until the next entry is logged.
	packed []byte
}

var errCorruptEntry = errors.New("corrupt section of the op log")

// sectionVersion is the first byte of what the store puts into a section of the log.
const sectionVersion = 1

// beginSection starts a section: version, then logged time and wall time as varints.
// Entries follow to its end.
func beginSection(dst []byte, at moment) []byte {
	dst = append(dst, sectionVersion)
	dst = binary.AppendUvarint(dst, uint64(at.logged))
	return binary.AppendUvarint(dst, uint64(at.wall))
}

// entryRoom bounds what an entry takes in the log beside key and id: kind, flags, table or
// type, two lengths, five numbers, and, for it may be the only one of its section, what comes
// before it.
const entryRoom = 2 + 3*binary.MaxVarintLen32 + 5*binary.MaxVarintLen64 + 1 + 2*binary.MaxVarintLen64 +
	oplog.SectionOverhead

// appendTo appends the entry to a section of the log.
func (e *entry) appendTo(dst []byte) []byte {
	// One append each: the two read as one would wait for the flags' store.
	dst = append(dst, byte(e.kind))
	dst = append(dst, byte(e.flags))
	dst = e.putFields(dst)
	if e.flags&flagHasExpire != 0 {
		dst = binary.AppendVarint(dst, e.expire)
	}
	if e.flags&flagHasTime != 0 {
		dst = binary.AppendVarint(dst, e.time)
	}
	if e.flags&flagClipped != 0 {
		dst = binary.AppendVarint(dst, e.clip)
	}
	if e.flags&flagRegional != 0 {
		dst = e.appendNote(dst)
	}
	return dst
}

// sectionReader reads a section of the op log. It borrows the section's bytes and
// is the only decoder of the format. An entry is valid until the next.
type sectionReader struct {
	reader
	at moment
	id *[seen.UUIDText]byte // for that of the next entry, if its bytes are not in the section
	r  *regional            // for that of the next entry; nil: it gets a new one
}

func (r *sectionReader) newRegional() *regional {
	if r.r == nil {
		return new(regional)
	}
	*r.r = regional{}
	return r.r
}

func newSectionReader(section []byte) (sectionReader, error) {
	r := sectionReader{reader: reader{coding.Reader{Rest: section}}}
	if v := r.Byte(); r.err() == nil && v != sectionVersion {
		return r, fmt.Errorf("%w: version %d", errCorruptEntry, v)
	}
	r.at = moment{logged: int64(r.UpTo(math.MaxInt64)), wall: int64(r.UpTo(math.MaxInt64))}
	return r, r.err()
}

// next decodes the next entry into e; false at the end or on an error, which
// is then in r.err(), and e is empty.
func (r *sectionReader) next(e *entry) bool {
	if r.err() != nil || len(r.Rest) == 0 {
		*e = entry{}
		return false
	}
	*e = entry{kind: entryKind(r.Byte()), flags: entryFlags(r.Byte())}
	e.getFields(r)
	if e.flags&flagHasExpire != 0 {
		e.expire = r.Varint()
	}
	if e.flags&flagHasTime != 0 {
		e.time = r.Varint()
	}
	if e.flags&flagClipped != 0 {
		e.clip = r.Varint()
	}
	if e.flags&flagRegional != 0 {
		r.readNote(e)
	}
	if r.err() != nil {
		*e = entry{}
	}
	return r.err() == nil
}

// reader decodes the encodings of this package.
type reader struct{ coding.Reader }

func (r *reader) err() error {
	if r.Bad {
		return errCorruptEntry
	}
	return nil
}

// keyType reads the type byte of a key: least, or a later type that there is.
func (r *reader) keyType(least Type) Type {
	t := Type(r.Byte())
	if t < least || t >= maxTypes || t.isObject() && objectTypes[t] == nil {
		r.Fail()
		return TypeNone
	}
	return t
}

// decodeJSON decodes a JSON value and refuses fields that v does not have, and
// anything behind it.
func decodeJSON(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("bytes follow it")
	}
	return nil
}

// decodeEvent decodes an event of a filter, behind which nothing follows.
func decodeEvent(b []byte) (fbf.Event, error) {
	ev, n, err := fbf.DecodeEvent(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%w: %d bytes follow an event", errCorruptEntry, len(b)-n)
	}
	return ev, err
}

// entryField is a field of an entry, or several that always go together.
type entryField struct {
	format string // as FORMAT.md has it
	put    func(e *entry, dst []byte) []byte
	get    func(e *entry, r *sectionReader)
}

// as returns the field under another description.
func (f entryField) as(format string) entryField {
	f.format = format
	return f
}

var (
	fieldTable = entryField{"table u",
		func(e *entry, dst []byte) []byte { return binary.AppendUvarint(dst, uint64(e.table)) },
		func(e *entry, r *sectionReader) { e.table = r.Uint32() }}

	// fieldOp is an operation in the form in which its record has it.
	fieldOp = entryField{"key bytes, opid, delta v, value v", (*entry).putOp, (*entry).getOp}

	fieldKey = entryField{"key bytes",
		func(e *entry, dst []byte) []byte { return coding.AppendBytes(dst, e.key) },
		func(e *entry, r *sectionReader) { e.key = r.Bytes() }}

	fieldBytes = entryField{"bytes",
		func(e *entry, dst []byte) []byte { return coding.AppendBytes(dst, e.id) },
		func(e *entry, r *sectionReader) { e.id = r.Bytes() }}

	fieldDelta = entryField{"delta v",
		func(e *entry, dst []byte) []byte { return binary.AppendVarint(dst, e.delta) },
		func(e *entry, r *sectionReader) { e.delta = r.Varint() }}

	fieldNumber = entryField{"number u",
		func(e *entry, dst []byte) []byte { return binary.AppendUvarint(dst, uint64(e.delta)) },
		func(e *entry, r *sectionReader) { e.delta = int64(r.Uvarint()) }}

	fieldValue = entryField{"value v",
		func(e *entry, dst []byte) []byte { return binary.AppendVarint(dst, e.value) },
		func(e *entry, r *sectionReader) { e.value = r.Varint() }}

	fieldType = entryField{"type, 1 byte",
		func(e *entry, dst []byte) []byte { return append(dst, byte(e.typ)) },
		func(e *entry, r *sectionReader) { e.typ = r.keyType(TypeCounter) }}

	fieldObjectType = entryField{"type, 1 byte", fieldType.put,
		func(e *entry, r *sectionReader) { e.typ = r.keyType(firstObject) }}

	fieldValueOfCounter = entryField{"value v if it is a counter",
		func(e *entry, dst []byte) []byte {
			if e.typ.isObject() {
				return dst
			}
			return binary.AppendVarint(dst, e.value)
		},
		func(e *entry, r *sectionReader) {
			if e.typ == TypeCounter {
				e.value = r.Varint()
			}
		}}

	fieldEnd = entryField{"end bytes",
		func(e *entry, dst []byte) []byte { return coding.AppendBytes(dst, e.end.AppendTo(nil)) },
		func(e *entry, r *sectionReader) { e.end = seen.ReadHoldEnd(r.Bytes()) }}

	fieldDrain = entryField{"drain, 1 byte",
		func(e *entry, dst []byte) []byte { return append(dst, byte(e.use)) },
		func(e *entry, r *sectionReader) { e.use = seen.Use(r.Byte()) }}

	fieldChange = entryField{"change v",
		func(e *entry, dst []byte) []byte { return binary.AppendVarint(dst, e.r.change) },
		func(e *entry, r *sectionReader) { e.r.change = r.Varint() }}

	fieldShown = entryField{"value v if flag 01",
		func(e *entry, dst []byte) []byte {
			if e.flags&flagCreated == 0 {
				return dst
			}
			return binary.AppendVarint(dst, e.value)
		},
		func(e *entry, r *sectionReader) {
			if e.flags&flagCreated != 0 {
				e.value = r.Varint()
			}
		}}

	fieldMerged = entryField{"what, 1 byte",
		func(e *entry, dst []byte) []byte { return append(dst, e.r.merged) },
		func(e *entry, r *sectionReader) { e.r.merged = r.Byte() }}

	fieldParts = entryField{"parts bytes",
		func(e *entry, dst []byte) []byte { return coding.AppendBytes(dst, e.r.parts.AppendTo(nil)) },
		func(e *entry, r *sectionReader) { e.r.parts = r.parts() }}

	fieldPartsDelta = entryField{"parts bytes",
		func(e *entry, dst []byte) []byte {
			if e.packed == nil {
				e.packed = e.r.parts.AppendTo(nil)
				if e.r.delta.Keeps() {
					e.packed = e.r.delta.AppendTo(nil)
				}
			}
			return coding.AppendBytes(dst, e.packed)
		},
		func(e *entry, r *sectionReader) {
			e.packed = r.Bytes() // there is no other encoding
			var err error
			if e.r.delta, err = part.DecodeDelta(e.packed); err != nil {
				r.Fail()
			}
			e.r.parts = e.r.delta.Heads()
		}}

	fieldOrigin = entryField{"origin",
		func(e *entry, dst []byte) []byte { return e.r.heard.appendTo(dst) },
		func(e *entry, r *sectionReader) { e.r.heard = r.heard() }}

	fieldResult = entryField{"result v",
		func(e *entry, dst []byte) []byte { return binary.AppendVarint(dst, e.r.heard.Result) },
		func(e *entry, r *sectionReader) { e.r.heard.Result = r.Varint() }}

	fieldDot = entryField{"dot u",
		func(e *entry, dst []byte) []byte { return binary.AppendUvarint(dst, e.r.back.Dot) },
		func(e *entry, r *sectionReader) { e.r.back.Dot = r.Uvarint() }}

	fieldMade = entryField{"made v",
		func(e *entry, dst []byte) []byte { return binary.AppendVarint(dst, e.r.back.Made) },
		func(e *entry, r *sectionReader) { e.r.back.Made = r.Varint() }}

	fieldWinner = entryField{"winner",
		func(e *entry, dst []byte) []byte { return appendApplied(dst, e.r.back.Winner) },
		func(e *entry, r *sectionReader) { e.r.back.Winner = r.applied() }}

	fieldBecomes = entryField{"becomes, 1 byte",
		func(e *entry, dst []byte) []byte { return append(dst, bit(e.r.back.Held)|bit(e.r.back.Owed)<<1) },
		func(e *entry, r *sectionReader) {
			becomes := r.UpTo(2)
			e.r.back.Held, e.r.back.Owed = becomes == 1, becomes == 2
		}}

	fieldCursor = entryField{"source, sequence u, wall time v as u, taken, proof",
		func(e *entry, dst []byte) []byte {
			c := &e.r.cursor
			dst = binary.AppendUvarint(c.RegionSource.appendTo(dst), c.Seq)
			dst = binary.AppendUvarint(dst, uint64(c.Wall))
			return c.Proof.appendTo(appendTaken(dst, c.Vector))
		},
		func(e *entry, r *sectionReader) {
			c := &e.r.cursor
			c.RegionSource, c.Seq, c.Wall, c.Vector = r.source(), r.Uvarint(), int64(r.UpTo(1<<63-1)),
				r.taken()
			c.Proof = r.proof()
		}}

	fieldSpent = entryField{"a settlement (Settlement, store/part/settle.go)",
		func(e *entry, dst []byte) []byte { return e.r.spent.AppendTo(dst) },
		func(e *entry, r *sectionReader) { e.r.spent = part.ReadSettlement(&r.Reader) }}

	fieldRights = entryField{"a change of rights (RightsChange, store/part/rights.go)",
		func(e *entry, dst []byte) []byte { return e.r.rights.AppendTo(dst) },
		func(e *entry, r *sectionReader) { e.r.rights = part.ReadRightsChange(&r.Reader) }}

	fieldOwed = entryField{"what, 1 byte, number u, for each: owed",
		func(e *entry, dst []byte) []byte { return appendOwed(append(dst, e.r.what), e.r.owed) },
		func(e *entry, r *sectionReader) { e.r.what, e.r.owed = r.Byte(), r.owedOps() }}

	fieldLevelled = entryField{"region, 1 byte, since u, source, sequence u",
		func(e *entry, dst []byte) []byte { return e.r.levelled.appendTo(dst) },
		func(e *entry, r *sectionReader) { e.r.levelled = r.levelled() }}
)

// putOp appends key, opid, delta and value.
func (e *entry) putOp(dst []byte) []byte {
	from := len(dst)
	dst = seen.AppendOp(dst, e.key, e.id, e.delta, e.value)
	e.packed = dst[from:]
	return dst
}

// getOp reads what putOp has appended.
func (e *entry) getOp(r *sectionReader) {
	if r.id == nil {
		r.id = new([seen.UUIDText]byte)
	}
	ok, from := false, r.Rest
	if e.key, e.id, e.delta, e.value, r.Rest, ok = seen.CutOp(from, r.id); !ok {
		r.Fail()
	}
	e.packed = from[:len(from)-len(r.Rest)]
}

// appendNote appends the note of an entry with flagRegional, behind its length.
func (e *entry) appendNote(dst []byte) []byte {
	var b [maxNote]byte
	return coding.AppendBytes(dst, e.r.note.appendTo(b[:0]))
}

func (r *sectionReader) readNote(e *entry) {
	note, err := decodeNote(r.Bytes())
	if err != nil {
		r.Fail()
	}
	if e.r == nil {
		e.r = r.newRegional()
	}
	e.r.note = note
}
