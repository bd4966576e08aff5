package store

import (
	"math/bits"
)

// rowFilter is a Bloom filter of the positions of a partition's rows, in memory.
// A key that is neither in memory nor here has no row: making a new counter then
// costs no look-up on disk, which would find nothing in many tables. It is
// guarded by the partition's lock.
//
// Rows that are on disk when a directory is opened enter it by a scan of all rows.
// Until that is done the filter is not whole and says nothing. The scan is made
// once look-ups that found nothing have cost about as much.
//
// It is a row of split-block filters (one bit in each word of one cache line),
// of which each has room for twice as many keys as the one before: nothing is
// copied when it grows. Keys that are deleted stay in it.
type rowFilter struct {
	layers []filterLayer // the last one takes what is added
	left   int           // keys that the last one has room for
	whole  bool          // every row's key is here
	limit  int           // of the memory of all layers, bytes
	tooBig bool          // it would take more
	misses int           // look-ups on disk that found nothing, while not whole
}

// filterLayer is one split-block Bloom filter; its length is a power of two.
type filterLayer []filterBlock

type filterBlock [8]uint64

const (
	// blockKeys is how many keys are added for each block of 512 bits: 16 bits
	// for a key. A full layer takes about one in a thousand for present that is
	// not; up to ten layers are asked, and each error costs a look-up on disk.
	blockKeys = 32
	// firstLayer is the number of blocks of the smallest layer.
	firstLayer = 64
	// rowFilterMemory bounds the filters of all partitions, bytes: about 130
	// million keys. Partitions with more than their share have none.
	rowFilterMemory = 256 << 20
	// scanAfter is how many rows cost as much to scan as one look-up that finds
	// nothing.
	scanAfter = 16
)

// newRowFilter returns the empty filter of one of so many partitions.
func newRowFilter(partitions int) *rowFilter { return &rowFilter{limit: rowFilterMemory / partitions} }

// add puts a position into the filter.
func (f *rowFilter) add(pos uint64) {
	if f.tooBig || f.has(pos) {
		return
	}
	if f.left == 0 && !f.grow(0) {
		return
	}
	f.left--
	b, h := f.layers[len(f.layers)-1].at(pos)
	for i := range b {
		b[i] |= 1 << (h >> (6 * i) & 63)
	}
}

// grow adds a layer for at least n more keys.
func (f *rowFilter) grow(n int) bool {
	blocks, used := firstLayer, 0
	for _, l := range f.layers {
		used += len(l)
		blocks = 2 * len(l)
	}
	for blocks*blockKeys < n {
		blocks *= 2
	}
	if (used+blocks)*64 > f.limit {
		*f = rowFilter{tooBig: true}
		return false
	}
	f.layers = append(f.layers, make(filterLayer, blocks))
	f.left = blocks * blockKeys
	return true
}

// has reports whether a position was added; at times it says so of another one.
func (f *rowFilter) has(pos uint64) bool {
	for i := len(f.layers) - 1; i >= 0; i-- {
		if f.layers[i].has(pos) {
			return true
		}
	}
	return false
}

func (l filterLayer) has(pos uint64) bool {
	b, h := l.at(pos)
	missing := uint64(0)
	for i := range b {
		missing |= ^b[i] >> (h >> (6 * i) & 63)
	}
	return missing&1 == 0
}

// at returns the block of a position, and 48 bits that choose one bit in each
// word. Keys of one partition share the upper bits of their positions; the others are a keyed
// hash, which no client can choose.
func (l filterLayer) at(pos uint64) (*filterBlock, uint64) {
	hi, lo := bits.Mul64(pos, 0x9E3779B97F4A7C15)
	h := hi ^ lo
	h *= 0xD6E8FEB86659FD93
	h ^= h >> 32
	return &l[h&uint64(len(l)-1)], h * 0xA0761D6478BD642F >> 16
}

// lacks reports whether a key that is not in memory has no row, either.
func (f *rowFilter) lacks(pos uint64) bool { return f.whole && !f.has(pos) }

// missed notes that a look-up on disk found nothing.
func (f *rowFilter) missed() {
	if !f.whole {
		f.misses++
	}
}

// scanDue reports whether it is time to scan the rows of a partition with so
// many keys.
func (f *rowFilter) scanDue(keys int64) bool {
	return !f.whole && !f.tooBig && f.misses > 0 && int64(f.misses) >= keys/scanAfter
}

// bytes is the memory that the filter takes.
func (f *rowFilter) bytes() (n int) {
	for _, l := range f.layers {
		n += len(l) * 64
	}
	return n
}

// scanPiece is how many rows are added to a filter under one acquisition of the
// partition's lock.
const scanPiece = 256

// owns reports whether a slot is one of the partition's.
func (p *machine) owns(slot uint16) bool {
	first, last := slotRange(int(p.id), p.count)
	return slot >= first && slot <= last
}

// rowRange is the range of positions of the partition's rows.
func (p *machine) rowRange() (from, to uint64) {
	first, last := slotRange(int(p.id), p.count)
	return uint64(first) << 48, (uint64(last) + 1) << 48
}
