package persistence

import (
	"encoding/binary"

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
		if err := db.pebble.Apply(b.b, pebble.Sync); err != nil {
			return wrap("apply what the op log holds", err)
		}
	}
	return nil
}
