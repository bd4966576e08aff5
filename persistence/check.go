package persistence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// OpenReadOnly opens an existing data directory for examination. It takes the
// lock, so that no server writes meanwhile, and changes nothing: leftovers
// stay, a tail of the op log that Open would cut is only passed over (Recovery
// tells). Whatever commits, syncs or writes files must not be called. Errors are
// Open's, and fs.ErrNotExist for a directory that does not exist.
func OpenReadOnly(o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	db := &DB{fs: o.FS, dir: o.Dir, logger: o.Logger, stop: o.stop, readOnly: true}
	db.flushes.init()
	if err := db.openReadOnly(o); err != nil {
		return nil, errors.Join(db.explain(err), db.release())
	}
	return db, nil
}

func (db *DB) openReadOnly(o Options) error {
	db.runs.init(db.fs, db.logger, o.openRuns())
	if _, err := db.fs.Stat(db.dir); err != nil {
		return err
	}
	if err := db.checkOurs(nil); err != nil {
		return err
	}
	// Only now: taking the lock may create its file.
	b, err := disk.ReadFile(db.fs, db.path(metaName), metaMaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it holds no %s", ErrNotADataDirectory, metaName)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", metaName, err)
	}
	if err := db.takeLock(); err != nil {
		return err
	}
	m, err := decodeMeta(b)
	if db.meta.Store(&m); err != nil {
		return err
	}
	if err := checkManifest(db.fs, db.dir); err != nil {
		return err
	}
	db.cache = newCache(o)
	db.options = db.pebbleOptions(o)
	db.options.ReadOnly = true
	db.options.ErrorIfNotExists = true
	if db.pebble, err = pebble.Open(db.path(pebbleName), db.options); err != nil {
		return wrap("open Pebble", blame(db.fs, db.dir, err))
	}
	db.log, err = oplog.OpenReadOnly(db.logOptions(o))
	return err
}

// TableCheck is what VerifyTables went through.
type TableCheck struct {
	Files int
	Bytes int64
}

// VerifyTables verifies every block of every sstable against its checksum, and
// then the order of all keys within and between the sstables. report is called
// with the name of a damaged file, relative to the data directory, and what is
// wrong with it; progress with the bytes verified so far and in all.
func (db *DB) VerifyTables(report func(file string, err error), progress func(done, total int64)) (TableCheck,
	error) {
	files, total, err := db.tables()
	if err != nil {
		return TableCheck{}, wrap("list the sstables", err)
	}
	var c TableCheck
	damaged := false
	for _, name := range files {
		size, err := db.verifyTable(name)
		if err != nil {
			damaged = true
			report(db.fs.PathJoin(pebbleName, name), err)
		}
		c.Files++
		c.Bytes += size
		progress(c.Bytes, total)
	}
	if damaged {
		return c, nil // the keys' order would name the same damage again
	}
	return c, wrap("verify the order of keys", db.pebble.CheckLevels(nil))
}

// tables lists the files of all live sstables and their size together.
func (db *DB) tables() (names []string, total int64, err error) {
	levels, err := db.pebble.SSTables()
	if err != nil {
		return nil, 0, err
	}
	for _, level := range levels {
		for i := range level {
			// Several virtual sstables may share a file.
			names = append(names, fmt.Sprintf("%06d.sst", uint64(level[i].BackingSSTNum)))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if info, err := db.fs.Stat(db.path(pebbleName, name)); err == nil {
			total += info.Size() // what is missing is reported by verifyTable
		}
	}
	return names, total, nil
}

func (db *DB) verifyTable(name string) (size int64, err error) {
	f, err := db.fs.Open(db.path(pebbleName, name), vfs.SequentialReadsOption)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	in, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return info.Size(), errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), in, db.options.MakeReaderOptions())
	if err != nil {
		return info.Size(), errors.Join(err, in.Close())
	}
	return info.Size(), errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// StrayRows returns how many rows lie outside all slots.
func (db *DB) StrayRows() (n int, err error) {
	const slots = 16384
	var lower [rowPrefixSize]byte
	putPosition(lower[:], slots<<48)
	err = db.scan("read rows", lower[:], []byte{kindRow + 1}, func(_, _ []byte) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

// HasExpiry reports whether the index of expiries has an entry.
func (db *DB) HasExpiry(partition uint16, at int64, k RowKey) (bool, error) {
	key := make([]byte, expiryPrefixSize+8+len(k.Key))
	putExpiryKey(key, partition, at, k)
	_, ok, err := db.get(nil, key, "read expiries")
	return ok, err
}
