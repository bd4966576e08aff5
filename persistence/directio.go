package persistence

import (
	"errors"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Runs are written, and read to be merged, past the page cache. They are as large
// as all other files together, are written once and mostly never read but once, by
// a merge: in the page cache they would take memory from what is read again, and
// the processor a copy into pages that the system first has to find and clear, which
// costs many times what handing over a buffer does (BenchmarkPages). Look-ups read
// through the page cache; what they ask for often is brought there (warmth).

const (
	// directAlign is what offsets, lengths and buffers of direct reads and writes
	// are multiples of: at least the block size of any disk in use.
	directAlign = 4 << 10
	// minDirect is the size in bytes from which a run is worth waiting for the disk.
	minDirect = 128 << 10
)

// wantsDirect reports whether a run of so many bytes is to pass by the page cache.
func (db *DB) wantsDirect(size uint64) bool { return !db.bufferedRuns && size >= minDirect }

// alignDown and alignUp return the next multiple of directAlign.
func alignDown(n uint64) uint64 { return n &^ (directAlign - 1) }
func alignUp(n uint64) uint64   { return alignDown(n + directAlign - 1) }

// writeDirect writes b, whose length and offset are aligned, past the page cache.
// A file system that refuses (EINVAL) gets it the usual way; then direct is false.
func writeDirect(f vfs.File, b []byte) (direct bool, err error) {
	n, err := f.Write(b)
	if !errors.Is(err, syscall.EINVAL) {
		return true, err
	}
	if !setDirect(f, false) {
		return true, err
	}
	_, err = f.Write(b[n:])
	return false, err
}

// openDirect opens a file of a run for reading past the page cache; nil if that
// cannot be, and the file is to be read the usual way.
func (db *DB) openDirect(path string, size uint64) vfs.File {
	if !db.wantsDirect(size) {
		return nil
	}
	f, err := db.fs.Open(path)
	if err != nil {
		return nil // removed just now, or no descriptor left
	}
	if !setDirect(f, true) {
		_ = f.Close() // nothing was read yet
		return nil
	}
	return f
}
