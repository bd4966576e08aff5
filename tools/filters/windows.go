// Package compare measures package fbf beside other ways to remember ids for a window of time: rings of Bloom
// filters, an Age-Partitioned Bloom Filter, the paper's N-FBF, and an exact map.
//
// Each contestant is sized for the same window and the same false positive probability (FPP), and is
// given one new id a millisecond of logged time (stream.go). The test TestMeasure prints the tables of
// docs/FILTERS.md.
package compare

import (
	"encoding/binary"
	"math"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/decred/dcrd/container/apbf"
	"github.com/greatroar/blobloom"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/fbf/paper"
)

// A window is divided into generations. The ring of a plain filter has one that fills, and guarantees
// the periods of the others.
const (
	generations = 8
	periods     = generations - 1
)

// window remembers ids for a stretch of logged time, ms, which never goes back.
type window interface {
	turn(now int64) // before anything at a time
	contains(id ID) bool
	add(id ID)
}

// contestant is a way to build windows for one FPP.
type contestant struct {
	name string
	// bytes is the memory of a window of so many ids; for the map, an estimate.
	bytes func(ids uint64) uint64
	// make makes a window that remembers every id for so many milliseconds.
	make func(ids uint64) (window, error)
}

const batchName = "fbf batch"

// contestants are all contestants at an FPP, ours first.
func contestants(target float64) []contestant {
	return []contestant{
		forgetful("fbf", target, false), forgetful(batchName, target, true),
		blobloomRing(target), bloomRing(target), agePartitioned(target), paperFilter(target), exactMap(),
	}
}

