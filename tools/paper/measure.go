package main

import (
	"math"
	"math/rand/v2"
)

// estimate is a false positive probability measured by probes with new ids.
type estimate struct{ hits, probes int }

// measure probes with random ids, which have not been inserted, until want of
// them are taken for known, or for limit probes.
func measure(rng *rand.Rand, contains func(h uint64) bool, want, limit int) estimate {
	var e estimate
	for e.hits < want && e.probes < limit {
		e.probes++
		if contains(rng.Uint64()) {
			e.hits++
		}
	}
	return e
}

// fewest is the number of hits below which an estimate is not worth drawing: its
// standard error exceeds a quarter of it.
const fewest = 16

// value is the probability, or NaN if there were too few hits to tell.
func (e estimate) value() float64 {
	if e.hits < fewest {
		return none
	}
	return float64(e.hits) / float64(e.probes)
}

// stderr is the standard error of value.
func (e estimate) stderr() float64 {
	return math.Sqrt(float64(e.hits)) / float64(max(1, e.probes))
}
