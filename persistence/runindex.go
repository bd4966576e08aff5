package persistence

import (
	"encoding/binary"
	"math/bits"
)

// runIndex tells where the blocks of a run are. A block holds the records of an
// equal share of all hashes, so that its number follows from the hash: hashes are
// uniform, and what is not only makes some blocks larger than others.
type runIndex struct {
	n int
	// A block's end, the offset behind its checksum, is as far behind its group's
	// base as low says. A block without records has no bytes.
	bases []uint64
	low   []uint16
	// wide has the ends themselves, should a group be too long for low.
	wide []uint64
}

// indexGroup is how many blocks have a base of their own: 16 KB of a usual run, so
// that nearly no run is in need of wide.
const indexGroup = 32

func newRunIndex(blocks int) runIndex {
	return runIndex{n: blocks, bases: make([]uint64, (blocks+indexGroup-1)/indexGroup), low: make([]uint16, blocks)}
}

// setEnd tells where block i ends. Blocks come one after another.
func (x *runIndex) setEnd(i int, end uint64) {
	if x.wide == nil {
		if i%indexGroup == 0 {
			x.bases[i/indexGroup] = end
		}
		low := end - x.bases[i/indexGroup]
		if low < 1<<16 {
			x.low[i] = uint16(low)
			return
		}
		x.widen(i)
	}
	x.wide[i] = end
}

// widen goes over to wide; blocks before n have their ends.
func (x *runIndex) widen(n int) {
	wide := make([]uint64, x.n)
	for i := range n {
		wide[i] = x.end(i)
	}
	x.wide, x.bases, x.low = wide, nil, nil
}

// end is where block i ends.
func (x *runIndex) end(i int) uint64 {
	if x.wide != nil {
		return x.wide[i]
	}
	return x.bases[i/indexGroup] + uint64(x.low[i])
}

// size is where the last block ends.
func (x *runIndex) size() uint64 {
	if x.n == 0 {
		return 0
	}
	return x.end(x.n - 1)
}

// span returns where block i lies in the file.
func (x *runIndex) span(i int) (from, to uint64) {
	if i > 0 {
		from = x.end(i - 1)
	}
	return from, x.end(i)
}

// appendTo appends the form that the index has in a file.
func (x *runIndex) appendTo(b []byte) []byte {
	for i := range x.n {
		end := x.end(i)
		b = append(b, byte(end>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(end))
	}
	return b
}

// decodeRunIndexEntry reads a block's end as appendTo writes it.
func decodeRunIndexEntry(b []byte) uint64 {
	return uint64(b[0])<<32 | uint64(binary.BigEndian.Uint32(b[1:]))
}

// block is the number of the block that holds a hash.
func (x *runIndex) block(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(x.n))
	return int(hi)
}

// find returns the blocks from..to-1 that can hold records with that hash: one, or
// none.
func (x *runIndex) find(hash uint64) (from, to int) {
	if from = x.block(hash); from == x.n {
		return 0, 0 // an empty run
	}
	if begin, end := x.span(from); begin == end {
		return from, from
	}
	return from, from + 1
}
