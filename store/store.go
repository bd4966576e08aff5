package store

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// Fsync is the durability policy, appendfsync in redis.conf.
type Fsync = oplog.Fsync

// The durability policies (G2).
const (
	Always   = oplog.Always
	Everysec = oplog.Everysec
	No       = oplog.No
)

// ParseFsync reads a policy by its redis.conf name.
func ParseFsync(s string) (Fsync, error) { return oplog.ParseFsync(s) }

// Options configure Open. Only Dir has no default.
type Options struct {
	// Dir is the data directory; it is created when missing.
	Dir string
	// FS holds the directory; default the machine's file system.
	FS vfs.FS
	// Fsync is the durability policy; default Always.
	Fsync Fsync
	// Partitions is the number of partitions of a new directory, a power of
	// two; default 16. An existing directory keeps its own.
	Partitions int
	// Seed, unless it is zeros, is the hash seed of a new directory: that of its cluster. A
	// directory with another one is refused. 0: a new directory draws its own.
	Seed [16]byte
	// SnapshotInterval is the longest time between two checkpoints while there are
	// changes; default 60 s. Negative: only on demand and when the op log is large.
	SnapshotInterval time.Duration
	// MaxLogBytes bounds the op log since the partitions' last checkpoints, and so the
	// time of recovery; default 128 MiB. At half of it the partitions with the most of
	// the log begin a checkpoint. Since a checkpoint writes the filters whole, their size
	// is added, up to twice MaxLogBytes.
	MaxLogBytes int64
	// LogFileSize is the size in bytes of a file of the op log, the unit in which
	// it is trimmed. 0: persistence.DefaultLogFileSize.
	LogFileSize int64
	// RecordMemory is how many bytes of memory EXACT records may take before they go to
	// disk in sorted runs; default 64 MiB over all partitions. With
	// many records on disk up to a 128th of their size is used.
	RecordMemory int64
	// FilterMaxMemory bounds the memory of all filters, bytes; default 1 GiB,
	// negative: unlimited.
	FilterMaxMemory int64
	// RegionRetention is how long, in logged time, a region keeps the records of its own
	// operations beyond what tables remember, while another region has not acknowledged them;
	// default 24 h, negative: no longer. MAXDISK bounds them as well. Records given up before that
	// are counted (RegionIDs.Unchecked).
	RegionRetention time.Duration
	// HotCounters bounds the number of keys kept in memory; default 1,000,000.
	// Keys that changed since their rows were written come on top, up to about half as
	// many or 4096 in each partition.
	HotCounters int
	// BlockCache is the size of Pebble's block cache, bytes; default 64 MiB.
	BlockCache int64
	// MinFreeDisk is the free space, bytes, below which writes are refused;
	// default 64 MiB, negative: never.
	MinFreeDisk int64
	// OpenFiles is how many files may be open at a time, about; at least
	// persistence.MinOpenFiles, default persistence.MaxOpenFiles.
	OpenFiles int
	// Beside are names of files that a new data directory may hold although they are
	// not the store's.
	Beside []string
	// AcceptForgottenWindow opens a directory even if all its filter snapshots are damaged
	// and APPROX tables or FBF keys lose what they remembered.
	AcceptForgottenWindow bool
	// Replicated returns the log of a shard of which this directory is a replica, made on
	// the directory's own (replica.go); nil: the directory is all there is.
	Replicated func(*oplog.Log) Log
	// Sections says where in the data of an entry of such a log the partitions' sections
	// are (oplog.Options).
	Sections func(*oplog.Entry) (from, to int, begins bool, err error)
	// RegionBacklog is how much of the op log is kept for each other region that has not taken it
	// yet, bytes; default 4 GiB.
	RegionBacklog int64
	// FollowBacklog is how much of the op log is kept for those who follow the counters, bytes; default
	// 1 GiB.
	FollowBacklog int64
	// Shard returns what followers need to know of the replica's shard; nil: it belongs to none.
	Shard func() Shard
	// RegionUndo is how many take-backs that can be dropped a counter remembers; any beyond that
	// are owed. Default part.MaxUndo.
	RegionUndo int
	// RegionIncarnation is what other regions know the log by if the directory is one of many replicas,
	// none of which it is called after; 0: this one can be no region.
	RegionIncarnation uint64
	// RegionRefuse: nothing that another region has not taken is given up, neither log nor records; if
	// more than RegionBacklog of the log is kept for one, clients' writes are refused.
	RegionRefuse bool
	// RegionAsk is how long a member waits with its writes at most, after Open or Lead, for Asked; 0: it
	// does not.
	RegionAsk time.Duration
	// Logger receives what an operator should know; default: discard.
	Logger *slog.Logger
	// Clock is the machine's by default.
	Clock Clock
	// Fatal is called when storage fails so that the process must end (G8); default: log
	// and exit with status 1.
	Fatal func(error)
}

