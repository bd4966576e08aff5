package persistence

import "github.com/cockroachdb/pebble/v2"

// Changes change what Pebble holds, all at once or not at all. They are reused:
// fill, Commit, fill again. Not safe for concurrent use.
type Changes struct {
	db *DB
	b  *pebble.Batch
}

// NewChanges returns no changes yet.
func (db *DB) NewChanges() *Changes {
	return &Changes{db, db.pebble.NewBatch(pebble.WithInitialSizeBytes(4<<10), pebble.WithMaxRetainedSizeBytes(4<<20))}
}

// PutRow writes a row, replacing an earlier value. Both are copied.
func (c *Changes) PutRow(k RowKey, value []byte) {
	op := c.b.SetDeferred(k.size(), len(value))
	k.put(op.Key)
	copy(op.Value, value)
	finish(op)
}

// DeleteRow deletes a row, which need not exist.
func (c *Changes) DeleteRow(k RowKey) {
	op := c.b.DeleteDeferred(k.size())
	k.put(op.Key)
	finish(op)
}

// DeleteRows deletes all rows of the slots firstSlot to lastSlot, both
// included, in constant time.
func (c *Changes) DeleteRows(firstSlot, lastSlot uint16) {
	if firstSlot > lastSlot {
		return
	}
	op := c.b.DeleteRangeDeferred(rowPrefixSize, rowPrefixSize)
	putPosition(op.Key, uint64(firstSlot)<<48)
	putPosition(op.Value, uint64(lastSlot)<<48|hashMask)
	successor(op.Value)
	finish(op)
}

// PutState writes the one value of a partition.
func (c *Changes) PutState(partition uint16, value []byte) {
	op := c.b.SetDeferred(stateKeySize, len(value))
	putStateKey(op.Key, partition)
	copy(op.Value, value)
	finish(op)
}

// DropRun deletes the header row of a run, which need not exist. Its file goes
// with DB.RemoveRuns once that is durable.
func (c *Changes) DropRun(r Run) {
	op := c.b.DeleteDeferred(runHeaderSize)
	copy(op.Key, r.headerKey())
	finish(op)
}

// finish completes a deferred operation. It fails only in indexed batches,
// which these are not.
func finish(op *pebble.DeferredBatchOp) {
	if err := op.Finish(); err != nil {
		panic(err)
	}
}

// Empty reports whether there are none.
func (c *Changes) Empty() bool { return c.b.Empty() }

// Commit makes the changes visible. They are durable after the next Flush, or
// earlier: a crash leaves the first so many commits and nothing of the others, for
// Pebble flushes them in their order. Pebble never gets ahead of the op log (G4):
// the log is really fsynced first, so that what the changes are derived from is
// durable under every policy.
//
// It may wait for Pebble's background work: the caller holds no lock that an
// operation needs. ErrNoSpace: nothing has happened, and it may be tried again.
// Another error means that the DB has failed (G8).
func (c *Changes) Commit() error {
	db := c.db
	if err := db.failure(); err != nil || c.b.Empty() {
		return err
	}
	if err := db.spare.keep(spareSize); err != nil {
		return err
	}
	if err := db.awaitRoom(); err != nil {
		return err
	}
	if err := db.Sync(); err != nil {
		return err
	}
	defer db.stopOnPanic()
	if err := db.pebble.Apply(c.b, pebble.NoSync); err != nil {
		return db.fail(wrap("apply", err))
	}
	c.b.Reset()
	return nil
}
