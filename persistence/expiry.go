package persistence

import (
	"encoding/binary"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// kindExpiry starts the keys of the index of rows by the time they expire.
const kindExpiry = 'x'

const expiryPrefixSize = 1 + 2 + 8

// An expiry entry is a key without a value: kind, partition, expiry time,
// position, client's key. It may be outdated: whoever visits it compares it
// with the row.

// PutExpiry notes that the row k of a partition expires at a unix time in
// milliseconds.
func (c *Changes) PutExpiry(partition uint16, at int64, k RowKey) {
	op := c.b.SetDeferred(expiryPrefixSize+8+len(k.Key), 0)
	putExpiryKey(op.Key, partition, at, k)
	finish(op)
}

// DeleteExpiry removes an entry, which need not exist.
func (c *Changes) DeleteExpiry(partition uint16, at int64, k RowKey) {
	op := c.b.DeleteDeferred(expiryPrefixSize + 8 + len(k.Key))
	putExpiryKey(op.Key, partition, at, k)
	finish(op)
}

// DropExpiries removes all entries of the partition.
func (c *Changes) DropExpiries(partition uint16) {
	op := c.b.DeleteRangeDeferred(3, 3)
	for _, k := range [][]byte{op.Key, op.Value} {
		k[0] = kindExpiry
		binary.BigEndian.PutUint16(k[1:], partition)
	}
	successor(op.Value)
	finish(op)
}

// Expiries calls fn for the entries of the partition with a time up to until,
// the earliest first, until fn returns false. fn borrows its arguments.
func (db *DB) Expiries(partition uint16, until int64, fn func(at int64, k RowKey) bool) error {
	lower := make([]byte, expiryPrefixSize)
	putExpiryPrefix(lower, partition, 0)
	upper := make([]byte, expiryPrefixSize)
	putExpiryPrefix(upper, partition, until)
	return db.scan("read expiries", lower, successor(upper), func(key, _ []byte) (bool, error) {
		if len(key) < expiryPrefixSize+8 {
			return false, disk.Corruptf("expiry key of %d bytes", len(key))
		}
		position := binary.BigEndian.Uint64(key[expiryPrefixSize:])
		k := RowKey{Slot: uint16(position >> 48), Hash: position & hashMask, Key: key[expiryPrefixSize+8:]}
		return fn(int64(binary.BigEndian.Uint64(key[3:])), k), nil
	})
}

func putExpiryPrefix(b []byte, partition uint16, at int64) {
	b[0] = kindExpiry
	binary.BigEndian.PutUint16(b[1:], partition)
	binary.BigEndian.PutUint64(b[3:], uint64(at))
}

func putExpiryKey(b []byte, partition uint16, at int64, k RowKey) {
	putExpiryPrefix(b, partition, at)
	binary.BigEndian.PutUint64(b[expiryPrefixSize:], k.Position())
	copy(b[expiryPrefixSize+8:], k.Key)
}
