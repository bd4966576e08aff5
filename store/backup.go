package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// ErrBackupRunning means that another backup is in progress.
var ErrBackupRunning = errors.New("a backup is already in progress")

// ErrTarget means that the target directory of Backup or Restore is not empty, or
// lies inside the source directory.
var ErrTarget = persistence.ErrTarget

// backup is what is known of the backup in progress.
type backup struct {
	running   atomic.Bool
	snapshots atomic.Int64 // partitions whose filters are on disk
	dir       atomic.Pointer[string]
}

// Backup writes a copy of the whole data directory to dir while operations go
// on. The copy contains every operation acknowledged before the call, and perhaps
// later ones; each with both its effect and its opid, or with neither (G4). dir must
// be empty or not exist. It appears only when the copy is complete and durable; a
// server can use it, and so can Restore. Errors: ErrBackupRunning, ErrTarget, or
// ErrUnknownOutcome when the store is frozen.
//
// FLUSHALL and snapshots wait while files are linked or, to another file system,
// copied; not while the op log is.
func (s *Store) Backup(dir string) error {
	return s.copyDir(dir, s.partitions, func(linked func()) error {
		lives := s.lives()
		// The copy of the log has what may be taken back (R1).
		return s.db.Backup(dir, linked, func() error { return s.awaitCommits(lives) })
	})
}

// Cut makes a copy of the data directory for another replica of the shard, in the
// directory persistence.CutName within it, while operations go on: what this node would
// find if it were started now. Its views hold only what is committed (R1), its log is as
// long as this one, and notes at least as much as applied as the views hold. It waits for
// no commit, since there may be none before the other replica has caught up. Errors: as
// those of Backup.
func (s *Store) Cut() error { return s.copyDir(s.db.CutDir(), nil, s.db.Cut) }

// CutDir is the path of that directory; RemoveCut removes it.
func (s *Store) CutDir() string { return s.db.CutDir() }

// Meta is what the directory fixed at its creation.
func (s *Store) Meta() persistence.Meta { return s.db.Meta() }

// RemoveCut removes the last cut.
func (s *Store) RemoveCut() error { return s.db.RemoveCut() }

// copyDir makes checkpoints of partitions, and lets write copy the directory. Until that calls
// linked, what is published stays as it is.
func (s *Store) copyDir(dir string, saved []*partition, write func(linked func()) error) error {
	if err := s.Failure(); err != nil {
		return err
	}
	if !s.backup.running.CompareAndSwap(false, true) {
		return ErrBackupRunning
	}
	defer s.backup.running.Store(false)
	s.backup.dir.Store(nil)
	s.backup.snapshots.Store(0)
	// Fresh snapshots first: whoever opens the copy has little to redo.
	for _, p := range saved {
		if err := s.checkpoint(p, false); err != nil {
			return fmt.Errorf("snapshot before the backup: %w", err)
		}
		s.backup.snapshots.Add(1)
	}
	// Snapshots and runs stay as they are while they are linked.
	s.snapshots.mu.Lock()
	linked := sync.OnceFunc(s.snapshots.mu.Unlock)
	defer linked()
	s.backup.dir.Store(&dir)
	return write(linked)
}

// lives returns those of the partitions.
func (s *Store) lives() (lives []uint64) {
	for _, p := range s.partitions {
		lives = append(lives, p.committed.life.Load())
	}
	return lives
}

// awaitCommits returns once all that the partitions have decided in these lives is
// committed. It fails if one of them has ended, or is about to.
func (s *Store) awaitCommits(lives []uint64) error {
	for i, p := range s.partitions {
		if !p.lockNow() {
			return errRebuilt
		}
		here := p.here()
		p.mu.Unlock()
		if here.life != lives[i] {
			return errRebuilt
		}
		if err := here.wait(); err != nil {
			return err
		}
	}
	return nil
}

var errRebuilt = errors.New("a partition was made anew during the backup, try again")

// BackupProgress says how far the backup in progress is: done of total steps
// of a stage, "snapshots" (partitions) or "copy" (bytes); "" when there is none.
func (s *Store) BackupProgress() (stage string, done, total int64) {
	if !s.backup.running.Load() {
		return "", 0, 0
	}
	dir := s.backup.dir.Load()
	if dir == nil {
		return "snapshots", s.backup.snapshots.Load(), int64(len(s.partitions))
	}
	done, total = s.db.BackupSize(*dir)
	return "copy", done, total
}

// Restore makes a new data directory dir from a backup, or from a data directory
// that no server has open. It copies without checking: call Check first. dir must be
// empty or not exist; it appears only when it is complete and durable. Restore calls
// progress with the bytes copied so far and in all.
func Restore(from, dir string, progress func(done, total int64)) error {
	return persistence.Restore(vfs.Default, from, dir, progress)
}
