package oplog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A file of the op log is a header and then chunks, in blocks of 32 KiB that no
// chunk crosses; a block's rest without room for a chunk is zero. A record is one
// full chunk, or a first, middle ones and a last; a trailer ends the file.
//
//	header  "fbfkvlog" | number u64 | tag u64 | CRC u32
//	chunk   CRC u32 | length u16 | kind u8 | tag + offset u64 | synced u64 | payload
//
// Behind the end of the log a file that is used again holds what clients once
// sent. So each file draws a tag of 64 random bits, and each chunk carries it plus
// its own offset: bytes that were written without knowing the tag, or for another
// place, are no chunk. Clients never see a tag, nor anything that it follows from.
// The header is durable before the file gets its name, and the bytes at its place
// were never a client's.
const (
	magic       = "fbfkvlog"
	headerSize  = 8 + 8 + 8 + 4
	chunkHeader = 4 + 2 + 1 + 8 + 8
	// The kind of a chunk is its part plus kinds; a trailer's follows the last part's.
	kinds   = 16
	trailer = disk.Last + 1
)

// header is the header of a file of the op log.
type header struct {
	num uint64
	tag uint64
}

// newHeader draws the tag of a new file.
func newHeader(num uint64) header {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return header{num, binary.BigEndian.Uint64(b[:])}
}

func (h header) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint64(dst, h.num)
	dst = binary.BigEndian.AppendUint64(dst, h.tag)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], disk.Castagnoli))
}

// readHeader reads the header of the file with a number.
func readHeader(r io.ReaderAt, num uint64) (header, error) {
	var b [headerSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	sum := headerSize - 4
	if string(b[:8]) != magic || binary.BigEndian.Uint64(b[8:]) != num ||
		binary.BigEndian.Uint32(b[sum:]) != crc32.Checksum(b[:sum], disk.Castagnoli) {
		return header{}, disk.Corruptf("%s of the op log has no header of its own", fileName(num))
	}
	return header{num, binary.BigEndian.Uint64(b[16:])}, nil
}

// chunkTag is what a chunk at an offset of the file carries.
func (h header) chunkTag(at int64) uint64 { return h.tag + uint64(at) }

// appendRecord frames a record that is to lie at an offset of the file, of which
// the first synced bytes are known to be durable.
func (h header) appendRecord(dst []byte, at, synced int64, payload []byte) []byte {
	for first := true; ; first = false {
		dst, at = padBlock(dst, at)
		n := min(len(payload), disk.Block-int(at%disk.Block)-chunkHeader)
		last := n == len(payload)
		dst = h.appendChunk(dst, disk.PartOf(first, last), at, synced, payload[:n])
		if last {
			return dst
		}
		at += chunkHeader + int64(n)
		payload = payload[n:]
	}
}

// appendTrailer ends a file in order.
func (h header) appendTrailer(dst []byte, at, synced int64) []byte {
	dst, at = padBlock(dst, at)
	return h.appendChunk(dst, trailer, at, synced, nil)
}

// padBlock fills the rest of a block that has no room for a chunk.
func padBlock(dst []byte, at int64) ([]byte, int64) {
	if room := disk.Block - at%disk.Block; room < chunkHeader {
		return append(dst, make([]byte, room)...), at + room
	}
	return dst, at
}

// appendChunk appends a chunk. The synced offset makes a hole before it known for
// damage.
func (h header) appendChunk(dst []byte, part disk.Part, at, synced int64, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(payload)))
	dst = append(dst, kinds+byte(part))
	dst = binary.BigEndian.AppendUint64(dst, h.chunkTag(at))
	dst = binary.BigEndian.AppendUint64(dst, uint64(max(synced, 0)))
	dst = append(dst, payload...)
	binary.BigEndian.PutUint32(dst[start:], crc32.Checksum(dst[start+4:], disk.Castagnoli))
	return dst
}

// parseChunk judges the chunk at the start of b, the rest of a block, which lies
// at an offset of the file.
func (h header) parseChunk(b []byte, at int64) disk.Chunk {
	if len(b) < chunkHeader {
		return disk.Chunk{Kind: disk.Padding}
	}
	size, part := chunkHeader+int(binary.BigEndian.Uint16(b[4:])), disk.Part(b[6])-kinds
	if part < disk.Full || part > trailer || binary.BigEndian.Uint64(b[7:]) != h.chunkTag(at) ||
		size > len(b) {
		return disk.Chunk{Kind: disk.Bad}
	}
	if binary.BigEndian.Uint32(b) != crc32.Checksum(b[4:size], disk.Castagnoli) {
		return disk.Chunk{Kind: disk.Bad, Size: size} // it was a chunk, and the next one follows it
	}
	if part == trailer {
		return disk.Chunk{Kind: disk.Trailer}
	}
	return disk.Chunk{
		Kind: disk.Valid, Part: part, Header: chunkHeader, Size: size,
		Synced: int64(binary.BigEndian.Uint64(b[15:]) & math.MaxInt64),
	}
}

// fileReader is a file of the op log to be scanned.
type fileReader interface {
	io.Reader
	io.ReaderAt
}

// scanFile finds where the file with a number ends.
func scanFile(f fileReader, num uint64, visit disk.Visit) (h header, t disk.Tail, err error) {
	if h, err = readHeader(f, num); err != nil {
		return h, t, err
	}
	t, err = disk.Scan(f, headerSize, h.parseChunk, visit)
	return h, t, err
}

// payloadOffset returns where in a log file the byte of a payload lies that is n
// bytes behind the one at offset at: a payload goes on to the end of its block,
// and behind a header in the next.
func payloadOffset(at int64, n int) int64 {
	for {
		if at%disk.Block == 0 {
			at += chunkHeader
		}
		room := disk.Block - int(at%disk.Block)
		if n < room {
			return at + int64(n)
		}
		at += int64(room)
		n -= room
	}
}

// unframe moves the payload in raw, which begins at offset at of a log file,
// together and returns it.
func unframe(raw []byte, at int64) []byte {
	out := raw[:0]
	for {
		room := disk.Block - int(at%disk.Block)
		if len(raw) <= room {
			return append(out, raw...)
		}
		out = append(out, raw[:room]...)
		raw = raw[room+chunkHeader:]
		at += int64(room) + chunkHeader
	}
}
