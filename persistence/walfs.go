package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
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
	// slowSync is when a background fsync is worth a warning.
	slowSync = 5 * time.Second
)

// walFS carries out the fsync policy (G2). It lies between Pebble and the file
// system and changes one thing: what Sync of a WAL file means. Pebble itself
// always commits with Sync, since its NoSync commits wait in the process and
// die with it.
//
//	Always    Sync is real
//	Everysec  Sync returns after write(2); a timer really fsyncs each second
//	No        Sync returns after write(2)
//
// Under each of them Close of a WAL file really fsyncs first, so only the WAL
// that is being written can have an unsynced tail, and all other files sync at
// once. A failed fsync is never retried, since the kernel may have dropped the
// pages it could not write and report success the next time: the error is
// sticky, and every later Sync returns it (G8).
type walFS struct {
	vfs.FS
	dir    string
	now    func() time.Time
	logger *slog.Logger
	policy atomic.Uint32 // an Fsync
	failed atomic.Pointer[error]
	mark   walMark
	die    func(error) // ends the process
	// serving is true between Open and Close. Pebble panics when it cannot
	// change WAL files, with a mutex half locked, which even a recover cannot
	// mend; so meanwhile the process ends here, with the cause in plain words.
	serving atomic.Bool

	mu     sync.Mutex
	active *walFile // the last one opened; between two files the closed one

	stopTimer func()
}

// newWALFS wraps fs under the policy Always, as Pebble's recovery needs it;
// setPolicy changes it afterwards.
func newWALFS(o Options, dir, markDir string) *walFS {
	w := &walFS{FS: o.FS, dir: dir, now: o.Now, logger: o.Logger, die: o.stop, mark: walMark{fs: o.FS, dir: markDir}}
	ticker := time.NewTicker(syncEvery)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ticker.C:
				w.tick()
			case <-quit:
				return
			}
		}
	}()
	w.stopTimer = func() {
		ticker.Stop()
		close(quit)
		<-done
	}
	return w
}

// tick is the background fsync. Its error is sticky: every later Sync returns
// it.
func (w *walFS) tick() {
	if w.fsyncPolicy() != Everysec || w.failure() != nil {
		return
	}
	start := w.now()
	if err := w.syncActive(); err != nil {
		w.logger.Error("the background fsync failed, writes are refused from now on", "error", err)
	}
	if took := w.now().Sub(start); took >= slowSync {
		w.logger.Warn("the disk is slow", "operation", "background fsync", "took", took)
	}
}

func (w *walFS) fsyncPolicy() Fsync { return Fsync(w.policy.Load()) }

// syncActive really fsyncs what was written to the WAL so far.
func (w *walFS) syncActive() error {
	f := w.current()
	if f == nil {
		return w.failure()
	}
	return f.fsync()
}

func (w *walFS) current() *walFile {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active
}

// setPolicy changes the policy. Before Syncs of the WAL become lazy, the mark
// durably says so; it says the contrary only after they have become real and
// sync has succeeded.
func (w *walFS) setPolicy(policy Fsync, sync func() error) error {
	if policy == Always {
		w.policy.Store(uint32(Always))
	}
	if err := sync(); err != nil {
		return err
	}
	f := w.current() // not nil: Pebble is open
	if err := w.mark.setPolicy(policy != Always, f.num, f.synced.Load()); err != nil {
		return w.fail("write "+walMarkName, err)
	}
	w.policy.Store(uint32(policy))
	return nil
}

// close ends the timer. After an orderly close nothing unsynced is left, and
// the mark says so.
func (w *walFS) close(orderly bool) error {
	w.stopTimer()
	var err error
	if f := w.current(); orderly && f != nil && w.failure() == nil {
		err = w.mark.setPolicy(false, f.num, f.synced.Load())
	}
	return errors.Join(err, w.mark.close())
}

func (w *walFS) failure() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// dieIfServing ends the process after an error that makes Pebble panic.
func (w *walFS) dieIfServing(err error) {
	if err != nil && w.serving.Load() {
		w.die(fmt.Errorf("%w: %w", ErrFailed, err))
	}
}

// fail makes the first error sticky and returns the sticky one.
func (w *walFS) fail(doing string, err error) error {
	err = fmt.Errorf("%s: %w", doing, err)
	if !w.failed.CompareAndSwap(nil, &err) {
		return w.failure()
	}
	return err
}

// Create implements vfs.FS.
func (w *walFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	return w.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS; Pebble recycles WAL files with it.
func (w *walFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(oldname, newname, category)
	return w.wrap(newname, f, err)
}

// OpenReadWrite implements vfs.FS.
func (w *walFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, category, opts...)
	return w.wrap(name, f, err)
}

// Unwrap implements vfs.FS.
func (w *walFS) Unwrap() vfs.FS { return w.FS }

func (w *walFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	num, ok := walNumber(w.FS.PathBase(name))
	if !ok || w.FS.PathDir(name) != w.dir {
		return f, err
	}
	if err != nil {
		err = w.fail("create a WAL file", err)
		w.dieIfServing(err)
		return nil, err
	}
	wf := &walFile{File: f, fs: w, num: num}
	wf.synced.Store(-1) // so that even an empty file is synced once
	w.mu.Lock()
	w.active = wf
	w.mu.Unlock()
	return wf, nil
}

// walNumber parses the name of a WAL file, such as 000007.log.
func walNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	num, err := strconv.ParseUint(digits, 10, 64)
	return num, err == nil
}

// walFile is the WAL file that Pebble writes. Pebble calls Write, Sync and
// Close one after the other; the timer calls fsync meanwhile.
type walFile struct {
	vfs.File
	fs      *walFS
	num     uint64
	written atomic.Int64 // bytes that write(2) has taken
	synced  atomic.Int64 // bytes that a real fsync has covered
	ages    ages

	mu     sync.Mutex // held during a real fsync
	closed bool
}

// Write implements vfs.File. A failed write leaves a torn WAL, so it is as
// final as a failed fsync.
func (f *walFile) Write(p []byte) (int, error) {
	if err := f.fs.failure(); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.written.Add(int64(n))
	if err != nil {
		return n, f.fs.fail("write the WAL", err)
	}
	return n, nil
}

// Sync implements vfs.File as the policy says.
func (f *walFile) Sync() error {
	if err := f.fs.failure(); err != nil {
		return err
	}
	switch f.fs.fsyncPolicy() {
	case Everysec:
		if f.ages.acknowledge(f.fs.now()) < maxUnsyncedAge {
			return nil
		}
	case No:
		return nil
	}
	return f.fsync()
}

// SyncData implements vfs.File as Sync does.
func (f *walFile) SyncData() error { return f.Sync() }

// Close implements vfs.File. It really fsyncs first, whatever the policy.
func (f *walFile) Close() error {
	err := f.fsync()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	err = errors.Join(err, f.File.Close())
	f.fs.dieIfServing(err)
	return err
}

// fsync returns once everything written before the call is on the disk. Of
// several callers at once the later ones find it done by the earlier.
func (f *walFile) fsync() error {
	target := f.written.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fs.failure(); err != nil {
		return err // never retried (G8)
	}
	if f.closed || f.synced.Load() >= target {
		f.ages.forget(func() bool { return f.synced.Load() >= f.written.Load() })
		return nil
	}
	covered := f.written.Load()
	f.ages.begin()
	if err := f.File.SyncData(); err != nil {
		return f.fs.fail("fsync the WAL", err)
	}
	f.ages.end()
	f.synced.Store(covered)
	if err := f.fs.mark.set(f.num, covered); err != nil {
		return f.fs.fail("write "+walMarkName, err)
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
