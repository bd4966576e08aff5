package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// RunWriter writes a run outside the commit path. Either Finish or Abort ends
// it. Not safe for concurrent use.
type RunWriter struct {
	directWriter // released by Finish and Abort

	run    Run
	path   string
	begin  int // of the growing block in buf
	block  int // number of the growing block
	index  runIndex
	filter runFilter

	hash, seq uint64 // of the last entry
	err       error  // sticky
}

// NewRun begins a run; only its Partition, Table and ID matter yet, and Count
// and Bytes: they are how much is expected, which the size of blocks and thus the
// time of look-ups depends on.
func (db *DB) NewRun(r Run) (*RunWriter, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	filter, blocks := newRunFilter(r.Count), 1+(r.Bytes+r.Count*minRunRecord)/runBlockSize
	r.Count, r.Bytes = 0, 0
	path := db.path(runName, runFileName(r))
	var out directWriter
	_, err := db.runs.reserve(func() (f vfs.File, err error) {
		out, err = db.newDirectWriter(path)
		return out.f, err
	})
	if err != nil {
		return nil, wrap("create a run", err)
	}
	return &RunWriter{directWriter: out, run: r, path: path, index: newRunIndex(int(blocks)), filter: filter},
		nil
}

// Add adds an entry; they must ascend by (hash, seq). The value is copied.
func (w *RunWriter) Add(hash, seq uint64, value []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.run.Count > 0 && (hash < w.hash || hash == w.hash && seq <= w.seq) {
		w.err = fmt.Errorf("%w: (%x, %d) after (%x, %d)", ErrOrder, hash, seq, w.hash, w.seq)
		return w.err
	}
	if block := w.index.block(hash); block != w.block {
		if w.seal(block); w.err != nil {
			return w.err
		}
	}
	w.buf = appendRunRecord(w.buf, hash, seq, value)
	w.filter.add(hash)
	w.hash, w.seq = hash, seq
	w.run.Count++
	w.run.Bytes += uint64(len(value))
	return nil
}

// seal ends the growing block and begins another; those between are empty.
func (w *RunWriter) seal(next int) {
	if len(w.buf) > w.begin {
		w.buf = binary.BigEndian.AppendUint32(w.buf, crc32.Checksum(w.buf[w.begin:], disk.Castagnoli))
	}
	end := w.size()
	if end > maxRunBytes {
		w.err = fmt.Errorf("write a run: %d bytes are too many", end)
		return
	}
	for ; w.block < next; w.block++ {
		w.index.setEnd(w.block, end)
	}
	w.err = wrap("write a run", w.makeRoom(4*runBlockSize))
	w.begin = len(w.buf)
}

// Finish ends the run with last's FirstSeq, LastSeq, FirstTime and LastTime
// and returns it with Count and Bytes. From then on LookUp and IterateRun find
// it, but it survives the process only once Changes.PublishRuns was committed.
func (w *RunWriter) Finish(last Run) (Run, error) {
	if w.err == nil && w.f == nil {
		return Run{}, ErrClosed
	}
	if w.err == nil {
		w.seal(w.index.n)
	}
	if w.err != nil {
		w.Abort()
		return Run{}, w.err
	}
	index, at := w.size(), len(w.buf)
	w.buf = w.index.appendTo(w.buf)
	footer := runFooter{
		run:    w.run,
		blocks: uint64(w.index.n), index: index, sum: crc32.Checksum(w.buf[at:], disk.Castagnoli),
	}
	w.buf = footer.appendTo(w.buf)
	if w.err = wrap("write a run", w.flush()); w.err != nil {
		w.Abort()
		return Run{}, w.err
	}
	w.run.FirstSeq, w.run.LastSeq = last.FirstSeq, last.LastSeq
	w.run.FirstTime, w.run.LastTime = last.FirstTime, last.LastTime
	file := newRunFile(w.path, w.index)
	file.filter, file.unnamed, file.unsynced = w.filter, true, true
	if w.db.runs.manyUnsynced() {
		if err := w.f.Sync(); err != nil {
			w.err = w.db.fail(wrap("fsync a run", err))
			w.Abort()
			return Run{}, w.err
		}
		file.unsynced = false
	}
	w.db.runs.add(w.run, file, w.release())
	return w.run, nil
}

// Abort drops an unfinished run. After Finish it does nothing.
func (w *RunWriter) Abort() {
	if w.f == nil {
		return
	}
	err := errors.Join(w.release().Close(), disk.RemoveIfExists(w.db.fs, w.path))
	w.db.runs.unreserve()
	if w.err == nil {
		w.err = ErrClosed
	}
	if err != nil {
		w.db.logger.Warn("an unfinished run could not be removed; the next start will", "path", w.path,
			"error", err)
	}
}

// PublishRuns makes finished runs durable and adds their header rows to the
// changes, with whose commit they become part of the data directory. The op log is
// durable up to the runs' operations before that: no crash keeps a run without the
// effects of its records (G4). An error of fsync is final (G8).
func (c *Changes) PublishRuns(runs []Run) error {
	if err := c.db.syncRuns(runs); err != nil {
		return err
	}
	for _, r := range runs {
		key, value := r.headerKey(), r.encodeHeader()
		op := c.b.SetDeferred(len(key), len(value))
		copy(op.Key, key)
		copy(op.Value, value)
		finish(op)
	}
	return nil
}

// syncRuns fsyncs the runs that have not been, and their names.
func (db *DB) syncRuns(runs []Run) error {
	unnamed := false
	for _, r := range runs {
		f := db.runs.acquire(r)
		if f == nil {
			return fmt.Errorf("publish run %d: %w", r.ID, ErrClosed)
		}
		err := db.runs.sync(f)
		unnamed, f.unnamed = unnamed || f.unnamed, false
		db.runs.release(f)
		if err != nil {
			return db.fail(wrap("fsync a run", err))
		}
	}
	if !unnamed {
		return nil
	}
	KillPoint("run-synced")
	if err := disk.SyncDir(db.fs, db.path(runName)); err != nil {
		return db.fail(wrap("fsync the runs' directory", err))
	}
	return nil
}
