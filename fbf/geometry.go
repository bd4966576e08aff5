package fbf

import "math"

const (
	lanes     = 8  // generations per cache line, one 64-bit word each
	lineBytes = 64 // one cache line
	minLines  = 128
	maxStrip  = uint64(1) << 32 // a line index is made of 32 bits
	maxProbes = 8               // largest S
)

// geometry is how an id is spread over a segment: S lines, one in each of S
// equal strips, and J bits in the lane of each. Strips make the S lines
// distinct by construction, so no two probes of one id share a word.
type geometry struct {
	s int // lines per id, 1..maxProbes
	j int // bits per line, 4 or 5
	r int // roles: 1, or 2 (the first half of the strips is the future's, the second the present's)
}

// geometryFor picks S and J from the target. 3/4 at 1e-3, 4/5 at 1e-6 and
// 6/5 at 1e-9 are the measured optima of speed against memory; between and
// beyond them each further line is worth about a factor of 30.
// With two roles S is rounded up to an even number.
func geometryFor(target float64, roles int) geometry {
	g := geometry{s: 8, j: 5, r: roles}
	switch {
	case target >= 5e-3:
		g.s, g.j = 2, 4
	case target >= 1e-4:
		g.s, g.j = 3, 4
	case target >= 1e-5:
		g.s, g.j = 4, 4
	case target >= 2e-7:
		g.s, g.j = 4, 5
	case target >= 5e-9:
		g.s, g.j = 5, 5
	case target >= 1e-10:
		g.s, g.j = 6, 5
	case target >= 1e-12:
		g.s, g.j = 7, 5
	}
	if roles == 2 && g.s%2 == 1 {
		g.s++
	}
	return g
}

func (g geometry) lines(strip uint64) uint64 { return uint64(g.s) * strip }

func (g geometry) minStrip() uint64 { return minLines / uint64(g.s) }

// meanFor is the largest mean number of ids per line at which one generation
// stays within the false positive probability p: rho_J(mu)^S = p.
func (g geometry) meanFor(p float64) float64 {
	return meanForRho(g.j, math.Pow(p, 1/float64(g.s)))
}

// sizing remembers the last answer of geometry.meanFor: it takes some
// microseconds, and every rotation mostly asks the same.
type sizing struct {
	geometry
	p, mean float64
}

func (z *sizing) meanFor(g geometry, p float64) float64 {
	if z.geometry != g || z.p != p {
		*z = sizing{geometry: g, p: p, mean: g.meanFor(p)}
	}
	return z.mean
}

// stripFor is the strip length that keeps n ids times slack per generation at mean mu.
func (g geometry) stripFor(n, mu, slack float64) uint64 {
	want := math.Ceil(n * slack / mu)
	if !(want > float64(g.minStrip())) {
		return g.minStrip()
	}
	return uint64(min(want, float64(maxStrip)))
}

// limitFor is the number of ids after which a generation reaches mean mu.
func limitFor(strip uint64, mu float64) uint64 {
	return max(1, uint64(float64(strip)*mu))
}

// fpp is the probability that a generation of n ids answers yes for a new id.
func (g geometry) fpp(n, strip uint64) float64 {
	if n == 0 {
		return 0
	}
	return math.Pow(rho(g.j, float64(n)/float64(strip)), float64(g.s))
}

// laneBudget is a segment's share of the false positive probability per lane.
func laneBudget(segment float64) float64 { return segment / lanes }
