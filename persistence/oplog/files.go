package oplog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

const (
	// RecycledSuffix ends the names of log files that wait to be used (again).
	RecycledSuffix = ".recycle"
	// maxRecycled is how many of them are kept.
	maxRecycled = 8
)

// segment is one file of the op log.
type segment struct {
	num  uint64
	size int64
	// by partition: the sequence of its last record; 0: it has none. The last one: EntryPartition
	last []uint64
}

func newSegment(num uint64, partitions int) segment {
	return segment{num: num, last: make([]uint64, partitions+1)}
}

// slot is where a partition is in lists like segment.last.
func slot(list []uint64, partition uint16) *uint64 {
	if partition == EntryPartition {
		return &list[len(list)-1]
	}
	return &list[partition]
}

// note keeps that the file has a record of a partition.
func (s *segment) note(partition uint16, seq uint64) { *slot(s.last, partition) = seq }

// keepEntries notes that the file has no valid entries behind an index.
func (s *segment) keepEntries(index uint64) {
	last := slot(s.last, EntryPartition)
	*last = min(*last, index)
}

// obsolete reports whether all records are below the partitions' lows.
func (s *segment) obsolete(lows []uint64) bool {
	for p, last := range s.last {
		if last != 0 && last >= lows[p] {
			return false
		}
	}
	return true
}

// nextFile is the file that will follow the one being written.
type nextFile struct {
	header header
	file   vfs.File // nil until it is ready
	filled int64    // up to where it has blocks
}

func fileName(num uint64) string     { return fmt.Sprintf("%06d.log", num) }
func recycledName(num uint64) string { return fmt.Sprintf("%06d%s", num, RecycledSuffix) }

func (l *Log) path(name string) string { return l.o.FS.PathJoin(l.o.Dir, name) }

// turn lets the next file follow one that is full, once that is ready; for a
// file of twice its size commits wait until it is. Only the leader calls it; the
// lock is held, but not while the full file is written and fsynced: who only
// appends, or looks, need not wait for that.
func (l *Log) turn() {
	if l.next == nil && l.pos >= l.prepareAt {
		l.prepare()
	}
	if l.pos < l.o.FileSize || l.next == nil {
		return
	}
	if l.next.file == nil && l.pos >= 2*l.o.FileSize {
		l.mu.Unlock()
		l.preparing.Wait()
		l.mu.Lock()
	}
	if l.next == nil || l.next.file == nil || !l.extending.TryLock() {
		return
	}
	defer l.extending.Unlock()
	n := l.next
	if !l.moveRoom(n) {
		return
	}
	l.next = nil
	full, upTo, last := l.file, l.appended, l.finish()
	l.begin(n)
	l.ending = true
	l.mu.Unlock()
	err := l.end(full, last)
	if err == nil {
		l.sync.activate(l.file)
	}
	l.mu.Lock()
	l.ending = false
	if err == nil {
		l.written = upTo
	}
}

// prepare creates the next file beside the writer, and fsyncs this one, so that
// little is left to be fsynced while commits wait. While there is no space for it,
// this file goes on, and it is tried again later.
func (l *Log) prepare() {
	n, num, old := new(nextFile), l.current.num+1, ""
	if last := len(l.recycled) - 1; last >= 0 {
		old, l.recycled = l.recycled[last], l.recycled[:last]
	}
	l.next = n
	l.prepareAt = l.pos + l.ahead()
	current := l.file
	l.preparing.Go(func() {
		next, err := l.createFilled(num, old)
		if errors.Is(err, disk.ErrNoSpace) {
			l.mu.Lock()
			l.next = nil
			l.mu.Unlock()
			return
		}
		if err != nil {
			_ = l.sync.fail("create a file of the op log", err)
			return
		}
		_ = current.fsync() // its failure is sticky
		l.mu.Lock()
		*n = next
		l.mu.Unlock()
	})
}

// create makes a log file, out of a recycled one if a name is given. First its
// header is made durable, then its name: so a file that has the name has the
// header, and what is written to it cannot be lost with it.
func (l *Log) create(num uint64, recycled string) (n nextFile, err error) {
	n.header = newHeader(num)
	path, f := l.path(fileName(num)), vfs.File(nil)
	aside := l.path(cmp.Or(recycled, recycledName(num)))
	if recycled != "" {
		f, err = l.o.FS.OpenReadWrite(aside, disk.WriteCategory)
	} else {
		f, err = l.o.FS.Create(aside, disk.WriteCategory)
	}
	if err != nil {
		return n, err
	}
	err = l.files.Do(func() error {
		_, err := f.WriteAt(n.header.appendTo(nil), 0)
		return err
	})
	if err == nil {
		err = l.files.Do(f.Sync)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	if err = l.files.Do(func() error { return l.o.FS.Rename(aside, path) }); err != nil {
		return n, err
	}
	if n.file, err = l.o.FS.OpenReadWrite(path, disk.WriteCategory); err != nil {
		return n, err
	}
	n.filled = headerSize
	if info, err := n.file.Stat(); err == nil { // a recycled file has blocks
		n.filled = max(n.filled, info.Size())
	}
	if err := l.files.Do(func() error { return disk.SyncDir(l.o.FS, l.o.Dir) }); err != nil {
		return n, errors.Join(err, n.file.Close())
	}
	return n, nil
}

// begin makes a new, empty file the one that is appended to. Its header is written
// once more, with the first record. The lock is held.
func (l *Log) begin(n *nextFile) {
	l.file = l.sync.begin(n.file, n.header.num)
	l.header, l.buf = n.header, n.header.appendTo(l.buf)
	l.pos, l.filled = headerSize, n.filled
	l.prepareAt = l.o.FileSize / 4 * 3
	l.current = newSegment(n.header.num, l.o.Partitions)
}

// finish counts the current file among the closed ones and returns what is still
// to be written to it, a trailer last, for end. The lock is held.
func (l *Log) finish() (last []byte) {
	last = l.header.appendTrailer(l.buf, l.pos, l.file.synced.Load())
	l.current.size = l.pos + int64(len(last)-len(l.buf))
	l.closed = append(l.closed, l.current)
	l.buf = nil
	return last
}

// end writes the last bytes of a file and closes it, which fsyncs it under every
// policy: only the newest file can have an unsynced tail.
func (l *Log) end(f *syncedFile, last []byte) error {
	if _, err := f.Write(last); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return l.sync.fail("close a file of the op log", err)
	}
	return nil
}

