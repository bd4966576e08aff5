package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Names inside the data directory, beside META.
const (
	lockName     = "LOCK"
	pebbleName   = "db"
	logName      = "log"
	snapshotName = "snapshots"
	runName      = "runs"
	runSuffix    = ".run"
	buildName    = "tmp" // files under construction; emptied at Open
	tmpSuffix    = ".tmp"
)

// DB is an open data directory. Its methods are safe for concurrent use,
// except that Close must come after all others have returned.
type DB struct {
	fs     vfs.FS // of our own files
	dir    string
	meta   Meta
	logger *slog.Logger
	stop   func(error) // ends the process
	lock   dirLock
	// identity is what the directory was when it was opened.
	identity   identity
	usage      usage
	lastBackup atomic.Pointer[time.Time]
	spare      spare
	cache      *pebble.Cache
	log        *opLog
	// stopTicks ends the background fsync of the op log.
	stopTicks func()
	// manifest keeps MANISYNC.
	manifest manifestMark
	options  *pebble.Options
	pebble   *pebble.DB
	flushes  flushes

	policyMu sync.Mutex // one change of the fsync policy at a time
	recovery Recovery
	runs     runFiles
	readOnly bool
	// writeBufs are directWriters': *[]byte.
	writeBufs sync.Pool
	failed    atomic.Pointer[error]
	closed    atomic.Bool
}

// Open opens a data directory, creating it when it is missing or empty.
// Errors wrap ErrInUse, ErrNewerFormat, ErrNotADataDirectory, ErrUnwritable,
// ErrCorrupt or ErrBadOptions, each in a sentence that says what to do.
func Open(o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	db := &DB{dir: o.Dir, logger: o.Logger, stop: o.stop}
	db.flushes.init()
	db.spare = spare{fs: o.FS, path: o.FS.PathJoin(o.Dir, spareName)}
	fs := newSpareFS(o.FS, &db.spare, &db.flushes, o.FS.PathJoin(o.Dir, pebbleName))
	db.fs, o.FS = fs, fs
	if err := db.open(o); err != nil {
		return nil, errors.Join(db.explain(err), db.release())
	}
	db.identify()
	db.loadLastBackup()
	fs.opened.Store(true)
	if err := db.CheckSpace(); err != nil {
		o.Logger.Warn("the disk is full: writes are refused until there is space", "error", err)
	}
	return db, nil
}

