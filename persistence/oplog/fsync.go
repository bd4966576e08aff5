package oplog

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Fsync says how far a commit must be on its way to the disk before
// [Log.Wait] returns (guarantee G2). The zero value is the safest.
type Fsync uint8

// The fsync policies, named after redis.conf's appendfsync.
const (
	// Always: fsync before Wait returns. Survives power loss.
	Always Fsync = iota
	// Everysec: write(2) before Wait returns, fsync by a timer each second.
	// Survives kill -9; power loss costs at most the last second plus one
	// fsync, because Wait blocks once the oldest unsynced write is 2 s old.
	Everysec
	// No: write(2) before Wait returns, the operating system decides when to
	// flush. Survives kill -9 and an orderly shutdown.
	No
)

// ParseFsync reads a policy by its redis.conf name.
func ParseFsync(s string) (Fsync, error) {
	for f := Always; f <= No; f++ {
		if f.String() == s {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%w: appendfsync must be always, everysec or no, not %q", disk.ErrBadOptions, s)
}

// String returns the redis.conf name of the policy.
func (f Fsync) String() string {
	switch f {
	case Always:
		return "always"
	case Everysec:
		return "everysec"
	case No:
		return "no"
	}
	return fmt.Sprintf("Fsync(%d)", uint8(f))
}

// SetFsync changes the policy. Before it returns, all that was committed so
// far is really fsynced, so that what was acknowledged under a laxer policy
// has the stricter one's promise (G2).
func (l *Log) SetFsync(f Fsync) error {
	if f > No {
		return fmt.Errorf("%w: unknown fsync policy %d", disk.ErrBadOptions, f)
	}
	l.policyMu.Lock()
	defer l.policyMu.Unlock()
	return disk.Wrap("change the fsync policy", l.sync.setPolicy(f, l.Sync))
}

// Policy returns the policy in force.
func (l *Log) Policy() Fsync { return l.sync.fsyncPolicy() }

// Stalled reports whether, under Everysec, an fsync takes so long that commits wait for
// it, or soon will. Work that need not wait should then depend on no commit that must.
func (l *Log) Stalled() bool { return l.sync.stalled() }

// Fsyncs returns how many fsyncs there were, and how long they took.
func (l *Log) Fsyncs() FsyncTimes { return l.sync.times.load() }

const (
	// syncEvery is the period of the background fsync under Everysec.
	syncEvery = time.Second
	// maxUnsyncedAge is how old the oldest unsynced acknowledged write may
	// grow before writes wait for a real fsync: Redis' rule for everysec.
	maxUnsyncedAge = 2 * time.Second
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
	now    func() time.Time
	logger *slog.Logger
	policy atomic.Uint32 // an Fsync
	failed disk.Failure
	mark   disk.MarkFile
	times  fsyncTimes
	fsyncs disk.Work                 // real ones
	since  atomic.Pointer[time.Time] // when the real fsync under way began; nil: none, or not Everysec

	mu     sync.Mutex
	active *syncedFile // the last one begun; between two files the closed one
}

// start begins the background fsync; the returned function ends it.
func (s *syncer) start(ticks <-chan time.Time) (stop func()) {
	ticker := time.NewTicker(syncEvery)
	if ticks == nil {
		ticks = ticker.C
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ticks:
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
	if s.fsyncPolicy() != Everysec || s.failed.Err() != nil {
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
	return since != nil && s.now().Sub(*since) >= stalledAfter
}

// syncActive really fsyncs what was written so far.
func (s *syncer) syncActive() error {
	f := s.current()
	if f == nil {
		return s.failed.Err()
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
	if err := s.mark.SetLazy(policy != Always, f.num, f.synced.Load()); err != nil {
		return s.fail("write "+MarkName, err)
	}
	s.policy.Store(uint32(policy))
	return nil
}

// close ends the mark. After an orderly close nothing unsynced is left, and the
// mark says so.
func (s *syncer) close(orderly bool) error {
	var err error
	if f := s.current(); orderly && f != nil && s.failed.Err() == nil {
		err = s.mark.SetLazy(false, f.num, f.synced.Load())
	}
	return errors.Join(err, s.mark.Close())
}

// fail makes the first error sticky and returns the sticky one.
func (s *syncer) fail(doing string, err error) error {
	return s.failed.Set(fmt.Errorf("%w: %s: %w", disk.ErrFailed, doing, err))
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

	mu     longlock.Mutex // held during a real fsync
	closed bool
}

// Write implements vfs.File. A failed write leaves a torn log, so it is as
// final as a failed fsync.
func (f *syncedFile) Write(p []byte) (int, error) {
	if err := f.s.failed.Err(); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.written.Add(int64(n))
	if err != nil {
		return n, f.s.fail("write the op log", err)
	}
	return n, nil
}

// Sync implements vfs.File as the policy says.
func (f *syncedFile) Sync() error {
	if err := f.s.failed.Err(); err != nil {
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
	if err := f.s.failed.Err(); err != nil {
		return err // never retried (G8)
	}
	if f.closed || f.synced.Load() >= target {
		f.ages.forget(func() bool { return f.synced.Load() >= f.written.Load() })
		return nil
	}
	f.s.fsyncs.Begin()
	defer f.s.fsyncs.End()
	covered := f.written.Load()
	f.ages.begin()
	start := f.s.now()
	if f.s.fsyncPolicy() == Everysec {
		began := start // start itself would be on the heap under every policy
		f.s.since.Store(&began)
	}
	err := f.File.SyncData()
	f.s.since.Store(nil)
	if err != nil {
		return f.s.fail("fsync the op log", err)
	}
	f.s.times.add(f.s.now().Sub(start))
	f.ages.end()
	f.synced.Store(covered)
	if err := f.s.mark.Set(f.num, covered); err != nil {
		return f.s.fail("write "+MarkName, err)
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

// FsyncBounds are the upper ends of the buckets in which fsyncs are counted by how long
// they took; one more bucket has no end.
var FsyncBounds = []time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// FsyncTimes tells how many fsyncs of the op log there were, and how long they took.
type FsyncTimes struct {
	Count   uint64
	Sum     time.Duration
	Buckets []uint64 // by FsyncBounds: that took at most so long
}

// fsyncTimes counts fsyncs.
type fsyncTimes struct {
	sum     atomic.Int64
	buckets [32]atomic.Uint64 // each by itself; more than there are FsyncBounds
}

func (t *fsyncTimes) add(took time.Duration) {
	i, _ := slices.BinarySearch(FsyncBounds, took)
	t.buckets[i].Add(1)
	t.sum.Add(int64(took))
}

func (t *fsyncTimes) load() (f FsyncTimes) {
	f.Sum = time.Duration(t.sum.Load())
	for i := range FsyncBounds {
		f.Count += t.buckets[i].Load()
		f.Buckets = append(f.Buckets, f.Count)
	}
	f.Count += t.buckets[len(FsyncBounds)].Load()
	return f
}
