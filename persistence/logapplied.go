package persistence

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// kindApplied is the key under which Pebble holds where the record of the op log
// ends whose Pebble changes were applied last.
const kindApplied = 'a'

const appliedSize = 8 + 8

func (b *Batch) putApplied(end recordEnd) {
	op := b.b.SetDeferred(1, appliedSize)
	op.Key[0] = kindApplied
	binary.BigEndian.PutUint64(op.Value, end.file)
	binary.BigEndian.PutUint64(op.Value[8:], uint64(end.offset))
	finish(op)
}

func (db *DB) applied() (end recordEnd, err error) {
	value, ok, err := db.get(nil, []byte{kindApplied}, "read what was applied")
	if err != nil || !ok {
		return recordEnd{}, err
	}
	if len(value) != appliedSize {
		return recordEnd{}, corruptf("the key of what was applied has %d bytes", len(value))
	}
	return recordEnd{binary.BigEndian.Uint64(value), int64(binary.BigEndian.Uint64(value[8:]))}, nil
}

// catchUp applies the changes of Pebble that are in the log, but that a crash
// kept from Pebble: a batch with both is one commit (G4).
func (db *DB) catchUp(batches []deferredBatch) error {
	return db.forMissing(batches, func(b *Batch) error {
		return wrap("apply what the op log holds", db.pebble.Apply(b.b, pebble.Sync))
	})
}

// overlay does for a DB that must not be changed what catchUp does: reads see
// Pebble as it will be.
func (db *DB) overlay(batches []deferredBatch) error {
	var over *pebble.Batch
	return db.forMissing(batches, func(b *Batch) error {
		if over == nil {
			over = db.pebble.NewIndexedBatch()
			db.reader = over
		}
		return errors.Join(wrap("apply what the op log holds", over.Apply(b.b, nil)), b.b.Close())
	})
}

// forMissing calls apply for each of the batches that Pebble does not show yet.
func (db *DB) forMissing(batches []deferredBatch, apply func(*Batch) error) error {
	done, err := db.applied()
	if err != nil {
		return err
	}
	for _, d := range batches {
		if !d.end.after(done) {
			continue
		}
		b := db.NewBatch()
		if err := b.b.SetRepr(d.repr); err != nil {
			return corruptf("a Pebble batch in the op log: %v", err)
		}
		b.putApplied(d.end)
		if err := apply(b); err != nil {
			return err
		}
	}
	return nil
}
