package main

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// maxKeys bounds the counters of a run: verification takes 16 bytes for each.
const maxKeys = 100_000_000

// keys is a distribution of operations over counters. Its zero value is a
// single hot counter. Safe for concurrent use once made.
type keys struct {
	n uint32 // counters; 0 is taken for 1
	// inTurn has the operations of a run go to one counter after the other,
	// so that n of them reach each once.
	inTurn bool
}

// parseKeys reads hot, uniform:N or sequence:N.
func parseKeys(text string) (*keys, error) {
	if text == "hot" {
		return &keys{n: 1}, nil
	}
	name, count, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || n < 1 || n > maxKeys || name != "uniform" && name != "sequence" {
		return nil, fmt.Errorf("--keys: %q is not hot, uniform:N or sequence:N with N from 1 to %d", text, maxKeys)
	}
	return &keys{n: uint32(n), inTurn: name == "sequence"}, nil
}

// pick turns 64 random bits into a key.
func (k *keys) pick(random uint64) uint32 {
	key, _ := bits.Mul64(random, uint64(k.count()))
	return uint32(key)
}

// count is how many counters there are.
func (k *keys) count() uint32 { return max(k.n, 1) }
