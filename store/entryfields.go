package store

import (
	"encoding/binary"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

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
