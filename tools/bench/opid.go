package main

import "encoding/binary"

// idFormat is how opids are written.
type idFormat uint8

const (
	// uuidv7 is a UUID version 7 as text: 36 bytes that begin with the time.
	uuidv7 idFormat = iota
	// clientSeq is a client's name and its sequence number: 16 hexadecimal
	// digits, a hyphen and 12 decimal ones. The same seed gives the same ids.
	clientSeq
)

const maxIDLen = 36

// length is how many bytes an id has.
func (f idFormat) length() int {
	if f == clientSeq {
		return 29
	}
	return maxIDLen
}

// putUUIDv7 writes a UUID version 7 of a time in ms with 74 other bits, of
// which the low 12 of high stand first.
func putUUIDv7(b []byte, ms uint64, high uint16, low uint64) {
	_ = b[35]
	version, variant := uint32(0x7000|high&0xfff), uint32(0x8000|low>>48&0x3fff)
	binary.BigEndian.PutUint64(b, hex8(uint32(ms>>16)))
	middle := hex8(uint32(ms)<<16 | version)
	binary.BigEndian.PutUint32(b[9:], uint32(middle>>32))
	binary.BigEndian.PutUint32(b[14:], uint32(middle))
	middle = hex8(variant<<16 | uint32(low>>32)&0xffff)
	binary.BigEndian.PutUint32(b[19:], uint32(middle>>32))
	binary.BigEndian.PutUint32(b[24:], uint32(middle))
	binary.BigEndian.PutUint64(b[28:], hex8(uint32(low)))
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
}

// hex8 returns the eight hexadecimal digits of n, the first in the highest byte: all
// at once, for one by one they were a seventh of the generator's time.
func hex8(n uint32) uint64 {
	const each = 0x0101010101010101
	x := uint64(n)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (x + 6*each) >> 4 & each // 1 for each digit above 9
	return x + '0'*each + letters*('a'-'9'-1)
}

// putClientSeq writes a client's name and a sequence number.
func putClientSeq(b []byte, client, seq uint64) {
	_ = b[28]
	binary.BigEndian.PutUint64(b, hex8(uint32(client>>32)))
	binary.BigEndian.PutUint64(b[8:], hex8(uint32(client)))
	b[16] = '-'
	putDecimal(b[17:29], seq)
}
