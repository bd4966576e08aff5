package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// rowBloomBits per key give a row look-up that finds nothing a 1 % chance of
// reading a block of a table that does not hold the row.
const rowBloomBits = 10

// openPebble opens Pebble, after it has compared its files with the mark that
// says how far its MANIFEST was durable.
func (db *DB) openPebble(o Options) error {
	db.manifest.mark = disk.MarkFile{FS: db.fs, Dir: db.dir, Name: manifestMarkName}
	if err := checkManifest(db.fs, db.dir); err != nil {
		return err
	}
	db.cache = newCache(o)
	if err := db.startPebble(o); err != nil {
		return wrap("open Pebble", blame(db.fs, db.dir, err))
	}
	return nil
}

// newCache makes the block cache. Pebble takes the memory of memtables out of
// it, usually two of them under load, which would leave nothing of a small one.
func newCache(o Options) *pebble.Cache {
	return pebble.NewCache(o.CacheSize + 2*int64(o.MemTableSize))
}

// startPebble opens Pebble, which panics where it cannot fsync a directory;
// nothing has been served yet, so an error says it better.
func (db *DB) startPebble(o Options) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	db.options = db.pebbleOptions(o)
	db.pebble, err = pebble.Open(db.path(pebbleName), db.options)
	return err
}

var errPanic = errors.New("Pebble panicked")

func (db *DB) stopPebble() error {
	if db.pebble == nil {
		return nil
	}
	p := db.pebble
	db.pebble = nil
	return p.Close()
}

func (db *DB) pebbleOptions(o Options) *pebble.Options {
	l := pebbleLogger{log: o.Logger, stop: o.stop, flushes: &db.flushes}
	po := &pebble.Options{
		FS:           markerFS{FS: o.FS, dir: db.path(pebbleName), die: o.stop, manifest: &db.manifest},
		Cache:        db.cache,
		MemTableSize: o.MemTableSize,
		// The op log is the only one (changes.go).
		DisableWAL: true,
		// Not FormatNewest: with a new Pebble the release before could no longer open the
		// directory, which is for the operator to decide (docs/guide/upgrade.md).
		FormatMajorVersion: pebble.FormatValueSeparation,
		// Two memtables may wait for the flush of a third before writes do.
		MemTableStopWritesThreshold: memTables,
		L0StopWritesThreshold:       sublevels,
		// Rows are written in bulk and mostly overwrite others. The cost is how often compactions
		// write a row again: so they begin late, the more so since a checkpoint flushes less than a
		// whole memtable, and below level 0 there is only one level up to a gigabyte.
		L0CompactionThreshold: 32,
		LBaseMaxBytes:         1 << 30,
		// A second compaction helps while checkpoints write rows; the server has
		// at least two cores, and clients come first.
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		// Flushed counters give their space back soon.
		FlushDelayDeleteRange: 5 * time.Second,
		MaxOpenFiles:          o.openTables() + pebblesOthers,
		Logger:                l,
		EventListener:         l.events(),
	}
	// A second compaction at a time is for when one does not keep up, twice as
	// much being in level 0 as it begins with.
	po.Experimental.L0CompactionConcurrency = 2 * po.L0CompactionThreshold
	// Rows are short. Compacting blocks of whole rows takes two thirds of the time
	// of blocks of columns, and the blocks are smaller. Compression would make them a
	// third smaller still, and each compaction slower.
	po.Experimental.EnableColumnarBlocks = func() bool { return false }
	for i := range po.Levels {
		po.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(rowBloomBits)
	}
	po.EnsureDefaults()
	po.WithFSDefaults() // which notice slow disk operations
	return po
}

// stop ends the process after an error that leaves nothing sound to go on
// with (G8). It does not return.
func (o Options) stop(err error) {
	o.Fatal(err)
	o.Logger.Error("storage failed, the process stops", "error", err)
	os.Exit(1)
}

// Stop ends the process because of an error that leaves nothing sound to go on
// with (G8), after Options.Fatal and a line in the log. It does not return.
func (db *DB) Stop(err error) { db.stop(err) }

// stopOnPanic is deferred around calls of Pebble that write: it panics with
// its locks held, and whoever recovered that panic further up would leave all
// other writers waiting for ever.
func (db *DB) stopOnPanic() {
	if p := recover(); p != nil {
		db.logger.Error("Pebble panicked", "panic", p, "stack", string(debug.Stack()))
		db.stop(db.fail(fmt.Errorf("Pebble panicked: %v", p)))
	}
}

// pebbleLogger passes Pebble's messages to slog.
type pebbleLogger struct {
	log     *slog.Logger
	stop    func(error)
	flushes *flushes
}

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...))
}

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. It does not return: Pebble calls it where
// its state no longer agrees with the disk, and goes on as if it had not (G8).
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.stop(fmt.Errorf("%w: %s", ErrFailed, fmt.Sprintf(format, args...)))
}

func (l pebbleLogger) events() *pebble.EventListener {
	return &pebble.EventListener{
		// Pebble retries a failed flush or compaction in new files, so a full
		// disk heals when space returns; damaged data does not heal.
		BackgroundError: func(err error) {
			if pebble.IsCorruptionError(err) {
				l.stop(fmt.Errorf("%w: %w", ErrFailed, wrap("background work", err)))
			}
			l.log.Error("background work failed, it will be retried", "error", err)
			l.flushes.backgroundError(err)
		},
		FlushEnd:      l.flushes.flushEnded,
		CompactionEnd: l.flushes.compactionEnded,
		// The reader of the damaged block gets ErrCorrupt too.
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			l.log.Error("data on disk is damaged", "path", i.Path, "error", i.Details)
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			l.log.Warn("the disk is slow", "path", i.Path, "operation", i.OpType.String(), "took", i.Duration)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			l.log.Warn("writes wait for compactions", "reason", i.Reason)
		},
		WriteStallEnd: func() { l.log.Info("writes no longer wait for compactions") },
		LowDiskSpace: func(i pebble.LowDiskSpaceInfo) {
			l.log.Warn("disk space is low", "details", i.String())
		},
	}
}