// idsIn is the largest window, in ids, whose memory is at most so many bytes.
func (c contestant) idsIn(bytes uint64) uint64 {
	low, high := uint64(1), bytes
	for low < high {
		if mid := (low + high + 1) / 2; c.bytes(mid) <= bytes {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// ofGenerations is the memory of a window whose generations have so many bits each.
func ofGenerations(size func(ids uint64) uint64) func(ids uint64) uint64 {
	return func(ids uint64) uint64 { return generations * size(ids) / 8 }
}

// period is the length of one of n periods of a window, rounded up.
func period(ids, n uint64) uint64 { return (ids + n - 1) / n }

// leastBits is the least number of bits per id at which a filter reaches an FPP, and its number of hash
// functions. The FPP falls with the bits.
func leastBits(target float64, fpp func(bits float64, hashes int) float64) (bits float64, hashes int) {
	bits = math.Inf(1)
	for k := 1; k <= 40; k++ {
		low, high := 1.0, 1024.0
		for range 40 {
			if mid := (low + high) / 2; fpp(mid, k) > target {
				low = mid
			} else {
				high = mid
			}
		}
		if high < bits {
			bits, hashes = high, k
		}
	}
	return bits, hashes
}

// forgetfulWindow is package fbf with its controller at work.
type forgetfulWindow struct {
	*fbf.Filter
	batch bool
	now   int64
	hs    [block]uint64
}

func forgetful(name string, target float64, batch bool) contestant {
	options := func(ids uint64) fbf.Options {
		return fbf.Options{Window: int64(ids), Error: target, Capacity: ids}
	}
	bytes := func(ids uint64) uint64 { return options(ids).InitialBytes() }
	return contestant{name, bytes, func(ids uint64) (window, error) {
		f, err := fbf.New(options(ids), 0)
		return &forgetfulWindow{Filter: f, batch: batch}, err
	}}
}

func (w *forgetfulWindow) turn(now int64) {
	w.now = now
	for w.Due(now) || w.Room() < block {
		e, ok := w.Plan(now, func(uint64) bool { return true })
		if !ok {
			return
		}
		if err := w.Apply(e); err != nil {
			panic(err) // Plan's own event: a defect of the library
		}
	}
}

func (w *forgetfulWindow) contains(id ID) bool { return w.Contains(id[0]) }
func (w *forgetfulWindow) add(id ID)           { w.Insert(id[0], w.now) }

// checkAndInsert does in one what other windows do in two steps.
func (w *forgetfulWindow) checkAndInsert(ids []ID, present []bool) {
	if w.batch {
		for i, id := range ids {
			w.hs[i] = id[0]
		}
		w.CheckAndInsertBatch(w.hs[:len(ids)], w.now, present)
		return
	}
	for i, id := range ids {
		present[i] = w.CheckAndInsert(id[0], w.now)
	}
}

// ring are filters of which one fills, the next of which is cleared when its time has come.
type ring[F any] struct {
	filters [generations]F
	period  int64
	start   int64 // when the newest began
	newest  int
	clear   func(F)
}

func (r *ring[F]) turn(now int64) {
	for ; now >= r.start+r.period; r.start += r.period {
		r.newest = (r.newest + 1) % generations
		r.clear(r.filters[r.newest])
	}
}

func newRing[F any](ids uint64, clear func(F), filter func() F) ring[F] {
	r := ring[F]{period: int64(period(ids, periods)), clear: clear}
	for i := range r.filters {
		r.filters[i] = filter()
	}
	return r
}

// blobWindow is a ring of blocked Bloom filters.
type blobWindow struct{ ring[*blobloom.Filter] }

// blobloomRing sizes each generation for its share of the target, by the library's own model of its
// false positives.
func blobloomRing(target float64) contestant {
	const n = 1 << 20
	perID, hashes := leastBits(target/generations, func(b float64, k int) float64 {
		return blobloom.FPRate(n, uint64(n*b), max(2, k))
	})
	hashes = max(2, hashes)
	size := func(ids uint64) uint64 {
		return uint64(math.Ceil(float64(period(ids, periods))*perID/blobloom.BlockBits)) * blobloom.BlockBits
	}
	return contestant{"blobloom", ofGenerations(size), func(ids uint64) (window, error) {
		filter := func() *blobloom.Filter { return blobloom.New(size(ids), hashes) }
		return &blobWindow{newRing(ids, (*blobloom.Filter).Clear, filter)}, nil
	}}
}

func (w *blobWindow) add(id ID) { w.filters[w.newest].Add(id[0]) }

func (w *blobWindow) contains(id ID) bool {
	for _, f := range w.filters {
		if f.Has(id[0]) {
			return true
		}
	}
	return false
}

// bloomWindow is a ring of unblocked Bloom filters.
type bloomWindow struct {
	ring[*bloom.BloomFilter]
	hashes uint
	b      [8]byte
}

// bloomRing sizes each generation for its share of the target.
func bloomRing(target float64) contestant {
	perID, hashes := leastBits(target/generations, func(b float64, k int) float64 {
		return math.Pow(-math.Expm1(-float64(k)/b), float64(k))
	})
	size := func(ids uint64) uint64 {
		return (uint64(math.Ceil(float64(period(ids, periods))*perID)) + 63) &^ 63
	}
	return contestant{"bits-and-blooms", ofGenerations(size), func(ids uint64) (window, error) {
		filter := func() *bloom.BloomFilter { return bloom.New(uint(size(ids)), uint(hashes)) }
		filters := newRing(ids, func(f *bloom.BloomFilter) { f.ClearAll() }, filter)
		return &bloomWindow{ring: filters, hashes: uint(hashes)}, nil
	}}
}

func (w *bloomWindow) add(id ID) {
	binary.LittleEndian.PutUint64(w.b[:], id[0])
	w.filters[w.newest].Add(w.b[:])
}

// contains hashes once for all generations. It allocates the locations, and is still faster than Test,
// which hashes anew for every generation.
func (w *bloomWindow) contains(id ID) bool {
	binary.LittleEndian.PutUint64(w.b[:], id[0])
	at := bloom.Locations(w.b[:], w.hashes)
	for _, f := range w.filters {
		if f.TestLocations(at) {
			return true
		}
	}
	return false
}

// apbfWindow is an Age-Partitioned Bloom Filter. Its window is counted in ids, which at one id a
// millisecond is the same.
type apbfWindow struct {
	f *apbf.Filter
	b [8]byte
}

// agePartitioned takes the k and l that need the fewest bits per id. An id that comes last in its
// generation of g ids is gone l g ids later, not (l+1) g as the library's Capacity says; so a window has
// l generations here.
func agePartitioned(target float64) contestant {
	k, l := bestSlices(target)
	return contestant{"apbf", func(ids uint64) uint64 {
		slice := math.Ceil(float64(k) * float64(period(ids, uint64(l))) / math.Ln2)
		return uint64(slice*float64(k+l)+7) / 8
	}, func(ids uint64) (window, error) {
		capacity := uint32(period(ids, uint64(l)) * uint64(l+1))
		return &apbfWindow{f: apbf.NewFilterKL(capacity, uint8(k), uint8(l))}, nil
	}}
}

// bestSlices finds the k and l with the fewest bits per id, k (k+l) / l / ln 2. More than 64 slices
// would save memory and cost time.
func bestSlices(target float64) (k, l int) {
	const most = 64
	fewest := math.Inf(1)
	for a := 2; a < most; a++ {
		for b := 1; a+b <= most && apbf.CalcFPRate(uint8(a), uint8(b)) <= target; b++ {
			if bits := float64(a*(a+b)) / float64(b); bits < fewest {
				fewest, k, l = bits, a, b
			}
		}
	}
	return k, l
}

func (w *apbfWindow) turn(int64) {}

func (w *apbfWindow) add(id ID) {
	binary.LittleEndian.PutUint64(w.b[:], id[0])
	w.f.Add(w.b[:])
}

func (w *apbfWindow) contains(id ID) bool {
	binary.LittleEndian.PutUint64(w.b[:], id[0])
	return w.f.Contains(w.b[:])
}

// paperWindow is the paper's N-FBF with the optimised check, corrected.
type paperWindow struct {
	f           *paper.Filter
	period, end int64
}

// paperFilter has a future, a present and six past filters, and guarantees seven periods. It is sized by
// the corrected Eq. 3 at the end of a period.
func paperFilter(target float64) contestant {
	const n = 1 << 20
	full := make([]uint64, generations)
	for i := range full {
		full[i] = n
	}
	perID, hashes := leastBits(target, func(b float64, k int) float64 {
		return paper.FPPOptimized(full, uint64(n*b), k)
	})
	size := func(ids uint64) uint64 {
		return max(paper.MinBits, (uint64(math.Ceil(float64(period(ids, periods))*perID))+63)&^63)
	}
	return contestant{"paper's N-FBF", ofGenerations(size), func(ids uint64) (window, error) {
		f, err := paper.New(size(ids), hashes, generations-2)
		t := int64(period(ids, periods))
		return &paperWindow{f, t, t}, err
	}}
}

func (w *paperWindow) turn(now int64) {
	for ; now >= w.end; w.end += w.period {
		w.f.Refresh()
	}
}

func (w *paperWindow) add(id ID)           { w.f.Insert(id[0]) }
func (w *paperWindow) contains(id ID) bool { return w.f.Contains(id[0]) }

// exactWindow is a map from id to its time, and the ids in order of insertion, so that the oldest are
// found and deleted, a few at every block. It has no false positives.
type exactWindow struct {
	window, now int64
	times       map[ID]int64
	queue       []ID // circular, as large as ever needed
	head, count int
}

// exactMap takes about 72 bytes per id: 24 a slot of the map, of which deletions leave half unused, and
// 16 in the queue.
func exactMap() contestant {
	bytes := func(ids uint64) uint64 { return ids * 72 }
	return contestant{"exact map", bytes, func(ids uint64) (window, error) {
		return &exactWindow{window: int64(ids), times: map[ID]int64{}, queue: make([]ID, ids+2*block)}, nil
	}}
}

func (w *exactWindow) turn(now int64) {
	for w.now = now; w.count > 0 && w.times[w.queue[w.head]]+w.window < now; w.count-- {
		delete(w.times, w.queue[w.head])
		w.head = (w.head + 1) % len(w.queue)
	}
}

func (w *exactWindow) add(id ID) {
	w.times[id] = w.now
	w.queue[(w.head+w.count)%len(w.queue)] = id
	w.count++
}

func (w *exactWindow) contains(id ID) bool {
	_, found := w.times[id]
	return found
}
