package main

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// maxKeys bounds the counters of a run: a zipf distribution takes 8 bytes for
// each, verification 16.
const maxKeys = 100_000_000

// keys is a distribution of operations over counters. Its zero value is a
// single hot counter. Safe for concurrent use once made.
type keys struct {
	n uint32 // counters; 0 is taken for 1
	// inTurn has the operations of a run go to one counter after the other,
	// so that n of them reach each once.
	inTurn bool
	// For zipf, Walker's alias method: a column i is drawn uniformly; it
	// stands for key i below its threshold and for alias[i] above.
	threshold []uint32
	alias     []uint32
}

// parseKeys reads hot, uniform:N, sequence:N or zipf:N:EXPONENT.
func parseKeys(text string) (*keys, error) {
	parts := strings.Split(text, ":")
	if text == "hot" {
		return &keys{n: 1}, nil
	}
	bad := fmt.Errorf("--keys: %q is not hot, uniform:N, sequence:N or zipf:N:EXPONENT with N from 1 to %d and EXPONENT from 0 to 10", text, maxKeys)
	if len(parts) < 2 {
		return nil, bad
	}
	n, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil || n < 1 || n > maxKeys {
		return nil, bad
	}
	switch {
	case parts[0] == "uniform" && len(parts) == 2:
		return &keys{n: uint32(n)}, nil
	case parts[0] == "sequence" && len(parts) == 2:
		return &keys{n: uint32(n), inTurn: true}, nil
	case parts[0] == "zipf" && len(parts) <= 3:
		exponent := 0.99
		if len(parts) == 3 {
			if exponent, err = strconv.ParseFloat(parts[2], 64); err != nil || !(exponent >= 0 && exponent <= 10) {
				return nil, bad
			}
		}
		return newZipf(uint32(n), exponent), nil
	}
	return nil, bad
}

// newZipf gives key i (from 0) a weight of 1/(i+1)^exponent.
func newZipf(n uint32, exponent float64) *keys {
	k := &keys{n: n, threshold: make([]uint32, n), alias: make([]uint32, n)}
	weights := make([]float64, n)
	sum := 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -exponent)
		sum += weights[i]
	}
	var small, large []uint32
	for i := range weights {
		weights[i] *= float64(n) / sum // 1 on average
		k.threshold[i], k.alias[i] = math.MaxUint32, uint32(i)
		if weights[i] < 1 {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		little, much := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		k.threshold[little], k.alias[little] = share(weights[little]), much
		if weights[much] -= 1 - weights[little]; weights[much] < 1 {
			large, small = large[:len(large)-1], append(small, much)
		}
	}
	return k
}

// share is a probability as a threshold for 32 random bits.
func share(p float64) uint32 { return uint32(min(max(p, 0)*(1<<32), math.MaxUint32)) }

// pick turns 64 random bits into a key.
func (k *keys) pick(random uint64) uint32 {
	if k.n <= 1 {
		return 0
	}
	column, rest := bits.Mul64(random, uint64(k.n))
	if k.threshold == nil || uint32(rest>>32) < k.threshold[column] {
		return uint32(column)
	}
	return k.alias[column]
}

// count is how many counters there are.
func (k *keys) count() uint32 { return max(k.n, 1) }
