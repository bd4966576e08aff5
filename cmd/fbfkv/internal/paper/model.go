package paper

import (
	"math"

	reference "github.com/fbfkv/fbfkv/fbf/paper"
)

// optimisedModel is the false positive probability of the corrected Algorithm 2
// on the ids inserted per period, newest first, one period per constituent. It is
// Eq. 3 with two corrections: neighbours share the ids of a period, and
// the last pair adds nothing, for where it says yes the oldest alone does too.
func optimisedModel(periods []uint64, m uint64, k int) float64 {
	held := func(i int) uint64 {
		if i == 0 {
			return periods[0]
		}
		return periods[i] + periods[i-1]
	}
	last := len(periods) - 1
	no := math.Log1p(-reference.FPPConstituent(held(0), m, k)) + math.Log1p(-reference.FPPConstituent(held(last), m, k))
	for i := 1; i < last-1; i++ {
		no += math.Log1p(-pairModel(held(i), held(i+1), held(i)+held(i+1)-periods[i], m, k))
	}
	return -math.Expm1(no)
}

// pairModel is the probability that two filters of a and b ids, of which there are
// so many in all, both take a new id for known.
func pairModel(a, b, all, m uint64, k int) float64 {
	set := func(n uint64) float64 { return -math.Expm1(float64(k) * float64(n) * math.Log1p(-1/float64(m))) }
	return math.Pow(set(a)+set(b)-set(all), float64(k))
}

// bestHashes is the number of hash functions with the lowest probability.
func bestHashes(periods []uint64, m uint64) (k int, fpp float64) {
	k, fpp = 1, 1
	for try := 1; try <= reference.MaxHashes; try++ {
		if p := optimisedModel(periods, m, try); p < fpp {
			k, fpp = try, p
		}
	}
	return k, fpp
}
