package main

import reference "github.com/fbfkv/fbfkv/fbf/paper"

// bestHashes is the number of hash functions with the lowest probability of a false
// positive in the optimised check, and that probability (Eq. 3 corrected).
func bestHashes(periods []uint64, m uint64) (k int, fpp float64) {
	k, fpp = 1, 1
	for try := 1; try <= reference.MaxHashes; try++ {
		if p := reference.FPPOptimized(periods, m, try); p < fpp {
			k, fpp = try, p
		}
	}
	return k, fpp
}
