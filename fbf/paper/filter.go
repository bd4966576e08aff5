package paper

import (
	"errors"
	"fmt"
	"math/bits"
)

// ErrOptions: a parameter is out of range.
var ErrOptions = errors.New("paper: invalid parameter")

// Limits of the parameters.
const (
	MinBits   = 64
	MaxBits   = uint64(1) << 38 // bits per constituent filter
	MaxHashes = 64
	MaxPast   = 1024
)

// Filter is the paper's N-FBF (Section III; with past = 1, the Basic FBF). It
// is not safe for concurrent use.
type Filter struct {
	m         uint64
	k         int
	filters   []*constituent // future, present, past from newest to oldest
	inserted  uint64
	refreshes uint64
}

// constituent is one Bloom filter.
type constituent struct {
	bits  []uint64
	added uint64 // ids inserted while it was the future
}

// New makes an N-FBF of past+2 empty filters of m bits with k hash functions.
func New(m uint64, k, past int) (*Filter, error) {
	if err := check(m, k, past); err != nil {
		return nil, err
	}
	f := &Filter{m: m, k: k}
	for range past + 2 {
		f.filters = append(f.filters, newConstituent(m))
	}
	return f, nil
}

func check(m uint64, k, past int) error {
	switch {
	case m < MinBits || m > MaxBits:
		return fmt.Errorf("%w: %d bits, want %d to %d", ErrOptions, m, MinBits, MaxBits)
	case k < 1 || k > MaxHashes:
		return fmt.Errorf("%w: %d hash functions, want 1 to %d", ErrOptions, k, MaxHashes)
	case past < 1 || past > MaxPast:
		return fmt.Errorf("%w: %d past filters, want 1 to %d", ErrOptions, past, MaxPast)
	}
	return nil
}

func words(m uint64) uint64 { return (m + 63) / 64 }

func newConstituent(m uint64) *constituent { return &constituent{bits: make([]uint64, words(m))} }

// index is the i-th hash function's bit position. Each has its own multiplier:
// positions a + i b modulo m (double hashing) would leave a floor of 2W/m^2
// under the false positive probability of W remembered ids.
func (f *Filter) index(h uint64, i int) uint64 {
	x := h ^ (uint64(i)+1)*0x9E3779B97F4A7C15
	hi, lo := bits.Mul64(x, 0xD6E8FEB86659FD93)
	x = hi ^ lo
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	x ^= x >> 29
	at, _ := bits.Mul64(x, f.m)
	return at
}

// Insert puts h into the future and the present (Section III, Algorithm 1).
func (f *Filter) Insert(h uint64) {
	future, present := f.filters[0], f.filters[1]
	for i := range f.k {
		at := f.index(h, i)
		future.bits[at/64] |= 1 << (at % 64)
		present.bits[at/64] |= 1 << (at % 64)
	}
	future.added++
	f.inserted++
}

// in reports whether all of h's bits are set in constituent c.
func (f *Filter) in(c int, h uint64) bool {
	b := f.filters[c].bits
	for i := range f.k {
		at := f.index(h, i)
		if b[at/64]&(1<<(at%64)) == 0 {
			return false
		}
	}
	return true
}

// ContainsSimple is the simple check: is h in any constituent?
func (f *Filter) ContainsSimple(h uint64) bool {
	for c := range f.filters {
		if f.in(c, h) {
			return true
		}
	}
	return false
}

// Contains is the optimised check as the text of Algorithm 2 describes it: the
// future alone; then each consecutive pair from the present on; then the
// oldest alone. (The future alone is as good as future and present: with
// the same hash functions the future is a subset of the present.)
func (f *Filter) Contains(h uint64) bool {
	return f.futureOrPairs(h) || f.in(len(f.filters)-1, h)
}

// ContainsAsPrinted is Algorithm 2 as printed: its chain of if and else makes the
// last test, of the oldest alone, unreachable for N > 1, so that ids between N t
// and (N+1) t old are missed. For comparison only.
func (f *Filter) ContainsAsPrinted(h uint64) bool {
	return f.futureOrPairs(h) || f.Past() == 1 && f.in(len(f.filters)-1, h)
}

func (f *Filter) futureOrPairs(h uint64) bool {
	if f.in(0, h) {
		return true
	}
	before := f.in(1, h)
	for c := 2; c < len(f.filters); c++ {
		now := f.in(c, h)
		if before && now {
			return true
		}
		before = now
	}
	return false
}

// Refresh drops the oldest filter and shifts the others towards the past; an
// empty future enters (Section III).
func (f *Filter) Refresh() {
	last := len(f.filters) - 1
	oldest := f.filters[last]
	copy(f.filters[1:], f.filters[:last])
	clear(oldest.bits)
	oldest.added = 0
	f.filters[0] = oldest
	f.refreshes++
}

// Resize changes the number of past filters, as Algorithm 3 does: new ones enter
// empty at the oldest end, surplus ones are dropped from there, which
// shortens what is remembered.
func (f *Filter) Resize(past int) error {
	if err := check(f.m, f.k, past); err != nil {
		return err
	}
	for len(f.filters) < past+2 {
		f.filters = append(f.filters, newConstituent(f.m))
	}
	clear(f.filters[past+2:])
	f.filters = f.filters[:past+2]
	return nil
}

// Past is N, the number of past filters.
func (f *Filter) Past() int { return len(f.filters) - 2 }

// Bits is m, the bits per constituent.
func (f *Filter) Bits() uint64 { return f.m }

// Hashes is k.
func (f *Filter) Hashes() int { return f.k }

// Bytes is the memory of all constituents.
func (f *Filter) Bytes() uint64 { return uint64(len(f.filters)) * words(f.m) * 8 }

// Inserted is the number of ids inserted since New.
func (f *Filter) Inserted() uint64 { return f.inserted }

// Refreshes is the number of refreshes since New.
func (f *Filter) Refreshes() uint64 { return f.refreshes }

// Len is the number of ids remembered now.
func (f *Filter) Len() uint64 {
	var n uint64
	for _, c := range f.filters {
		n += c.added
	}
	return n
}

// Fill is the share of set bits of each constituent, future first, counted.
func (f *Filter) Fill() []float64 {
	out := make([]float64, len(f.filters))
	for i, c := range f.filters {
		n := 0
		for _, w := range c.bits {
			n += bits.OnesCount64(w)
		}
		out[i] = float64(n) / float64(f.m)
	}
	return out
}

// EffectiveFPP is the false positive probability of Contains by the corrected
// Eq. 3 on the numbers of ids really inserted.
func (f *Filter) EffectiveFPP() float64 {
	return FPPOptimized(f.periods(), f.m, f.k)
}

// periods is the number of ids per refresh period, newest first.
func (f *Filter) periods() []uint64 {
	out := make([]uint64, len(f.filters))
	for i, c := range f.filters {
		out[i] = c.added
	}
	return out
}
