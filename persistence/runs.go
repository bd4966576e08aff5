package persistence

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// runFiles are the run files that this process knows; runhandles.go says which of them
// are open.
type runFiles struct {
	fs     vfs.FS
	logger *slog.Logger
	most   int // files open at a time

	mu       sync.RWMutex
	files    map[runID]*runFile
	open     int          // files, with those that are about to be
	unsynced int          // of the files known
	ring     []*runHandle // the open ones
	hand     int          // in ring; it goes round to find the coldest
	waiting  atomic.Int32 // who waits for idle, or may be about to
	idle     *sync.Cond   // on mu: nobody reads through some handle any more
	readBufs sync.Pool    // RunIterators': *[]byte
}

func (rs *runFiles) init(fs vfs.FS, logger *slog.Logger, most int) {
	rs.fs, rs.logger, rs.most = fs, logger, most
	rs.files = make(map[runID]*runFile)
	rs.idle = sync.NewCond(&rs.mu)
}

type runID struct {
	partition uint16
	table     uint32
	id        uint64
}

func (r Run) key() runID { return runID{r.Partition, r.Table, r.ID} }

// runFile is one of them.
type runFile struct {
	path   string
	index  runIndex
	filter runFilter
	// cached reads through the page cache, direct past it.
	cached, direct runHandle
	unnamed        bool         // its name may not be durable; only its publisher asks
	unsynced       bool         // nor its content; guarded by runFiles.mu
	users          atomic.Int32 // runFiles.files is one while it has the file
	removed        atomic.Bool  // the last user deletes the file
}

func newRunFile(path string, index runIndex) *runFile {
	f := &runFile{path: path, index: index}
	f.cached.file, f.direct.file, f.direct.direct = f, f, true
	return f
}

// readBuffer returns memory for a RunIterator, recycle takes it back.
func (rs *runFiles) readBuffer() []byte { return takeBuffer(&rs.readBufs, runReadSize+2*directAlign) }
func (rs *runFiles) recycle(b []byte)   { recycleBuffer(&rs.readBufs, b, runReadSize) }

// add makes a run known, whose file is open; room for that was reserved.
func (rs *runFiles) add(r Run, file *runFile, f vfs.File) {
	file.users.Store(1)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.files[r.key()] = file
	rs.keep(&file.cached, f)
	if file.unsynced {
		rs.unsynced++
	}
}

// acquire returns a run's file for use until release, nil if it is not known. The file
// stays meanwhile, also when the run is removed.
func (rs *runFiles) acquire(r Run) *runFile {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	f := rs.files[r.key()]
	if f != nil {
		f.users.Add(1)
	}
	return f
}

func (rs *runFiles) release(f *runFile) {
	if f.users.Add(-1) > 0 {
		return
	}
	rs.mu.Lock()
	rs.closeIdle(&f.cached)
	rs.closeIdle(&f.direct)
	rs.synced(f)
	rs.mu.Unlock()
	if f.removed.Load() {
		rs.remove(f.path)
	}
}

// synced notes that a file needs no fsync, or none any more. rs.mu is held.
func (rs *runFiles) synced(f *runFile) {
	if f.unsynced {
		f.unsynced = false
		rs.unsynced--
	}
}

// remove deletes a run's file.
func (rs *runFiles) remove(path string) {
	if err := disk.RemoveIfExists(rs.fs, path); err != nil {
		rs.logger.Warn("an old run could not be removed; the next start will", "run", rs.fs.PathBase(path),
			"error", err)
	}
}

// forget makes a run unknown; who uses it still can. It returns nil if it was not known.
func (rs *runFiles) forget(id runID) *runFile {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	f := rs.files[id]
	delete(rs.files, id)
	return f
}

// close forgets all runs.
func (rs *runFiles) close() {
	rs.mu.Lock()
	files := rs.files
	rs.files = make(map[runID]*runFile)
	rs.mu.Unlock()
	for _, f := range files {
		rs.release(f)
	}
}

// openRuns brings the directory of runs and the header rows together: files
// without a row are what a crash left, rows without a file are damage.
func (db *DB) openRuns() error {
	runs, err := db.allRuns()
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(runs))
	for _, r := range runs {
		wanted[runFileName(r)] = true
	}
	names, err := db.fs.List(db.path(runName))
	if err != nil {
		return wrap("list runs", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, runSuffix) && !wanted[name] {
			if err := disk.RemoveIfExists(db.fs, db.path(runName, name)); err != nil {
				return wrap("remove a run that was not published", err)
			}
		}
	}
	for _, r := range runs {
		if err := db.loadRun(r); err != nil {
			return err
		}
	}
	return nil
}

