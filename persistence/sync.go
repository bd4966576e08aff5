package persistence

import "fmt"

// SetFsync changes the policy. Before it returns, all that was committed so
// far is really fsynced, so that what was acknowledged under a laxer policy
// has the stricter one's promise (G2).
func (db *DB) SetFsync(f Fsync) error {
	if f > No {
		return fmt.Errorf("%w: unknown fsync policy %d", ErrBadOptions, f)
	}
	db.policyMu.Lock()
	defer db.policyMu.Unlock()
	if err := db.log.sync.setPolicy(f, db.Sync); err != nil {
		return wrap("change the fsync policy", err)
	}
	return nil
}

// Fsync returns the policy in force.
func (db *DB) Fsync() Fsync { return db.log.sync.fsyncPolicy() }

// Stalled reports whether, under Everysec, an fsync takes so long that commits wait for
// it, or soon will. Who need not should then have nothing to do with who must.
func (db *DB) Stalled() bool { return db.log.sync.stalled() }

// Sync really fsyncs everything committed so far, whatever the policy: the op
// log. Changes of Pebble are Flush's.
func (db *DB) Sync() error {
	if db.closed.Load() {
		return ErrClosed
	}
	if err := db.failure(); err != nil {
		return err
	}
	if err := db.log.syncAll(); err != nil {
		return db.fail(wrap("sync", err))
	}
	return nil
}
