package compare

import (
	"math/bits"
	"runtime"

	"gonum.org/v1/gonum/stat/distuv"
)

// ID is a 128-bit id. Filters that take a hash get its first word, which is already random; filters that
// hash bytes themselves get that word as 8 bytes, the least there is to hash. Only the map keeps both
// words.
type ID [2]uint64

// idAt is the n-th of a sequence of distinct pseudo-random ids; it costs about 1 ns.
func idAt(n uint64) ID {
	x := n * 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x ^= x >> 31
	hi, lo := bits.Mul64(n^0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
	return ID{x, hi ^ lo}
}

// block is the number of ids given to a window at once, with the same logged time.
const block = 64

// stream drives a window with one new id a millisecond of logged time.
type stream struct {
	window
	ids     uint64 // of a window
	next    uint64 // number of the next new id; also the logged time
	random  uint64
	block   [block]ID
	present [block]bool
}

func newStream(c contestant, ids uint64) (*stream, error) {
	w, err := c.make(ids)
	return &stream{window: w, ids: ids, random: 1}, err
}

// close gives back memory that the garbage collector does not.
func (s *stream) close() {
	if w, ok := s.window.(*forgetfulWindow); ok {
		w.Release()
	}
}

// fill inserts new ids for so many windows.
func (s *stream) fill(windows float64) {
	for end := s.next + uint64(windows*float64(s.ids)); s.next < end; {
		s.fresh()
	}
}

// fresh checks and inserts a block of new ids; it returns how many were taken for duplicates, and are
// not remembered.
func (s *stream) fresh() int {
	for i := range s.block {
		s.block[i] = idAt(s.next + uint64(i))
	}
	s.next += block
	return s.check()
}

// again checks a block of ids of all ages up to a window; it returns how many were recognised.
func (s *stream) again() int {
	for i := range s.block {
		s.block[i] = idAt(s.past())
	}
	return s.check()
}

// check checks and inserts the block.
func (s *stream) check() (known int) {
	s.turn(int64(s.next))
	if w, ok := s.window.(*forgetfulWindow); ok {
		w.checkAndInsert(s.block[:], s.present[:])
	} else {
		for i, id := range s.block {
			if s.present[i] = s.contains(id); !s.present[i] {
				s.add(id)
			}
		}
	}
	for _, p := range s.present {
		if p {
			known++
		}
	}
	return known
}

// past is the number of a random id of the window.
func (s *stream) past() uint64 {
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	n := min(s.ids, s.next)
	return s.next - 1 - (s.random>>32)*n>>32
}

// fpp is a measured false positive probability.
type fpp struct {
	hits, probes uint64
	low, high    float64 // 95% confidence bounds
}

func (f fpp) rate() float64 { return float64(f.hits) / float64(f.probes) }

// unknown is the number of the first id that no stream inserts.
const unknown = uint64(1) << 48

// measureFPP fills a window of so many ids and looks for ids never inserted, at moments spread over one
// window, so that every phase of a period is met.
func measureFPP(c contestant, ids, probes uint64) (f fpp, err error) {
	s, err := newStream(c, ids)
	if err != nil {
		return f, err
	}
	defer s.close()
	s.fill(2)
	const moments = 50
	for f.probes < probes {
		for range min(probes/moments+1, probes-f.probes) {
			if s.contains(idAt(unknown + f.probes)) {
				f.hits++
			}
			f.probes++
		}
		s.fill(1.0 / moments)
	}
	f.low, f.high = bounds(f.hits, f.probes)
	return f, nil
}

// bounds are the exact (Clopper-Pearson) 95% bounds of a binomial proportion.
func bounds(hits, n uint64) (low, high float64) {
	x, high := float64(hits), 1.0
	if hits > 0 {
		low = distuv.Beta{Alpha: x, Beta: float64(n) - x + 1}.Quantile(0.025)
	}
	if hits < n {
		high = distuv.Beta{Alpha: x + 1, Beta: float64(n) - x}.Quantile(0.975)
	}
	return low, high
}

// heap is the Go heap in use after a full collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first may leave what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// bitsPerID is the memory really taken in steady state, three windows after the start, in bits per id of
// the window.
func bitsPerID(c contestant, ids uint64) (float64, error) {
	before := heap()
	s, err := newStream(c, ids)
	if err != nil {
		return 0, err
	}
	defer s.close()
	s.fill(3)
	bytes := heap() - before
	if w, ok := s.window.(*forgetfulWindow); ok { // its memory is not of Go's heap
		bytes = w.Bytes()
	}
	runtime.KeepAlive(s)
	return float64(bytes) * 8 / float64(ids), nil
}
