package oplog

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

const (
	// MarkName is the file of the log's mark.
	MarkName = "LOGSYNC"
	// retain is the largest buffer in bytes that the log, or a batch, keeps for its
	// next use, so that one huge record does not hold memory for ever.
	retain = 4 << 20
)

// Options configure Open. FS, Dir, MarkDir, FileSize and Partitions have no default.
type Options struct {
	// FS holds the log, Dir its files, MarkDir its mark. The directories exist.
	FS           vfs.FS
	Dir, MarkDir string
	// FileSize is the size in bytes at which a file is followed by the next one.
	FileSize int64
	// Partitions is how many there are, 1 to 1024.
	Partitions int
	// Fsync is the policy at start; SetFsync changes it. Default Always.
	Fsync Fsync
	// Logger is told of slow disks and of failures. nil: nobody is.
	Logger *slog.Logger
	// Now drives the age rule of Everysec. nil: time.Now.
	Now func() time.Time
	// Ticks say when Everysec fsyncs. nil: each second.
	Ticks <-chan time.Time
	// Failed is the failure of the whole directory: once it is set, nothing more is
	// accepted, and what goes wrong here sets it. nil: the log's own.
	Failed *disk.Failure
	// Full is true while records are refused for want of space elsewhere. nil: never.
	Full *atomic.Bool
	// Sections says where in the data of an entry the partitions' sections lie: from to
	// to, which are equal if there are none, or if they do not count; and whether a reign begins
	// with the entry. It depends on the entry alone, begins not on its Reign.
	// nil: the log is not a replicated one, and has no entries.
	Sections func(e *Entry) (from, to int, begins bool, err error)
	// Salvage lets OpenReadOnly read a damaged log up to the damage (Log.Damage). false: damage is an error.
	Salvage bool
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Failed == nil {
		o.Failed = new(disk.Failure)
	}
	if o.Full == nil {
		o.Full = new(atomic.Bool)
	}
	return o
}

// Log is an open op log. Its methods are safe for concurrent use, except that Close
// must come after all others have returned.
//
// The first waiter for a record that nobody is writing yet becomes the leader: it
// writes everything appended so far, with one write(2) and at most one fsync, and
// then lets the others go. Records appended meanwhile are the next leader's, so that commits under
// way share an fsync. No goroutine of the log's own is on the way of a commit.
type Log struct {
	o          Options
	sync       syncer
	stopTicks  func()
	stopLooks  func()
	writes     disk.Work // of leaders
	files      disk.Work // what extends files, and makes new ones
	hang       hang
	policyMu   longlock.Mutex // one change of the policy at a time
	recovery   Recovery
	damage     error        // Damage
	index      [][]location // by partition: what Open or BeginRecovery found, until EndRecovery
	recovering *Hold        // from BeginRecovery to EndRecovery
	isClosed   atomic.Bool

	mu       sync.Mutex
	flushed  sync.Cond // a leader has done its work
	leading  bool      // there is a leader
	buf      []byte    // framed, and not yet a leader's
	spare    []byte    // the last leader's buffer
	appended uint64    // framed bytes since Open: a record's place is where it ends
	written  uint64    // the place up to which Wait returns

	file      *syncedFile
	header    header         // of file
	pos       int64          // where in file the next record begins
	filled    int64          // up to where file has blocks
	room      atomic.Int64   // of these, bytes that nobody has reserved (room.go)
	extending longlock.Mutex // held, before mu, by the goroutine that extends or leaves file
	current   segment
	closed    []segment // older files, ascending
	lows      []uint64  // by partition, as segment.last: below it records are obsolete
	holds     map[string]*Hold
	trimming  longlock.Mutex // held, before mu, by the goroutine that gives files up or keeps them
	ending    bool           // the last of them is still being ended
	prepareAt int64          // the position from which on the next file is prepared
	next      *nextFile      // the file after this one, being prepared or ready
	recycled  []string       // names of files to be used again
	preparing sync.WaitGroup
	entries   entries // of a replicated log
}

