package persistence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// MayHave reports whether memory leaves it open that the run has entries with that
// hash: of a run that is not known, LookUp tells.
func (db *DB) MayHave(r Run, hash uint64) bool {
	file := db.runs.acquire(r)
	if file == nil {
		return true
	}
	defer db.runs.release(file)
	return file.filter.mayHave(hash)
}

// LookUp finds the run's entries with that hash; found.Next goes through them,
// ascending by sequence. A run that was removed has none. It reads one block in
// nearly all cases.
func (db *DB) LookUp(r Run, hash uint64, found *Entries) error {
	found.reset()
	file, err := db.useRun(r)
	if err != nil || file == nil {
		return err
	}
	defer db.runs.release(file)
	if !file.filter.mayHave(hash) {
		return nil
	}
	f, err := db.runs.read(&file.cached)
	if err != nil {
		return wrap("open a run", err)
	}
	defer db.runs.done(&file.cached)
	from, to := file.index.find(hash)
	if err := found.read(f, &file.index, from, to, hash); err != nil {
		return wrap(db.inDir(file.path), err)
	}
	return nil
}

// Entries are what LookUp found. Its memory serves one look-up after another. Not
// safe for concurrent use.
type Entries struct {
	// Seq and Value are of the present entry. Value is borrowed until the next
	// call of Next or LookUp.
	Seq   uint64
	Value []byte

	hash   uint64
	buf    []byte   // blocks as they are in the file
	blocks [][]byte // the records of each
	err    error
}

func (e *Entries) reset() { e.blocks, e.err = e.blocks[:0], nil }

// maxKeptEntries is how much memory Entries keep.
const maxKeptEntries = 64 << 10

// read gets the blocks from..to-1, in which the hash may be.
func (e *Entries) read(f io.ReaderAt, index *runIndex, from, to int, hash uint64) error {
	if from == to {
		return nil
	}
	e.hash = hash
	begin, _ := index.span(from)
	_, end := index.span(to - 1)
	if cap(e.buf) > maxKeptEntries {
		e.buf = nil
	}
	e.buf = grow(e.buf, int(end-begin))
	if err := readAt(f, e.buf, begin); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		a, b := index.span(i)
		block, err := checkRunBlock(e.buf[a-begin : b-begin])
		if err != nil {
			return err
		}
		e.blocks = append(e.blocks, block)
	}
	return nil
}

// Next goes to the next entry; false at the end, or when Err tells why not.
func (e *Entries) Next() bool {
	for len(e.blocks) > 0 {
		block := &e.blocks[0]
		for len(*block) > 0 {
			var hash uint64
			if hash, e.Seq, e.Value, *block, e.err = nextRunRecord(*block); e.err != nil || hash > e.hash {
				e.blocks = e.blocks[:0]
				return false
			}
			if hash == e.hash {
				return true
			}
		}
		e.blocks = e.blocks[1:]
	}
	return false
}

// Err is the error that stopped Next, if any.
func (e *Entries) Err() error { return e.err }

// grow returns a slice of n bytes, b's memory if that is enough.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// runReadSize is how many bytes a RunIterator reads at once, unless a block is larger.
const runReadSize = 256 << 10

// RunIterator goes through a run from its lowest hash to its highest. Not safe
// for concurrent use.
type RunIterator struct {
	db     *DB
	run    Run
	file   *runFile
	closed bool
	direct bool   // it reads past the page cache
	raw    []byte // memory of buf
	buf    []byte // blocks read ahead, from offset off
	off    uint64
	next   int    // block to be read
	block  []byte // the present one
	count  uint64
	part   bool // it began in the middle

	hash, seq uint64     // of the last entry
	entries   []RunEntry // what Next returned last
	err       error
}

// RunEntry is an entry of a run.
type RunEntry struct {
	Hash, Seq uint64
	Value     []byte
}

// IterateRun returns an iterator before the run's first entry.
func (db *DB) IterateRun(r Run) (*RunIterator, error) {
	file, err := db.useRun(r)
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, fmt.Errorf("run %s: %w", runFileName(r), fs.ErrNotExist)
	}
	direct := file.index.size() >= minDirect
	return &RunIterator{db: db, run: r, file: file, direct: direct, raw: db.runs.readBuffer()}, nil
}

