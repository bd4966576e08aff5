package compare

import (
	"encoding/binary"
	"math"

	"github.com/bits-and-blooms/bloom/v3"
)

// bloomWindow is a ring of unblocked Bloom filters.
type bloomWindow struct {
	rotation
	ring   [Generations]*bloom.BloomFilter
	hashes uint
}

// bloomRing sizes each generation for its share of the target.
func bloomRing(target float64) Contestant {
	perID, hashes := plainBits(target / Generations)
	size := func(ids uint64) uint64 {
		return (uint64(math.Ceil(float64(period(ids, Periods))*perID)) + 63) &^ 63
	}
	return Contestant{
		Name:  "bits-and-blooms",
		Bytes: func(ids uint64) uint64 { return Generations * size(ids) / 8 },
		New: func(ids uint64) (Window, error) {
			w := &bloomWindow{rotation: rotation{period: int64(period(ids, Periods))}, hashes: hashes}
			for i := range w.ring {
				w.ring[i] = bloom.New(uint(size(ids)), hashes)
			}
			return w, nil
		},
	}
}

func (w *bloomWindow) turn(now int64) { w.turns(now, func(g int) { w.ring[g].ClearAll() }) }

func (w *bloomWindow) CheckAndInsert(ids []ID, now int64, present []bool) {
	w.turn(now)
	newest := w.ring[w.newest]
	var b [8]byte
	for i, id := range ids {
		binary.LittleEndian.PutUint64(b[:], id[0])
		if present[i] = w.contains(b[:]); !present[i] {
			newest.Add(b[:])
		}
	}
}

func (w *bloomWindow) Insert(ids []ID, now int64) {
	w.turn(now)
	var b [8]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint64(b[:], id[0])
		w.ring[w.newest].Add(b[:])
	}
}

func (w *bloomWindow) Contains(id ID) bool {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], id[0])
	return w.contains(b[:])
}

// contains hashes once for all generations. It allocates the locations, and
// is still faster than Test, which hashes anew for every generation.
func (w *bloomWindow) contains(b []byte) bool {
	at := bloom.Locations(b, w.hashes)
	for _, f := range w.ring {
		if f.TestLocations(at) {
			return true
		}
	}
	return false
}

func (w *bloomWindow) Bytes() uint64 { return 0 }

func (w *bloomWindow) Release() {}
