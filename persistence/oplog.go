package persistence

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logRetain is the largest buffer in bytes that the op log keeps for its next
// use.
const logRetain = 4 << 20

// opLog is the op log: files of framed records, of which one is written.
//
//	append  frames a record behind the last one and so fixes its place
//	wait    returns once it is written, and fsynced as the policy says
//
// Who waits first for a record that nobody is writing yet becomes the leader:
// it writes all that was appended, with one write(2) and at most one fsync, and
// then lets the others go. What is appended meanwhile is the next leader's, so
// that commits under way share an fsync. No goroutine of the log's own is on
// the way of a commit.
//
// A file that has reached its size is ended by a trailer, fsynced, and followed
// by the next one, which is a recycled file if there is one: its blocks and its
// pages in memory are there already, so that writing costs a copy, and an fsync
// has no metadata to write.
type opLog struct {
	fs    vfs.FS
	dir   string
	size  int64 // at which a file is followed by the next
	sync  syncer
	index [][]logPosition // by partition: what Open found; nil after EndRecovery

	mu       sync.Mutex
	flushed  sync.Cond // a leader has done its work
	leading  bool      // there is a leader
	buf      []byte    // framed, and not yet a leader's
	spare    []byte    // the last leader's buffer
	appended uint64    // framed bytes since Open: a record's place is where it ends
	written  uint64    // the place up to which wait returns

	file      *syncedFile
	header    logHeader    // of file
	pos       int64        // where in file the next record begins
	filled    int64        // up to where file has blocks
	room      atomic.Int64 // of these, bytes that nobody has reserved (logroom.go)
	extending sync.Mutex   // held, before mu, by who extends or leaves file
	current   segment
	closed    []segment // older files, ascending
	lows      []uint64  // by partition: below it records are obsolete
	ending    bool      // the last of them is still being ended
	prepareAt int64     // the position from which on the next file is prepared
	next      *nextFile // the file after this one, being prepared or ready
	recycled  []string  // names of files to be used again
	preparing sync.WaitGroup
}

// newOpLog returns the log of a directory, which is not open yet.
func newOpLog(o Options, dir, markDir string, meta Meta) *opLog {
	l := &opLog{
		fs: o.FS, dir: dir, size: o.LogFileSize,
		sync: syncer{
			what: "the op log", now: o.Now, logger: o.Logger,
			mark: walMark{fs: o.FS, dir: markDir, name: logMarkName},
		},
		index: make([][]logPosition, meta.Partitions),
		lows:  make([]uint64, meta.Partitions),
	}
	l.flushed.L = &l.mu
	return l
}

// append frames a record behind all earlier ones. It returns the record's place for
// wait, and its size.
func (l *opLog) append(payload []byte) (place uint64, size int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.sync.failure(); err != nil {
		return 0, 0, err
	}
	before := len(l.buf)
	l.buf = l.header.appendRecord(l.buf, l.pos, l.file.synced.Load(), payload)
	size = len(l.buf) - before
	l.pos += int64(size)
	l.appended += uint64(size)
	l.current.noteAll(payload)
	return l.appended, size, nil
}

// wait returns once the record at a place is as durable as the policy promises
// (G2), or once the log has failed (G8).
func (l *opLog) wait(place uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.written < place {
		if err := l.sync.failure(); err != nil {
			return err
		}
		if l.leading {
			l.flushed.Wait()
			continue
		}
		l.lead()
	}
	return nil
}

// lead writes what was appended. The lock is held, but not while it writes.
func (l *opLog) lead() {
	l.leading = true
	buf, upTo := l.buf, l.appended
	l.buf, l.spare = l.spare[:0], nil
	l.mu.Unlock()

	l.extendAhead()
	_, err := l.file.Write(buf)
	if err == nil {
		err = l.file.Sync()
	}

	l.mu.Lock()
	if cap(buf) <= logRetain {
		l.spare = buf
	}
	if err == nil {
		l.written = upTo
		l.turn()
	}
	l.leading = false
	l.flushed.Broadcast()
}

// syncAll really fsyncs everything appended so far, whatever the policy.
func (l *opLog) syncAll() error {
	l.mu.Lock()
	place := l.appended
	l.mu.Unlock()
	if err := l.wait(place); err != nil {
		return err
	}
	// A file that was left meanwhile was fsynced when it was closed.
	return l.sync.syncActive()
}

// close writes what is left and ends the file in order, unless the log has
// failed or was never opened. No other call may be under way.
func (l *opLog) close() error {
	l.preparing.Wait()
	var err error
	if n := l.next; n != nil && n.file != nil {
		err = n.file.Close() // it stays, empty, and the next start removes it
	}
	orderly := l.file != nil && l.sync.failure() == nil
	switch {
	case orderly && l.filled == logHeaderSize && l.pos == logHeaderSize:
		err = errors.Join(err, l.file.abandon()) // the disk was full: it stays empty
	case orderly:
		l.mu.Lock()
		f, last := l.file, l.finish()
		l.mu.Unlock()
		err = errors.Join(err, l.end(f, last))
		orderly = err == nil
	case l.file != nil:
		err = errors.Join(err, l.file.abandon())
	}
	return errors.Join(err, l.sync.failure(), l.sync.close(orderly))
}
