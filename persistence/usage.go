package persistence

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

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
		u.at, u.bytes = now, treeBlocks(db.fs, db.dir, 4)
	}
	return u.bytes
}

// treeBlocks sums the blocks of a directory and all below it, to a depth that ours does
// not reach. What vanishes meanwhile is left out.
func treeBlocks(fsys vfs.FS, path string, depth int) (bytes uint64) {
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
		bytes += treeBlocks(fsys, fsys.PathJoin(path, name), depth-1)
	}
	return bytes
}

// FsyncBounds are the upper ends of the buckets in which fsyncs are counted by how long
// they took; one more bucket has no end.
var FsyncBounds = []time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// FsyncTimes tells how many fsyncs of the op log there were, and how long they took.
type FsyncTimes struct {
	Count   uint64
	Sum     time.Duration
	Buckets []uint64 // by FsyncBounds: that took at most so long
}

// fsyncTimes counts fsyncs.
type fsyncTimes struct {
	sum     atomic.Int64
	buckets [32]atomic.Uint64 // each by itself; more than there are FsyncBounds
}

func (t *fsyncTimes) add(took time.Duration) {
	i, _ := slices.BinarySearch(FsyncBounds, took)
	t.buckets[i].Add(1)
	t.sum.Add(int64(took))
}

func (t *fsyncTimes) load() (f FsyncTimes) {
	f.Sum = time.Duration(t.sum.Load())
	for i := range FsyncBounds {
		f.Count += t.buckets[i].Load()
		f.Buckets = append(f.Buckets, f.Count)
	}
	f.Count += t.buckets[len(FsyncBounds)].Load()
	return f
}

// backupName is a file that says when the last backup was finished.
const backupName = "BACKUP"

// backedUp notes that a backup was finished, also for later starts.
func (db *DB) backedUp(at time.Time) {
	at = at.UTC().Truncate(time.Second)
	db.lastBackup.Store(&at)
	if err := writeFile(db.fs, db.dir, backupName, []byte(at.Format(time.RFC3339)+"\n")); err != nil {
		db.logger.Warn("the next start will not know of this backup", "error", err)
	}
}

// loadLastBackup reads what backedUp has noted. It is no more than a hint to operators:
// what cannot be read counts as no backup.
func (db *DB) loadLastBackup() {
	b, err := readFile(db.fs, db.path(backupName), 64)
	if err != nil {
		return
	}
	if at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(b))); err == nil {
		db.lastBackup.Store(&at)
	}
}

// LastBackup returns when Backup was last successful; the zero time if never.
func (db *DB) LastBackup() time.Time {
	if at := db.lastBackup.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
