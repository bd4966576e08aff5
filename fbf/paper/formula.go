package paper

import "math"

// In these formulas periods are the ids inserted per refresh period, newest
// first, one per constituent; constituent i holds those of periods i and i-1,
// as it took one as the future and the other as the present.

// fillOf is the probability that a bit is set after l insertions: 1-(1-1/m)^{kl}.
func fillOf(l float64, m uint64, k int) float64 {
	return -math.Expm1(float64(k) * l * math.Log1p(-1/float64(m)))
}

// FPPConstituent is Eq. 1, the false positive probability of one Bloom filter of m
// bits and k hash functions that holds l ids, as it must read:
// (1-(1-1/m)^{kl})^k, about (1-e^{-kl/m})^k.
func FPPConstituent(l uint64, m uint64, k int) float64 {
	return math.Pow(fillOf(float64(l), m, k), float64(k))
}

// FPPSimple is Eq. 2 corrected. The future is a subset of the present and adds
// nothing; neighbours share a period, which makes the constituents a chain:
// P(none) is the product of P(not in i | not in i-1).
func FPPSimple(periods []uint64, m uint64, k int) float64 {
	before := FPPConstituent(held(periods, 1), m, k)
	no := 1 - before
	for i := 2; i < len(periods); i++ {
		now := FPPConstituent(held(periods, i), m, k)
		if before < 1 {
			no *= (1 - before - now + pair(periods, i-1, m, k)) / (1 - before)
		}
		before = now
	}
	return 1 - no
}

// FPPOptimizedIndependent is Eq. 3, the optimised check with neighbours taken for
// independent: the future alone, every pair from the present on, the oldest
// alone. It is too low, as neighbours share the ids of a period.
func FPPOptimizedIndependent(periods []uint64, m uint64, k int) float64 {
	last := len(periods) - 1
	no := math.Log1p(-capped(FPPConstituent(held(periods, 0), m, k))) +
		math.Log1p(-capped(FPPConstituent(held(periods, last), m, k)))
	for i := 1; i < last; i++ {
		no += math.Log1p(-capped(FPPConstituent(held(periods, i), m, k) * FPPConstituent(held(periods, i+1),
			m, k)))
	}
	return -math.Expm1(no)
}

// FPPOptimized is Eq. 3 corrected. A pair has the probability of pair, below;
// the last pair is implied by the oldest alone and does not count. In a steady
// state, with l = kn/m, s = 1-e^{-l}, f = 1-e^{-2l} and q = 1-2e^{-2l}+e^{-3l}, it is
// to first order s^k + (N-1) q^k + f^k.
func FPPOptimized(periods []uint64, m uint64, k int) float64 {
	last := len(periods) - 1
	no := math.Log1p(-capped(FPPConstituent(held(periods, 0), m, k))) +
		math.Log1p(-capped(FPPConstituent(held(periods, last), m, k)))
	for i := 1; i < last-1; i++ {
		no += math.Log1p(-capped(pair(periods, i, m, k)))
	}
	return -math.Expm1(no)
}

// pair is the probability that an unknown id is in constituents i and i+1. A
// bit is set in both with probability 1 - P(not in i) - P(not in i+1) + P(in
// neither), where the ids of the period they share count once.
func pair(periods []uint64, i int, m uint64, k int) float64 {
	a, b := held(periods, i), held(periods, i+1)
	q := fillOf(float64(a), m, k) + fillOf(float64(b), m, k) - fillOf(float64(a+b-periods[i]), m, k)
	return math.Pow(q, float64(k))
}

// held is the number of ids in constituent i.
func held(periods []uint64, i int) uint64 {
	if i == 0 {
		return periods[0]
	}
	return periods[i] + periods[i-1]
}

// capped keeps a probability below 1, where the logarithm still exists.
func capped(p float64) float64 { return min(p, 1-1e-16) }
