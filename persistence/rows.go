package persistence

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Row reads a row. The value is appended to dst[:0].
func (db *DB) Row(dst []byte, k RowKey) (value []byte, ok bool, err error) {
	key := make([]byte, 0, 128)
	key = append(key, kindRow)
	key = binary.BigEndian.AppendUint64(key, k.Position())
	key = append(key, k.Key...)
	return db.get(dst, key, "read row")
}

// State reads the one value of a partition.
func (db *DB) State(partition uint16) (value []byte, ok bool, err error) {
	var key [stateKeySize]byte
	putStateKey(key[:], partition)
	return db.get(nil, key[:], "read state")
}

func (db *DB) get(dst, key []byte, doing string) ([]byte, bool, error) {
	if db.closed.Load() {
		return dst[:0], false, ErrClosed
	}
	value, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst[:0], false, nil
	}
	if err != nil {
		return dst[:0], false, wrap(doing, err)
	}
	dst = append(dst[:0], value...)
	return dst, true, wrap(doing, closer.Close())
}

// Rows calls fn for the rows with positions in [from, to), ascending by
// (position, key), until it returns false. It sees one instant of the DB. fn
// borrows its arguments.
func (db *DB) Rows(from, to uint64, fn func(k RowKey, value []byte) bool) error {
	var lower, upper [rowPrefixSize]byte
	putPosition(lower[:], from)
	putPosition(upper[:], to)
	return db.scan("read rows", lower[:], upper[:], func(key, value []byte) (bool, error) {
		k, err := rowKeyOf(key)
		if err != nil {
			return false, err
		}
		return fn(k, value), nil
	})
}

// scan calls fn for the keys in [lower, upper), ascending, until it returns
// false or an error.
func (db *DB) scan(doing string, lower, upper []byte, fn func(key, value []byte) (bool, error)) (err error) {
	it, err := db.iterate(lower, upper)
	if err != nil {
		return wrap(doing, err)
	}
	defer func() { err = errors.Join(err, wrap(doing, it.Close())) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return wrap(doing, err)
		}
		more, err := fn(it.Key(), value)
		if err != nil || !more {
			return err
		}
	}
	return wrap(doing, it.Error())
}

func (db *DB) iterate(lower, upper []byte) (*pebble.Iterator, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	return db.pebble.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
}

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
		return fn(expiryOf(key)), nil
	})
}

// expiryOf takes the key of an entry apart, which is long enough; the result borrows it.
func expiryOf(key []byte) (at int64, k RowKey) {
	position := binary.BigEndian.Uint64(key[expiryPrefixSize:])
	k = RowKey{Slot: uint16(position >> 48), Hash: position & hashMask, Key: key[expiryPrefixSize+8:]}
	return int64(binary.BigEndian.Uint64(key[3:])), k
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
