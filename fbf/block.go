package fbf

import "math"

// The block model. A line's lane of 64 bits holds the J bits of each of c
// ids; c is Poisson distributed with mean mu = n/strip. A new id finds all
// its J bits set there with probability
//
//	rho_J(mu) = sum over c of Poisson(c; mu) E[(k/64)^J | c ids],
//
// k being the number of bits set. The S lines are independent, so a generation
// answers yes with probability rho^S. (The global fill to the power S J, as
// for an unblocked Bloom filter, is some twenty times too low.)

const maxPerLine = 256 // ids per line beyond which the lane counts as full

// moments[j][c] is E[(k/64)^j] after c ids of j bits each.
var moments = [6][]float64{4: lineMoments(4), 5: lineMoments(5)}

func lineMoments(j int) []float64 {
	var dist [65]float64 // dist[k]: probability that k bits are set
	dist[0] = 1
	out := make([]float64, maxPerLine+1)
	for c := range out {
		for k, p := range dist {
			out[c] += p * math.Pow(float64(k)/64, float64(j))
		}
		for range j {
			for k := 64; k > 0; k-- {
				dist[k] = dist[k]*float64(k)/64 + dist[k-1]*float64(65-k)/64
			}
			dist[0] = 0
		}
	}
	return out
}

// rho is the probability that J random bits of a line are all set in a lane
// whose lines hold mu ids on average.
func rho(j int, mu float64) float64 {
	if mu > maxPerLine/2 {
		return 1
	}
	m := moments[j]
	p, sum, rest := math.Exp(-mu), 0.0, 1.0
	for c := range m {
		sum += p * m[c]
		rest -= p
		p *= mu / float64(c+1)
		if rest < 1e-18 && float64(c) > mu {
			break
		}
	}
	return min(1, sum)
}

// meanForRho inverts rho by bisection.
func meanForRho(j int, want float64) float64 {
	lo, hi := 0.0, float64(maxPerLine/2)
	for range 60 {
		if mid := (lo + hi) / 2; rho(j, mid) <= want {
			lo = mid
		} else {
			hi = mid
		}
	}
	return max(lo, 1e-3)
}
