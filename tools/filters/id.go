package compare

import "math/bits"

// ID is a 128-bit id. Filters that take a hash get its first word, which is
// already random; filters that hash bytes themselves get that word as 8 bytes, the
// least there is to hash. Only the map keeps both words.
type ID [2]uint64

// IDAt is the n-th of a sequence of distinct pseudo-random ids; it costs about 1 ns.
func IDAt(n uint64) ID {
	x := n * 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x ^= x >> 31
	hi, lo := bits.Mul64(n^0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
	return ID{x, hi ^ lo}
}
