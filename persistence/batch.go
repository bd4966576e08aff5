package persistence

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// batchRetain is the largest buffer in bytes that a Batch keeps for its next
// use, so that one huge pipeline does not hold memory for ever.
const batchRetain = 4 << 20

// errBatchState is a misuse of Batch by its caller.
var errBatchState = errors.New("batch: Wait without Apply, or changes of Pebble beside another commit before Wait")

// Batch is one atomic commit: all of it survives a crash, or nothing (G4). It
// is reused: fill, Apply, Wait, fill again, without allocation. Not safe for
// concurrent use.
type Batch struct {
	db      *DB
	log     []byte // a record of the op log
	b       *pebble.Batch
	applied bool   // between Apply and Wait
	logged  bool   // what was applied had a record …
	stored  bool   // … and changes of Pebble
	place   uint64 // of the record
	used    int64  // bytes of the log that it has taken
}

// NewBatch returns an empty batch.
func (db *DB) NewBatch() *Batch {
	return &Batch{db: db, b: db.newPebbleBatch()}
}

func (db *DB) newPebbleBatch() *pebble.Batch {
	return db.pebble.NewBatch(pebble.WithInitialSizeBytes(4<<10), pebble.WithMaxRetainedSizeBytes(batchRetain))
}

// AppendLog adds what a partition did to the batch's record in the op log. It
// is copied. Sequences are the caller's, and ascend within a partition.
func (b *Batch) AppendLog(partition uint16, seq uint64, record []byte) {
	b.log = appendOps(b.log, partition, seq, record)
}

// PutRow writes a row, replacing an earlier value. Both are copied.
func (b *Batch) PutRow(k RowKey, value []byte) {
	op := b.b.SetDeferred(k.size(), len(value))
	k.put(op.Key)
	copy(op.Value, value)
	finish(op)
}

// DeleteRow deletes a row, which need not exist.
func (b *Batch) DeleteRow(k RowKey) {
	op := b.b.DeleteDeferred(k.size())
	k.put(op.Key)
	finish(op)
}

// DeleteRows deletes all rows of the slots firstSlot to lastSlot, both
// included, in constant time.
func (b *Batch) DeleteRows(firstSlot, lastSlot uint16) {
	if firstSlot > lastSlot {
		return
	}
	op := b.b.DeleteRangeDeferred(rowPrefixSize, rowPrefixSize)
	putPosition(op.Key, uint64(firstSlot)<<48)
	putPosition(op.Value, uint64(lastSlot)<<48|hashMask)
	successor(op.Value)
	finish(op)
}

// PutState writes the one value of a partition.
func (b *Batch) PutState(partition uint16, value []byte) {
	op := b.b.SetDeferred(stateKeySize, len(value))
	putStateKey(op.Key, partition)
	copy(op.Value, value)
	finish(op)
}

// DropRun deletes the header row of a run, which need not exist. Its file goes
// with DB.RemoveRuns once that is durable.
func (b *Batch) DropRun(r Run) {
	op := b.b.DeleteDeferred(runHeaderSize)
	copy(op.Key, r.headerKey())
	finish(op)
}

// DropRuns deletes the header rows of all runs of the partition.
func (b *Batch) DropRuns(partition uint16) {
	op := b.b.DeleteRangeDeferred(3, 3)
	for _, k := range [][]byte{op.Key, op.Value} {
		k[0], k[1], k[2] = kindRun, byte(partition>>8), byte(partition)
	}
	successor(op.Value)
	finish(op)
}

// finish completes a deferred operation. It fails only in indexed batches,
// which these are not.
func finish(op *pebble.DeferredBatchOp) {
	if err := op.Finish(); err != nil {
		panic(err)
	}
}

// Empty reports whether nothing was added since the last Wait, or since an Apply that
// had no changes of Pebble.
func (b *Batch) Empty() bool { return len(b.log) == 0 && b.b.Empty() }

