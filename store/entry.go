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
