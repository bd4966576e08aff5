package persistence

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Changes change what Pebble holds, all at once or not at all. They are reused:
// fill, Commit, fill again. Not safe for concurrent use.
type Changes struct {
	db *DB
	b  *pebble.Batch
}

// NewChanges returns no changes yet.
func (db *DB) NewChanges() *Changes {
	return &Changes{db,
		db.pebble.NewBatch(pebble.WithInitialSizeBytes(4<<10), pebble.WithMaxRetainedSizeBytes(4<<20))}
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
	if c.b.Empty() {
		return db.failure()
	}
	if err := db.beforeChange(); err != nil {
		return err
	}
	defer db.stopOnPanic()
	if err := db.pebble.Apply(c.b, pebble.NoSync); err != nil {
		return db.fail(wrap("apply", err))
	}
	c.b.Reset()
	return nil
}

// beforeChange waits until Pebble can take a change, and makes the op log durable for it.
func (db *DB) beforeChange() error {
	if err := db.failure(); err != nil {
		return err
	}
	if err := db.spare.keep(); err != nil {
		return err
	}
	if err := db.awaitRoom(); err != nil {
		return err
	}
	return db.Sync()
}

// Pebble has no log of its own: what the op log does not hold any more must be in
// sstables. So Flush comes before whatever rests on Pebble's changes: before the
// log is trimmed, a run's file is removed or a snapshot is published.
//
// Pebble tries a flush that failed again, in a new file, for as long as it fails.
// Nothing is lost meanwhile: the memtable can be read, and the op log holds what it
// is made of. But nothing waits for an end of that: Flush and Changes.Commit wait for
// one attempt, and return ErrNoSpace while the disk is full, so that a checkpoint gives
// up its turn and memtables do not pile up. Any other error of a flush is final (G8).

const (
	// memTables is how many full memtables there may be before Pebble makes writers
	// wait, sublevels how many sorted tables may lie over one another in level 0. Its
	// writers could not be woken; so they wait before (awaitRoom), at less than that.
	memTables, sublevels = 4, 150
	// flushRetry is how long after a failure Pebble begins the next sstable, unless
	// somebody asks for it.
	flushRetry = time.Second
)

// flushes knows how Pebble's background work fares. Pebble tells it with its locks
// held.
type flushes struct {
	mu      sync.Mutex
	ended   error         // what is said of the flush that ended last
	failed  error         // why it failed; nil if it did not
	stuck   error         // why the last compaction failed, for lack of space; nil if it did not
	compact error         // why the last compaction failed, for any reason; nil if it did not
	event   chan struct{} // closed at the next event
	again   chan struct{} // closed to ask for the next attempt
	closing chan struct{}
	wait    time.Duration // flushRetry; tests wait less
}

func (f *flushes) init() {
	f.wait = flushRetry
	f.event, f.again, f.closing = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// report notes in one of the fields how a piece of work ended.
func (f *flushes) report(field *error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*field = disk.NoSpace(err)
	close(f.event)
	f.event = make(chan struct{})
}

// flushEnded takes Pebble's FlushEnd, which calls it an error, too, that there was
// nothing to write; only a failure is a BackgroundError afterwards.
func (f *flushes) flushEnded(info pebble.FlushInfo) {
	f.mu.Lock()
	f.ended = info.Err
	f.mu.Unlock()
	if info.Err == nil {
		f.report(&f.failed, nil)
	}
}

func (f *flushes) backgroundError(err error) {
	f.mu.Lock()
	flush := err == f.ended
	f.mu.Unlock()
	if flush {
		f.report(&f.failed, err)
	}
}

// compactionEnded takes Pebble's CompactionEnd. Only a full disk concerns those who
// wait: other compactions that failed are tried again in silence.
func (f *flushes) compactionEnded(info pebble.CompactionInfo) {
	f.mu.Lock()
	if !errors.Is(info.Err, pebble.ErrCancelledCompaction) {
		f.compact = info.Err
	}
	f.mu.Unlock()
	if info.Err == nil || errors.Is(disk.NoSpace(info.Err), ErrNoSpace) {
		f.report(&f.stuck, info.Err)
	}
}

// state returns whether flushes and compactions fail, and what is closed when that may
// change.
func (f *flushes) state() (failed, stuck error, event <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed, f.stuck, f.event
}

// retry returns how flushes do. If they fail it asks for another attempt: one may be
// under way, but the next begins now.
func (f *flushes) retry() error {
	for range 2 {
		f.mu.Lock()
		failed, event := f.failed, f.event
		if failed != nil {
			close(f.again)
			f.again = make(chan struct{})
		}
		f.mu.Unlock()
		if failed == nil {
			return nil
		}
		<-event
	}
	failed, _, _ := f.state()
	return failed
}

// flushCategory is what Pebble calls the writes of a flush.
const flushCategory vfs.DiskWriteCategory = "pebble-memtable-flush"

// pause delays a new sstable after a failure of the same kind of work, for Pebble does not: on a
// full disk it would keep a processor busy, and fill the server's log.
func (f *flushes) pause(c vfs.DiskWriteCategory) {
	f.mu.Lock()
	failed, again := f.failed, f.again
	if failed == nil && c != flushCategory {
		failed = f.compact
	}
	f.mu.Unlock()
	if failed == nil {
		return
	}
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-again:
	case <-f.closing:
	}
}

// flushFailed says whether a failure of Pebble's background work is final (G8).
func (db *DB) flushFailed(err error) error {
	if errors.Is(err, ErrNoSpace) {
		return wrap("flush", err)
	}
	return db.fail(wrap("flush", err))
}

// awaitRoom returns once Pebble takes changes without making their writer wait.
func (db *DB) awaitRoom() error {
	if err := db.flushes.retry(); err != nil {
		return db.flushFailed(err)
	}
	for {
		failed, stuck, event := db.flushes.state()
		m := db.pebble.Metrics()
		deep := m.Levels[0].Sublevels >= sublevels*9/10
		switch {
		case failed != nil:
			return db.flushFailed(failed)
		case deep && stuck != nil:
			return wrap("compact", stuck)
		case !deep && m.MemTable.Size < (memTables-1)*db.options.MemTableSize:
			return nil
		}
		<-event
	}
}

// Flush returns once all changes of Pebble that were committed before are durable.
// ErrNoSpace: they are not yet, nothing has failed, and it may be tried again.
func (db *DB) Flush() error {
	if err := db.failure(); err != nil {
		return err
	}
	if err := db.awaitRoom(); err != nil {
		return err
	}
	defer db.stopOnPanic()
	done, err := db.pebble.AsyncFlush()
	if err != nil {
		return db.fail(wrap("flush", err))
	}
	for {
		failed, _, event := db.flushes.state()
		select {
		case <-done:
			return db.failure()
		default:
		}
		if failed != nil {
			return db.flushFailed(failed)
		}
		select {
		case <-done:
		case <-event:
		}
	}
}
