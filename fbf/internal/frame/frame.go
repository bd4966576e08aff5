// Package frame is the outer format shared by the encodings of fbf and
// fbf/paper: one header, then chunks of bits, each with a checksum. A Stream
// makes it piece by piece while the filter goes on being used.
//
//	header:  magic [4]byte | version u8 | length u32 | payload [length]byte | crc u32
//	chunk:   flag u8 | payload (flag 1 only; its length follows from the header) | crc u32
//
// Integers are little endian. Checksums are CRC-32C. A chunk's checksum
// starts from the one before it, so that chunks cannot be exchanged, left out
// or taken from another encoding. A chunk of zeros has flag 0 and no payload.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrDamaged: the bytes are not what was written.
var ErrDamaged = errors.New("damaged or truncated")

// MaxHeader bounds a header's payload.
const MaxHeader = 1 << 16

const prefix = 9

var table = crc32.MakeTable(crc32.Castagnoli)

// AppendHeader appends a header and returns the checksum the first chunk starts from.
func AppendHeader(dst []byte, magic [4]byte, version uint8, payload []byte) ([]byte, uint32) {
	at := len(dst)
	dst = append(dst, magic[:]...)
	dst = append(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, payload...)
	sum := crc32.Checksum(dst[at:], table)
	return binary.LittleEndian.AppendUint32(dst, sum), sum
}

// ReadHeader reads and verifies a header.
func ReadHeader(r io.Reader, magic [4]byte, version uint8) (payload []byte, sum uint32, err error) {
	var head [prefix]byte
	if err := full(r, head[:]); err != nil {
		return nil, 0, err
	}
	n := binary.LittleEndian.Uint32(head[5:])
	if [4]byte(head[:4]) != magic || head[4] != version || n > MaxHeader {
		return nil, 0, fmt.Errorf("%w: not a header of version %d", ErrDamaged, version)
	}
	body := make([]byte, n+4)
	if err := full(r, body); err != nil {
		return nil, 0, err
	}
	sum = crc32.Update(crc32.Checksum(head[:], table), table, body[:n])
	if binary.LittleEndian.Uint32(body[n:]) != sum {
		return nil, 0, fmt.Errorf("%w: header checksum", ErrDamaged)
	}
	return body[:n:n], sum, nil
}

// AppendChunk appends payload as a chunk that follows the one with checksum sum.
func AppendChunk(dst []byte, sum uint32, payload []byte) ([]byte, uint32) {
	at := len(dst)
	if allZero(payload) {
		dst = append(dst, 0)
	} else {
		dst = append(append(dst, 1), payload...)
	}
	sum = crc32.Update(sum, table, dst[at:])
	return binary.LittleEndian.AppendUint32(dst, sum), sum
}

// ReadChunk reads and verifies a chunk into payload, whose length the caller knows.
func ReadChunk(r io.Reader, sum uint32, payload []byte) (uint32, error) {
	var b [4]byte
	if err := full(r, b[:1]); err != nil {
		return 0, err
	}
	sum = crc32.Update(sum, table, b[:1])
	switch b[0] {
	case 0:
		clear(payload)
	case 1:
		if err := full(r, payload); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, table, payload)
	default:
		return 0, fmt.Errorf("%w: chunk flag %d", ErrDamaged, b[0])
	}
	if err := full(r, b[:]); err != nil {
		return 0, err
	}
	if binary.LittleEndian.Uint32(b[:]) != sum {
		return 0, fmt.Errorf("%w: chunk checksum", ErrDamaged)
	}
	return sum, nil
}

// full fills p; an early end of the input is damage, other errors are the reader's own.
func full(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: truncated", ErrDamaged)
	}
	return err
}

func allZero(p []byte) bool {
	for len(p) >= 8 {
		if binary.LittleEndian.Uint64(p) != 0 {
			return false
		}
		p = p[8:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
