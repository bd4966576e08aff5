package compare

import (
	"math"
	"slices"
)

// Generations is how many generations a window is divided into; a plain
// filter's ring then guarantees Periods periods.
const (
	Generations = 8
	Periods     = Generations - 1
)

// Block is the number of ids given to a window at once. All of a block carry
// the same logged time.
const Block = 64

// Window remembers ids for a stretch of logged time. It is not safe for concurrent use.
type Window interface {
	// CheckAndInsert sets present[i] if ids[i] may have been inserted before,
	// and inserts it if not. now is logged time in ms, and never goes
	// back. There are at most Block ids.
	CheckAndInsert(ids []ID, now int64, present []bool)
	// Insert inserts ids known to be new, without looking.
	Insert(ids []ID, now int64)
	// Contains reports whether id may have been inserted.
	Contains(id ID) bool
	// Bytes is the memory of a window that may lie outside the Go heap; 0 for
	// those whose memory the Go heap tells.
	Bytes() uint64
	// Release gives back memory that the garbage collector does not.
	Release()
}

// Contestant is a way to build windows for one target FPP.
type Contestant struct {
	Name string
	// Bytes is the memory of a window of so many ids; for the map, an estimate.
	Bytes func(ids uint64) uint64
	// New makes a window that remembers every id for ids milliseconds at
	// one new id per millisecond.
	New func(ids uint64) (Window, error)
}

const batchName = "fbf batch"

// Contestants are all contestants at the target FPP, ours first.
func Contestants(target float64) []Contestant {
	return []Contestant{
		forgetful("fbf", target, false),
		forgetful(batchName, target, true),
		blobloomRing(target),
		bloomRing(target),
		agePartitioned(target),
		paperFilter(target),
		exactMap(),
	}
}

// Filters are the contestants without those that only use the same filter in
// another way, for measurements other than time.
func Filters(target float64) []Contestant {
	return slices.DeleteFunc(Contestants(target), func(c Contestant) bool { return c.Name == batchName })
}

// IDsIn is the largest window, in ids, whose memory is at most bytes.
func (c Contestant) IDsIn(bytes uint64) uint64 {
	lo, hi := uint64(1), bytes
	for lo < hi {
		if mid := (lo + hi + 1) / 2; c.Bytes(mid) <= bytes {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// period is the length of one of n periods of a window, rounded up.
func period(ids uint64, n uint64) uint64 { return (ids + n - 1) / n }

// rotation tells when the next generation begins.
type rotation struct {
	period int64
	start  int64 // when the newest began
	newest int   // its index in the ring
}

// turns advances the ring up to now, calling clear on every generation that begins.
func (r *rotation) turns(now int64, clear func(generation int)) {
	for now >= r.start+r.period {
		r.start += r.period
		r.newest = (r.newest + 1) % Generations
		clear(r.newest)
	}
}

// plainBits is the fewest bits per id at which an unblocked Bloom filter answers
// falsely with probability p, and its number of hash functions:
// (1-e^{-k/b})^k = p.
func plainBits(p float64) (bits float64, hashes uint) {
	bits = math.Inf(1)
	for k := uint(1); k <= 64; k++ {
		if b := -float64(k) / math.Log1p(-math.Pow(p, 1/float64(k))); b < bits {
			bits, hashes = b, k
		}
	}
	return bits, hashes
}

// leastBits is the least b for which fpp(b) <= p, fpp falling in b, by bisection.
func leastBits(p float64, fpp func(bits float64) float64) float64 {
	lo, hi := 1.0, 1024.0
	for range 40 {
		if mid := (lo + hi) / 2; fpp(mid) > p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
