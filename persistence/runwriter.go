package persistence

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// RunWriter builds a run as one sstable outside the commit path. Either Commit
// or Abort ends it. Not safe for concurrent use.
type RunWriter struct {
	db     *DB
	run    Run
	path   string
	prefix []byte
	key    []byte
	w      *sstable.Writer

	hash, seq    uint64 // of the last entry
	count, bytes uint64
	err          error // sticky
}

// NewRun begins a run; only its Partition, Table and ID matter yet.
func (db *DB) NewRun(r Run) (*RunWriter, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	w := &RunWriter{db: db, run: r, prefix: r.prefix()}
	w.path = db.path(buildName, fmt.Sprintf("run-%d.sst", db.builds.Add(1)))
	f, err := db.fs.Create(w.path, writeCategory)
	if err != nil {
		return nil, wrap("create a run", err)
	}
	const bottom = len(db.options.Levels) - 1 // where ingestion puts it
	o := db.options.MakeWriterOptions(bottom, db.pebble.TableFormat())
	// Look-ups are by hash, entries' keys also have a sequence: a Bloom filter
	// of whole keys could not answer them.
	o.FilterPolicy = nil
	w.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), o)
	return w, nil
}

// Add adds an entry; they must ascend by (hash, seq). The value is copied.
func (w *RunWriter) Add(hash, seq uint64, value []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.count > 0 && (hash < w.hash || hash == w.hash && seq <= w.seq) {
		w.err = fmt.Errorf("%w: (%x, %d) after (%x, %d)", ErrOrder, hash, seq, w.hash, w.seq)
		return w.err
	}
	w.key = entryKey(w.key, w.prefix, hash, seq)
	if w.err = wrap("write a run", w.w.Set(w.key, value)); w.err != nil {
		return w.err
	}
	w.hash, w.seq = hash, seq
	w.count++
	w.bytes += uint64(len(value))
	return nil
}

// Commit finishes the run with last's FirstSeq, LastSeq, FirstTime and
// LastTime, and ingests it: when it returns, the run is durable and visible, or
// there is an error and no run. Count and Bytes are filled in. The records'
// effects are made durable first, whatever the policy, so that after a power
// loss no id is remembered whose effect is lost (G4).
func (w *RunWriter) Commit(last Run) (Run, error) {
	last.Partition, last.Table, last.ID = w.run.Partition, w.run.Table, w.run.ID
	last.Count, last.Bytes = w.count, w.bytes
	if w.err != nil {
		err := w.err
		w.Abort()
		return Run{}, err
	}
	if err := w.commit(last); err != nil {
		w.Abort()
		return Run{}, wrap("commit a run", err)
	}
	return last, nil
}

func (w *RunWriter) commit(r Run) error {
	if err := w.w.Set(r.headerKey(), r.encodeHeader()); err != nil {
		return err
	}
	err := w.w.Close() // fsyncs the file
	w.w = nil
	if err != nil {
		return err
	}
	if err := w.db.settle(); err != nil {
		return err
	}
	defer w.db.stopOnPanic()
	return w.db.pebble.Ingest(context.Background(), []string{w.path})
}

// Abort drops the run. After Commit or Abort it does nothing harmful.
func (w *RunWriter) Abort() {
	if w.w != nil {
		// The error is of no interest: the file is dropped.
		_ = w.w.Close()
		w.w = nil
	}
	if err := removeIfExists(w.db.fs, w.path); err != nil {
		w.db.logger.Warn("an unfinished run could not be removed; the next start will", "path", w.path, "error", err)
	}
	w.err = errors.Join(w.err, ErrClosed)
}
