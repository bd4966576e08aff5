package bench

import "fmt"

// idFormat is how opids are written.
type idFormat uint8

const (
	// uuidv7 is a UUID version 7 as text: 36 bytes that begin with the time.
	uuidv7 idFormat = iota
	// clientSeq is a client's name and its sequence number: 16 hexadecimal
	// digits, a hyphen and 12 decimal ones. The same seed gives the same ids.
	clientSeq
)

// parseIDFormat reads the name of a format.
func parseIDFormat(name string) (idFormat, error) {
	switch name {
	case "uuidv7":
		return uuidv7, nil
	case "client-seq":
		return clientSeq, nil
	}
	return 0, fmt.Errorf("--ids: %q is not uuidv7 or client-seq", name)
}

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
	putHex(b[:8], ms>>16)
	b[8] = '-'
	putHex(b[9:13], ms)
	b[13], b[14] = '-', '7'
	putHex(b[15:18], uint64(high))
	b[18] = '-'
	putHex(b[19:23], 0x8000|low>>48&0x3fff)
	b[23] = '-'
	putHex(b[24:36], low)
}

// putClientSeq writes a client's name and a sequence number.
func putClientSeq(b []byte, client, seq uint64) {
	_ = b[28]
	putHex(b[:16], client)
	b[16] = '-'
	putDecimal(b[17:29], seq)
}