// loadRun reads the index of a published run and makes the run known.
func (db *DB) loadRun(r Run) error {
	path := db.path(runName, runFileName(r))
	f, err := db.runs.reserve(func() (vfs.File, error) { return db.fs.Open(path, vfs.RandomReadsOption) })
	if errors.Is(err, fs.ErrNotExist) {
		return disk.Corruptf("%s is missing", db.inDir(path))
	}
	if err != nil {
		return wrap("open a run", err)
	}
	info, err := f.Stat()
	var index runIndex
	if err == nil {
		index, err = readRunIndex(f, info.Size(), r)
	}
	if err != nil {
		err = errors.Join(wrap(db.inDir(path), err), f.Close())
		db.runs.unreserve()
		return err
	}
	db.runs.add(r, newRunFile(path, index), f)
	return nil
}

// inDir returns a path relative to the data directory, for messages.
func (db *DB) inDir(path string) string {
	return db.fs.PathJoin(runName, db.fs.PathBase(path))
}

// useRun returns a run's file for use until runs.release; nil for a run that was
// removed.
func (db *DB) useRun(r Run) (*runFile, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	file := db.runs.acquire(r)
	if file == nil && db.readOnly {
		if err := db.loadRun(r); err != nil {
			return nil, err
		}
		file = db.runs.acquire(r)
	}
	return file, nil
}

// Run describes a sorted, immutable run of entries, EXACT's records, a file of
// its own (runfile.go): what it covers is the caller's, Count and Bytes are filled
// when it is written. The run belongs to the data directory once its header row is
// committed; a file without one is removed at Open.
type Run struct {
	// Partition, Table and ID identify the run. An ID is never used again.
	Partition uint16
	Table     uint32
	ID        uint64
	// FirstSeq and LastSeq are the op-log sequences that the run covers.
	FirstSeq, LastSeq uint64
	// FirstTime and LastTime bound the logged times of its records.
	FirstTime, LastTime int64
	// Count is the number of entries, Bytes the sum of their values' sizes.
	Count, Bytes uint64
}

// The value of a run's header row: a version byte, six 64-bit fields, and a
// CRC-32C over the row's key and what precedes.
const (
	runHeaderVersion   = 1
	runHeaderValueSize = 1 + 6*8 + 4
)

func (r Run) encodeHeader() []byte {
	b := make([]byte, 0, runHeaderValueSize)
	b = append(b, runHeaderVersion)
	for _, x := range [...]uint64{r.FirstSeq, r.LastSeq, uint64(r.FirstTime), uint64(r.LastTime), r.Count,
		r.Bytes} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	return binary.BigEndian.AppendUint32(b, runHeaderSum(r.headerKey(), b))
}

func runHeaderSum(key, fields []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, disk.Castagnoli), disk.Castagnoli, fields)
}

// decodeRun reads a header row.
func decodeRun(key, value []byte) (Run, error) {
	if len(key) != runHeaderSize || key[0] != kindRun || key[runPrefixSize] != runHeader {
		return Run{}, disk.Corruptf("run header key of %d bytes", len(key))
	}
	if len(value) != runHeaderValueSize || value[0] != runHeaderVersion {
		return Run{}, disk.Corruptf("run header of %d bytes", len(value))
	}
	fields := value[:runHeaderValueSize-4]
	if binary.BigEndian.Uint32(value[len(fields):]) != runHeaderSum(key, fields) {
		return Run{}, disk.Corruptf("run header does not match its checksum")
	}
	u64 := func(i int) uint64 { return binary.BigEndian.Uint64(fields[1+8*i:]) }
	return Run{
		Partition: binary.BigEndian.Uint16(key[1:]),
		Table:     binary.BigEndian.Uint32(key[3:]),
		ID:        binary.BigEndian.Uint64(key[7:]),
		FirstSeq:  u64(0), LastSeq: u64(1),
		FirstTime: int64(u64(2)), LastTime: int64(u64(3)),
		Count: u64(4), Bytes: u64(5),
	}, nil
}

// Runs returns the partition's published runs, ascending by (Table, ID).
func (db *DB) Runs(partition uint16) (runs []Run, err error) {
	lower := Run{Partition: partition}.prefix()[:runPartitionSize]
	return db.listRuns(lower, successor(append([]byte(nil), lower...)))
}

// allRuns returns the published runs of all partitions.
func (db *DB) allRuns() ([]Run, error) { return db.listRuns([]byte{kindRun}, []byte{kindRun + 1}) }

func (db *DB) listRuns(lower, upper []byte) (runs []Run, err error) {
	err = db.scan("list runs", lower, upper, func(key, value []byte) (bool, error) {
		r, err := decodeRun(key, value)
		runs = append(runs, r)
		return true, wrap("list runs", err)
	})
	return runs, err
}
