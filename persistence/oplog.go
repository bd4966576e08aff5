package persistence

import (
	"errors"
	"math"
)

// ReadLog calls fn for the partition's op-log records with a sequence of at
// least from, ascending, until it returns an error, which ReadLog returns. fn
// borrows the record.
func (db *DB) ReadLog(partition uint16, from uint64, fn func(seq uint64, record []byte) error) error {
	lower, upper := logKey(partition, from), logEnd(partition)
	return db.scan("read op log", lower, upper, func(key, value []byte) (bool, error) {
		seq, err := logSeqOf(key)
		if err != nil {
			return false, err
		}
		return true, fn(seq, value)
	})
}

// logEnd is the first key after the partition's op log.
func logEnd(partition uint16) []byte {
	return successor(logKey(partition, math.MaxUint64))
}

// LogBounds returns the lowest and the highest sequence in the partition's op
// log; ok is false when it is empty.
func (db *DB) LogBounds(partition uint16) (first, last uint64, ok bool, err error) {
	const doing = "read op log"
	it, err := db.iterate(logKey(partition, 0), logEnd(partition))
	if err != nil {
		return 0, 0, false, wrap(doing, err)
	}
	defer func() { err = errors.Join(err, wrap(doing, it.Close())) }()
	if !it.First() {
		return 0, 0, false, wrap(doing, it.Error())
	}
	if first, err = logSeqOf(it.Key()); err != nil {
		return 0, 0, false, err
	}
	if !it.Last() {
		return 0, 0, false, wrap(doing, it.Error())
	}
	if last, err = logSeqOf(it.Key()); err != nil {
		return 0, 0, false, err
	}
	return first, last, true, nil
}
