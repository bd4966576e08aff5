package persistence

import (
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// Limits and defaults of Options.
const (
	// DefaultPartitions is the partition count of a new directory.
	DefaultPartitions = 16
	// MaxPartitions bounds it: each partition owns at least 16 of the 16384
	// hash slots.
	MaxPartitions = 1024
	// DefaultCacheSize is the size of Pebble's block cache in bytes.
	DefaultCacheSize = 64 << 20
	// DefaultMemTableSize is the size of one memtable in bytes.
	DefaultMemTableSize = 32 << 20
	// DefaultLogFileSize is the size of one file of the op log in bytes.
	DefaultLogFileSize = 32 << 20
)

// Options configure Open. Only Dir has no default.
type Options struct {
	// FS holds the directory. nil: the operating system's.
	FS vfs.FS
	// Dir is the data directory; created, with its parents, when missing.
	Dir string
	// Fsync is the policy of the op log at start. Default Always.
	Fsync oplog.Fsync
	// Partitions is used only when the directory is created; afterwards Meta
	// holds the truth. A power of two, 1..1024, default 16.
	Partitions int
	// Seed, unless it is zeros, is the seed of a new directory's hashes: its cluster's. A
	// directory with another one is refused (ErrOtherSeed). Zeros: a new one draws its own.
	Seed [16]byte
	// CacheSize is Pebble's block cache in bytes, default 64 MiB.
	CacheSize int64
	// MemTableSize is Pebble's memtable in bytes, default 32 MiB. A commit
	// of rows larger than half of it takes a slower path.
	MemTableSize uint64
	// LogFileSize is the size in bytes at which a file of the op log is followed
	// by the next one, default 32 MiB.
	LogFileSize int64
	// OpenFiles is how many files may be open at a time, about (below); at least
	// MinOpenFiles, default MaxOpenFiles.
	OpenFiles int
	// Beside are names of files that a new directory may hold although they are not
	// the database's.
	Beside []string
	// Sections says where in the data of an entry of a replicated log the partitions'
	// sections lie (oplog.Options). nil: the directory is no cluster's.
	Sections func(e *oplog.Entry) (from, to int, begins bool, err error)
	// Salvage lets OpenReadOnly read a damaged op log up to the damage (oplog.Options).
	Salvage bool
	// Logger receives Pebble's messages: its chatter at debug level, slow
	// disks at warn, background errors at error. nil: discarded.
	Logger *slog.Logger
	// Fatal is called once the process must not go on (G8): Pebble's Fatalf
	// and panics, and background errors that say stored data is damaged. It
	// should not return; when it does, the process ends with status 1, because
	// Pebble's state is undefined by then. nil: log and os.Exit(1).
	Fatal func(error)
	// Now drives the age rule of Everysec. nil: time.Now.
	Now func() time.Time
	// ticks say when Everysec fsyncs, in tests. nil: each second.
	ticks <-chan time.Time
}

// withDefaults returns o with its defaults filled in, or ErrBadOptions.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, fmt.Errorf("%w: no data directory given", ErrBadOptions)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Fsync > oplog.No {
		return o, fmt.Errorf("%w: unknown fsync policy %d", ErrBadOptions, o.Fsync)
	}
	if o.Partitions == 0 {
		o.Partitions = DefaultPartitions
	}
	if !validPartitions(o.Partitions) {
		return o, fmt.Errorf("%w: partitions must be a power of two from 1 to %d, not %d", ErrBadOptions,
			MaxPartitions, o.Partitions)
	}
	if o.CacheSize <= 0 {
		o.CacheSize = DefaultCacheSize
	}
	if o.MemTableSize == 0 {
		o.MemTableSize = DefaultMemTableSize
	}
	if o.LogFileSize <= 0 {
		o.LogFileSize = DefaultLogFileSize
	}
	if o.OpenFiles == 0 {
		o.OpenFiles = MaxOpenFiles
	}
	o.OpenFiles = max(o.OpenFiles, MinOpenFiles)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(error) {} // stop does the rest
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

func validPartitions(n int) bool {
	return n >= 1 && n <= MaxPartitions && bits.OnesCount(uint(n)) == 1
}

// How many files may be open. The system grants a process so many descriptors
// (RLIMIT_NOFILE); cmd gives the clients theirs first and the rest to the directory,
// as Options.OpenFiles. They are divided here:
//
//	otherFiles   the lock, the marks, the op log, Pebble's manifest and empty WAL, what
//	             flushes, compactions, snapshots and backups write, directories that
//	             are fsynced, and tables that are in use beyond Pebble's cache
//	tables       Pebble's cache of open tables
//	runs         runFiles: run files that are read or written
const (
	otherFiles  = 64
	leastTables = 128
	mostTables  = 1000
	leastRuns   = 64
	mostRuns    = 1024

	// MinOpenFiles is the least Options.OpenFiles, MaxOpenFiles the most that is
	// used, and the default.
	MinOpenFiles = otherFiles + leastTables + leastRuns
	MaxOpenFiles = otherFiles + mostTables + mostRuns
)

// pebblesOthers is how many files beside tables Pebble takes MaxOpenFiles to include.
const pebblesOthers = 10

// openTables is how many tables Pebble may keep open, openRuns how many run files
// may be open. They share the descriptors beyond the least numbers of both.
func (o Options) openTables() int {
	return min(leastTables+(o.OpenFiles-MinOpenFiles)/2, mostTables)
}

func (o Options) openRuns() int { return min(o.OpenFiles-otherFiles-o.openTables(), mostRuns) }
