package persistence

import (
	"errors"

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
	// Fsyncs are those of the op log.
	Fsyncs oplog.FsyncTimes
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
		DiskSize: db.diskSize(), Fsyncs: db.log.Fsyncs(), MemTableSize: m.MemTable.Size,
		Flushes: m.Flush.Count, Compactions: m.Compact.Count, Debt: m.Compact.EstimatedDebt,
		ReadAmplification: m.ReadAmp(),
		BlockCacheSize:    m.BlockCache.Size, BlockCacheHits: m.BlockCache.Hits, BlockCacheMisses: m.BlockCache.Misses,
	}
}

// DiskUsage returns the bytes that the process may still write to the file
// system of the data directory, and that file system's size.
func (db *DB) DiskUsage() (free, total uint64, err error) {
	u, err := db.fs.GetDiskUsage(db.dir)
	if err != nil {
		return 0, 0, wrap("ask for disk usage", errors.Join(err))
	}
	return u.AvailBytes, u.TotalBytes, nil
}