func (db *DB) open(o Options) error {
	db.runs.init(db.fs, db.logger, o.openRuns())
	if err := db.checkOurs(o.Beside); err != nil {
		return err
	}
	if err := makeDir(db.fs, db.dir); err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	if err := db.takeLock(); err != nil {
		return err
	}
	if err := db.loadMeta(o.Partitions); err != nil {
		return err
	}
	for _, name := range []string{pebbleName, logName, snapshotName, runName, buildName} {
		if err := makeDir(db.fs, db.path(name)); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	if err := db.removeLeftovers(); err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	if err := db.openPebble(o); err != nil {
		return err
	}
	if err := db.openLog(o); err != nil {
		return err
	}
	if err := db.SetFsync(o.Fsync); err != nil {
		return err
	}
	db.stopTicks = db.log.sync.start()
	return db.openRuns()
}

// openLog opens the op log.
func (db *DB) openLog(o Options) error {
	db.log = newOpLog(o, db.path(logName), db.dir, db.meta)
	s, err := db.log.scan(&db.recovery)
	if err != nil {
		return err
	}
	if r := db.recovery; r.File != "" {
		db.logger.Warn("the op log's unsynced tail was damaged by the crash and was cut",
			"file", r.File, "at", r.CutAt, "lost_bytes", r.LostBytes)
	}
	return db.log.open(s)
}

// path joins names to the data directory.
func (db *DB) path(names ...string) string {
	return db.fs.PathJoin(append([]string{db.dir}, names...)...)
}

// checkOurs refuses a directory that holds files but no META, before anything
// is written to it. What a creation interrupted before META leaves is allowed, and
// what is known to be beside.
func (db *DB) checkOurs(beside []string) error {
	names, err := db.fs.List(db.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list it: %w", err)
	}
	foreign := ""
	for _, name := range names {
		switch name {
		case metaName:
			return nil
		case lockName, metaName + tmpSuffix, "lost+found":
		default:
			if !slices.Contains(beside, name) {
				foreign = name
			}
		}
	}
	if slices.Contains(names, pebbleName) && slices.Contains(names, logMarkName) {
		return corruptf("%s is missing", metaName)
	}
	if foreign != "" {
		return fmt.Errorf("%w: it holds %s but no %s", ErrNotADataDirectory, foreign, metaName)
	}
	return nil
}

func (db *DB) takeLock() (err error) {
	db.lock, err = lockDir(db.fs, db.dir)
	return err
}

// loadMeta reads META, or writes it when the directory is new.
func (db *DB) loadMeta(partitions int) error {
	b, err := readFile(db.fs, db.path(metaName), metaMaxSize)
	if err == nil {
		db.meta, err = decodeMeta(b)
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", metaName, err)
	}
	if db.meta, err = newMeta(partitions); err != nil {
		return err
	}
	if err := writeFile(db.fs, db.dir, metaName, db.meta.encode()); err != nil {
		return fmt.Errorf("write %s: %w", metaName, err)
	}
	return nil
}

// removeLeftovers deletes files that a crash left half written.
func (db *DB) removeLeftovers() error {
	for _, dir := range []string{snapshotName, buildName} {
		names, err := db.fs.List(db.path(dir))
		if err != nil {
			return err
		}
		for _, name := range names {
			if dir == snapshotName && !strings.HasSuffix(name, tmpSuffix) {
				continue
			}
			if err := db.fs.RemoveAll(db.path(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// explain turns a failure of Open into one sentence that says what to do.
func (db *DB) explain(err error) error {
	advice := ""
	switch {
	case errors.Is(err, ErrInUse):
		advice = "another process is using it; stop that process or choose another directory"
	case errors.Is(err, ErrNewerFormat):
		advice = "a later release wrote it; use that release"
	case errors.Is(err, ErrOldFormat):
		advice = "start with an empty directory"
	case errors.Is(err, ErrNotADataDirectory):
		advice = "choose an empty or a new directory"
	case errors.Is(err, ErrCorrupt):
		advice = "restore a backup, or keep the directory for examination"
	case errors.Is(err, syscall.ENOSPC):
		advice = "make room on its disk"
	case unwritable(err):
		return fmt.Errorf("data directory %s: %w; check its owner, its permissions and its mount: %w", db.dir, ErrUnwritable, err)
	default:
		return fmt.Errorf("data directory %s: %w", db.dir, err)
	}
	return fmt.Errorf("data directory %s: %w; %s", db.dir, err, advice)
}

// Meta returns what the directory fixed at its creation.
func (db *DB) Meta() Meta { return db.meta }

// Recovery returns what Open had to do to the op log.
func (db *DB) Recovery() Recovery { return db.recovery }

// Close makes everything committed durable, whatever the policy, and releases
// the directory. It returns ErrClosed when called again. All other calls must
// have returned.
func (db *DB) Close() error {
	if db.closed.Swap(true) {
		return ErrClosed
	}
	close(db.flushes.closing)
	// On a full disk the next start redoes the log instead.
	flushed := db.Flush()
	if errors.Is(flushed, ErrNoSpace) || errors.Is(flushed, ErrFailed) {
		flushed = nil
	}
	db.failed.CompareAndSwap(nil, &errClosed)
	return wrap("close", errors.Join(flushed, db.release()))
}

// errClosed is what commits get after Close.
var errClosed error = ErrClosed

// release undoes open as far as it came.
func (db *DB) release() error {
	db.runs.close()
	if db.stopTicks != nil {
		db.stopTicks()
	}
	var err error
	if db.log != nil {
		err = db.log.close()
	}
	err = errors.Join(err, db.stopPebble(), db.manifest.mark.close())
	if db.cache != nil {
		db.cache.Unref()
	}
	return errors.Join(err, db.lock.Close())
}

// failure returns the error after which nothing more is accepted (G8), nil
// while all is well.
func (db *DB) failure() error {
	if err := db.failed.Load(); err != nil {
		return *err
	}
	if err := db.log.sync.failure(); err != nil {
		return db.fail(err)
	}
	return nil
}

// fail makes the first error sticky (G8) and returns the sticky one.
func (db *DB) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	if !db.failed.CompareAndSwap(nil, &err) {
		return *db.failed.Load()
	}
	return err
}
