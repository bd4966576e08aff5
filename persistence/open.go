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

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
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
)

// DB is an open data directory. Its methods are safe for concurrent use,
// except that Close must come after all others have returned.
type DB struct {
	fs     vfs.FS // of our own files
	dir    string
	meta   atomic.Pointer[Meta]
	logger *slog.Logger
	stop   func(error) // ends the process
	lock   dirLock
	// identity is what the directory was when it was opened.
	identity   identity
	usage      usage
	lastBackup atomic.Pointer[time.Time]
	describe   atomic.Pointer[func() (end func() ([]byte, error))]
	spare      spare
	cache      *pebble.Cache
	log        *oplog.Log
	// manifest keeps MANISYNC.
	manifest manifestMark
	options  *pebble.Options
	pebble   *pebble.DB
	flushes  flushes
	staged   atomic.Uint64 // sstables that were made aside, for their names

	runs     runFiles
	holds    holds
	readOnly bool
	// writeBufs are directWriters': *[]byte.
	writeBufs sync.Pool
	failed    disk.Failure
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

// open makes durable what it reads, before anything rests on it: the process before may have been
// killed between a change and its fsync, or an fsync may have failed (disk.Renew), and then a power
// loss would take what was found here.
//
//   - Names in the directory: Open writes LOGSYNC last, and fsyncs the directory then. Its own
//     name: disk.MakeDir, which makes at least the directory of files under construction in one
//     that was restored. Those of snapshots: here. Those of the log's files: oplog.Open. Those of
//     runs and sstables were fsynced before a row, or the MANIFEST, told of them.
//   - META, snapshots, runs, sstables and the file of a partition that moves never change, and were
//     fsynced before anything relied on them. A file that could not be fsynced was given up.
//   - The op log grows: oplog.Open makes durable what it finds. So does OpenTail for the tail of a
//     partition that moves.
//   - The MANIFEST grows. Pebble has an empty log in each directory that it has opened, and so
//     writes a new MANIFEST, durably, when it opens it again, before it deletes what the old one
//     does not name (TestManifestOnNoDisk).
//   - CLUSTER and WITNESS change in place: OpenValues writes anew what it has read. A node's id and
//     votes are in CLUSTER, the log of the meta group, and Raft's snapshots; Raft's entries are in
//     the op log.
//   - LOGSYNC and MANISYNC say what was durable when they were written, and stay true if they are
//     lost. REGIONS, and the time of the last backup, may be lost.
func (db *DB) open(o Options) error {
	db.runs.init(db.fs, db.logger, o.openRuns())
	if err := db.checkOurs(o.Beside); err != nil {
		return err
	}
	if err := disk.MakeDir(db.fs, db.dir); err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	if err := db.takeLock(); err != nil {
		return err
	}
	if err := db.loadMeta(o.Partitions, o.Seed); err != nil {
		return err
	}
	for _, name := range []string{pebbleName, logName, snapshotName, runName, buildName} {
		if err := disk.MakeDir(db.fs, db.path(name)); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	if err := db.removeLeftovers(); err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	if err := disk.SyncDir(db.fs, db.path(snapshotName)); err != nil { // see above
		return fmt.Errorf("fsync %s: %w", snapshotName, err)
	}
	if err := db.openPebble(o); err != nil {
		return err
	}
	var err error
	if db.log, err = oplog.Open(db.logOptions(o)); err != nil {
		return err
	}
	return db.openRuns()
}

// logOptions are the op log's.
func (db *DB) logOptions(o Options) oplog.Options {
	return oplog.Options{
		FS: db.fs, Dir: db.path(logName), MarkDir: db.dir, FileSize: o.LogFileSize,
		Partitions: db.Meta().Partitions,
		Fsync:      o.Fsync, Logger: o.Logger, Now: o.Now, Ticks: o.ticks, Failed: &db.failed,
		Full:     &db.spare.lacks,
		Sections: o.Sections, Salvage: o.Salvage,
	}
}

// path joins names to the data directory.
func (db *DB) path(names ...string) string {
	return db.fs.PathJoin(append([]string{db.dir}, names...)...)
}

// checkOurs refuses a directory that holds files but no META, before anything
// is written to it. The remains of a creation that was interrupted before META are allowed, and so
// are the names in beside.
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
		case lockName, ValuesName, ValuesName + disk.TmpSuffix, WitnessName, WitnessName + disk.TmpSuffix,
			metaName + disk.TmpSuffix, "lost+found":
		default:
			if !slices.Contains(beside, name) {
				foreign = name
			}
		}
	}
	if slices.Contains(names, pebbleName) && slices.Contains(names, oplog.MarkName) {
		return disk.Corruptf("%s is missing", metaName)
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

// loadMeta reads META, or writes it when the directory is new. A seed of zeros is not
// given.
func (db *DB) loadMeta(partitions int, seed [16]byte) error {
	b, err := disk.ReadFile(db.fs, db.path(metaName), metaMaxSize)
	if err == nil {
		var m Meta
		m, err = decodeMeta(b)
		if db.meta.Store(&m); err == nil && seed != [16]byte{} && m.Seed != seed {
			err = ErrOtherSeed // neither is told: clients must not learn it
		}
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", metaName, err)
	}
	m := newMeta(partitions, seed)
	db.meta.Store(&m)
	if err := disk.WriteFile(db.fs, db.dir, metaName, m.encode()); err != nil {
		return fmt.Errorf("write %s: %w", metaName, err)
	}
	return nil
}

// removeLeftovers deletes files that a crash left half written.
func (db *DB) removeLeftovers() error {
	if err := errors.Join(db.RemoveCut(), disk.RemoveIfExists(db.fs, db.path(originName))); err != nil {
		return err
	}
	for _, dir := range []string{snapshotName, buildName} {
		names, err := db.fs.List(db.path(dir))
		if err != nil {
			return err
		}
		for _, name := range names {
			if dir == snapshotName && !strings.HasSuffix(name, disk.TmpSuffix) {
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
	case errors.Is(err, ErrNotADataDirectory) && db.readOnly:
		advice = "name a data directory, or a backup that BACKUP or fbfkv backup has made"
	case errors.Is(err, ErrNotADataDirectory):
		advice = "choose an empty or a new directory"
	case errors.Is(err, ErrOtherSeed):
		advice = "it belongs to another cluster, or to none; start with an empty directory"
	case errors.Is(err, oplog.ErrReplicated) && db.readOnly:
		advice = "it belongs to a node of a cluster, whose shard decides what counts: check a backup of the shard " +
			"(fbfkv backup), and replace a damaged node (fbfkv cluster replace)"
	case errors.Is(err, oplog.ErrReplicated):
		advice = "it belongs to a node of a cluster; start it with cluster-enabled yes"
	case errors.Is(err, ErrCorrupt):
		advice = "restore a backup, or keep the directory for examination"
	case errors.Is(err, syscall.ENOSPC):
		advice = "make room on its disk"
	case unwritable(err):
		return fmt.Errorf("data directory %s: %w; check its owner, its permissions and its mount: %w", db.dir,
			ErrUnwritable, err)
	default:
		return fmt.Errorf("data directory %s: %w", db.dir, err)
	}
	return fmt.Errorf("data directory %s: %w; %s", db.dir, err, advice)
}

// Meta returns what the directory fixed at its creation, and its incarnation.
func (db *DB) Meta() Meta { return *db.meta.Load() }

// Log returns the op log.
func (db *DB) Log() *oplog.Log { return db.log }

// Sync really fsyncs everything committed to the op log so far, whatever the policy.
// Changes of Pebble are Flush's.
func (db *DB) Sync() error {
	if db.closed.Load() {
		return ErrClosed
	}
	return db.log.Sync()
}

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
	err := db.release()
	_ = db.failed.Set(ErrClosed)
	return wrap("close", errors.Join(flushed, err))
}

// release undoes open as far as it came.
func (db *DB) release() error {
	db.runs.close()
	var err error
	if db.log != nil {
		err = db.log.Close()
	}
	err = errors.Join(err, db.stopPebble(), db.manifest.mark.Close())
	if db.cache != nil {
		db.cache.Unref()
	}
	return errors.Join(err, db.lock.Close())
}

// failure returns the error after which nothing more is accepted (G8), nil
// while all is well.
func (db *DB) failure() error { return db.log.Failure() }

// fail makes the first error sticky (G8) and returns the sticky one.
func (db *DB) fail(err error) error { return db.failed.Set(fmt.Errorf("%w: %w", ErrFailed, err)) }