// Trim gives up the sections of a partition below a sequence: a file that holds no
// other is used again. Everything that must outlast them must be durable.
func (l *Log) Trim(partition uint16, below uint64) error {
	if err := l.Failure(); err != nil {
		return err
	}
	l.trimming.Lock()
	defer l.trimming.Unlock()
	l.mu.Lock()
	low := slot(l.lows, partition)
	*low = max(*low, below)
	obsolete := slices.Clone(l.closed[:l.obsolete()])
	l.mu.Unlock()
	for _, s := range obsolete {
		if err := l.recycle(s.num); err != nil {
			return err
		}
		l.mu.Lock()
		l.closed = l.closed[1:]
		l.mu.Unlock()
	}
	return nil
}

// KeepsOldest reports whether the log has more than limit bytes and the partition's
// sections are among those that keep its oldest file.
func (l *Log) KeepsOldest(partition uint16, limit uint64) bool {
	if _, size := l.Sizes(); size <= limit {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.closed) == 0 {
		return false
	}
	last := l.closed[0].last[partition]
	return last != 0 && last >= l.lows[partition]
}

// recycle takes a file out of the log. The directory is fsynced each time, so
// that after a crash no file is missing between two others.
func (l *Log) recycle(num uint64) error {
	name := fileName(num)
	l.mu.Lock()
	keep := len(l.recycled) < maxRecycled
	l.mu.Unlock()
	if !keep {
		return errors.Join(disk.RemoveIfExists(l.o.FS, l.path(name)), disk.SyncDir(l.o.FS, l.o.Dir))
	}
	free := recycledName(num)
	if err := l.o.FS.Rename(l.path(name), l.path(free)); err != nil {
		return disk.NoSpace(err) // nothing has changed
	}
	if err := disk.SyncDir(l.o.FS, l.o.Dir); err != nil {
		return err
	}
	l.mu.Lock()
	l.recycled = append(l.recycled, free)
	l.mu.Unlock()
	return nil
}

// live returns the numbers of the log's files, ascending, of which all but the last
// are ended.
func (l *Log) live() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ending {
		l.flushed.Wait()
	}
	var nums []uint64
	for i := range l.closed {
		nums = append(nums, l.closed[i].num)
	}
	return append(nums, l.current.num)
}

// Written returns how many bytes was appended since Open.
func (l *Log) Written() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appended
}

// Sizes returns how many files the log has, and their bytes.
func (l *Log) Sizes() (files int64, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes = uint64(l.pos)
	for i := range l.closed {
		bytes += uint64(l.closed[i].size)
	}
	return int64(len(l.closed)) + 1, bytes
}

// CopyTo copies the log to another directory, and writes a mark to markDir. Commits
// and trims may go on meanwhile. The copy has all that was committed before, and
// perhaps more, which may not be durable here until the next Sync. Files are not linked,
// since they are overwritten when they are used again.
func (l *Log) CopyTo(dir, markDir string) error {
	if err := disk.MakeDir(l.o.FS, dir); err != nil {
		return err
	}
	hold := l.Hold("copy to "+dir, math.MaxUint64)
	defer hold.Release()
	nums := l.live()
	for _, num := range nums {
		name := fileName(num)
		if err := disk.CopyFile(l.o.FS, l.path(name), l.o.FS.PathJoin(dir, name), func(int) {}); err != nil {
			return err
		}
	}
	if err := disk.SyncDir(l.o.FS, dir); err != nil {
		return err
	}
	num := nums[len(nums)-1]
	path := l.o.FS.PathJoin(dir, fileName(num))
	f, err := l.o.FS.Open(path)
	if err != nil {
		return err
	}
	_, tail, err := scanFile(f, num, func(disk.Part, int64, []byte) {})
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// The newest file was copied while it was being written, and may hold half of a
	// record with whole ones behind it. All that was committed before the copy began
	// lies before.
	if tail.Valid != math.MaxInt64 { // it was not closed in order
		if err := disk.Truncate(l.o.FS, path, l.o.FS.PathJoin(markDir, fileName(num)),
			tail.Good); err != nil {
			return err
		}
	}
	// The rest is durable, and the mark says so: later damage is noticed.
	mark := disk.MarkFile{FS: l.o.FS, Dir: markDir, Name: MarkName}
	return errors.Join(mark.Create(num, tail.Good), mark.Close())
}
