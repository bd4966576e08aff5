package persistence

import (
	"encoding/binary"
	"math"
)

// A record of the op log is what one batch commits, framed as Pebble frames its
// WAL (walscan.go reads both). Its payload is a sequence of sections:
//
//	01 | partition u16 | sequence u64 | length u32 | what store decided
//	02 | length u32 | a Pebble batch to be applied exactly once
const (
	sectionOps    = 1
	sectionPebble = 2

	opsHeader    = 1 + 2 + 8 + 4
	pebbleHeader = 1 + 4
)

// appendOps appends a section 01.
func appendOps(dst []byte, partition uint16, seq uint64, record []byte) []byte {
	dst = append(dst, sectionOps)
	dst = binary.BigEndian.AppendUint16(dst, partition)
	dst = binary.BigEndian.AppendUint64(dst, seq)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(record)))
	return append(dst, record...)
}

// appendPebble appends a section 02.
func appendPebble(dst, repr []byte) []byte {
	dst = append(dst, sectionPebble)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(repr)))
	return append(dst, repr...)
}

// section is one section of a record.
type section struct {
	kind      byte
	partition uint16
	seq       uint64
	at        int // offset of content in the payload
	content   []byte
}

// parseSections calls fn for the sections of a record's payload.
func parseSections(payload []byte, fn func(section) error) error {
	for at := 0; at < len(payload); {
		rest := payload[at:]
		s := section{kind: rest[0]}
		header := opsHeader
		switch {
		case s.kind == sectionOps && len(rest) >= opsHeader:
			s.partition, s.seq = binary.BigEndian.Uint16(rest[1:]), binary.BigEndian.Uint64(rest[3:])
		case s.kind == sectionPebble && len(rest) >= pebbleHeader:
			header = pebbleHeader
		default:
			return corruptf("a record of the op log has an unknown section %d", s.kind)
		}
		n := int(binary.BigEndian.Uint32(rest[header-4:]))
		if n > len(rest)-header {
			return corruptf("a section of the op log is longer than its record")
		}
		s.at, s.content = at+header, rest[header:header+n]
		at += header + n
		if err := fn(s); err != nil {
			return err
		}
	}
	return nil
}

// noteAll notes the sections 01 of what a batch has collected, which was encoded
// here and so parses.
func (s *segment) noteAll(payload []byte) {
	for len(payload) > 0 {
		s.note(binary.BigEndian.Uint16(payload[1:]), binary.BigEndian.Uint64(payload[3:]))
		payload = payload[opsHeader+int(binary.BigEndian.Uint32(payload[opsHeader-4:])):]
	}
}

// appendRecord frames a record that is to lie at offset pos of the log file
// number num, of which the first synced bytes are known to be durable.
func appendRecord(dst []byte, pos int64, num uint32, synced int64, payload []byte) []byte {
	start := len(dst)
	for first := true; ; first = false {
		room := walBlock - int((pos+int64(len(dst)-start))%walBlock)
		if room < walSyncHeader {
			dst = append(dst, make([]byte, room)...)
			room = walBlock
		}
		n := min(len(payload), room-walSyncHeader)
		last := n == len(payload)
		dst = appendChunk(dst, chunkPosition(first, last), num, synced, payload[:n])
		if last {
			return dst
		}
		payload = payload[n:]
	}
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

// appendChunk appends a chunk of the kind that carries the log number, so that
// what a recycled file held before is told from what it holds now, and the
// synced offset, so that a hole before it is known for damage.
func appendChunk(dst []byte, position byte, num uint32, synced int64, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(payload)))
	dst = append(dst, walSyncKinds+position)
	dst = binary.LittleEndian.AppendUint32(dst, num)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(min(max(synced, 0), math.MaxInt64)))
	dst = append(dst, payload...)
	binary.LittleEndian.PutUint32(dst[start:], maskedCRC(dst[start+6:]))
	return dst
}

// appendTrailer ends a log file in order: a header with the next log number.
func appendTrailer(dst []byte, pos int64, num uint32) []byte {
	if room := walBlock - int(pos%walBlock); room < walSyncHeader {
		dst = append(dst, make([]byte, room)...)
	}
	dst = append(dst, 0, 0, 0, 0, 0, 0, chunkFull+walRecyclableKinds)
	return binary.LittleEndian.AppendUint32(dst, num+1)
}

// payloadOffset returns where in a log file the byte of a payload lies that is n
// bytes behind the one at offset at: a payload goes on to the end of its block,
// and behind a header in the next.
func payloadOffset(at int64, n int) int64 {
	for {
		if at%walBlock == 0 {
			at += walSyncHeader
		}
		room := walBlock - int(at%walBlock)
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
		room := walBlock - int(at%walBlock)
		if len(raw) <= room {
			return append(out, raw...)
		}
		out = append(out, raw[:room]...)
		raw = raw[room+walSyncHeader:]
		at += int64(room) + walSyncHeader
	}
}
