package persistence

import (
	"encoding/binary"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// kindHold starts the keys of open holds: kind, partition, length of the client's key, that key, opid.
const kindHold = 'o'

const (
	holdPrefixSize = 1 + 2
	holdHeaderSize = holdPrefixSize + 4
)

// HoldKey names a hold.
type HoldKey struct{ Key, ID []byte }

func (k HoldKey) size() int { return holdHeaderSize + len(k.Key) + len(k.ID) }

func (k HoldKey) put(b []byte, partition uint16) {
	b[0] = kindHold
	binary.BigEndian.PutUint16(b[1:], partition)
	binary.BigEndian.PutUint32(b[holdPrefixSize:], uint32(len(k.Key)))
	copy(b[holdHeaderSize+copy(b[holdHeaderSize:], k.Key):], k.ID)
}

// holdKeyOf decodes the key of a hold; the result borrows b.
func holdKeyOf(b []byte) (HoldKey, error) {
	if len(b) < holdHeaderSize || b[0] != kindHold {
		return HoldKey{}, disk.Corruptf("the key of a hold has %d bytes", len(b))
	}
	n, rest := binary.BigEndian.Uint32(b[holdPrefixSize:]), b[holdHeaderSize:]
	if n == 0 || uint64(n) >= uint64(len(rest)) {
		return HoldKey{}, disk.Corruptf("the key of a hold has %d bytes, of which the client's is to be %d", len(b), n)
	}
	return HoldKey{Key: rest[:n], ID: rest[n:]}, nil
}

// PutHold writes an open hold of a partition, replacing an earlier one. It is copied.
func (c *Changes) PutHold(partition uint16, k HoldKey, value []byte) {
	op := c.b.SetDeferred(k.size(), len(value))
	k.put(op.Key, partition)
	copy(op.Value, value)
	finish(op)
}

// DeleteHold deletes a hold, which need not exist.
func (c *Changes) DeleteHold(partition uint16, k HoldKey) {
	op := c.b.DeleteDeferred(k.size())
	k.put(op.Key, partition)
	finish(op)
}

// DropHolds deletes all holds of the partition, in constant time.
func (c *Changes) DropHolds(partition uint16) {
	op := c.b.DeleteRangeDeferred(holdPrefixSize, holdPrefixSize)
	for _, k := range [][]byte{op.Key, op.Value} {
		k[0] = kindHold
		binary.BigEndian.PutUint16(k[1:], partition)
	}
	successor(op.Value)
	finish(op)
}

// Holds calls fn for the holds of a partition, ascending by key, until it returns an error. It sees one
// instant of the DB. fn borrows its arguments.
func (db *DB) Holds(partition uint16, fn func(k HoldKey, value []byte) error) error {
	lower := binary.BigEndian.AppendUint16([]byte{kindHold}, partition)
	upper := successor(binary.BigEndian.AppendUint16([]byte{kindHold}, partition))
	return db.scan("read holds", lower, upper, func(key, value []byte) (bool, error) {
		k, err := holdKeyOf(key)
		if err != nil {
			return false, err
		}
		return true, fn(k, value)
	})
}
