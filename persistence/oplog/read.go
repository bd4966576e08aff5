package oplog

import (
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// readWindow is how far apart in a file the records may lie that Read reads at
// once.
const readWindow = 128 << 10

// Read calls fn for the partition's sections with a sequence of at least from,
// ascending, until it returns an error, which Read returns. fn borrows the section. It
// sees the log as Open or BeginRecovery found it, and nothing after EndRecovery; in
// entries of a replicated log, what was known to be applied by then.
func (l *Log) Read(partition uint16, from uint64, fn func(seq uint64, content []byte) error) error {
	if l.isClosed.Load() {
		return disk.ErrClosed
	}
	list := l.index[partition]
	r := reader{l: l}
	list = list[sort.Search(len(list), func(i int) bool { return list[i].seq >= from }):]
	err := r.read(list, fn)
	return errors.Join(err, disk.Wrap("read the op log", r.close()))
}

// Bounds returns the lowest and the highest sequence of the partition's sections that
// Read sees; ok is false when there are none.
func (l *Log) Bounds(partition uint16) (first, last uint64, ok bool) {
	list := l.index[partition]
	if len(list) == 0 {
		return 0, 0, false
	}
	return list[0].seq, list[len(list)-1].seq, true
}

// Tail calls fn for a partition's sections with a sequence of at least from that are
// committed by now, ascending, until it returns an error, which Tail returns. fn borrows the
// section. In a log that is not replicated it sees all written sections. It reads the files that
// have such sections, whole, while all else goes on. Trimmed sections are left out: the caller has
// a Hold.
func (l *Log) Tail(partition uint16, from uint64, fn func(seq uint64, content []byte) error) error {
	if l.isClosed.Load() {
		return disk.ErrClosed
	}
	es := entryScan{limit: l.Applied(), copy: func(record []byte) error {
		return parseSections(record, func(s section) error {
			if s.partition != partition || s.seq < from {
				return nil
			}
			return fn(s.seq, s.content)
		})
	}}
	for _, num := range l.filesFrom(partition, from) {
		if _, err := l.scanFile(num, nil, &es); err != nil {
			return disk.Wrap("read the op log", err)
		}
	}
	return es.show(l, es.limit)
}

// filesFrom returns the numbers of the files, ascending, that may have sections of a partition
// from a sequence on.
func (l *Log) filesFrom(partition uint16, from uint64) (nums []uint64) {
	nums = l.live()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.closed {
		if s.last[partition] >= from || nums[0] != s.num {
			break // what was cut may be told in any file behind
		}
		nums = nums[1:]
	}
	return nums
}

// BeginRecovery lets Read see the sections of some partitions that the log has now: all
// that is committed, and perhaps more; of a replicated log those that Applied says.
// EndRecovery must follow, and until then no file is
// given up. It costs reading the files in which there are such sections, whole, at the
// speed of a checksum, and 32 bytes of memory for each section.
// One at a time; no Read may be under way.
func (l *Log) BeginRecovery(partitions ...uint16) error {
	if l.isClosed.Load() {
		return disk.ErrClosed
	}
	l.recovering = l.Hold("recovery", math.MaxUint64)
	l.index = make([][]location, l.o.Partitions)
	es := entryScan{limit: l.Applied()}
	for _, num := range l.filesOf(partitions) {
		if _, err := l.scanFile(num, partitions, &es); err != nil {
			l.EndRecovery()
			return disk.Wrap("scan the op log", err)
		}
	}
	return es.show(l, es.limit)
}

// filesOf returns the numbers of the files, ascending, that have sections of partitions
// which were not trimmed, and of the one that is being written.
func (l *Log) filesOf(partitions []uint16) (nums []uint64) {
	nums = l.live()
	l.mu.Lock()
	defer l.mu.Unlock()
	unneeded := make(map[uint64]bool)
	all := l.entries.next > 0 // what was cut may be told in any file behind
	for _, s := range l.closed {
		needed := slices.ContainsFunc(partitions, func(p uint16) bool {
			return s.last[p] != 0 && s.last[p] >= l.lows[p]
		})
		if unneeded[s.num] = !needed; needed && all {
			break
		}
	}
	return slices.DeleteFunc(nums, func(num uint64) bool { return unneeded[num] })
}

// EndRecovery gives back the memory in which Read's index is.
func (l *Log) EndRecovery() {
	l.index = make([][]location, l.o.Partitions)
	if h := l.recovering; h != nil {
		h.Release()
		l.recovering = nil
	}
}

// reader reads records at known positions.
type reader struct {
	l    *Log
	num  uint64
	file vfs.File
	buf  []byte
	one  []byte
}

func (r *reader) read(list []location, fn func(seq uint64, record []byte) error) error {
	for len(list) > 0 {
		first := list[0]
		n, end := 1, first.end()
		for n < len(list) && list[n].file == first.file && list[n].end()-first.at <= readWindow {
			end = list[n].end()
			n++
		}
		if err := r.load(first, end); err != nil {
			return disk.Wrap("read the op log", err)
		}
		for _, p := range list[:n] {
			// A record that crosses blocks is put together in place, so in a copy.
			r.one = append(r.one[:0], r.buf[p.at-first.at:p.end()-first.at]...)
			if err := fn(p.seq, unframe(r.one, p.at)); err != nil {
				return err
			}
		}
		list = list[n:]
	}
	return nil
}

// end is the offset behind the record's last byte.
func (p location) end() int64 {
	if p.size == 0 {
		return p.at
	}
	return payloadOffset(p.at, p.size-1) + 1
}

// load reads a file's bytes from p on up to end.
func (r *reader) load(p location, end int64) error {
	if r.file == nil || r.num != p.file {
		if err := r.close(); err != nil {
			return err
		}
		f, err := r.l.o.FS.Open(r.l.path(fileName(p.file)))
		if err != nil {
			return err
		}
		r.file, r.num = f, p.file
	}
	n := int(end - p.at)
	if cap(r.buf) < n {
		r.buf = make([]byte, max(n, readWindow))
	}
	r.buf = r.buf[:n]
	if n == 0 {
		return nil
	}
	_, err := r.file.ReadAt(r.buf, p.at)
	return err
}

func (r *reader) close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}
