package persistence

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
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
