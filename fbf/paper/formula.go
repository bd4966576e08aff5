package paper

import "math"

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

// FPPSimple is Eq. 2: the simple check answers yes if any constituent does.
// periods are the ids inserted per refresh period, newest first, one for each
// constituent: constituent i holds those of periods i and i-1.
func FPPSimple(periods []uint64, m uint64, k int) float64 {
	no := 0.0
	for i := range periods {
		no += math.Log1p(-capped(FPPConstituent(held(periods, i), m, k)))
	}
	return -math.Expm1(no)
}

// FPPOptimizedIndependent is Eq. 3, which takes neighbouring constituents for
// independent. They are not: they share the ids of a period, so it is too low.
func FPPOptimizedIndependent(periods []uint64, m uint64, k int) float64 {
	return optimized(periods, m, k, func(i int) float64 {
		return math.Pow(fillOf(float64(held(periods, i)), m, k)*fillOf(float64(held(periods, i+1)), m, k), float64(k))
	})
}

// FPPOptimized is Eq. 3 corrected: a bit is set in both constituents i and i+1
// with probability 1 - P(not in i) - P(not in i+1) + P(in neither), where
// the ids of the period they share are counted once. With n ids per period
// and l = kn/m that is q = 1-2e^{-2l}+e^{-3l}, which exceeds (1-e^{-2l})^2.
func FPPOptimized(periods []uint64, m uint64, k int) float64 {
	return optimized(periods, m, k, func(i int) float64 {
		a, b := held(periods, i), held(periods, i+1)
		q := fillOf(float64(a), m, k) + fillOf(float64(b), m, k) - fillOf(float64(a+b-periods[i]), m, k)
		return math.Pow(q, float64(k))
	})
}

// optimized sums up the optimised check: the future alone, each consecutive
// pair from the present on, the oldest alone.
func optimized(periods []uint64, m uint64, k int, pair func(int) float64) float64 {
	last := len(periods) - 1
	no := math.Log1p(-capped(FPPConstituent(held(periods, 0), m, k)))
	for i := 1; i < last; i++ {
		no += math.Log1p(-capped(pair(i)))
	}
	no += math.Log1p(-capped(FPPConstituent(held(periods, last), m, k)))
	return -math.Expm1(no)
}

// held is the number of ids in constituent i: those added while it was the
// future and those added while it was the present.
func held(periods []uint64, i int) uint64 {
	if i == 0 {
		return periods[0]
	}
	return periods[i] + periods[i-1]
}

// capped keeps a probability below 1, where the logarithm still exists.
func capped(p float64) float64 { return min(p, 1-1e-16) }
