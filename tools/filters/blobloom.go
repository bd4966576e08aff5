package compare

import (
	"math"

	"github.com/greatroar/blobloom"
)

// blobWindow is a ring of blocked Bloom filters.
type blobWindow struct {
	rotation
	ring [Generations]*blobloom.Filter
}

// blobloomRing sizes each generation for its share of the target, by the
// library's own model of its false positives.
func blobloomRing(target float64) Contestant {
	perID, hashes := blobBits(target / Generations)
	size := func(ids uint64) uint64 {
		n := float64(period(ids, Periods))
		return uint64(math.Ceil(n*perID/blobloom.BlockBits)) * blobloom.BlockBits
	}
	return Contestant{
		Name:  "blobloom",
		Bytes: func(ids uint64) uint64 { return Generations * size(ids) / 8 },
		New: func(ids uint64) (Window, error) {
			w := &blobWindow{rotation: rotation{period: int64(period(ids, Periods))}}
			for i := range w.ring {
				w.ring[i] = blobloom.New(size(ids), hashes)
			}
			return w, nil
		},
	}
}

// blobBits is the fewest bits per id of a generation with FPP p, and its hash functions.
func blobBits(p float64) (bits float64, hashes int) {
	const n = 1 << 20
	bits = math.Inf(1)
	for k := 2; k <= 40; k++ {
		b := leastBits(p, func(b float64) float64 { return blobloom.FPRate(n, uint64(n*b), k) })
		if b < bits {
			bits, hashes = b, k
		}
	}
	return bits, hashes
}

func (w *blobWindow) turn(now int64) { w.turns(now, func(g int) { w.ring[g].Clear() }) }

func (w *blobWindow) CheckAndInsert(ids []ID, now int64, present []bool) {
	w.turn(now)
	newest := w.ring[w.newest]
	for i, id := range ids {
		if present[i] = w.Contains(id); !present[i] {
			newest.Add(id[0])
		}
	}
}

func (w *blobWindow) Insert(ids []ID, now int64) {
	w.turn(now)
	for _, id := range ids {
		w.ring[w.newest].Add(id[0])
	}
}

func (w *blobWindow) Contains(id ID) bool {
	for _, f := range w.ring {
		if f.Has(id[0]) {
			return true
		}
	}
	return false
}

func (w *blobWindow) Bytes() uint64 { return 0 }

func (w *blobWindow) Release() {}
