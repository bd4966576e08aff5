package persistence

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A run's file is opened when it is read and stays open for the reads that follow, as
// long as there is room: at most runFiles.most are open, those being written included.
// Whoever needs to open one more closes the coldest that nobody reads; if all are being
// read it waits, for no read waits for another file. So merges and checkpoints get
// their descriptors however many runs there are.

// runHandle is a run's file, open or not. Who reads through it counts as its reader
// for that time.
type runHandle struct {
	file    *runFile
	direct  bool                     // it reads past the page cache
	f       atomic.Pointer[vfs.File] // nil: it is closed. Changed with runFiles.mu held
	readers atomic.Int32
	used    atomic.Bool // since the hand last passed
	at      int         // its place in runFiles.ring
}

// errNotDirect: a file that cannot be read past the page cache.
var errNotDirect = errors.New("O_DIRECT is not supported")

// read returns the file for reads until done.
func (rs *runFiles) read(h *runHandle) (vfs.File, error) {
	h.readers.Add(1) // from here on it is not closed
	if f := h.f.Load(); f != nil {
		if !h.used.Load() {
			h.used.Store(true)
		}
		return *f, nil
	}
	rs.done(h)
	return rs.reopen(h)
}

// done ends what read began.
func (rs *runFiles) done(h *runHandle) {
	if h.readers.Add(-1) == 0 && rs.waiting.Load() > 0 {
		rs.mu.Lock()
		rs.idle.Broadcast()
		rs.mu.Unlock()
	}
}

// reopen is read for a file that is closed.
func (rs *runFiles) reopen(h *runHandle) (vfs.File, error) {
	f, err := rs.reserve(func() (vfs.File, error) {
		f, err := rs.fs.Open(h.file.path, vfs.RandomReadsOption)
		if err == nil && h.direct && !setDirect(f, true) {
			err = errors.Join(errNotDirect, f.Close())
		}
		return f, err
	})
	if err != nil {
		return nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if h.f.Load() == nil {
		rs.keep(h, f)
	} else { // someone was faster
		_ = f.Close() // nothing was read
		rs.freed()
	}
	h.readers.Add(1)
	return *h.f.Load(), nil
}

// reserve opens one more file, for which it makes room: keep, or unreserve once it is
// closed, follows. If the process has no descriptor left all the same, files that
// nobody reads give theirs.
func (rs *runFiles) reserve(open func() (vfs.File, error)) (vfs.File, error) {
	rs.mu.Lock()
	rs.waiting.Add(1) // first: whoever ends a read from now on tells
	for rs.open >= rs.most && !rs.closeColdest() {
		rs.idle.Wait()
	}
	rs.waiting.Add(-1)
	rs.open++
	rs.mu.Unlock()
	f, err := open()
	for (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && rs.giveOne() {
		f, err = open()
	}
	if err != nil {
		rs.unreserve()
	}
	return f, err
}

// giveOne is closeColdest without the lock.
func (rs *runFiles) giveOne() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.closeColdest()
}

// unreserve notes that a file which was not kept is closed.
func (rs *runFiles) unreserve() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.freed()
}

// freed notes that one file fewer is open. rs.mu is held, as for all that follow.
func (rs *runFiles) freed() {
	rs.open--
	rs.idle.Broadcast()
}

// keep makes f, for which room was reserved, the handle's open file.
func (rs *runFiles) keep(h *runHandle, f vfs.File) {
	h.f.Store(&f)
	h.used.Store(true)
	h.at = len(rs.ring)
	rs.ring = append(rs.ring, h)
}

// closeColdest closes the file that was not used for longest, about, and reports
// whether there was one. A file that is not fsynced stays open: an error of the disk's may be told
// to no other descriptor.
func (rs *runFiles) closeColdest() bool {
	for range 2 * len(rs.ring) {
		rs.hand = (rs.hand + 1) % len(rs.ring)
		h := rs.ring[rs.hand]
		if !h.file.unsynced && !h.used.Swap(false) && rs.closeIdle(h) {
			return true
		}
	}
	return false
}

// manyUnsynced reports whether so many of the open files wait for their fsync that the
// next one must not: they cannot be closed.
func (rs *runFiles) manyUnsynced() bool {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.unsynced >= rs.most/4
}

// sync fsyncs a file if that was not done.
func (rs *runFiles) sync(file *runFile) error {
	rs.mu.RLock()
	unsynced := file.unsynced
	rs.mu.RUnlock()
	if !unsynced {
		return nil
	}
	f, err := rs.read(&file.cached)
	if err != nil {
		return err
	}
	err = f.Sync()
	rs.done(&file.cached)
	if err == nil {
		rs.mu.Lock()
		rs.synced(file)
		rs.mu.Unlock()
	}
	return err
}

// endDirect closes a file that was read past the page cache: what reads so comes once.
func (rs *runFiles) endDirect(f *runFile) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closeIdle(&f.direct)
}

// closeIdle closes a handle's file unless somebody reads through it.
func (rs *runFiles) closeIdle(h *runHandle) bool {
	f := h.f.Swap(nil)
	if f == nil {
		return false
	}
	if h.readers.Load() > 0 { // perhaps since it was looked at
		h.f.Store(f)
		return false
	}
	last := len(rs.ring) - 1
	rs.ring[h.at] = rs.ring[last]
	rs.ring[h.at].at = h.at
	rs.ring[last] = nil
	rs.ring = rs.ring[:last]
	rs.freed()
	_ = (*f).Close() // it was only read, or fsynced before
	return true
}