func (o Options) withDefaults() Options {
	def(&o.SnapshotInterval, time.Minute)
	def(&o.RegionRetention, 24*time.Hour)
	def(&o.MaxLogBytes, 128<<20)
	def(&o.RecordMemory, 64<<20)
	def(&o.FilterMaxMemory, 1<<30)
	def(&o.HotCounters, 1_000_000)
	def(&o.BlockCache, 64<<20)
	def(&o.MinFreeDisk, 64<<20)
	def(&o.RegionBacklog, 4<<30)
	def(&o.FollowBacklog, 1<<30)
	def(&o.RegionUndo, part.MaxUndo)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = SystemClock()
	}
	return o
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Log is the op log, as operations need it: [oplog.Log], the directory's own. What it
// calls committed is as durable as Fsync says; a replicated log's Wait would mean on a
// majority of disks.
type Log interface {
	// NewBatch returns a batch, whose Apply is called under the locks of the partitions
	// that it touches, and whose Wait returns once it is committed.
	NewBatch() *oplog.Batch
	// Reserve reserves bytes for records before they are decided (G8), TryReserve a
	// little more without waiting, and Release gives back what was not used.
	Reserve(bytes int64) error
	TryReserve(bytes int64) bool
	Release(bytes, used int64)
	// Read calls fn for what a partition has done from a sequence on, as Open found it, or
	// BeginRecovery for some partitions; until EndRecovery. Bounds says between which
	// sequences that is.
	BeginRecovery(partitions ...uint16) error
	EndRecovery()
	Read(partition uint16, from uint64, fn func(seq uint64, section []byte) error) error
	Bounds(partition uint16) (first, last uint64, ok bool)
	// Trim gives up what a partition did before a sequence. KeepsOldest says whether a log
	// of more than limit bytes cannot become smaller before the partition does so.
	Trim(partition uint16, below uint64) error
	KeepsOldest(partition uint16, limit uint64) bool
	// Confirm returns once it is certain that nothing was committed before the call but
	// what this store had decided or redone by then.
	Confirm() error
}

// Store is an open data directory. Its methods are safe for concurrent use.
type Store struct {
	opts       Options
	log        *slog.Logger
	db         *persistence.DB
	oplog      Log
	partitions []*partition
	hashes     *hashes
	changes    changes
	shift      uint         // slot to partition
	procs      int          // that may work at the same time
	wall       atomic.Int64 // the highest wall time so far (clock.go)
	pool       memoryPool
	recovery   Recovery

	frozen   atomic.Pointer[error] // set once, by freeze
	diskFull atomic.Bool
	noSpace  atomic.Int64          // when it was last logged that the op log found none, unix s
	unread   atomic.Pointer[error] // why no other region reads this one; nil: they may
	saying   longlock.Mutex        // held while the store logs what it says of itself as a region
	unheard  atomic.Bool           // too much of the log is kept for another region (Options.RegionRefuse)
	leaving  leaving
	asking   atomic.Pointer[Asking] // nil: it is not asking other regions
	examines int                    // maxExamined; tests have less
	behind   atomic.Bool            // background work is so late that writes must wait
	late     atomic.Bool            // … that they are slowed down
	interval atomic.Int64           // SnapshotInterval, ns
	expired  atomic.Uint64
	hits     atomic.Uint64 // keys that queries found
	misses   atomic.Uint64
	onEvent  atomic.Pointer[func(string, time.Duration)]

	member atomic.Bool // of regions
	peers  peers       // other regions that read the op log
	// clients that follow the counters
	followers followers
	arrivals  arrivals // of partitions, for followers
	// heldFor is the mark of the regions for which the log is held; 0: it is not.
	heldFor   atomic.Uint64
	takers    sync.Pool      // *taker
	replica   *replica       // nil: there is no other node
	catalogMu longlock.Mutex // One change of the tables at a time.
	topMu     longlock.Mutex // One search for leaders at a time.

	rebuilds  longlock.Mutex // one rebuild at a time
	indexing  longlock.Mutex // one commit at a time that may change the index of expiries
	snapshots snapshotter
	digesting chan struct{} // has room for one
	scanning  atomic.Bool   // the filter of a partition's rows is being filled
	warming   atomic.Bool   // counters are being read ahead of their use
	backup    backup
	stop      chan struct{}
	running   sync.WaitGroup
	closed    atomic.Bool
}

// Open opens the data directory, recovers what it holds and starts the
// background work. If the directory is in use, of a newer format, damaged or not ours,
// it fails and changes nothing. Errors are one plain sentence and wrap persistence's
// sentinels.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	began := time.Now()
	db, err := persistence.Open(persistence.Options{
		FS: o.FS, Dir: o.Dir, Fsync: o.Fsync, Partitions: o.Partitions, Seed: o.Seed,
		CacheSize: o.BlockCache, LogFileSize: o.LogFileSize, OpenFiles: o.OpenFiles, Beside: o.Beside,
		Sections: o.Sections, Logger: o.Logger, Fatal: o.Fatal,
	})
	if err != nil {
		return nil, err
	}
	s := newStore(o, db)
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.oplog.EndRecovery()
	if set, ok := s.Regions(); ok {
		if s.holdForRegions(&set); s.replica == nil {
			s.ask(&set)
		}
	}
	s.openFollowers()
	s.recovery.Took = time.Since(began)
	s.start()
	return s, nil
}

