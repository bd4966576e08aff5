package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// ErrOldFormat: an earlier release wrote the data directory, and it is opened
// in a way that cannot convert it.
var ErrOldFormat = errors.New("data directory has an older format")

// upgrade brings a directory of an older format to this one. It may be
// interrupted at any point.
func (db *DB) upgrade(o Options) error {
	if db.meta.Format == 1 {
		if err := db.moveRuns(); err != nil {
			return err
		}
	}
	if db.meta.Format < formatOpLogFiles {
		if err := db.copyOpLog(); err != nil {
			return err
		}
		// The mark comes before META says that the files count; and they are opened
		// again, so that ReadLog finds what was written.
		if err := db.log.sync.setPolicy(Always, db.Sync); err != nil {
			return err
		}
		if err := db.log.close(); err != nil {
			return wrap("convert the op log", err)
		}
		if err := db.setFormat(format); err != nil {
			return err
		}
		if err := db.openLog(o); err != nil {
			return err
		}
	}
	if db.meta.Format < format {
		// Format 4 only has opids in one more form.
		if err := db.setFormat(format); err != nil {
			return err
		}
	}
	return db.dropOldLog()
}

func (db *DB) setFormat(format int) error {
	meta := db.meta
	meta.Format = format
	if err := writeFile(db.fs, db.dir, metaName, meta.encode()); err != nil {
		return wrap("write "+metaName, err)
	}
	db.meta = meta
	return nil
}

// The keys of the op log up to format 2: kindLog, partition u16, sequence u64.
const oldLogKeySize = 1 + 2 + 8

// copyOpLog copies the op log that is in Pebble to files, which format 3 keeps
// it in. Until META says 3 the files count for nothing.
func (db *DB) copyOpLog() error {
	const chunk = 1 << 20
	b := db.NewBatch()
	err := db.scan("convert the op log", []byte{kindLog}, []byte{kindLog + 1}, func(key, value []byte) (bool, error) {
		if len(key) != oldLogKeySize {
			return false, corruptf("op log key of %d bytes", len(key))
		}
		b.AppendLog(binary.BigEndian.Uint16(key[1:]), binary.BigEndian.Uint64(key[3:]), value)
		if len(b.log) < chunk {
			return true, nil
		}
		return true, commitNow(b)
	})
	if err != nil {
		return err
	}
	return commitNow(b)
}

// dropOldLog deletes what copyOpLog has copied.
func (db *DB) dropOldLog() error {
	found := false
	err := db.scan("convert the op log", []byte{kindLog}, []byte{kindLog + 1}, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	if err != nil || !found {
		return err
	}
	return wrap("convert the op log", db.pebble.DeleteRange([]byte{kindLog}, []byte{kindLog + 1}, pebble.Sync))
}

func commitNow(b *Batch) error {
	if err := b.Apply(); err != nil {
		return err
	}
	return b.Wait()
}

// moveRuns brings a directory to format 2, which keeps the entries of runs in
// files of their own instead of in Pebble: the files come first, then the
// entries go in one commit, META last.
func (db *DB) moveRuns() error {
	runs, err := db.extractRuns()
	if err != nil {
		return err
	}
	b := db.NewBatch()
	for _, r := range runs {
		op := b.b.DeleteRangeDeferred(runHeaderSize, runHeaderSize)
		copy(op.Key, append(r.prefix(), oldRunEntries))
		copy(op.Value, r.headerKey())
		finish(op)
	}
	if err := db.syncRuns(runs); err != nil {
		return err
	}
	if err := commitNow(b); err != nil {
		return err
	}
	db.runs.close()
	return db.setFormat(2)
}

// The keys of a run's entries in format 1: the run's prefix, this byte, hash
// u64, sequence u64.
const (
	oldRunEntries   = 0x01
	oldRunEntrySize = runHeaderSize + 8 + 8
)

// extractRuns writes a file for each run whose entries are in Pebble. There
// they precede the header row, in the order in which a file has them.
func (db *DB) extractRuns() (runs []Run, err error) {
	var w *RunWriter
	begin := func(key []byte) (err error) {
		if w == nil {
			w, err = db.NewRun(Run{
				Partition: binary.BigEndian.Uint16(key[1:]),
				Table:     binary.BigEndian.Uint32(key[3:]),
				ID:        binary.BigEndian.Uint64(key[7:]),
			})
		}
		return err
	}
	err = db.scan("convert runs", []byte{kindRun}, []byte{kindRun + 1}, func(key, value []byte) (bool, error) {
		if len(key) == oldRunEntrySize && key[runPrefixSize] == oldRunEntries {
			if err := begin(key); err != nil {
				return false, err
			}
			hash, seq := binary.BigEndian.Uint64(key[runHeaderSize:]), binary.BigEndian.Uint64(key[runHeaderSize+8:])
			return true, w.Add(hash, seq, value)
		}
		r, err := decodeRun(key, value)
		if err != nil {
			return false, err
		}
		if w == nil && r.Count > 0 {
			return true, nil // converted by an attempt that was interrupted
		}
		if err := begin(key); err != nil {
			return false, err
		}
		got, err := w.Finish(r)
		w = nil
		if err == nil && got != r {
			err = corruptf("run %d has %d entries instead of %d", r.ID, got.Count, r.Count)
		}
		runs = append(runs, got)
		return true, err
	})
	if w != nil {
		w.Abort()
		err = errors.Join(err, corruptf("a run has no header"))
	}
	return runs, err
}

// refuseOldFormat is for who may not write.
func (db *DB) refuseOldFormat() error {
	if db.meta.Format < format {
		return fmt.Errorf("%w: format %d", ErrOldFormat, db.meta.Format)
	}
	return nil
}
