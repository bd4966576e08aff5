package store

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// ErrBackupRunning means that another backup is in progress.
var ErrBackupRunning = errors.New("a backup is already in progress")

// ErrTarget means that the target directory of Backup or Restore is not empty, or
// lies inside the source directory.
var ErrTarget = persistence.ErrTarget

// ErrOtherBackup means that a backup is of other data than this store's.
var ErrOtherBackup = errors.New("the backup is of another server's data")

// ErrTime means that something is said to have been in the future.
var ErrTime = errors.New("the time is in the future")

// backup is what is known of the backup in progress.
type backup struct {
	running   atomic.Bool
	snapshots atomic.Int64 // partitions whose filters are on disk
	dir       atomic.Pointer[string]
	// size is of the stream, 0 if there is none, and done what was read of it.
	done, size atomic.Int64
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
	return s.copyTo(dir, s.partitions, func(linked func(), committed func() error) error {
		return s.db.Backup(dir, linked, committed)
	})
}

// DescribeBackups has backups say what they are of, see persistence.DB.Describe.
func (s *Store) DescribeBackups(begin func() (end func() ([]byte, error))) { s.db.Describe(begin) }

// Cut makes a copy of the data directory for another replica of the shard, in the
// directory persistence.CutName within it, while operations go on: what this node would
// find if it were started now. Its views hold only what is committed (R1), its log is as
// long as this one, and notes at least as much as applied as the views hold. It waits for
// no commit, since there may be none before the other replica has caught up. Errors: as
// those of Backup.
func (s *Store) Cut() error {
	// A checkpoint that waits for a commit keeps the snapshotter's lock.
	defer s.postponeSaving()()
	return s.copyTo(s.db.CutDir(), nil, func(linked func(), _ func() error) error { return s.db.Cut(linked) })
}

// CutDir is the path of that directory; RemoveCut removes it.
func (s *Store) CutDir() string { return s.db.CutDir() }

// Meta is what the directory fixed at its creation.
func (s *Store) Meta() persistence.Meta { return s.db.Meta() }

// RemoveCut removes the last cut.
func (s *Store) RemoveCut() error { return s.db.RemoveCut() }

// copyTo is backUp to a directory.
func (s *Store) copyTo(dir string, saved []*partition,
	write func(linked func(), committed func() error) error) error {
	if err := s.beginBackup(); err != nil {
		return err
	}
	defer s.backup.running.Store(false)
	return s.backUp(saved, func(linked func(), committed func() error) error {
		s.backup.dir.Store(&dir)
		return write(linked, committed)
	})
}

func (s *Store) beginBackup() error {
	if err := s.Failure(); err != nil {
		return err
	}
	if !s.backup.running.CompareAndSwap(false, true) {
		return ErrBackupRunning
	}
	s.backup.dir.Store(nil)
	s.backup.snapshots.Store(0)
	s.backup.size.Store(0)
	return nil
}

// backUp makes checkpoints of partitions, and lets copy make a copy; linked and committed are
// persistence.DB.Backup's.
func (s *Store) backUp(saved []*partition, copy func(linked func(), committed func() error) error) error {
	// Fresh snapshots first: a store that opens the copy has little to redo.
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
	lives := s.lives()
	// The copy of the log has what may be taken back (R1).
	return copy(linked, func() error { return s.awaitCommits(lives) })
}

// BackupStream is a backup as a stream of bytes, to be read to its end and closed. Its
// methods are for one goroutine.
type BackupStream struct {
	s    *Store
	pipe *io.PipeReader
	sent chan struct{} // closed when nothing more is sent
	once sync.Once
}

// StreamBackup makes a copy as Backup does, aside in the data directory, and returns it as
// a stream, for RestoreStream. No other backup can be made until it is closed. Errors:
// ErrBackupRunning, or ErrUnknownOutcome when the store is frozen.
//
// That the stream was read to its end does not count as a successful backup: nobody knows
// here whether it has arrived. See BackupVerified.
func (s *Store) StreamBackup() (*BackupStream, error) {
	if err := s.beginBackup(); err != nil {
		return nil, err
	}
	before := s.counts()
	var staged *persistence.Staged
	err := s.backUp(s.partitions, func(linked func(), committed func() error) (err error) {
		staged, err = s.db.Stage(linked, committed)
		return err
	})
	if err != nil {
		s.backup.running.Store(false)
		return nil, err
	}
	after := s.counts()
	s.backup.done.Store(0)
	s.backup.size.Store(max(staged.Size(), 1))
	from, to := io.Pipe()
	b := &BackupStream{s: s, pipe: from, sent: make(chan struct{})}
	go func() {
		defer close(b.sent)
		err := staged.Send(to, before, after)
		to.CloseWithError(errors.Join(err, staged.Remove())) // nil: the end
	}()
	return b, nil
}

// counts returns what a restored copy is compared with.
func (s *Store) counts() persistence.Counts {
	st := s.Stats()
	return persistence.Counts{Keys: st.Keys, Entries: st.Entries}
}

// Read implements io.Reader.
func (b *BackupStream) Read(p []byte) (int, error) {
	n, err := b.pipe.Read(p)
	b.s.backup.done.Add(int64(n))
	return n, err
}

// Close removes the copy, whether it was read to its end or not.
func (b *BackupStream) Close() error {
	b.once.Do(func() {
		b.pipe.Close()
		<-b.sent
		b.s.backup.running.Store(false)
	})
	return nil
}

// BackupVerified notes that a backup of this store that was made at a time is known to be
// good. ErrOtherBackup: it is not of this store's data. ErrTime: it was made in the
// future.
func (s *Store) BackupVerified(id [16]byte, at time.Time) error {
	switch {
	case id != s.db.Meta().ID:
		return ErrOtherBackup
	case time.Until(at) > time.Minute:
		return ErrTime
	}
	s.db.BackedUp(at)
	return nil
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
// of a stage, "snapshots" (partitions), "copy" or "stream" (bytes); "" when there is none.
func (s *Store) BackupProgress() (stage string, done, total int64) {
	if !s.backup.running.Load() {
		return "", 0, 0
	}
	if size := s.backup.size.Load(); size > 0 {
		return "stream", min(s.backup.done.Load(), size), size
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

// StreamInfo is what the stream of a backup says of itself.
type StreamInfo = persistence.StreamInfo

// RestoreStream makes a new data directory dir of the stream of a backup (StreamBackup). It
// receives the files aside, lets sound look at them there, and gives the directory its
// name only if that returns nil. A stream that is cut, damaged or of another kind is
// refused. RestoreStream calls progress with the bytes received so far and in all.
func RestoreStream(r io.Reader, dir string, sound func(dir string) error,
	progress func(done, total int64)) (StreamInfo, error) {
	return persistence.RestoreStream(vfs.Default, r, dir, sound, progress)
}
