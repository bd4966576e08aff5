package persistence

import "errors"

// batchRetain is the largest buffer in bytes that a Batch, or Changes, keeps for
// its next use, so that one huge pipeline does not hold memory for ever.
const batchRetain = 4 << 20

// errBatchState is a misuse of Batch by its caller.
var errBatchState = errors.New("batch: Wait without Apply")

// Batch is a record of the op log, one atomic commit: all of it survives a crash,
// or nothing (G4). It is reused: fill, Apply, Wait, fill again, without allocation.
// Not safe for concurrent use.
type Batch struct {
	db      *DB
	log     []byte
	applied bool   // between Apply and Wait
	logged  bool   // there was a record
	place   uint64 // of the last one
	used    int64  // bytes of the log that they have taken
}

// NewBatch returns an empty batch.
func (db *DB) NewBatch() *Batch { return &Batch{db: db} }

// AppendLog adds what a partition did to the batch's record in the op log. It
// is copied. Sequences are the caller's, and ascend within a partition.
func (b *Batch) AppendLog(partition uint16, seq uint64, record []byte) {
	b.log = appendOps(b.log, partition, seq, record)
}

// Empty reports whether nothing was added since the last Apply.
func (b *Batch) Empty() bool { return len(b.log) == 0 }

// Reset drops what was added and not yet applied.
func (b *Batch) Reset() { b.log = b.log[:0] }

// Apply fixes the batch's place in the order of commits; Wait then tells when it
// is durable. The caller holds the locks of the partitions it touches, so that
// the order here is the order of its decisions. An error means that the DB has
// failed, and the outcome is unknown (G8). An empty batch may be applied; it costs
// nothing.
//
// Before Wait a batch may be filled and applied again: each time is a commit of its
// own, and Wait waits for all.
func (b *Batch) Apply() error {
	if err := b.db.failure(); err != nil {
		return err
	}
	b.logged = len(b.log) > 0 || b.applied && b.logged
	b.applied = true
	if len(b.log) == 0 {
		return nil
	}
	place, size, err := b.db.log.append(b.log)
	if err != nil {
		return b.db.fail(wrap("append to the op log", err))
	}
	b.place = place
	b.used += int64(size)
	b.log = b.log[:0]
	if cap(b.log) > batchRetain {
		b.log = nil
	}
	return nil
}

// TakeUsed returns how many bytes of the op log the batch has taken since the last
// call.
func (b *Batch) TakeUsed() (used int64) {
	used, b.used = b.used, 0
	return used
}

// Wait returns once the applied batch is as durable as the policy promises
// (G2); the batch is then empty and reusable. After an error the outcome is
// unknown: the batch may or may not survive, and the DB accepts no more (G8).
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
	// A batch whose own fsync succeeded is durable even if another one has
	// failed since, but under Everysec its fsync is still to come: the sticky
	// error of the background fsync is surfaced to every later Wait.
	return b.db.failure()
}
