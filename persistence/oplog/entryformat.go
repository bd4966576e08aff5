package oplog

import (
	"encoding/binary"
	"time"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// An entry of a replicated log is the content of a section of EntryPartition, whose
// sequence is the entry's index. Two other kinds say what became of earlier ones:
//
//	01 | flags u8 | applied u64 | reign | term u64 | type u8 | fields | data     an entry
//	02 | 00       | applied u64 | reign                  the entries behind the sequence are void
//	03 | 00       | applied u64 | reign                  all entries are, and the next one follows the sequence
//
// applied is up to which index the writer had applied. reign is the latest one that has begun up to
// the sequence: term u64 | index u64 of the entry that began it, 0 and 0 if there is none. The
// fields of an entry are: when it was appended i64 (unix ns), with flag 01; length u32 |
// extensions, with flag 02. Other flags are refused.
const (
	kindEntry = 1 + iota
	kindCut
	kindVoid

	flagTime       = 1
	flagExtensions = 2

	entryMark   = 1 + 1 + 8 + 8 + 8   // what each kind begins with
	entryHeader = entryMark + 8 + 1   // without fields
	entryMost   = entryHeader + 8 + 4 // with all of them, but for the extensions
)

// appendEntry appends the content of an entry's section.
func appendEntry(dst []byte, e *Entry, applied uint64) []byte {
	flags := byte(0)
	if !e.AppendedAt.IsZero() {
		flags |= flagTime
	}
	if len(e.Extensions) > 0 {
		flags |= flagExtensions
	}
	dst = appendHeader(dst, kindEntry, flags, applied, e.Reign)
	dst = binary.BigEndian.AppendUint64(dst, e.Term)
	dst = append(dst, e.Type)
	if flags&flagTime != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.AppendedAt.UnixNano()))
	}
	if flags&flagExtensions != 0 {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.Extensions)))
		dst = append(dst, e.Extensions...)
	}
	return append(dst, e.Data...)
}

// appendMark appends the content of a cut or a void.
func appendMark(dst []byte, kind byte, applied uint64, reign Reign) []byte {
	return appendHeader(dst, kind, 0, applied, reign)
}

func appendHeader(dst []byte, kind, flags byte, applied uint64, reign Reign) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, kind, flags), applied)
	dst = binary.BigEndian.AppendUint64(dst, reign.Term)
	return binary.BigEndian.AppendUint64(dst, reign.Index)
}

// entrySection is the content of a section of EntryPartition.
type entrySection struct {
	kind    byte
	applied uint64
	reign   Reign
	entry   Entry // of an entry: it borrows the content
	data    int   // where in the content the data begin
}

// parseEntry parses the content of the section with an index.
func parseEntry(index uint64, b []byte) (s entrySection, err error) {
	bad := func(what string) (entrySection, error) {
		return entrySection{}, disk.Corruptf("entry %d of the op log %s", index, what)
	}
	if len(b) < entryMark || index == 0 && b[0] == kindEntry {
		return bad("is cut off, or has no index")
	}
	s.kind, s.applied = b[0], binary.BigEndian.Uint64(b[2:])
	s.reign = Reign{Term: binary.BigEndian.Uint64(b[10:]), Index: binary.BigEndian.Uint64(b[18:])}
	if s.reign.Index > index || (s.reign.Index == 0) != (s.reign.Term == 0) {
		return bad("is of a reign that cannot be")
	}
	flags, rest := b[1], b[entryMark:]
	switch {
	case s.kind == kindCut || s.kind == kindVoid:
		if flags != 0 || len(rest) > 0 {
			return bad("is a cut with more than that")
		}
		return s, nil
	case s.kind != kindEntry:
		return bad("is of an unknown kind")
	case flags&^(flagTime|flagExtensions) != 0:
		return bad("has unknown flags")
	case len(rest) < entryHeader-entryMark:
		return bad("is cut off")
	}
	s.entry = Entry{Index: index, Term: binary.BigEndian.Uint64(rest), Type: rest[8], Reign: s.reign}
	rest = rest[entryHeader-entryMark:]
	if flags&flagTime != 0 {
		if len(rest) < 8 {
			return bad("is cut off")
		}
		s.entry.AppendedAt, rest = time.Unix(0, int64(binary.BigEndian.Uint64(rest))), rest[8:]
	}
	if flags&flagExtensions != 0 {
		if len(rest) < 4 || int64(binary.BigEndian.Uint32(rest)) > int64(len(rest)-4) ||
			binary.BigEndian.Uint32(rest) == 0 {
			return bad("is cut off")
		}
		n := 4 + binary.BigEndian.Uint32(rest)
		s.entry.Extensions, rest = rest[4:n:n], rest[n:]
	}
	if len(rest) > 0 {
		s.entry.Data = rest
	}
	s.data = len(b) - len(rest)
	return s, nil
}