func newStore(o Options, db *persistence.DB) *Store {
	meta := db.Meta()
	s := &Store{
		opts: o, log: o.Logger, db: db, oplog: db.Log(),
		shift: partitionShift(meta.Partitions),
		procs: runtime.GOMAXPROCS(0), hashes: newHashes(meta.Seed),
		stop: make(chan struct{}),

		digesting: make(chan struct{}, 1), examines: maxExamined,
	}
	if o.Replicated != nil {
		s.oplog, s.replica = o.Replicated(db.Log()), newReplica()
	}
	s.pool.limit.Store(max(o.FilterMaxMemory, 0))
	s.interval.Store(int64(o.SnapshotInterval))
	hot := o.HotCounters / meta.Partitions
	for i := range meta.Partitions {
		p := newPartition(uint16(i), meta.Partitions, s.hashes, hot, &s.pool, db)
		p.changes, p.onEntry = &s.changes, s.changes.entry
		if s.replica != nil {
			p.regionIncarnation = o.RegionIncarnation
		}
		s.partitions = append(s.partitions, p)
	}
	return s
}

// Close stops the background work, takes a snapshot and closes the directory.
// No Execute may be in progress.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	close(s.stop)
	s.running.Wait()
	var err error
	if s.Failure() == nil {
		err = s.Snapshot()
	}
	if lacksSpace(err) {
		s.log.Warn("no space for a snapshot: the next start redoes the op log", "error", err)
		err = nil
	}
	return errors.Join(err, s.abandon())
}

// lacksSpace reports whether all that was lacking is space on the disk.
func lacksSpace(err error) bool {
	return errors.Is(err, persistence.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, syscall.EDQUOT)
}

// CloseNow closes the directory without a snapshot, as SHUTDOWN NOSAVE does.
// Nothing acknowledged is lost: the op log is replayed at the next start.
func (s *Store) CloseNow() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	close(s.stop)
	s.running.Wait()
	return s.abandon()
}

// abandon closes the database and frees the filters.
func (s *Store) abandon() error {
	for _, p := range s.partitions {
		p.abandonComing()
	}
	err := s.db.Close()
	for _, p := range s.partitions {
		p.mu.Lock()
		p.release()
		p.mu.Unlock()
	}
	return err
}

// freeze makes the store fail-stop after a commit error: memory may be ahead
// of disk and outcomes are unknown, so that writes are refused and only what
// is committed is read until the directory is opened again (G8).
func (s *Store) freeze(cause error) {
	err := fmt.Errorf("%w (%v)", ErrUnknownOutcome, cause)
	if !s.frozen.CompareAndSwap(nil, &err) {
		return
	}
	s.log.Error("commit failed: the server refuses writes until it is restarted", "error", cause)
	for _, p := range s.partitions {
		p.frozen.Store(&err)
		p.committed.fail(err)
	}
}

// Failure returns why the store is frozen; nil if it is not.
func (s *Store) Failure() error {
	if err := s.frozen.Load(); err != nil {
		return *err
	}
	return nil
}

// writable returns why writes are refused at present; nil if they are not.
func (s *Store) writable() error {
	if err := s.Failure(); err != nil {
		return err
	}
	if s.diskFull.Load() {
		return ErrDiskFull
	}
	return nil
}

// DiskFull reports whether writes are refused because the disk is full. Safe for concurrent use.
func (s *Store) DiskFull() bool { return s.diskFull.Load() }

// TrimMemory releases memory that was kept for new EXACT records and not needed since
// the last call, and returns how many bytes that is. Call it every few seconds: it keeps
// what the load needs, and nothing without a load. All stores of a process share this
// memory. Safe for concurrent use.
func (s *Store) TrimMemory() (bytes int64) { return seen.TrimMemory() }

// Fsync returns the durability policy in force.
func (s *Store) Fsync() Fsync { return s.db.Log().Policy() }

// SetFsync changes the durability policy. When it returns, everything committed before
// is on disk.
func (s *Store) SetFsync(f Fsync) error { return s.db.Log().SetFsync(f) }

// Sync returns when everything committed so far is on disk, whatever the policy.
func (s *Store) Sync() error { return s.db.Sync() }

// Stalled reports whether, under Everysec, writes wait for a disk that is slow, or soon
// will. A batch that only reads what is committed does not wait.
func (s *Store) Stalled() bool { return s.db.Log().Stalled() }

// SetSnapshotInterval changes Options.SnapshotInterval.
func (s *Store) SetSnapshotInterval(d time.Duration) { s.interval.Store(int64(d)) }

// SetFilterMaxMemory changes Options.FilterMaxMemory. Filters keep what they have.
func (s *Store) SetFilterMaxMemory(bytes int64) { s.pool.limit.Store(max(bytes, 0)) }
