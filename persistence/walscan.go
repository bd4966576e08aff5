package persistence

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The format of Pebble's WAL and MANIFEST, as its package record describes it:
// blocks of 32 KiB, each a sequence of chunks; a chunk has a header with checksum,
// length, type and (all types but the oldest four) the log number; a record is one
// full chunk, or a first, middle ones and a last. A block's rest that has no room
// for a chunk is zero.
const (
	walBlock            = 32 << 10
	walHeader           = 7
	walRecyclableHeader = walHeader + 4
	walSyncHeader       = walRecyclableHeader + 8
	walChunkTypes       = 13 // 0 is none; then 4 each without and with the log number, and with the synced offset
)

// Chunk positions, as type = 4*kind + position.
const (
	chunkFull = 1 + iota
	chunkFirst
	chunkMiddle
	chunkLast
	chunkEnd // the op log's trailer
)

// walTail is what a scan of a WAL file found.
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

// scanWAL finds where Pebble's log with a number ends in r.
func scanWAL(r io.Reader, num uint32) (walTail, error) {
	return scanChunks(r, 0, func(b []byte, _ int64) walChunk { return parseChunk(b, num) }, func(int, int64, []byte) {})
}

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

// parseChunk judges the chunk at the start of b, the rest of a block.
func parseChunk(b []byte, num uint32) walChunk {
	bad := walChunk{kind: chunkBad}
	if len(b) < walHeader {
		return walChunk{kind: chunkPadding}
	}
	sum, length, typ := binary.LittleEndian.Uint32(b), int(binary.LittleEndian.Uint16(b[4:])), int(b[6])
	if sum == 0 && length == 0 && typ == 0 {
		if len(b) < walSyncHeader && allZero(b) {
			return walChunk{kind: chunkPadding}
		}
		return bad
	}
	if typ == 0 || typ >= walChunkTypes {
		return bad
	}
	header := [...]int{walHeader, walRecyclableHeader, walSyncHeader}[(typ-1)/4]
	if header > walHeader {
		if len(b) < header {
			return bad
		}
		switch binary.LittleEndian.Uint32(b[7:]) {
		case num:
		case num + 1:
			return walChunk{kind: chunkTrailer}
		default:
			return bad
		}
	}
	size := header + length
	if size > len(b) {
		return bad
	}
	if sum != maskedCRC(b[6:size]) {
		bad.size = size // its header looks right, so the next one can be found
		return bad
	}
	c := walChunk{kind: chunkValid, position: (typ-1)%4 + 1, header: header, size: size}
	if header == walSyncHeader {
		c.synced = int64(binary.LittleEndian.Uint64(b[walRecyclableHeader:]) & math.MaxInt64)
	}
	return c
}

// maskedCRC is the checksum of LevelDB's log format: CRC-32C, rotated and
// offset so that a checksum over data that holds checksums stays strong.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// unclosedWALs lists the WAL files before the newest that do not end in order.
func unclosedWALs(fsys vfs.FS, dir string, newest uint64) (unclosed string, err error) {
	db := fsys.PathJoin(dir, pebbleName)
	names, err := fsys.List(db)
	if err != nil {
		return "", err
	}
	var list []string
	for _, name := range names {
		num, ok := walNumber(name)
		if !ok || num == newest {
			continue
		}
		tail, err := scanWALFile(fsys, fsys.PathJoin(db, name), uint32(num))
		if err != nil {
			return "", err
		}
		if tail.Valid != math.MaxInt64 {
			list = append(list, fsys.PathJoin(pebbleName, name))
		}
	}
	return strings.Join(list, " and "), nil
}

// checkWAL refuses a WAL that ends before it was durable, and names older files of
// it that do not end in order. It sees more damage than Pebble, which looks for
// evidence only in later blocks.
func checkWAL(fsys vfs.FS, dir string) (unclosed string, err error) {
	mark, marked, err := readMark(fsys, dir, walMarkName)
	if err != nil {
		return "", wrap("read "+walMarkName, err)
	}
	name, num, err := newestWAL(fsys, fsys.PathJoin(dir, pebbleName))
	if err == nil && name == "" && marked {
		err = corruptf("WAL file %d is missing", mark.File)
	}
	if err != nil || name == "" {
		return "", wrap("list the WAL", err)
	}
	tail, err := scanWALFile(fsys, fsys.PathJoin(dir, pebbleName, name), uint32(num))
	if err != nil {
		return "", wrap("scan the WAL", err)
	}
	durable := tail.Synced // true, since every Sync was real
	switch {
	case marked && num == mark.File:
		durable = max(durable, mark.Offset)
	case marked && num < mark.File:
		return "", corruptf("WAL file %d is missing, the newest is %d", mark.File, num)
	}
	if tail.Valid < durable {
		return "", corruptf("WAL file %s is damaged at byte %d, but was durable up to %d", name, tail.Valid, durable)
	}
	unclosed, err = unclosedWALs(fsys, dir, num)
	return unclosed, wrap("scan the WAL", err)
}

func newestWAL(fsys vfs.FS, dir string) (name string, num uint64, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return "", 0, err
	}
	for _, s := range names {
		if n, ok := walNumber(s); ok && (name == "" || n > num) {
			name, num = s, n
		}
	}
	return name, num, nil
}

func scanWALFile(fsys vfs.FS, path string, num uint32) (walTail, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return walTail{}, err
	}
	t, err := scanWAL(f, num)
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
