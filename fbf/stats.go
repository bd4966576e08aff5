package fbf

import "math"

// Stats are the figures of a filter at one time.
type Stats struct {
	Generations []GenerationStats // live ones, oldest first
	Segments    int
	Bytes       uint64
	Items       uint64 // ids remembered now
	Inserted    uint64 // ids inserted since New
	Refreshes   uint64 // generations sealed since New
	// segments opened since New, the first included: each after it is a resize or a new policy
	Opened           uint64
	EffectiveFPP     float64
	GuaranteedWindow int64 // ms; every id inserted from now on is recognised at least so long
	RefreshPeriod    int64 // ms between two refreshes at the latest
	Full             bool
}

// GenerationStats are the figures of one generation.
type GenerationStats struct {
	Segment uint32
	Lane    int
	Count   uint64
	Fill    float64 // expected share of its bits that are set
	FPP     float64 // probability that this generation takes a new id for one of its own
	Start   int64   // logged time of its first id
	Newest  int64   // of its newest
	Expire  int64   // logged time from which it is not needed
}

// Stats computes the figures at logged time now. It is not meant for the hot path.
func (f *Filter) Stats(now int64) Stats {
	st := Stats{Segments: len(f.segs), Bytes: f.bytes, Items: f.Len(), Inserted: f.inserted,
		Refreshes: f.refreshes,
		Opened:    uint64(f.nextID - 1), EffectiveFPP: f.EffectiveFPP(), GuaranteedWindow: f.opts.Window,
		RefreshPeriod: f.opts.latest(), Full: f.Full()}
	for _, s := range f.segs {
		for i := 1; i <= lanes; i++ {
			l := (s.head + uint8(i)) & 7
			if s.query&bit(l) == 0 {
				continue
			}
			ln := s.lanes[l]
			st.Generations = append(st.Generations,
				GenerationStats{Segment: s.id, Lane: int(l), Count: ln.count,
					Fill: s.fill(ln.count), FPP: s.fpp(ln.count, s.strip), Start: ln.start, Newest: ln.newest,
					Expire: ln.expire})
		}
	}
	return st
}

// EffectiveFPP is the probability that Contains says yes to an id never
// inserted, computed by the block model from what every generation really holds.
func (f *Filter) EffectiveFPP() float64 {
	no := 0.0
	for _, s := range f.segs {
		for l := range uint8(lanes) {
			if s.query&bit(l) != 0 {
				no += math.Log1p(-min(1-1e-16, s.fpp(s.lanes[l].count, s.strip)))
			}
		}
	}
	return -math.Expm1(no)
}

// effectiveFPP is the union bound over the generations of one segment.
func (s *segment) effectiveFPP() float64 {
	sum := 0.0
	for l := range uint8(lanes) {
		if s.query&bit(l) != 0 {
			sum += s.fpp(s.lanes[l].count, s.strip)
		}
	}
	return sum
}

// fill is the expected share of set bits in a strip that took n ids.
func (s *segment) fill(n uint64) float64 {
	return -math.Expm1(float64(n) / float64(s.strip) * math.Expm1(float64(s.j)*math.Log1p(-1.0/64)))
}
