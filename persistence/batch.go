package persistence

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// batchRetain is the largest buffer in bytes that a Batch keeps for its next
// use, so that one huge pipeline does not hold memory for ever.
const batchRetain = 4 << 20

// errBatchState is a misuse of Batch by its caller.
var errBatchState = errors.New("batch: Wait without Apply, or a change between Apply and Wait")

// Batch is one atomic commit: all of it survives a crash, or nothing (G4). It
// is reused: fill, Apply, Wait, fill again, without allocation. Not safe for
// concurrent use.
type Batch struct {
	db      *DB
	b       *pebble.Batch
	applied bool // between Apply and Wait
	empty   bool // what was applied; Pebble takes a large batch's bytes away
}

// NewBatch returns an empty batch.
func (db *DB) NewBatch() *Batch {
	return &Batch{db: db, b: db.newPebbleBatch()}
}

func (db *DB) newPebbleBatch() *pebble.Batch {
	return db.pebble.NewBatch(pebble.WithInitialSizeBytes(4<<10), pebble.WithMaxRetainedSizeBytes(batchRetain))
}

// AppendLog adds an op-log record. The record is copied. Sequences are the
// caller's; a record of the same partition and sequence is replaced.
func (b *Batch) AppendLog(partition uint16, seq uint64, record []byte) {
	op := b.b.SetDeferred(logKeySize, len(record))
	putLogKey(op.Key, partition, seq)
	copy(op.Value, record)
	finish(op)
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

// TrimLog deletes the partition's op-log records with a sequence below below,
// in constant time.
func (b *Batch) TrimLog(partition uint16, below uint64) {
	if below == 0 {
		return
	}
	op := b.b.DeleteRangeDeferred(logKeySize, logKeySize)
	putLogKey(op.Key, partition, 0)
	putLogKey(op.Value, partition, below)
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

// Empty reports whether nothing was added since the last Wait.
func (b *Batch) Empty() bool { return b.b.Empty() }

// Reset drops what was added and not yet applied.
func (b *Batch) Reset() {
	if !b.applied {
		b.b.Reset()
	}
}

// Apply fixes the batch's place in the order of commits and makes it visible
// to reads of Pebble; Wait then tells when it is durable. The caller holds the
// locks of the partitions it touches, so that the order here is the order of
// its decisions. An error means that nothing was applied and the DB has
// failed (G8). An empty batch may be applied; it costs nothing.
func (b *Batch) Apply() error {
	if err := b.db.failure(); err != nil {
		return err
	}
	if b.applied {
		return errBatchState
	}
	b.applied, b.empty = true, b.b.Empty()
	if b.empty {
		return nil
	}
	defer b.db.stopOnPanic()
	if err := b.db.pebble.ApplyNoSyncWait(b.b, pebble.Sync); err != nil {
		return b.db.fail(wrap("apply", err))
	}
	return nil
}

// Wait returns once the applied batch is as durable as the policy promises
// (G2); the batch is then empty and reusable. After an error the outcome is
// unknown: the batch may or may not survive, and the DB accepts no more (G8).
func (b *Batch) Wait() error {
	if !b.applied {
		return errBatchState
	}
	b.applied = false
	if b.empty {
		return b.db.failure()
	}
	if err := b.b.SyncWait(); err != nil {
		// Pebble may still refer to a batch that failed, so it is left alone.
		b.b = b.db.newPebbleBatch()
		return b.db.fail(wrap("commit", err))
	}
	b.b.Reset()
	// A batch whose own fsync succeeded is durable even if another one has
	// failed since, but under Everysec its fsync is still to come: the sticky
	// error of the background fsync is surfaced to every later Wait.
	return b.db.failure()
}
