package compare

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/decred/dcrd/container/apbf"
)

// maxSlices bounds the slices of the Age-Partitioned Bloom Filter. More of them
// save memory and cost time.
const maxSlices = 64

// apbfWindow is an Age-Partitioned Bloom Filter. Its window is counted in
// ids, which at one id per ms is the same thing.
type apbfWindow struct{ f *apbf.Filter }

// agePartitioned takes the k and l that need the fewest bits per id, at most
// maxSlices together. An id that comes last in its generation of g ids is gone
// l g ids later, not (l+1) g as the library's Capacity says; so a window
// has l generations here.
func agePartitioned(target float64) Contestant {
	k, l := bestSlices(target)
	generation := func(ids uint64) uint64 { return period(ids, uint64(l)) }
	return Contestant{
		Name: "apbf",
		Bytes: func(ids uint64) uint64 {
			slice := math.Ceil(float64(k) * float64(generation(ids)) / math.Ln2)
			return uint64(slice*float64(k+l)+7) / 8
		},
		New: func(ids uint64) (Window, error) {
			capacity := generation(ids) * uint64(l+1)
			if capacity > math.MaxUint32 {
				return nil, fmt.Errorf("apbf: capacity %d, at most %d", capacity, uint32(math.MaxUint32))
			}
			return &apbfWindow{apbf.NewFilterKL(uint32(capacity), uint8(k), uint8(l))}, nil
		},
	}
}

// bestSlices finds the k and l with the fewest bits per id, k (k+l) / l / ln 2.
func bestSlices(target float64) (k, l int) {
	fewest := math.Inf(1)
	for a := 2; a < maxSlices; a++ {
		for b := 1; a+b <= maxSlices && apbf.CalcFPRate(uint8(a), uint8(b)) <= target; b++ {
			if bits := float64(a*(a+b)) / float64(b); bits < fewest {
				fewest, k, l = bits, a, b
			}
		}
	}
	return k, l
}

func (w *apbfWindow) CheckAndInsert(ids []ID, _ int64, present []bool) {
	var b [8]byte
	for i, id := range ids {
		binary.LittleEndian.PutUint64(b[:], id[0])
		if present[i] = w.f.Contains(b[:]); !present[i] {
			w.f.Add(b[:])
		}
	}
}

func (w *apbfWindow) Insert(ids []ID, _ int64) {
	var b [8]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint64(b[:], id[0])
		w.f.Add(b[:])
	}
}

func (w *apbfWindow) Contains(id ID) bool {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], id[0])
	return w.f.Contains(b[:])
}

func (w *apbfWindow) Bytes() uint64 { return 0 }

func (w *apbfWindow) Release() {}
