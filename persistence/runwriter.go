package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// runWriteSize is how much a RunWriter gathers for one write.
const runWriteSize = 256 << 10

// RunWriter writes a run outside the commit path. Either Finish or Abort ends
// it. Not safe for concurrent use.
type RunWriter struct {
	db    *DB
	run   Run
	path  string
	f     vfs.File // nil after Finish or Abort
	buf   []byte   // not yet written
	off   uint64   // of buf in the file
	block int      // of the growing block in buf
	index runIndex

	hash, seq uint64 // of the last entry
	err       error  // sticky
}

// NewRun begins a run; only its Partition, Table and ID matter yet.
func (db *DB) NewRun(r Run) (*RunWriter, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	r.Count, r.Bytes = 0, 0
	w := &RunWriter{db: db, run: r, path: db.path(runName, runFileName(r))}
	f, err := db.fs.Create(w.path, writeCategory)
	if err != nil {
		return nil, wrap("create a run", err)
	}
	w.f, w.buf = f, db.runs.buffer()
	return w, nil
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
	if n := len(w.buf) - w.block; n > 0 && n+len(value)+8+2*binary.MaxVarintLen32 > runBlockSize {
		if w.seal(); w.err != nil {
			return w.err
		}
	}
	if len(w.buf) == w.block {
		w.index.first = append(w.index.first, hash)
	}
	w.buf = appendRunRecord(w.buf, hash, seq, value)
	w.hash, w.seq = hash, seq
	w.run.Count++
	w.run.Bytes += uint64(len(value))
	return nil
}

// seal ends the growing block.
func (w *RunWriter) seal() {
	if len(w.buf) == w.block {
		return
	}
	w.buf = binary.BigEndian.AppendUint32(w.buf, crc32.Checksum(w.buf[w.block:], castagnoli))
	w.block = len(w.buf)
	w.index.end = append(w.index.end, w.off+uint64(len(w.buf)))
	if len(w.buf) >= runWriteSize-2*runBlockSize {
		w.flush()
	}
}

// flush writes what is gathered.
func (w *RunWriter) flush() {
	if _, err := w.f.Write(w.buf); err != nil {
		w.err = wrap("write a run", err)
	}
	w.off += uint64(len(w.buf))
	w.buf, w.block = w.buf[:0], 0
}

// Finish ends the run with last's FirstSeq, LastSeq, FirstTime and LastTime
// and returns it with Count and Bytes. From then on LookUp and IterateRun find
// it, but it survives the process only once Batch.PublishRuns was committed.
func (w *RunWriter) Finish(last Run) (Run, error) {
	if w.err == nil && w.f == nil {
		return Run{}, ErrClosed
	}
	if w.seal(); w.err != nil {
		w.Abort()
		return Run{}, w.err
	}
	index := w.off + uint64(len(w.buf))
	at := len(w.buf)
	w.buf = w.index.appendTo(w.buf)
	footer := runFooter{run: w.run, blocks: uint64(w.index.blocks()), index: index, sum: crc32.Checksum(w.buf[at:], castagnoli)}
	w.buf = footer.appendTo(w.buf)
	if w.flush(); w.err != nil {
		w.Abort()
		return Run{}, w.err
	}
	w.run.FirstSeq, w.run.LastSeq, w.run.FirstTime, w.run.LastTime = last.FirstSeq, last.LastSeq, last.FirstTime, last.LastTime
	w.db.runs.add(w.run, &runFile{f: w.f, path: w.path, index: w.index, unsynced: true})
	w.db.runs.recycle(w.buf)
	w.f = nil
	return w.run, nil
}

// Abort drops an unfinished run. After Finish it does nothing.
func (w *RunWriter) Abort() {
	if w.f == nil {
		return
	}
	err := errors.Join(w.f.Close(), removeIfExists(w.db.fs, w.path))
	w.f = nil
	w.err = errors.Join(w.err, ErrClosed)
	if err != nil {
		w.db.logger.Warn("an unfinished run could not be removed; the next start will", "path", w.path, "error", err)
	}
}

// PublishRuns makes finished runs durable and adds their header rows to the
// batch, with whose commit they become part of the data directory. The header
// rows lie behind the runs' operations in the WAL: no crash keeps a run without
// the effects of its records (G4). An error of fsync is final (G8).
func (b *Batch) PublishRuns(runs []Run) error {
	if err := b.db.syncRuns(runs); err != nil {
		return err
	}
	for _, r := range runs {
		key, value := r.headerKey(), r.encodeHeader()
		op := b.b.SetDeferred(len(key), len(value))
		copy(op.Key, key)
		copy(op.Value, value)
		finish(op)
	}
	return nil
}

// syncRuns fsyncs the runs that have not been, and their names.
func (db *DB) syncRuns(runs []Run) error {
	synced := false
	for _, r := range runs {
		f := db.runs.acquire(r)
		if f == nil {
			return fmt.Errorf("publish run %d: %w", r.ID, ErrClosed)
		}
		if f.unsynced {
			if err := f.f.Sync(); err != nil {
				db.runs.release(f)
				return db.fail(wrap("fsync a run", err))
			}
			f.unsynced, synced = false, true
		}
		db.runs.release(f)
	}
	if !synced {
		return nil
	}
	KillPoint("run-synced")
	if err := syncDir(db.fs, db.path(runName)); err != nil {
		return db.fail(wrap("fsync the runs' directory", err))
	}
	return nil
}
