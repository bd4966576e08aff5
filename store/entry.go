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

// entryKind is the kind of a log entry: one outcome of Decide.
type entryKind uint8

// The kinds of log entries. Values are part of the format (FORMAT.md).
const (
	entryApply    entryKind = 1  // an idempotent operation was applied: post-image and opid
	entrySet      entryKind = 2  // post-image of a counter, without an opid
	entryDelete   entryKind = 3  // tombstone
	entryControl  entryKind = 4  // a table's filter: refresh, growth, denial … (an fbf.Event)
	entryTighten  entryKind = 5  // a table's filter is to test at ERROR/n from now on
	entryCatalog  entryKind = 6  // the tables, whole
	entryFlush    entryKind = 7  // FLUSHALL
	entryCreate   entryKind = 8  // a key that holds an object was created
	entryChange   entryKind = 9  // an object changed, as its type says
	entryExpire   entryKind = 10 // the expiry of a key changed; of a counter with its post-image
	entryIncr     entryKind = 11 // an increment without an opid: delta and post-image
	entryJump     entryKind = 12 // the directory is another incarnation, and sequences go on higher up
	entryFragment entryKind = 13 // a fragment of a large change of an object
	entryLast     entryKind = 14 // the last fragment: the object changed
	entryDrop     entryKind = 15 // fragments whose last one never came are dropped
	entryRemember entryKind = 16 // an idempotent operation on an object was applied: its opid
	entryAdopt    entryKind = 17 // another shard's partition takes the place of this one
	entryVacate   entryKind = 18 // another shard has the partition now: all of it goes
	entryHandOver entryKind = 19 // the last one of a partition that is handed over, or that this is taken back
	entryMerge    entryKind = 20 // other regions changed a counter: its parts as they are now (part.Delta)
	entryHeard    entryKind = 21 // another region applied an idempotent operation: its opid
	entryTakeBack entryKind = 22 // what was applied here, and elsewhere first, is taken back, or is owed
	entryCursor   entryKind = 23 // how far the log of another region has been taken
	entryRegions  entryKind = 24 // the regions, whole
	entryForget   entryKind = 25 // the parts of a key that does not exist, and whose end all regions know, go
	entrySpent    entryKind = 26 // take-backs of the own part that all regions know are forgotten
	entryOwed     entryKind = 27 // another region is to take operations back, or they are not owed any more
	entryLevelled entryKind = 28 // a region has all that is known of one that was removed
	entryHeir     entryKind = 29 // an heir changed the part of a region that was removed: all parts as they are now
	entryPaid     entryKind = 30 // what this region owed of a counter is taken back
)

// entryFlags modify an entry.
type entryFlags uint8

const (
	flagCreated   entryFlags = 1 << iota // the key did not exist: DBSIZE grows
	flagExact                            // the operation is to be kept as a record
	flagHasExpire                        // expire follows
	flagHasTime                          // the client's time of the operation follows
	flagWasObject                        // the key held an object, which goes
	flagClipped                          // the clip of a bounded increment follows
	flagExpired                          // the tombstone of a key whose time had come; others were deleted
	flagRegional                         // a note for other regions follows (regionentry.go)
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
const entryRoom = 2 + 3*binary.MaxVarintLen32 + 5*binary.MaxVarintLen64 + 1 + 2*binary.MaxVarintLen64 + oplog.SectionOverhead

// appendTo appends the entry to a section of the log.
func (e *entry) appendTo(dst []byte) []byte {
	// One append each: the two read as one would wait for the flags' store.
	dst = append(dst, byte(e.kind))
	dst = append(dst, byte(e.flags))
	switch e.kind {
	case entryApply, entryRemember:
		dst = binary.AppendUvarint(dst, uint64(e.table))
		from := len(dst)
		dst = seen.AppendOp(dst, e.key, e.id, e.delta, e.value)
		e.packed = dst[from:]
	case entrySet:
		dst = coding.AppendBytes(dst, e.key)
		dst = binary.AppendVarint(dst, e.value)
	case entryIncr:
		dst = coding.AppendBytes(dst, e.key)
		dst = binary.AppendVarint(dst, e.delta)
		dst = binary.AppendVarint(dst, e.value)
	case entryDelete:
		dst = coding.AppendBytes(dst, e.key)
	case entryExpire:
		dst = coding.AppendBytes(dst, e.key)
		dst = append(dst, byte(e.typ))
		if !e.typ.isObject() {
			dst = binary.AppendVarint(dst, e.value)
		}
	case entryControl:
		dst = binary.AppendUvarint(dst, uint64(e.table))
		dst = coding.AppendBytes(dst, e.id)
	case entryTighten:
		dst = binary.AppendUvarint(dst, uint64(e.table))
		dst = binary.AppendVarint(dst, e.value)
	case entryCatalog:
		dst = coding.AppendBytes(dst, e.id)
	case entryFlush, entryVacate, entryHandOver:
		dst = binary.AppendVarint(dst, e.value)
	case entryAdopt:
		dst = binary.AppendVarint(dst, e.value)
		dst = coding.AppendBytes(dst, e.id)
	case entryJump:
		dst = binary.AppendUvarint(dst, uint64(e.delta))
		dst = binary.AppendVarint(dst, e.value)
	case entryCreate, entryChange:
		dst = coding.AppendBytes(dst, e.key)
		dst = append(dst, byte(e.typ))
		dst = coding.AppendBytes(dst, e.id)
	case entryFragment:
		dst = binary.AppendUvarint(dst, uint64(e.delta))
		dst = coding.AppendBytes(dst, e.id)
	case entryLast:
		dst = coding.AppendBytes(dst, e.key)
		dst = append(dst, byte(e.typ))
		dst = binary.AppendUvarint(dst, uint64(e.delta))
		dst = coding.AppendBytes(dst, e.id)
	case entryDrop:
		dst = binary.AppendUvarint(dst, uint64(e.delta))
	default:
		dst = e.appendRegional(dst)
	}
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
	switch e.kind {
	case entryApply, entryRemember:
		r.readOp(e)
	case entrySet:
		e.key, e.value = r.Bytes(), r.Varint()
	case entryIncr:
		e.key, e.delta, e.value = r.Bytes(), r.Varint(), r.Varint()
	case entryDelete:
		e.key = r.Bytes()
	case entryExpire:
		if e.key, e.typ = r.Bytes(), r.keyType(TypeCounter); e.typ == TypeCounter {
			e.value = r.Varint()
		}
	case entryControl:
		e.table, e.id = r.Uint32(), r.Bytes()
	case entryTighten:
		e.table, e.value = r.Uint32(), r.Varint()
	case entryCatalog:
		e.id = r.Bytes()
	case entryFlush, entryVacate, entryHandOver:
		e.value = r.Varint()
	case entryAdopt:
		e.value, e.id = r.Varint(), r.Bytes()
	case entryJump:
		e.delta, e.value = int64(r.Uvarint()), r.Varint()
	case entryCreate, entryChange:
		e.key, e.typ, e.id = r.Bytes(), r.keyType(firstObject), r.Bytes()
	case entryFragment:
		e.delta, e.id = int64(r.Uvarint()), r.Bytes()
	case entryLast:
		e.key, e.typ, e.delta, e.id = r.Bytes(), r.keyType(firstObject), int64(r.Uvarint()), r.Bytes()
	case entryDrop:
		e.delta = int64(r.Uvarint())
	case entryMerge, entryHeard, entryTakeBack, entryCursor, entryRegions, entryForget, entrySpent, entryOwed, entryLevelled, entryHeir, entryPaid:
		r.readRegional(e)
	default:
		r.Fail()
	}
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
