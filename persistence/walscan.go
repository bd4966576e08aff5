package persistence

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The op log and Pebble's MANIFEST consist of chunks in blocks of 32 KiB. A record is
// one full chunk, or a first, middle ones and a last. A block's rest that has no room
// for a chunk is zero. A chunk of the MANIFEST has a header with checksum, length and
// type, as Pebble's package record describes it; logchunk.go has the op log's.
const (
	walBlock       = 32 << 10
	manifestHeader = 4 + 2 + 1
)

// Chunk positions: in the MANIFEST, types.
const (
	chunkFull = 1 + iota
	chunkFirst
	chunkMiddle
	chunkLast
	chunkEnd // the op log's trailer
)

// walTail is what a scan of such a file found.
type walTail struct {
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

// visitChunk is told of each valid chunk before the first bad one: its position
// in its record, the offset of its payload in the file, and the payload.
type visitChunk func(position int, at int64, payload []byte)

// scanChunks goes through the chunks of a file, which begin at an offset of its
// first block.
func scanChunks(r io.Reader, from int, parse func(b []byte, at int64) walChunk, visit visitChunk) (walTail, error) {
	s := chunkScan{walTail: walTail{Good: int64(from), Bad: -1, Valid: int64(from)}, parse: parse, visit: visit}
	block := make([]byte, walBlock)
	for base := int64(0); ; base += walBlock {
		n, err := io.ReadFull(r, block)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return s.walTail, err
		}
		if s.block(block[min(from, n):n], base+int64(min(from, n))) {
			s.Valid = math.MaxInt64
			return s.walTail, nil
		}
		if s.Bad < 0 {
			s.Valid = base + int64(n)
		}
		if n < walBlock {
			return s.walTail, nil
		}
		from = 0
	}
}

// chunkScan is a scan of a file's chunks.
type chunkScan struct {
	walTail
	parse    func(b []byte, at int64) walChunk
	visit    visitChunk
	inRecord bool
}

// block goes through what lies at an offset, up to the end of its block, and
// reports whether the log was closed here.
func (s *chunkScan) block(b []byte, base int64) (closed bool) {
	for off := 0; off < len(b); {
		at := base + int64(off)
		c := s.parse(b[off:], at)
		starts := c.position == chunkFull || c.position == chunkFirst
		switch {
		case c.kind == chunkPadding:
			return false
		case c.kind == chunkTrailer && s.Bad < 0 && !s.inRecord:
			return true
		case s.Bad < 0 && (c.kind != chunkValid || starts == s.inRecord):
			s.Bad, s.Valid = at, at
		}
		if c.size == 0 {
			return false // what follows in this block cannot be delimited
		}
		off += c.size
		if c.kind != chunkValid {
			continue
		}
		if s.Bad >= 0 {
			s.Stray, s.Synced = base+int64(off), max(s.Synced, c.synced)
			continue
		}
		s.visit(c.position, at+int64(c.header), b[off-c.size+c.header:off])
		s.inRecord = c.position == chunkFirst || c.position == chunkMiddle
		if !s.inRecord {
			s.Good = base + int64(off)
		}
	}
	return false
}

type chunkKind int

const (
	chunkValid   chunkKind = iota
	chunkPadding           // the unused rest of a block
	chunkTrailer           // the end of a log that was closed in order
	chunkBad
)

type walChunk struct {
	kind     chunkKind
	position int
	header   int   // bytes before the payload, of a valid chunk
	size     int   // header and payload; 0 if a bad chunk does not tell
	synced   int64 // the offset that the writer believed synced
}

// parseChunk judges the chunk of a MANIFEST at the start of b, the rest of a block.
func parseChunk(b []byte, _ int64) walChunk {
	bad := walChunk{kind: chunkBad}
	if len(b) < manifestHeader {
		return walChunk{kind: chunkPadding}
	}
	sum, typ := binary.LittleEndian.Uint32(b), int(b[6])
	size := manifestHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if typ < chunkFull || typ > chunkLast || size > len(b) {
		return bad
	}
	if sum != maskedCRC(b[6:size]) {
		bad.size = size // its header looks right, so the next one can be found
		return bad
	}
	return walChunk{kind: chunkValid, position: typ, header: manifestHeader, size: size}
}

// maskedCRC is the checksum of LevelDB's log format: CRC-32C, rotated and
// offset so that a checksum over data that holds checksums stays strong.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func scanManifest(fsys vfs.FS, path string) (walTail, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return walTail{}, err
	}
	t, err := scanChunks(f, 0, parseChunk, func(int, int64, []byte) {})
	return t, errors.Join(err, f.Close())
}

// truncateFile replaces the file at path by its first size bytes, durably. A
// vfs.FS cannot truncate, so they are copied to aside and renamed.
func truncateFile(fsys vfs.FS, path, aside string, size int64) error {
	from, err := fsys.Open(path)
	if err != nil {
		return err
	}
	to, err := fsys.Create(aside, writeCategory)
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
	return syncDir(fsys, fsys.PathDir(path))
}
