package oplog

import (
	"cmp"
	"errors"

	"github.com/fbfkv/fbfkv/persistence/disk"
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
	// Slack is what Reserve leaves to TryReserve.
	Slack = 64 << 10
)

// Reserve reserves n bytes of the op log (Framed) for records, which take them from the
// reservation as they are applied; what is left of it goes back by
// Release. disk.ErrNoSpace: the batch must not be decided. It may wait for the disk, but
// hardly ever does.
func (l *Log) Reserve(n int64) error {
	if l.o.Full.Load() {
		return disk.ErrNoSpace
	}
	if l.take(n, Slack) {
		return nil
	}
	return l.makeRoom(n)
}

// TryReserve reserves a little more, of a slack that Reserve leaves. It never waits.
func (l *Log) TryReserve(n int64) bool { return l.take(n, 0) }

// Release gives back a reservation of n bytes, of which used were taken by records
// (Batch.TakeUsed).
func (l *Log) Release(n, used int64) { l.room.Add(n - used) }

// Framed bounds what records of n bytes take in the log, but for a header and
// some padding of each, which is the caller's to count (SectionOverhead).
func Framed(n int64) int64 { return n + n/512 }

// take takes n bytes of the room, of which it leaves at least the given rest.
func (l *Log) take(n, rest int64) bool {
	if l.room.Add(-n) >= rest {
		return true
	}
	l.room.Add(n)
	return false
}

// makeRoom takes n bytes of the room, for which it extends the file.
func (l *Log) makeRoom(n int64) error {
	l.extending.Lock()
	defer l.extending.Unlock()
	for !l.take(n, Slack) {
		err := l.extend(n + Slack + l.ahead())
		if err == nil || l.take(n, Slack) {
			if err != nil {
				return nil
			}
			continue
		}
		if errors.Is(err, disk.ErrNoSpace) {
			return err
		}
		return l.sync.fail("extend a file of the op log", err)
	}
	return nil
}

// ahead is how far a file is extended at a time.
func (l *Log) ahead() int64 { return min(fillAhead, l.o.FileSize) }

// extendAhead extends the file before its room runs out. If the disk is full, it is
// for Reserve to say so. Only the leader calls it.
func (l *Log) extendAhead() {
	if l.room.Load() >= min(lowRoom, l.ahead()/4)+Slack || !l.extending.TryLock() {
		return
	}
	defer l.extending.Unlock()
	_ = l.extend(l.ahead() + Slack)
}

// extend makes the room up to n bytes larger than nothing. The caller holds
// extending, so that the file stays the one that is appended to.
func (l *Log) extend(n int64) error {
	l.mu.Lock()
	f, filled := l.file, l.filled
	l.mu.Unlock()
	if err := l.sync.failed.Err(); err != nil {
		return err
	}
	lack := n - l.room.Load()
	if lack <= 0 {
		return nil
	}
	to, err := l.files.Fill(f.File, filled, filled+lack)
	l.mu.Lock()
	l.filled = to
	l.mu.Unlock()
	l.room.Add(to - filled)
	return err
}

// createFilled makes a log file that has blocks. disk.ErrNoSpace: there is none, and
// nothing of it is left.
func (l *Log) createFilled(num uint64, recycled string) (nextFile, error) {
	n, err := l.create(num, recycled)
	if err == nil {
		if n.filled, err = l.files.Fill(n.file, n.filled, l.ahead()); err != nil {
			err = errors.Join(err, n.file.Close())
		}
	}
	if err = disk.NoSpace(err); errors.Is(err, disk.ErrNoSpace) {
		for _, name := range []string{fileName(num), cmp.Or(recycled, recycledName(num))} {
			_ = disk.RemoveIfExists(l.o.FS, l.path(name))
		}
	}
	return n, err
}

// moveRoom turns the room in the present file into room in the next one, which is
// extended until it has blocks for all that is reserved. It reports whether it could.
// The lock is held, but not while it writes.
func (l *Log) moveRoom(n *nextFile) bool {
	for range 3 {
		more := n.filled - headerSize - (l.filled - l.pos)
		if more >= 0 || l.take(-more, 0) {
			l.room.Add(max(more, 0))
			return true
		}
		reserved := l.filled - l.pos - l.room.Load()
		l.mu.Unlock()
		filled, err := l.files.Fill(n.file, n.filled, headerSize+reserved+l.ahead())
		l.mu.Lock()
		n.filled = filled
		if err != nil {
			return false // for now
		}
	}
	return false
}
