package seen

import (
	"math/bits"
	"sync"
)

// freeList keeps things to be used again. A sync.Pool would lose them to every
// garbage collection, which at full load comes before they are needed; and a list
// that only grows would hold for ever what the busiest moment took. So the list
// remembers how few it held at least, and trim drops as many: those that nobody
// needed since the trim before. Safe for concurrent use.
type freeList[T any] struct {
	mu    sync.Mutex
	list  []T
	least int // since the last trim
}

// get returns one of the list; false if there is none.
func (f *freeList[T]) get() (x T, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.list) - 1
	if n < 0 {
		return x, false
	}
	var none T
	x, f.list[n] = f.list[n], none
	f.list = f.list[:n]
	f.least = min(f.least, n)
	return x, true
}

// put takes one back, which nobody uses any more, unless there are as many as most.
func (f *freeList[T]) put(x T, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) < most {
		f.list = append(f.list, x)
	}
}

// trim drops what was in the list all the time since the last trim, and returns
// how many that are.
func (f *freeList[T]) trim() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = f.least
	keep := len(f.list) - n
	clear(f.list[keep:])
	f.list, f.least = f.list[:keep], keep
	return n
}

var (
	// freeChunks keeps the chunks of records, of full size, between runs.
	freeChunks freeList[*[chunkSize]byte]
	// freeHeads keeps the pages of their heads likewise.
	freeHeads freeList[*[headPage]head]
	// freeIndexes keeps indexes likewise, by their bits: the larger ones, of which
	// each partition at work gives one back for every one it takes.
	freeIndexes [maxFreeBits + 1]freeList[[]uint32]
)

const (
	// maxFreeChunks bounds the chunks kept: 64 MiB, what records take by default
	// unless they come in faster than they go.
	maxFreeChunks = 256
	// maxFreeHeads bounds the pages of heads kept: 16 MiB, those of the smallest
	// records in as many chunks.
	maxFreeHeads = 512
	minFreeBits  = 14
	maxFreeBits  = 18
	// maxFreeIndexes bounds how many are kept of a size: 16 MiB of the largest.
	maxFreeIndexes = 16
)

// TrimMemory releases memory that was kept for new records and not needed since
// the last call, and returns how many bytes that is. Call it every few seconds: it keeps
// what the load needs, and nothing without a load. All Records of a process share this
// memory. Safe for concurrent use.
func TrimMemory() (bytes int64) {
	bytes = int64(freeChunks.trim())*chunkSize + int64(freeHeads.trim())*headPage*8
	for bits := range freeIndexes {
		bytes += int64(freeIndexes[bits].trim()) * (4 << bits)
	}
	return bytes
}

// newIndex returns an empty index of 1<<bits places and the overhang.
func newIndex(bits int) []uint32 {
	if minFreeBits <= bits && bits <= maxFreeBits {
		if x, ok := freeIndexes[bits].get(); ok {
			clear(x)
			return x
		}
	}
	return make([]uint32, 1<<bits+overhang)
}

// recycleIndex takes back an index that nobody uses any more.
func recycleIndex(x []uint32) {
	if n := len(x) - overhang; 1<<minFreeBits <= n && n <= 1<<maxFreeBits {
		freeIndexes[bits.Len(uint(n))-1].put(x, maxFreeIndexes)
	}
}

func newChunk() []byte {
	if c, ok := freeChunks.get(); ok {
		return c[:0]
	}
	return new([chunkSize]byte)[:0]
}

// recycleChunk takes back a chunk that nobody uses any more; those of other sizes
// are left to the garbage collector.
func recycleChunk(c []byte) {
	if cap(c) == chunkSize {
		freeChunks.put((*[chunkSize]byte)(c[:chunkSize]), maxFreeChunks)
	}
}

func newHeadPage() []head {
	if p, ok := freeHeads.get(); ok {
		return p[:0]
	}
	return new([headPage]head)[:0]
}

// recycleHeadPage takes back a page that nobody uses any more, unless it is the
// first of a list, which is smaller.
func recycleHeadPage(p []head) {
	if cap(p) == headPage {
		freeHeads.put((*[headPage]head)(p[:headPage]), maxFreeHeads)
	}
}