// Reset drops what was added and not yet applied.
func (b *Batch) Reset() {
	b.log = b.log[:0]
	if !b.applied || !b.stored {
		b.b.Reset()
	}
}

// Apply fixes the batch's place in the order of commits; Wait then tells when it
// is durable. The caller holds the locks of the partitions it touches, so that
// the order here is the order of its decisions. An error means that the DB has
// failed, and the outcome is unknown (G8), unless it is ErrNoSpace, which only
// batches without a record get: the batch is as it was. An empty batch may be applied; it
// costs nothing.
//
// Changes of Pebble are visible to its readers when Apply returns. Pebble never
// gets ahead of the op log (G4): Apply first really fsyncs the log, so that what
// the changes are derived from is durable under every policy. A batch that has
// both is one commit nevertheless: its record holds the changes too, and Open
// makes up for those that a crash kept from Pebble.
//
// Before Wait a batch may be filled and applied again, if it has no changes of Pebble:
// each time is a commit of its own, and Wait waits for all.
func (b *Batch) Apply() error {
	if err := b.db.failure(); err != nil {
		return err
	}
	if len(b.log) == 0 && !b.b.Empty() {
		if err := b.db.keepSpare(len(b.b.Repr())); err != nil {
			return err
		}
	}
	logs, again := len(b.log) > 0, b.applied
	if again && (b.logged || b.stored) && (b.stored || !b.b.Empty()) {
		return errBatchState
	}
	b.applied, b.logged, b.stored = true, logs || again && b.logged, !b.b.Empty()
	var end recordEnd
	if logs {
		var err error
		if end, err = b.applyLog(); err != nil {
			return err
		}
	}
	if b.stored {
		return b.applyPebble(end)
	}
	return nil
}

func (b *Batch) applyLog() (end recordEnd, err error) {
	ops := len(b.log)
	if b.stored {
		b.log = appendPebble(b.log, b.b.Repr())
	}
	size := 0
	b.place, end, size, err = b.db.log.append(b.log, ops)
	if err != nil {
		return end, b.db.fail(wrap("append to the op log", err))
	}
	b.used += int64(size)
	b.log = b.log[:0]
	if cap(b.log) > batchRetain {
		b.log = nil
	}
	return end, nil
}

// TakeUsed returns how many bytes of the op log the batch has taken since the last
// call.
func (b *Batch) TakeUsed() (used int64) {
	used, b.used = b.used, 0
	return used
}

// applyPebble applies the changes of Pebble; end is where their record ends, if
// they have one.
func (b *Batch) applyPebble(end recordEnd) error {
	if err := b.db.Sync(); err != nil {
		return err
	}
	if b.logged {
		b.putApplied(end)
	}
	defer b.db.stopOnPanic()
	if err := b.db.pebble.ApplyNoSyncWait(b.b, pebble.Sync); err != nil {
		return b.db.fail(wrap("apply", err))
	}
	return nil
}

// Wait returns once the applied batch is as durable as the policy promises
// (G2); the batch is then empty and reusable. Changes of Pebble are really
// durable under every policy. After an error the outcome is unknown: the batch
// may or may not survive, and the DB accepts no more (G8).
func (b *Batch) Wait() error {
	if !b.applied {
		return errBatchState
	}
	b.applied = false
	if b.logged {
		if err := b.db.log.wait(b.place); err != nil {
			return b.db.fail(wrap("commit", err))
		}
	}
	if b.stored {
		if err := b.b.SyncWait(); err != nil {
			// Pebble may still refer to a batch that failed, so it is left alone.
			b.b = b.db.newPebbleBatch()
			return b.db.fail(wrap("commit", err))
		}
		b.b.Reset()
	}
	// A batch whose own fsync succeeded is durable even if another one has
	// failed since, but under Everysec its fsync is still to come: the sticky
	// error of the background fsync is surfaced to every later Wait.
	return b.db.failure()
}