// IterateRunFrom is IterateRun before the block that may have a hash: of its entries some may
// have lower ones.
func (db *DB) IterateRunFrom(r Run, hash uint64) (*RunIterator, error) {
	it, err := db.IterateRun(r)
	if err == nil {
		it.next = it.file.index.block(hash)
		it.part = it.next > 0
	}
	return it, err
}

// Next returns the entries that follow, those of a block, so that what it costs
// is shared by them; they are borrowed until the next call. None at the end, which
// comes only after as many entries as the run's header names, or after an error.
func (it *RunIterator) Next() []RunEntry {
	it.entries = it.entries[:0]
	if it.err != nil || !it.readBlock() {
		return nil
	}
	for b := it.block; len(b) > 0; {
		var e RunEntry
		if e.Hash, e.Seq, e.Value, b, it.err = nextRunRecord(b); it.err != nil {
			return nil
		}
		if it.count > 0 && (e.Hash < it.hash || e.Hash == it.hash && e.Seq <= it.seq) {
			it.err = disk.Corruptf("the run's entries are out of order")
			return nil
		}
		it.hash, it.seq = e.Hash, e.Seq
		it.count++
		it.entries = append(it.entries, e)
	}
	return it.entries
}

// readBlock goes to the next block that has records; false at the end.
func (it *RunIterator) readBlock() bool {
	index := &it.file.index
	for it.next < index.n {
		from, to := index.span(it.next)
		it.next++
		if from == to {
			continue
		}
		if to > it.off+uint64(len(it.buf)) {
			it.err = it.readAhead(from)
		}
		if it.err == nil {
			it.block, it.err = checkRunBlock(it.buf[from-it.off : to-it.off])
		}
		return it.err == nil
	}
	if it.count != it.run.Count && !it.part {
		it.err = disk.Corruptf("%d entries instead of %d", it.count, it.run.Count)
	}
	return false
}

// readAhead fills the buffer with whole blocks from the present one on.
func (it *RunIterator) readAhead(from uint64) error {
	index := &it.file.index
	i := it.next
	for i < index.n && index.end(i)-from <= runReadSize {
		i++
	}
	to := index.end(i - 1)
	if it.direct {
		done, err := it.readDirect(from, to)
		if done || err != nil {
			return err
		}
		it.direct = false // a file system that refuses
	}
	f, err := it.db.runs.read(&it.file.cached)
	if err != nil {
		return wrap("open a run", err)
	}
	defer it.db.runs.done(&it.file.cached)
	it.raw = grow(it.raw, int(to-from))
	it.buf, it.off = it.raw, from
	return readAt(f, it.buf, from)
}

// readDirect reads from..to-1 past the page cache; done is false if that is not
// supported.
func (it *RunIterator) readDirect(from, to uint64) (done bool, err error) {
	f, err := it.db.runs.read(&it.file.direct)
	if err != nil {
		return false, nil // what is wrong with the file the usual way tells
	}
	defer it.db.runs.done(&it.file.direct)
	begin, end := alignDown(from), alignUp(to)
	it.raw = grow(it.raw, int(end-begin))
	it.buf, it.off = it.raw[from-begin:to-begin], from
	n, err := f.ReadAt(it.raw, int64(begin))
	if n >= int(to-begin) {
		return true, nil // what is missing, if anything, is behind the end of the file
	}
	if errors.Is(err, syscall.EINVAL) || err == io.EOF {
		return false, nil
	}
	return false, err
}

// Close ends the iterator and returns the error that stopped it, if any.
func (it *RunIterator) Close() error {
	if !it.closed {
		it.db.runs.endDirect(it.file)
		it.db.runs.release(it.file)
		it.db.runs.recycle(it.raw)
		it.closed, it.raw, it.buf = true, nil, nil
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
	for entries := it.Next(); len(entries) > 0; entries = it.Next() {
		for _, e := range entries {
			if err := fn(e.Hash, e.Seq, e.Value); err != nil {
				_ = it.Close() // only read: fn's error is the one to tell
				return err
			}
		}
	}
	return it.Close()
}
