package persistence

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// SetFsync changes the policy. Before it returns, all that was committed so
// far is really fsynced, so that what was acknowledged under a laxer policy
// has the stricter one's promise (G2).
func (db *DB) SetFsync(f Fsync) error {
	if f > No {
		return fmt.Errorf("%w: unknown fsync policy %d", ErrBadOptions, f)
	}
	db.policyMu.Lock()
	defer db.policyMu.Unlock()
	if err := db.wal.setPolicy(f, db.Sync); err != nil {
		return wrap("change the fsync policy", err)
	}
	return nil
}

// Fsync returns the policy in force.
func (db *DB) Fsync() Fsync { return db.wal.fsyncPolicy() }

// Sync really fsyncs everything committed so far, whatever the policy.
func (db *DB) Sync() error {
	if db.closed.Load() {
		return ErrClosed
	}
	if err := db.failure(); err != nil {
		return err
	}
	// An empty record, committed like a batch, is behind all earlier ones in
	// the WAL: once it is written, they are.
	defer db.stopOnPanic()
	b := db.pebble.NewBatch()
	if err := b.LogData(nil, nil); err != nil {
		return wrap("sync", err)
	}
	if err := db.pebble.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return db.fail(wrap("sync", err))
	}
	if err := b.SyncWait(); err != nil {
		return db.fail(wrap("sync", err))
	}
	if err := db.wal.syncActive(); err != nil {
		return db.fail(err)
	}
	return b.Close()
}

// settle makes everything that was acknowledged durable before something
// derived from it is published (G4). Under Always it already is.
func (db *DB) settle() error {
	if db.Fsync() == Always {
		return db.failure()
	}
	return db.Sync()
}
