package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// syncEvery is the period of the background fsync under Everysec.
	syncEvery = time.Second
	// maxUnsyncedAge is how old the oldest unsynced acknowledged write may
	// grow before writes wait for a real fsync: Redis' rule for everysec.
	maxUnsyncedAge = 2 * time.Second
	// slowSync is when an fsync is worth a warning.
	slowSync = 5 * time.Second
	// stalledAfter is how long a background fsync may take before writes are soon to
	// wait for it: the oldest unsynced one may be syncEvery older.
	stalledAfter = (maxUnsyncedAge - syncEvery) / 2
)

// syncer carries out an fsync policy (G2) on the files of a log, of which one at
// a time is written: it says what Sync of that file means.
//
//	Always    Sync is real
//	Everysec  Sync returns after write(2); a timer really fsyncs each second
//	No        Sync returns after write(2)
//
// Under each of them Close of a file really fsyncs first, so only the one that
// is being written can have an unsynced tail. A failed fsync is never retried,
// since the kernel may have dropped the pages it could not write and report
// success the next time: the error is sticky, and every later Sync returns it
// (G8). The zero policy is Always.
type syncer struct {
	what   string // the log, in errors: "the op log"
	now    func() time.Time
	logger *slog.Logger
	policy atomic.Uint32 // an Fsync
	failed atomic.Pointer[error]
	mark   walMark
	times  fsyncTimes
	since  atomic.Int64 // when the real fsync under way began, unix ns; 0: none, or not Everysec

	mu     sync.Mutex
	active *syncedFile // the last one begun; between two files the closed one
}

// start begins the background fsync; the returned function ends it.
func (s *syncer) start() (stop func()) {
	ticker := time.NewTicker(syncEvery)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ticker.C:
				s.tick()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-done
	}
}

// tick is the background fsync. Its error is sticky: every later Sync returns
// it.
func (s *syncer) tick() {
	if s.fsyncPolicy() != Everysec || s.failure() != nil {
		return
	}
	if err := s.syncActive(); err != nil {
		s.logger.Error("the background fsync failed, writes are refused from now on", "error", err)
	}
}

func (s *syncer) fsyncPolicy() Fsync { return Fsync(s.policy.Load()) }

// stalled reports whether an fsync takes so long that writes wait for it, or soon will
// (Everysec).
func (s *syncer) stalled() bool {
	since := s.since.Load()
	return since != 0 && s.now().UnixNano()-since >= int64(stalledAfter)
}

// syncActive really fsyncs what was written so far.
func (s *syncer) syncActive() error {
	f := s.current()
	if f == nil {
		return s.failure()
	}
	return f.fsync()
}

func (s *syncer) current() *syncedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// begin returns f, the file number num, as the one that is written next. It is so
// from activate on: the one before must be closed first.
func (s *syncer) begin(f vfs.File, num uint64) *syncedFile {
	sf := &syncedFile{File: f, s: s, num: num}
	sf.synced.Store(-1) // so that even an empty file is synced once
	return sf
}

func (s *syncer) activate(sf *syncedFile) {
	s.mu.Lock()
	s.active = sf
	s.mu.Unlock()
}

// setPolicy changes the policy. Before Syncs become lazy, the mark durably says
// so; it says the contrary only after they have become real and sync has
// succeeded.
func (s *syncer) setPolicy(policy Fsync, sync func() error) error {
	if policy == Always {
		s.policy.Store(uint32(Always))
	}
	if err := sync(); err != nil {
		return err
	}
	f := s.current() // not nil: the log is open
	if err := s.mark.setPolicy(policy != Always, f.num, f.synced.Load()); err != nil {
		return s.fail("write "+s.mark.name, err)
	}
	s.policy.Store(uint32(policy))
	return nil
}

// close ends the mark. After an orderly close nothing unsynced is left, and the
// mark says so.
func (s *syncer) close(orderly bool) error {
	var err error
	if f := s.current(); orderly && f != nil && s.failure() == nil {
		err = s.mark.setPolicy(false, f.num, f.synced.Load())
	}
	return errors.Join(err, s.mark.close())
}

