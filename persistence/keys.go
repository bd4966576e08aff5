package persistence

import (
	"encoding/binary"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// The first byte of every key in Pebble names its kind. Integers are big
// endian, so that byte order is numeric order.
const (
	kindRun   = 'e' // runs of EXACT records
	kindRow   = 'r' // rows
	kindState = 's' // one value per partition
)

// Sizes of encoded keys in bytes.
const (
	rowPrefixSize = 1 + 8
	stateKeySize  = 1 + 2
	runPrefixSize = 1 + 2 + 4 + 8
	runHeaderSize = runPrefixSize + 1

	runPartitionSize = 1 + 2 // of a run's prefix: kind and partition
)

// runHeader follows the prefix in the key of a run's header row.
const runHeader = 0x02

// hashMask keeps the 48 bits of a hash that a row's position has room for.
const hashMask = 1<<48 - 1

// RowKey names a row. Rows are ordered by (Slot, Hash, Key).
type RowKey struct {
	// Slot is the hash slot, 0..16383.
	Slot uint16
	// Hash is a hash of Key; only its low 48 bits are used.
	Hash uint64
	// Key is the client's key.
	Key []byte
}

// Position is the place of the row in SCAN's order: slot<<48 | hash48.
func (k RowKey) Position() uint64 {
	return uint64(k.Slot)<<48 | k.Hash&hashMask
}

func (k RowKey) size() int { return rowPrefixSize + len(k.Key) }

func (k RowKey) put(b []byte) {
	putPosition(b, k.Position())
	copy(b[rowPrefixSize:], k.Key)
}

func putPosition(b []byte, position uint64) {
	b[0] = kindRow
	binary.BigEndian.PutUint64(b[1:], position)
}

// rowKeyOf decodes a row's key in Pebble; the result borrows b.
func rowKeyOf(b []byte) (RowKey, error) {
	if len(b) < rowPrefixSize || b[0] != kindRow {
		return RowKey{}, disk.Corruptf("row key of %d bytes", len(b))
	}
	position := binary.BigEndian.Uint64(b[1:])
	return RowKey{Slot: uint16(position >> 48), Hash: position & hashMask, Key: b[rowPrefixSize:]}, nil
}

func putStateKey(b []byte, partition uint16) {
	b[0] = kindState
	binary.BigEndian.PutUint16(b[1:], partition)
}

func putRunPrefix(b []byte, partition uint16, table uint32, id uint64) {
	b[0] = kindRun
	binary.BigEndian.PutUint16(b[1:], partition)
	binary.BigEndian.PutUint32(b[3:], table)
	binary.BigEndian.PutUint64(b[7:], id)
}

// prefix returns the bytes with which all keys of the run begin.
func (r Run) prefix() []byte {
	b := make([]byte, runPrefixSize, runHeaderSize)
	putRunPrefix(b, r.Partition, r.Table, r.ID)
	return b
}

func (r Run) headerKey() []byte { return append(r.prefix(), runHeader) }

// successor increments b in place as one big-endian number and returns it:
// the first key after all keys that begin with b. Keys begin with a letter,
// so there is no overflow.
func successor(b []byte) []byte {
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			break
		}
	}
	return b
}