// Open reads the log of a directory, cuts what a crash has left of its end, and makes
// it ready to be written. Errors wrap disk.ErrCorrupt, or are the file system's.
func Open(o Options) (*Log, error) {
	l, s, err := scanAll(o)
	if err != nil {
		return nil, err
	}
	if err = l.open(s); err == nil {
		err = l.SetFsync(o.Fsync)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.stopTicks, l.stopLooks = l.sync.start(o.Ticks), l.startLooking()
	return l, nil
}

// OpenReadOnly reads the log of a directory and changes nothing. Only what reads may be
// called, and Close.
func OpenReadOnly(o Options) (*Log, error) {
	l, _, err := scanAll(o)
	return l, err
}

func scanAll(o Options) (*Log, scannedLog, error) {
	o = o.withDefaults()
	l := &Log{
		o: o,
		sync: syncer{
			now: o.Now, logger: o.Logger,
			mark: disk.MarkFile{FS: o.FS, Dir: o.MarkDir, Name: MarkName},
		},
		index: make([][]location, o.Partitions),
		lows:  make([]uint64, o.Partitions+1),
	}
	l.flushed.L = &l.mu
	l.hang.after = hangAfter
	l.Watch(&l.writes, &l.sync.fsyncs, &l.files)
	s, err := l.scan()
	if r := l.recovery; err == nil && r.File != "" {
		o.Logger.Warn("the op log's unsynced tail was damaged by the crash and was cut",
			"file", r.File, "at", r.CutAt, "lost_bytes", r.LostBytes)
	}
	return l, s, err
}

// Damage says where a log that is salvaged is damaged: nothing behind it is read; nil: it is sound.
func (l *Log) Damage() error { return l.damage }

// Recovery returns what Open had to do.
func (l *Log) Recovery() Recovery { return l.recovery }

// Failure returns the error after which nothing more is accepted (G8), nil while all is
// well.
func (l *Log) Failure() error {
	if err := l.o.Failed.Err(); err != nil {
		return err
	}
	if err := l.sync.failed.Err(); err != nil {
		return l.o.Failed.Set(err)
	}
	return nil
}

// Append frames a record behind all earlier ones and so fixes its place in the order. It
// returns the place, for Wait, and the bytes that the record takes. The caller holds the
// locks of the partitions concerned, so that the order here is the order of its
// decisions. An error means that the log has failed, and the outcome is unknown (G8).
func (l *Log) Append(record []byte) (place uint64, size int, err error) {
	if err := l.Failure(); err != nil {
		return 0, 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries.next > 0 {
		return 0, 0, l.o.Failed.Set(fmt.Errorf("%w: %w", disk.ErrFailed, ErrReplicated))
	}
	size = l.append(record)
	l.current.noteAll(record)
	return l.appended, size, nil
}

// append frames a record and returns how many bytes it takes. The lock is held.
func (l *Log) append(record []byte) (size int) {
	before := len(l.buf)
	l.buf = l.header.appendRecord(l.buf, l.pos, l.file.synced.Load(), record)
	size = len(l.buf) - before
	l.pos += int64(size)
	l.appended += uint64(size)
	return size
}

// Wait returns once the record at a place is as durable as the policy promises
// (G2), or once the log has failed (G8). Place 0 belongs to no record.
func (l *Log) Wait(place uint64) error {
	if err := l.await(place); err != nil {
		return l.o.Failed.Set(err)
	}
	// A record that an fsync of its own has covered is durable even if another fsync has failed
	// since, but under Everysec the fsync is still to come: the failure of the background fsync is
	// told to everyone who waits later.
	return l.Failure()
}

func (l *Log) await(place uint64) error {
	if place == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.written < place {
		if err := l.sync.failed.Err(); err != nil {
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
func (l *Log) lead() {
	l.leading = true
	l.writes.Begin()
	defer l.writes.End()
	buf, upTo := l.buf, l.appended
	l.buf, l.spare = l.spare[:0], nil
	l.mu.Unlock()

	l.extendAhead()
	_, err := l.file.Write(buf)
	if err == nil {
		err = l.file.Sync()
	}

	l.mu.Lock()
	if cap(buf) <= retain {
		l.spare = buf
	}
	if err == nil {
		l.written = upTo
		l.turn()
	}
	l.leading = false
	l.flushed.Broadcast()
}

// Sync really fsyncs everything appended so far, whatever the policy, and how much of it is
// known to be applied.
func (l *Log) Sync() error {
	if err := l.noteApplied(); err != nil {
		return err
	}
	return l.syncAppended()
}

func (l *Log) syncAppended() error {
	if err := l.Failure(); err != nil {
		return err
	}
	l.mu.Lock()
	place := l.appended
	l.mu.Unlock()
	err := l.await(place)
	if err == nil {
		err = l.sync.syncActive() // a file that was left meanwhile was fsynced when it was closed
	}
	if err != nil {
		return l.o.Failed.Set(err)
	}
	return nil
}

// Confirm returns at once: nobody else writes the log.
func (l *Log) Confirm() error { return nil }

// Close writes what is left and ends the file in order, unless the log has
// failed or was only read.
func (l *Log) Close() error {
	l.isClosed.Store(true)
	if l.stopTicks != nil {
		l.stopTicks()
		l.stopLooks()
	}
	l.preparing.Wait()
	var err error
	if n := l.next; n != nil && n.file != nil {
		err = n.file.Close() // it stays, empty, and the next start removes it
	}
	orderly := l.file != nil && l.sync.failed.Err() == nil
	switch {
	case orderly && l.filled == headerSize && l.pos == headerSize:
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
	return errors.Join(err, l.sync.failed.Err(), l.sync.close(orderly))
}
