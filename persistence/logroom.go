package persistence

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Space for a record is reserved before its batch is decided (G8): a batch that
// meets a full disk afterwards would leave memory ahead of the log. So the file
// that is written always has blocks ahead of its records, which are zeros until a
// record overwrites them, and of these a batch reserves as many as its record can
// take at most:
//
//	| records | reserved by batches | room | margin |
//	0         pos                                   filled
//
// A file system that writes elsewhere what is overwritten (copy on write, such as
// btrfs and ZFS), or that compresses zeros, takes new blocks nevertheless: there the
// free space that min-free-disk asks for is all the protection there is.
const (
	// fillAhead is how many bytes of zeros a file gets at a time. A file that grew
	// with each commit would also have its size and its blocks written to the file
	// system's journal by each fsync, which takes several times as long as one
	// that only overwrites.
	fillAhead = 1 << 20
	// lowRoom is how little room makes the leader extend the file, before anybody
	// has to wait for that.
	lowRoom = fillAhead / 4
	// roomMargin is for the trailer.
	roomMargin = 256
	// roomSlack is what Reserve leaves to TryReserve.
	roomSlack = 64 << 10
)

var zeros [fillAhead / 4]byte

// ErrNoSpace: the disk has no space for what was to be written. Nothing was
// written, nothing has failed, and it may be tried again.
var ErrNoSpace = errors.New("no space left on the disk")

// noSpace marks an error that says that the disk is full as ErrNoSpace.
func noSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// Reserve reserves n bytes of the op log (Framed) for records, which take them from the
// reservation as they are applied; what is left of it goes back by
// Release. ErrNoSpace: the batch must not be decided. It may wait for the disk, but
// hardly ever does.
func (db *DB) Reserve(n int64) error {
	if db.spare.lacks.Load() {
		return ErrNoSpace
	}
	if db.log.take(n, roomSlack) {
		return nil
	}
	return db.log.makeRoom(n)
}

// TryReserve reserves a little more, of a slack that Reserve leaves. It never waits.
func (db *DB) TryReserve(n int64) bool { return db.log.take(n, 0) }

// Release gives back a reservation of n bytes, of which used were taken by records
// (Batch.TakeUsed).
func (db *DB) Release(n, used int64) { db.log.room.Add(n - used) }

// Framed bounds what records of n bytes take in the log, but for a header and
// some padding of each, which is the caller's to count (RecordOverhead).
func Framed(n int64) int64 { return n + n/512 }

// RecordOverhead bounds what a record takes in the log beside its sections' contents,
// for each section.
const RecordOverhead = opsHeader + 3*logChunkHeader

// take takes n bytes of the room, of which it leaves at least the given rest.
func (l *opLog) take(n, rest int64) bool {
	if l.room.Add(-n) >= rest {
		return true
	}
	l.room.Add(n)
	return false
}

// makeRoom takes n bytes of the room, for which it extends the file.
func (l *opLog) makeRoom(n int64) error {
	l.extending.Lock()
	defer l.extending.Unlock()
	for !l.take(n, roomSlack) {
		err := l.extend(n + roomSlack + l.ahead())
		if err == nil || l.take(n, roomSlack) {
			if err != nil {
				return nil
			}
			continue
		}
		if errors.Is(err, ErrNoSpace) {
			return err
		}
		return l.sync.fail("extend a file of the op log", err)
	}
	return nil
}

// ahead is how far a file is extended at a time.
func (l *opLog) ahead() int64 { return min(fillAhead, l.size) }

// extendAhead extends the file before its room runs out. If the disk is full, it is
// for Reserve to say so. Only the leader calls it.
func (l *opLog) extendAhead() {
	if l.room.Load() >= min(lowRoom, l.ahead()/4)+roomSlack || !l.extending.TryLock() {
		return
	}
	defer l.extending.Unlock()
	_ = l.extend(l.ahead() + roomSlack)
}

// extend makes the room up to n bytes larger than nothing. The caller holds
// extending, so that the file stays the one that is appended to.
func (l *opLog) extend(n int64) error {
	l.mu.Lock()
	f, filled := l.file, l.filled
	l.mu.Unlock()
	if err := l.sync.failure(); err != nil {
		return err
	}
	lack := n - l.room.Load()
	if lack <= 0 {
		return nil
	}
	to, err := fill(f.File, filled, filled+lack)
	l.mu.Lock()
	l.filled = to
	l.mu.Unlock()
	l.room.Add(to - filled)
	return err
}

// fill writes zeros to a file behind the offset from, and returns up to where, which
// is at least to unless there is an error.
func fill(f io.WriterAt, from, to int64) (int64, error) {
	for from < to {
		n, err := f.WriteAt(zeros[:], from)
		from += int64(n)
		if err != nil {
			return from, noSpace(err)
		}
	}
	return from, nil
}

// createFilled makes a log file that has blocks. ErrNoSpace: there is none, and
// nothing of it is left.
func (l *opLog) createFilled(num uint64, recycled string) (nextFile, error) {
	n, err := l.create(num, recycled)
	if err == nil {
		if n.filled, err = fill(n.file, n.filled, l.ahead()); err != nil {
			err = errors.Join(err, n.file.Close())
		}
	}
	if err = noSpace(err); errors.Is(err, ErrNoSpace) {
		for _, name := range []string{logFileName(num), cmp.Or(recycled, recycledName(num))} {
			_ = removeIfExists(l.fs, l.path(name))
		}
	}
	return n, err
}

// moveRoom turns the room in the present file into room in the next one, which is
// extended until it has blocks for all that is reserved. It reports whether it could.
// The lock is held, but not while it writes.
func (l *opLog) moveRoom(n *nextFile) bool {
	for range 3 {
		more := n.filled - logHeaderSize - (l.filled - l.pos)
		if more >= 0 || l.take(-more, 0) {
			l.room.Add(max(more, 0))
			return true
		}
		reserved := l.filled - l.pos - l.room.Load()
		l.mu.Unlock()
		filled, err := fill(n.file, n.filled, logHeaderSize+reserved+l.ahead())
		l.mu.Lock()
		n.filled = filled
		if err != nil {
			return false // for now
		}
	}
	return false
}
