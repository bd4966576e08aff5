package persistence

import (
	"github.com/cockroachdb/pebble/v2/vfs"
)

// LookUp calls fn for the run's entries with that hash, ascending by sequence,
// until it returns false. fn borrows the value. A run that was removed has
// none. It reads one block in nearly all cases.
func (db *DB) LookUp(r Run, hash uint64, fn func(seq uint64, value []byte) bool) error {
	file, f, done, err := db.useRun(r)
	if err != nil || file == nil {
		return err
	}
	defer done()
	buf, ok := db.runs.block.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	defer db.runs.block.Put(buf)
	index := &file.index
	for i := index.find(hash); i < index.blocks() && index.first[i] <= hash; i++ {
		from, to := index.span(i)
		*buf = grow(*buf, int(to-from))
		if err := readAt(f, *buf, from); err != nil {
			return wrap(db.inDir(file.path), err)
		}
		more, err := lookUpInBlock(*buf, hash, fn)
		if err != nil || !more {
			return wrap(db.inDir(file.path), err)
		}
	}
	return nil
}

// grow returns a slice of n bytes, b's memory if that is enough.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// lookUpInBlock is LookUp in one block; more is false when nothing can follow.
func lookUpInBlock(block []byte, hash uint64, fn func(seq uint64, value []byte) bool) (more bool, err error) {
	b, err := checkRunBlock(block)
	if err != nil {
		return false, err
	}
	for len(b) > 0 {
		h, seq, value, rest, err := nextRunRecord(b)
		if err != nil {
			return false, err
		}
		if h > hash || h == hash && !fn(seq, value) {
			return false, nil
		}
		b = rest
	}
	return true, nil
}

// RunIterator goes through a run from its lowest hash to its highest. Not safe
// for concurrent use.
type RunIterator struct {
	db    *DB
	run   Run
	file  *runFile
	f     vfs.File
	done  func()
	buf   []byte // blocks read ahead, from offset off
	off   uint64
	next  int    // block to be read
	block []byte // rest of the present one
	count uint64
	last  [2]uint64

	// Hash, Seq and Value are of the present entry. Value is borrowed until
	// the next call of Next.
	Hash, Seq uint64
	Value     []byte
	err       error
}

// IterateRun returns an iterator before the run's first entry.
func (db *DB) IterateRun(r Run) (*RunIterator, error) {
	file, f, done, err := db.useRun(r)
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, errRunGone(r)
	}
	return &RunIterator{db: db, run: r, file: file, f: f, done: done, buf: db.runs.buffer()}, nil
}

// Next goes to the next entry; false at the end, or after an error. The end
// comes only after as many entries as the run's header names.
func (it *RunIterator) Next() bool {
	if it.err != nil {
		return false
	}
	if len(it.block) == 0 && !it.readBlock() {
		return false
	}
	it.Hash, it.Seq, it.Value, it.block, it.err = nextRunRecord(it.block)
	if at := [2]uint64{it.Hash, it.Seq}; it.err == nil {
		if it.count > 0 && (at[0] < it.last[0] || at[0] == it.last[0] && at[1] <= it.last[1]) {
			it.err = corruptf("the run's entries are out of order")
		}
		it.last = at
	}
	it.count++
	return it.err == nil
}

// readBlock goes to the next block; false at the end.
func (it *RunIterator) readBlock() bool {
	index := &it.file.index
	if it.next == index.blocks() {
		if it.count != it.run.Count {
			it.err = corruptf("%d entries instead of %d", it.count, it.run.Count)
		}
		return false
	}
	from, to := index.span(it.next)
	if to > it.off+uint64(len(it.buf)) {
		it.err = it.readAhead(from)
	}
	if it.err == nil {
		it.block, it.err = checkRunBlock(it.buf[from-it.off : to-it.off])
	}
	it.next++
	return it.err == nil
}

// readAhead fills the buffer with whole blocks from the next one on.
func (it *RunIterator) readAhead(from uint64) error {
	index := &it.file.index
	to := index.end[it.next]
	for i := it.next + 1; i < index.blocks() && index.end[i]-from <= runWriteSize; i++ {
		to = index.end[i]
	}
	it.buf, it.off = grow(it.buf, int(to-from)), from
	return readAt(it.f, it.buf, from)
}

// Close ends the iterator and returns the error that stopped it, if any.
func (it *RunIterator) Close() error {
	if it.done != nil {
		it.done()
		it.db.runs.recycle(it.buf)
		it.done, it.buf = nil, nil
	}
	return wrap(it.db.inDir(it.file.path), it.err)
}

// ScanRun calls fn for all entries of the run, ascending by (hash, seq), until
// it returns an error, which ScanRun returns. fn borrows the value. It fails
// with ErrCorrupt when the run does not hold what its header says.
func (db *DB) ScanRun(r Run, fn func(hash, seq uint64, value []byte) error) error {
	it, err := db.IterateRun(r)
	if err != nil {
		return err
	}
	for it.Next() {
		if err := fn(it.Hash, it.Seq, it.Value); err != nil {
			_ = it.Close() // only read: fn's error is the one to tell
			return err
		}
	}
	return it.Close()
}
