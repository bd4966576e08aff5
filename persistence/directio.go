package persistence

import (
	"errors"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Runs and snapshots are written, and runs read to be merged, past the page cache.
// Runs are as large as all other files together, are written once and mostly never
// read but once, by a merge; snapshots are read by the next start at most. In the
// page cache they would take memory from data that is read again, and cost the processor a copy
// into pages that the system first has to find and clear. That is many times the cost of handing
// over a buffer (BenchmarkPages). Look-ups read through the page cache.

const (
	// directAlign is what offsets, lengths and buffers of direct reads and writes
	// are multiples of: at least the block size of any disk in use.
	directAlign = 4 << 10
	// minDirect is the size in bytes from which a file is worth waiting for the disk.
	minDirect = 128 << 10
)

// alignDown and alignUp return the next multiple of directAlign.
func alignDown(n uint64) uint64 { return n &^ (directAlign - 1) }
func alignUp(n uint64) uint64   { return alignDown(n + directAlign - 1) }

// takeBuffer returns memory for a read or a write. It begins at a multiple of
// directAlign, as all allocations of Go's do that are so large.
func takeBuffer(pool *sync.Pool, size int) []byte {
	if b, ok := pool.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, size)
}

// recycleBuffer keeps a buffer for the next one, unless it has grown far.
func recycleBuffer(pool *sync.Pool, b []byte, size int) {
	if cap(b) >= size && cap(b) <= 2*size {
		pool.Put(&b)
	}
}

// directPiece is how many bytes a directWriter gathers for one write. It waits for
// the disk: the less often the better.
const directPiece = 1 << 20

// directWriter writes a new file from its beginning to its end, in large pieces: past
// the page cache once the file gets large. Who uses it appends to buf. It
// fsyncs nothing. Not safe for concurrent use.
type directWriter struct {
	db     *DB
	f      vfs.File // nil after release
	direct bool     // past the page cache from here on
	buf    []byte   // not yet written
	off    uint64   // of buf in the file
}

// newDirectWriter creates a file.
func (db *DB) newDirectWriter(path string) (directWriter, error) {
	f, err := db.fs.Create(path, disk.WriteCategory)
	if err != nil {
		return directWriter{}, err
	}
	buf := takeBuffer(&db.writeBufs, directPiece)
	return directWriter{db: db, f: f, buf: buf}, nil
}

// size is how many bytes the file has with those that are not yet written.
func (w *directWriter) size() uint64 { return w.off + uint64(len(w.buf)) }

// makeRoom sees to it that n more bytes fit into the piece that is gathered; if they
// do not, it writes the whole pages of what there is. An error is final.
func (w *directWriter) makeRoom(n int) error {
	if len(w.buf)+n <= directPiece {
		return nil
	}
	return w.write(w.wholePages())
}

// flush writes the rest. From then on the file is used through the page cache, which
// is how its last page, not a whole one, must be written.
func (w *directWriter) flush() error {
	if err := w.write(w.wholePages()); err != nil {
		return err
	}
	if w.direct && !setDirect(w.f, false) {
		return errors.New("O_DIRECT cannot be switched off")
	}
	w.direct = false
	return w.write(len(w.buf))
}

func (w *directWriter) wholePages() int { return int(alignDown(uint64(len(w.buf)))) }

// write writes n of the bytes that are gathered. All but the last writes are
// multiples of a page: otherwise the system would have to zero the rest of each
// page in memory, and to look for it again.
func (w *directWriter) write(n int) (err error) {
	if n == 0 {
		return nil
	}
	if w.off == 0 {
		w.direct = n >= minDirect && setDirect(w.f, true)
	}
	if w.direct {
		w.direct, err = writeDirect(w.f, w.buf[:n])
	} else {
		_, err = w.f.Write(w.buf[:n])
	}
	w.off += uint64(n)
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	return err
}

// release ends the writer and returns the file, which the caller now has to close.
func (w *directWriter) release() vfs.File {
	f := w.f
	recycleBuffer(&w.db.writeBufs, w.buf, directPiece)
	w.f, w.buf = nil, nil
	return f
}

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
