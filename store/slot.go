package store

import (
	"bytes"
	"math/bits"

	"github.com/cespare/xxhash/v2"
	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
)

// slots is the number of Redis Cluster hash slots.
const slots = 16384

// crc16Tables are the tables of CRC-16/XMODEM (polynomial 0x1021), the checksum
// that Redis Cluster uses for hash slots. The n-th has the checksums of a byte with
// n zero bytes behind it, so that four bytes take one step instead of four that
// wait for each other ("slicing by four").
var crc16Tables = func() (t [4][256]uint16) {
	for i := range t[0] {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[0][i] = crc
	}
	for n := 1; n < len(t); n++ {
		for i, crc := range t[n-1] {
			t[n][i] = crc<<8 ^ t[0][crc>>8]
		}
	}
	return t
}()

// Slot returns the Redis Cluster hash slot of key, 0..16383. Only the text
// between the first { and the next } counts when there is any (a hash tag).
func Slot(key []byte) uint16 {
	if i := bytes.IndexByte(key, '{'); i >= 0 {
		if j := bytes.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	return crc16(key) % slots
}

func crc16(b []byte) (crc uint16) {
	for len(b) >= 4 {
		crc ^= uint16(b[0])<<8 | uint16(b[1])
		crc = crc16Tables[3][crc>>8] ^ crc16Tables[2][byte(crc)] ^ crc16Tables[1][b[2]] ^ crc16Tables[0][b[3]]
		b = b[4:]
	}
	for _, c := range b {
		crc = crc<<8 ^ crc16Tables[0][byte(crc>>8)^c]
	}
	return crc
}

// slotRange returns the first and last slot of partition i of n; n is a power
// of two.
func slotRange(i, n int) (first, last uint16) {
	per := slots / n
	return uint16(i * per), uint16((i+1)*per - 1)
}

// partitionShift is the right shift that turns a slot into the number of its
// partition when there are n, a power of two.
func partitionShift(n int) uint { return uint(14 - bits.TrailingZeros(uint(n))) }

// hashes are the keyed hashes of a directory; in a cluster all nodes have the same. What
// clients choose is found and ordered by them, so that nobody can compute what collides.
type hashes struct {
	// ids is of (key, opid): where filters, runs and their indexes have an operation; and of a
	// key and an item: where a filter key has it.
	ids *fbf.Hasher
	// rows is of keys: the order of rows. A client sees most of it as SCAN's cursor.
	rows *fbf.Hasher
	// proof tells directories of another seed, and does not tell the seed.
	proof uint64
}

func newHashes(seed [16]byte) *hashes {
	return &hashes{fbf.NewHasher(seed, "ids"), fbf.NewHasher(seed, "rows"),
		fbf.NewHasher(seed, "proof").Hash(nil, nil)}
}

// position is the position of a key.
func (h *hashes) position(key []byte) uint64 { return h.positionIn(Slot(key), key) }

// positionIn is the position of a key whose slot is known.
func (h *hashes) positionIn(slot uint16, key []byte) uint64 {
	return position(slot, h.rows.Hash(key, nil)>>16)
}

// position orders keys as SCAN visits them: by slot, then by key hash.
func position(slot uint16, hash uint64) uint64 { return uint64(slot)<<48 | hash }

// rowKey is the key of the row at a position.
func rowKey(pos uint64, key []byte) persistence.RowKey {
	return persistence.RowKey{Slot: uint16(pos >> 48), Hash: pos & (1<<48 - 1), Key: key}
}

const (
	// DigestSlots is how many slots have a sum together: a group.
	DigestSlots = slots / 1024
	// DigestBuckets is how many parts a group has, by another hash of the keys.
	DigestBuckets = 64
	// maxSums bounds the sums of a digest.
	maxSums             = 1024
	regionDigestVersion = 3
)

// sumOf returns the number of a key's sum in a digest from a group on.
func sumOf(key []byte, group uint16, fine bool) int {
	n := int(Slot(key)/DigestSlots - group)
	if fine {
		n = n*DigestBuckets + int(xxhash.Sum64(key)%DigestBuckets)
	}
	return n
}

// sumsOf is how many sums a digest has.
func sumsOf(first, last uint16, fine bool) int {
	n := int(last/DigestSlots) - int(first/DigestSlots) + 1
	if fine {
		n *= DigestBuckets
	}
	return n
}

func checkKey(k []byte) error {
	if len(k) == 0 || len(k) > MaxKey {
		return ErrKeySize
	}
	return nil
}