func (s *syncer) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail makes the first error sticky and returns the sticky one.
func (s *syncer) fail(doing string, err error) error {
	err = fmt.Errorf("%s: %w", doing, err)
	if !s.failed.CompareAndSwap(nil, &err) {
		return s.failure()
	}
	return err
}

// syncedFile is the file of a log that is being written. Its writer calls Write,
// Sync and Close one after the other; the timer calls fsync meanwhile.
type syncedFile struct {
	vfs.File
	s       *syncer
	num     uint64
	written atomic.Int64 // bytes that write(2) has taken
	synced  atomic.Int64 // bytes that a real fsync has covered
	ages    ages

	mu     sync.Mutex // held during a real fsync
	closed bool
}

// Write implements vfs.File. A failed write leaves a torn log, so it is as
// final as a failed fsync.
func (f *syncedFile) Write(p []byte) (int, error) {
	if err := f.s.failure(); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.written.Add(int64(n))
	if err != nil {
		return n, f.s.fail("write "+f.s.what, err)
	}
	return n, nil
}

// Sync implements vfs.File as the policy says.
func (f *syncedFile) Sync() error {
	if err := f.s.failure(); err != nil {
		return err
	}
	switch f.s.fsyncPolicy() {
	case Everysec:
		if f.ages.acknowledge(f.s.now()) < maxUnsyncedAge {
			return nil
		}
	case No:
		return nil
	}
	return f.fsync()
}

// SyncData implements vfs.File as Sync does.
func (f *syncedFile) SyncData() error { return f.Sync() }

// Close implements vfs.File. It really fsyncs first, whatever the policy.
func (f *syncedFile) Close() error {
	err := f.fsync()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return errors.Join(err, f.File.Close())
}

// abandon closes the file as it is, unless it is closed.
func (f *syncedFile) abandon() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.File.Close()
}

// fsync returns once everything written before the call is on the disk. Of
// several callers at once the later ones find it done by the earlier.
func (f *syncedFile) fsync() error {
	target := f.written.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.s.failure(); err != nil {
		return err // never retried (G8)
	}
	if f.closed || f.synced.Load() >= target {
		f.ages.forget(func() bool { return f.synced.Load() >= f.written.Load() })
		return nil
	}
	covered := f.written.Load()
	f.ages.begin()
	start := f.s.now()
	if f.s.fsyncPolicy() == Everysec {
		f.s.since.Store(start.UnixNano())
	}
	err := f.File.SyncData()
	f.s.since.Store(0)
	if err != nil {
		return f.s.fail("fsync "+f.s.what, err)
	}
	took := f.s.now().Sub(start)
	f.s.times.add(took)
	if took >= slowSync {
		f.s.logger.Warn("the disk is slow", "operation", "fsync of "+f.s.what, "took", took)
	}
	f.ages.end()
	f.synced.Store(covered)
	if err := f.s.mark.set(f.num, covered); err != nil {
		return f.s.fail("write "+f.s.mark.name, err)
	}
	return nil
}

// ages knows how old the oldest acknowledged write is that no finished fsync
// has covered.
type ages struct {
	mu      sync.Mutex
	oldest  time.Time // zero: none
	since   time.Time // oldest acknowledgement since the running fsync began
	running bool
}

// acknowledge notes that writes up to now are acknowledged, and returns the
// age of the oldest unsynced one.
func (a *ages) acknowledge(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.oldest.IsZero() {
		a.oldest = now
	}
	if a.running && a.since.IsZero() {
		a.since = now
	}
	return now.Sub(a.oldest)
}

// forget clears the ages if nothing is unsynced. A write comes before its
// acknowledgement, so one that allSynced does not see yet is acknowledged, and
// noted, afterwards.
func (a *ages) forget(allSynced func() bool) {
	a.mu.Lock()
	if allSynced() {
		a.oldest = time.Time{}
	}
	a.mu.Unlock()
}

func (a *ages) begin() {
	a.mu.Lock()
	a.since, a.running = time.Time{}, true
	a.mu.Unlock()
}

func (a *ages) end() {
	a.mu.Lock()
	a.oldest, a.running = a.since, false
	a.mu.Unlock()
}
