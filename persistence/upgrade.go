package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrOldFormat: an earlier release wrote the data directory, and it is opened
// in a way that cannot convert it.
var ErrOldFormat = errors.New("data directory has an older format")

// upgrade brings a directory of format 1 to format 2, which keeps the entries
// of runs in files of their own instead of in Pebble. It may be interrupted at
// any point: the files come first, then the entries go in one commit, META
// last.
func (db *DB) upgrade() error {
	if db.meta.Format == format {
		return nil
	}
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
	if err := b.Apply(); err != nil {
		return err
	}
	if err := errors.Join(b.Wait(), db.Sync()); err != nil {
		return err
	}
	db.runs.close()
	db.meta.Format = format
	return wrap("write "+metaName, writeFile(db.fs, db.dir, metaName, db.meta.encode()))
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
