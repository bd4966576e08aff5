package persistence

import (
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// Metrics are what INFO shows of the storage. Sizes are in bytes, counts since
// Open.
type Metrics struct {
	// LogFiles and LogSize are the live files of the op log, LogWritten is what
	// was appended to it.
	LogFiles            int64
	LogSize, LogWritten uint64
	// TableFiles and TableSize are the live sstables.
	TableFiles int64
	TableSize  uint64
	// DiskSize is what everything in the data directory occupies, as du counts it; it
	// is a few seconds old.
	DiskSize uint64
	// Fsyncs are the times of the op log's fsyncs.
	Fsyncs oplog.FsyncTimes
	// Hangs tell of a disk that does not answer.
	Hangs oplog.Hangs
	// MemTableSize is held by memtables.
	MemTableSize uint64
	// Flushes and Compactions have finished; Debt is the estimated volume that
	// compactions are behind.
	Flushes, Compactions int64
	Debt                 uint64
	// ReadAmplification is how many sorted tables a look-up may have to ask.
	ReadAmplification int
	// BlockCacheSize, BlockCacheHits and BlockCacheMisses are of the cache.
	BlockCacheSize, BlockCacheHits, BlockCacheMisses int64
}

// Metrics returns the present figures. It takes Pebble's lock: not for the
// hot path.
func (db *DB) Metrics() Metrics {
	m := db.pebble.Metrics()
	total := m.Total()
	files, size := db.log.Sizes()
	return Metrics{
		LogFiles: files, LogSize: size, LogWritten: db.log.Written(),
		TableFiles: total.TablesCount, TableSize: uint64(total.TablesSize),
		DiskSize: db.diskSize(), Fsyncs: db.log.Fsyncs(), Hangs: db.log.Hangs(),
		MemTableSize: m.MemTable.Size,
		Flushes:      m.Flush.Count, Compactions: m.Compact.Count, Debt: m.Compact.EstimatedDebt,
		ReadAmplification: m.ReadAmp(),
		BlockCacheSize:    m.BlockCache.Size, BlockCacheHits: m.BlockCache.Hits,
		BlockCacheMisses: m.BlockCache.Misses,
	}
}

// DiskFree returns the bytes that the process may still write to the file
// system of the data directory.
func (db *DB) DiskFree() (uint64, error) {
	u, err := db.fs.GetDiskUsage(db.dir)
	return u.AvailBytes, wrap("ask for disk usage", err)
}

// usageEvery is how old the size of the directory may be before its files are looked at
// again.
const usageEvery = time.Second

// usage is the size of the data directory when it was last looked at.
type usage struct {
	mu    sync.Mutex
	at    time.Time
	bytes uint64
}

// diskSize returns the bytes that everything in the data directory occupies, as du
// counts: blocks, whatever of them is in use.
func (db *DB) diskSize() uint64 {
	u := &db.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); u.at.IsZero() || now.Sub(u.at) >= usageEvery {
		u.at, u.bytes = now, treeBlocks(db.fs, db.dir, 4, db.path(buildName, stagedName))
	}
	return u.bytes
}

// treeBlocks sums the blocks of a directory and all below it, to a depth that ours does
// not reach, but for one that is left out: a Staged, most of which is links. Files that vanish
// meanwhile are left out as well.
func treeBlocks(fsys vfs.FS, path string, depth int, without string) (bytes uint64) {
	if path == without {
		return 0
	}
	info, err := fsys.Stat(path)
	if err != nil {
		return 0
	}
	bytes = uint64(blockBytes(info))
	if !info.IsDir() || depth == 0 {
		return bytes
	}
	names, _ := fsys.List(path)
	for _, name := range names {
		bytes += treeBlocks(fsys, fsys.PathJoin(path, name), depth-1, without)
	}
	return bytes
}

// backupName is a file that says when the last backup was finished.
const backupName = "BACKUP"

// BackedUp notes when the last good backup was made, also for later starts. An earlier time than
// the known one changes nothing.
func (db *DB) BackedUp(at time.Time) {
	if at = at.UTC().Truncate(time.Second); !at.After(db.LastBackup()) {
		return
	}
	db.lastBackup.Store(&at)
	if err := disk.WriteFile(db.fs, db.dir, backupName, []byte(at.Format(time.RFC3339)+"\n")); err != nil {
		db.logger.Warn("the next start will not know of this backup", "error", err)
	}
}

// loadLastBackup reads what BackedUp has noted. It is no more than a hint to operators:
// what cannot be read counts as no backup.
func (db *DB) loadLastBackup() {
	b, err := disk.ReadFile(db.fs, db.path(backupName), 64)
	if err != nil {
		return
	}
	if at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(b))); err == nil {
		db.lastBackup.Store(&at)
	}
}

// LastBackup returns the latest time that BackedUp was told of; the zero time if none.
func (db *DB) LastBackup() time.Time {
	if at := db.lastBackup.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
