package persistence

import "sync"

// Runs and snapshots are written, and runs read to be merged, past the page cache.
// Runs are as large as all other files together, are written once and mostly never
// read but once, by a merge; snapshots are read by the next start at most. In the
// page cache they would take memory from what is read again, and the processor a
// copy into pages that the system first has to find and clear, which costs many
// times what handing over a buffer does (BenchmarkPages). Look-ups read through the
// page cache.

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
