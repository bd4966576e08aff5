package persistence

import "math/bits"

// runFilter is a Bloom filter of a run's hashes, in memory only: a look-up that has to
// ask several runs reads the one or two that have the hash, and what a table's filter
// takes for known by mistake is rarely looked for on disk. What a process finds at its
// start has none, and is asked.
//
// Its cells are of an equal share of all hashes each, as the run's blocks are, so
// that a writer fills one after another; three bits of a cell tell of a hash.
type runFilter [][2]uint64

// How many records a cell has on average. Of a small run, of which there are many, one
// in 60 of absent hashes is not told from present ones, for 1.3 bytes a record; of a
// large one, one in 6, for half a byte.
const (
	smallRun         = 1 << 17 // records
	smallCellRecords = 12
	largeCellRecords = 32
)

// newRunFilter makes a filter for about n records.
func newRunFilter(n uint64) runFilter {
	switch {
	case n == 0:
		return nil
	case n <= smallRun:
		return make(runFilter, n/smallCellRecords+1)
	}
	return make(runFilter, n/largeCellRecords+1)
}

// cell returns the cell of a hash and its bits there.
func (f runFilter) cell(hash uint64) (c *[2]uint64, lo, hi uint64) {
	i, _ := bits.Mul64(hash, uint64(len(f)))
	for _, at := range [...]uint64{hash, hash >> 7, hash >> 14} {
		// Not a branch: it would be mispredicted every other time.
		bit, high := uint64(1)<<(at&63), -(at >> 6 & 1)
		lo |= bit &^ high
		hi |= bit & high
	}
	return &f[i], lo, hi
}

func (f runFilter) add(hash uint64) {
	if len(f) > 0 {
		c, lo, hi := f.cell(hash)
		c[0] |= lo
		c[1] |= hi
	}
}

// mayHave reports whether the run may have a record with that hash; it always
// does if there is no filter.
func (f runFilter) mayHave(hash uint64) bool {
	if len(f) == 0 {
		return true
	}
	c, lo, hi := f.cell(hash)
	return c[0]&lo == lo && c[1]&hi == hi
}
