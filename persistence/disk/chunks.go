package disk

import (
	"errors"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Block is the size of the blocks that no chunk crosses, in a file of the op log and in
// Pebble's MANIFEST. A record is one full chunk, or a first, middle ones and a last. A
// block's rest that has no room for a chunk is zero. The two differ in the header of a
// chunk, which its parser knows.
const Block = 32 << 10

// Part says which part of a record a chunk is.
type Part int

// The parts; in the MANIFEST, types of chunks.
const (
	Full Part = 1 + iota
	First
	Middle
	Last
)

// PartOf returns which part of a record a chunk is that is its first, or its last.
func PartOf(first, last bool) Part {
	switch {
	case first && last:
		return Full
	case first:
		return First
	case last:
		return Last
	}
	return Middle
}

// Begins reports whether a chunk of this part begins a record, Ends whether it ends one.
func (p Part) Begins() bool { return p == Full || p == First }

// Ends: see Begins.
func (p Part) Ends() bool { return p == Full || p == Last }

// Kind is what a parser finds at the beginning of the rest of a block.
type Kind int

// The kinds.
const (
	Valid   Kind = iota
	Padding      // the unused rest of a block
	Trailer      // the end of a file that was closed in order
	Bad
)

// Chunk is what a parser says of one.
type Chunk struct {
	Kind   Kind
	Part   Part
	Header int   // bytes before the payload, of a valid chunk
	Size   int   // header and payload; 0 if a bad chunk does not tell
	Synced int64 // the offset that the writer believed synced
}

// Tail is what a scan of such a file found.
type Tail struct {
	// Good is the end of the last whole record before the first bad chunk.
	Good int64
	// Bad is the offset of the first bad chunk, -1 when there is none.
	Bad int64
	// Valid is up to where nothing is wrong: Bad, or else the size of the
	// file, or beyond any size when the log was closed in order.
	Valid int64
	// Stray is the end of the last valid chunk after Bad; 0 when there is none.
	Stray int64
	// Synced is the highest offset that a stray chunk says was synced before
	// it was written.
	Synced int64
}

// Visit is told of each valid chunk before the first bad one: which part
// of a record it is, the offset of its payload in the file, and the payload.
type Visit func(part Part, at int64, payload []byte)

// Scan goes through the chunks of a file, which begin at an offset of its
// first block.
func Scan(r io.Reader, from int, parse func(b []byte, at int64) Chunk, visit Visit) (Tail, error) {
	s := scan{Tail: Tail{Good: int64(from), Bad: -1, Valid: int64(from)}, parse: parse, visit: visit}
	block := make([]byte, Block)
	for base := int64(0); ; base += Block {
		n, err := io.ReadFull(r, block)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return s.Tail, err
		}
		if s.block(block[min(from, n):n], base+int64(min(from, n))) {
			s.Valid = math.MaxInt64
			return s.Tail, nil
		}
		if s.Bad < 0 {
			s.Valid = base + int64(n)
		}
		if n < Block {
			return s.Tail, nil
		}
		from = 0
	}
}

// scan is a scan of a file's chunks.
type scan struct {
	Tail
	parse    func(b []byte, at int64) Chunk
	visit    Visit
	inRecord bool
}

// block goes through what lies at an offset, up to the end of its block, and
// reports whether the log was closed here.
func (s *scan) block(b []byte, base int64) (closed bool) {
	for off := 0; off < len(b); {
		at := base + int64(off)
		c := s.parse(b[off:], at)
		switch {
		case c.Kind == Padding:
			return false
		case c.Kind == Trailer && s.Bad < 0 && !s.inRecord:
			return true
		case s.Bad < 0 && (c.Kind != Valid || c.Part.Begins() == s.inRecord):
			s.Bad, s.Valid = at, at
		}
		if c.Size == 0 {
			return false // what follows in this block cannot be delimited
		}
		off += c.Size
		if c.Kind != Valid {
			continue
		}
		if s.Bad >= 0 {
			s.Stray, s.Synced = base+int64(off), max(s.Synced, c.Synced)
			continue
		}
		s.visit(c.Part, at+int64(c.Header), b[off-c.Size+c.Header:off])
		s.inRecord = !c.Part.Ends()
		if !s.inRecord {
			s.Good = base + int64(off)
		}
	}
	return false
}

// Truncate replaces the file at path by its first size bytes, durably. A
// vfs.FS cannot truncate, so they are copied to aside and renamed.
func Truncate(fsys vfs.FS, path, aside string, size int64) error {
	from, err := fsys.Open(path)
	if err != nil {
		return err
	}
	to, err := fsys.Create(aside, WriteCategory)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.CopyN(to, from, size)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, from.Close(), to.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(aside, path); err != nil {
		return err
	}
	return SyncDir(fsys, fsys.PathDir(path))
}
