package persistence

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
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
	logMagic       = "fbfkvlog"
	logHeaderSize  = 8 + 8 + 8 + 4
	logBlock       = walBlock // the scanner is the MANIFEST\'s, too
	logChunkHeader = 4 + 2 + 1 + 8 + 8
	// logKinds is added to a chunk's position and gives its kind.
	logKinds = 16
)

// logHeader is the header of a file of the op log.
type logHeader struct {
	num uint64
	tag uint64
}

// newLogHeader draws the tag of a new file.
func newLogHeader(num uint64) (h logHeader, err error) {
	var b [8]byte
	_, err = rand.Read(b[:])
	return logHeader{num, binary.BigEndian.Uint64(b[:])}, err
}

func (h logHeader) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, logMagic...)
	dst = binary.BigEndian.AppendUint64(dst, h.num)
	dst = binary.BigEndian.AppendUint64(dst, h.tag)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readLogHeader reads the header of the file with a number.
func readLogHeader(r io.ReaderAt, num uint64) (logHeader, error) {
	var b [logHeaderSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return logHeader{}, err
	}
	sum := logHeaderSize - 4
	if string(b[:8]) != logMagic || binary.BigEndian.Uint64(b[8:]) != num ||
		binary.BigEndian.Uint32(b[sum:]) != crc32.Checksum(b[:sum], castagnoli) {
		return logHeader{}, corruptf("%s of the op log has no header of its own", logFileName(num))
	}
	return logHeader{num, binary.BigEndian.Uint64(b[16:])}, nil
}

// chunkTag is what a chunk at an offset of the file carries.
func (h logHeader) chunkTag(at int64) uint64 { return h.tag + uint64(at) }

// appendRecord frames a record that is to lie at an offset of the file, of which
// the first synced bytes are known to be durable.
func (h logHeader) appendRecord(dst []byte, at, synced int64, payload []byte) []byte {
	for first := true; ; first = false {
		dst, at = padBlock(dst, at)
		n := min(len(payload), logBlock-int(at%logBlock)-logChunkHeader)
		last := n == len(payload)
		dst = h.appendChunk(dst, chunkPosition(first, last), at, synced, payload[:n])
		if last {
			return dst
		}
		at += logChunkHeader + int64(n)
		payload = payload[n:]
	}
}

// appendTrailer ends a file in order.
func (h logHeader) appendTrailer(dst []byte, at, synced int64) []byte {
	dst, at = padBlock(dst, at)
	return h.appendChunk(dst, chunkEnd, at, synced, nil)
}

// padBlock fills the rest of a block that has no room for a chunk.
func padBlock(dst []byte, at int64) ([]byte, int64) {
	if room := logBlock - at%logBlock; room < logChunkHeader {
		return append(dst, zeros[:room]...), at + room
	}
	return dst, at
}

func chunkPosition(first, last bool) byte {
	switch {
	case first && last:
		return chunkFull
	case first:
		return chunkFirst
	case last:
		return chunkLast
	}
	return chunkMiddle
}

// appendChunk appends a chunk. The synced offset makes a hole before it known for
// damage.
func (h logHeader) appendChunk(dst []byte, position byte, at, synced int64, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(payload)))
	dst = append(dst, logKinds+position)
	dst = binary.BigEndian.AppendUint64(dst, h.chunkTag(at))
	dst = binary.BigEndian.AppendUint64(dst, uint64(max(synced, 0)))
	dst = append(dst, payload...)
	binary.BigEndian.PutUint32(dst[start:], crc32.Checksum(dst[start+4:], castagnoli))
	return dst
}

// parseChunk judges the chunk at the start of b, the rest of a block, which lies
// at an offset of the file.
func (h logHeader) parseChunk(b []byte, at int64) walChunk {
	if len(b) < logChunkHeader {
		return walChunk{kind: chunkPadding}
	}
	size, position := logChunkHeader+int(binary.BigEndian.Uint16(b[4:])), b[6]-logKinds
	if position < chunkFull || position > chunkEnd || binary.BigEndian.Uint64(b[7:]) != h.chunkTag(at) || size > len(b) {
		return walChunk{kind: chunkBad}
	}
	if binary.BigEndian.Uint32(b) != crc32.Checksum(b[4:size], castagnoli) {
		return walChunk{kind: chunkBad, size: size} // it was a chunk, and the next one follows it
	}
	if position == chunkEnd {
		return walChunk{kind: chunkTrailer}
	}
	return walChunk{
		kind: chunkValid, position: int(position), header: logChunkHeader, size: size,
		synced: int64(binary.BigEndian.Uint64(b[15:]) & math.MaxInt64),
	}
}

// logFileReader is a file of the op log to be scanned.
type logFileReader interface {
	io.Reader
	io.ReaderAt
}

// scanLogFile finds where the file with a number ends.
func scanLogFile(f logFileReader, num uint64, visit visitChunk) (h logHeader, t walTail, err error) {
	if h, err = readLogHeader(f, num); err != nil {
		return h, t, err
	}
	t, err = scanChunks(f, logHeaderSize, h.parseChunk, visit)
	return h, t, err
}

// payloadOffset returns where in a log file the byte of a payload lies that is n
// bytes behind the one at offset at: a payload goes on to the end of its block,
// and behind a header in the next.
func payloadOffset(at int64, n int) int64 {
	for {
		if at%logBlock == 0 {
			at += logChunkHeader
		}
		room := logBlock - int(at%logBlock)
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
		room := logBlock - int(at%logBlock)
		if len(raw) <= room {
			return append(out, raw...)
		}
		out = append(out, raw[:room]...)
		raw = raw[room+logChunkHeader:]
		at += int64(room) + logChunkHeader
	}
}
