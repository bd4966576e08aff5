package compare

import (
	"fmt"
	"math"

	"github.com/fbfkv/fbfkv/fbf/paper"
)

// paperWindow is the paper's N-FBF with the optimised check, corrected.
type paperWindow struct {
	f           *paper.Filter
	period, end int64
}

// paperFilter has a future, a present and six past filters, and guarantees
// seven periods. It is sized by the corrected Eq. 3 at the end of a
// period, with the number of hash functions that needs the fewest bits.
func paperFilter(target float64) Contestant {
	const past = Generations - 2
	perID, hashes := paperBits(target)
	size := func(ids uint64) uint64 {
		n := float64(period(ids, past+1))
		return max(paper.MinBits, (uint64(math.Ceil(n*perID))+63)&^63)
	}
	return Contestant{
		Name:  "paper's N-FBF",
		Bytes: func(ids uint64) uint64 { return Generations * size(ids) / 8 },
		New: func(ids uint64) (Window, error) {
			f, err := paper.New(size(ids), hashes, past)
			if err != nil {
				return nil, fmt.Errorf("window of %d ids: %w", ids, err)
			}
			t := int64(period(ids, past+1))
			return &paperWindow{f: f, period: t, end: t}, nil
		},
	}
}

// paperBits is the fewest bits per id and constituent, and the hash functions.
func paperBits(target float64) (bits float64, hashes int) {
	const n = 1 << 20
	periods := make([]uint64, Generations)
	for i := range periods {
		periods[i] = n
	}
	bits = math.Inf(1)
	for k := 1; k <= 40; k++ {
		b := leastBits(target, func(b float64) float64 { return paper.FPPOptimized(periods, uint64(n*b), k) })
		if b < bits {
			bits, hashes = b, k
		}
	}
	return bits, hashes
}

func (w *paperWindow) turn(now int64) {
	for ; now >= w.end; w.end += w.period {
		w.f.Refresh()
	}
}

func (w *paperWindow) CheckAndInsert(ids []ID, now int64, present []bool) {
	w.turn(now)
	for i, id := range ids {
		if present[i] = w.f.Contains(id[0]); !present[i] {
			w.f.Insert(id[0])
		}
	}
}

func (w *paperWindow) Insert(ids []ID, now int64) {
	w.turn(now)
	for _, id := range ids {
		w.f.Insert(id[0])
	}
}

func (w *paperWindow) Contains(id ID) bool { return w.f.Contains(id[0]) }

func (w *paperWindow) Bytes() uint64 { return 0 }

func (w *paperWindow) Release() {}
