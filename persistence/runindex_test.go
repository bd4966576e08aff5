package persistence

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRunIndex: an index knows where each block ends, however far they are from each
// other, and is the same after a file had it; usual ones take few bytes.
func TestRunIndex(t *testing.T) {
	tests := []struct {
		blocks, length int
		odd            func(i int) uint64 // length of an unusual block; 0: a usual one
		wide           bool
	}{
		{blocks: 0},
		{blocks: 1, length: 512},
		{blocks: indexGroup, length: 512},
		{blocks: 100 * indexGroup, length: 512},
		{blocks: 10*indexGroup + 7, length: 512, odd: func(i int) uint64 { return uint64(i%2) * 9 }},
		{blocks: 10 * indexGroup, length: 512,
			odd: func(i int) uint64 { return uint64(i%indexGroup/(indexGroup-1)) << 20 }, wide: true},
		{blocks: 10 * indexGroup, length: 512,
			odd: func(i int) uint64 { return uint64((i+1)%indexGroup/(indexGroup-1)) << 20 }, wide: true},
		{blocks: 5 * indexGroup, length: 512,
			odd: func(i int) uint64 { return uint64(i/(5*indexGroup-1)) << 33 }, wide: true},
		{blocks: 5 * indexGroup, length: 4000, wide: true},
	}
	for i, test := range tests {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			x, ends := newRunIndex(test.blocks), make([]uint64, test.blocks)
			at := uint64(0)
			for i := range ends {
				length := uint64(0)
				if test.odd != nil {
					length = test.odd(i)
				}
				if length == 0 && rng.IntN(8) > 0 {
					length = uint64(test.length/2 + rng.IntN(test.length))
				}
				at += length
				ends[i] = at
				x.setEnd(i, at)
			}
			decoded, err := decodeRunIndex(x.appendTo(nil), at)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []runIndex{x, decoded} {
				if (x.wide != nil) != test.wide || !test.wide &&
					(len(x.low) != test.blocks || len(x.bases) > test.blocks/indexGroup+1) {
					t.Fatalf("%d and %d numbers for %d blocks, wide: %v", len(x.low), len(x.bases),
						test.blocks, x.wide != nil)
				}
				from := uint64(0)
				for i, end := range ends {
					if a, b := x.span(i); a != from || b != end {
						t.Fatalf("block %d is at %d to %d instead of %d to %d", i, a, b, from, end)
					}
					from = end
				}
				if x.size() != at {
					t.Fatalf("size %d instead of %d", x.size(), at)
				}
			}
		})
	}
}
