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

// Pebble's WAL format, as its package record describes it: blocks of 32 KiB,
// each a sequence of chunks; a chunk has a header with checksum, length, type
// and (all types but the oldest four) the log number; a record is one full
// chunk, or a first, middle ones and a last. A block's rest that has no room
// for a chunk is zero.
const (
	walBlock            = 32 << 10
	walHeader           = 7
	walRecyclableHeader = walHeader + 4
	walSyncHeader       = walRecyclableHeader + 8
	walChunkTypes       = 13 // 0 is none; then 4 of each of three kinds:
	walRecyclableKinds  = 4  // with the log number
	walSyncKinds        = 8  // and with the synced offset
)

// Chunk positions, as type = 4*kind + position.
const (
	chunkFull = 1 + iota
	chunkFirst
	chunkMiddle
	chunkLast
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

// scanWAL finds where the log number num ends in r.
func scanWAL(r io.Reader, num uint32) (walTail, error) {
	t := walTail{Bad: -1}
	err := t.scan(r, num, func(int, int64, []byte) {})
	return t, err
}

func (t *walTail) scan(r io.Reader, num uint32, visit visitChunk) error {
	block := make([]byte, walBlock)
	inRecord := false
	for base := int64(0); ; base += walBlock {
		n, err := io.ReadFull(r, block)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if t.scanBlock(block[:n], base, num, &inRecord, visit) {
			t.Valid = math.MaxInt64
			return nil
		}
		if t.Bad < 0 {
			t.Valid = base + int64(n)
		}
		if n < walBlock {
			return nil
		}
	}
}

// scanBlock goes through one block and reports whether the log was closed here.
func (t *walTail) scanBlock(b []byte, base int64, num uint32, inRecord *bool, visit visitChunk) (closed bool) {
	for off := 0; off < len(b); {
		c := parseChunk(b[off:], num)
		at := base + int64(off)
		switch {
		case c.kind == chunkPadding:
			return false
		case c.kind == chunkTrailer && t.Bad < 0 && !*inRecord:
			return true
		case c.kind != chunkValid:
			if t.Bad < 0 {
				t.Bad, t.Valid = at, at
			}
			if c.size == 0 {
				return false // what follows in this block cannot be delimited
			}
			off += c.size
			continue
		}
		off += c.size
		if t.Bad >= 0 {
			t.Stray, t.Synced = base+int64(off), max(t.Synced, c.synced)
			continue
		}
		visit(c.position, at+int64(c.header), b[off-c.size+c.header:off])
		*inRecord = c.position == chunkFirst || c.position == chunkMiddle && *inRecord
		if !*inRecord {
			t.Good = base + int64(off)
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

// Recovery says what Open had to do to the WAL before Pebble read it.
type Recovery struct {
	// File is the base name of the WAL file that was cut; empty when none was.
	File string
	// CutAt is where, in bytes.
	CutAt int64
	// LostBytes is how much written but never fsynced log lay after the cut.
	// Only a power loss under Everysec or No causes it.
	LostBytes int64
	// Unclosed names older WAL files, relative to the data directory, that do not
	// end as a log that was closed in order; empty if all do. After a crash during a start there
	// may be one, whose content is in sstables by then; but if the op log turns
	// out to have a gap, this is where to look.
	Unclosed string
}

// unclosedWALs lists the WAL files before the newest that do not end in order.
func unclosedWALs(fsys vfs.FS, dir string) (unclosed string, err error) {
	db := fsys.PathJoin(dir, pebbleName)
	_, newest, err := newestWAL(fsys, db)
	if err != nil {
		return "", err
	}
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

// recoverWAL cuts the newest WAL file where the mark allows that its tail was
// lost, and refuses damage to what was durable.
func recoverWAL(fsys vfs.FS, dir string) (Recovery, error) {
	r, err := inspectWAL(fsys, dir)
	if err == nil {
		r.Unclosed, err = unclosedWALs(fsys, dir)
	}
	if err != nil || r.File == "" {
		return r, wrap("scan the WAL", err)
	}
	path := fsys.PathJoin(dir, pebbleName, r.File)
	if err := truncateFile(fsys, path, fsys.PathJoin(dir, buildName, r.File), r.CutAt); err != nil {
		return Recovery{}, wrap("cut the WAL", err)
	}
	return r, nil
}

// inspectWAL says what recoverWAL has to cut. It sees more damage than Pebble,
// which looks for evidence only in later blocks.
func inspectWAL(fsys vfs.FS, dir string) (Recovery, error) {
	mark, marked, err := readMark(fsys, dir, walMarkName)
	if err != nil {
		return Recovery{}, wrap("read "+walMarkName, err)
	}
	name, num, err := newestWAL(fsys, fsys.PathJoin(dir, pebbleName))
	if err == nil && name == "" && marked {
		err = corruptf("WAL file %d is missing", mark.File)
	}
	if err != nil || name == "" {
		return Recovery{}, wrap("list the WAL", err)
	}
	tail, err := scanWALFile(fsys, fsys.PathJoin(dir, pebbleName, name), uint32(num))
	if err != nil {
		return Recovery{}, wrap("scan the WAL", err)
	}
	durable := int64(0)
	switch {
	case marked && num == mark.File:
		durable = mark.Offset
	case marked && num < mark.File:
		return Recovery{}, corruptf("WAL file %d is missing, the newest is %d", mark.File, num)
	}
	if !mark.Lazy {
		durable = max(durable, tail.Synced) // true, since every Sync was real
	}
	if tail.Valid < durable {
		return Recovery{}, corruptf("WAL file %s is damaged at byte %d, but was durable up to %d", name, tail.Valid, durable)
	}
	if !mark.Lazy || tail.Stray == 0 {
		return Recovery{}, nil // at most a torn end, which Pebble knows to ignore
	}
	return Recovery{File: name, CutAt: tail.Good, LostBytes: tail.Stray - tail.Good}, nil
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
