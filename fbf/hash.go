package fbf

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// A Hasher is a keyed hash of (key, id): the 64 bits that a filter's operations take. Clients
// choose keys and ids, and some of the hash can be seen from outside: a small filter shows
// whether two ids meet in it, a cursor of SCAN shows bits of a hash. So without the seed
// nobody may be able to compute ids that collide, whatever was seen of other hashes.
//
// It hashes in two steps, under secrets expanded from the seed:
//
//	sum   128 bits, NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: fast and
//	      secure message authentication", CRYPTO 1999), over words of 64 bits. Every word of
//	      the input is added to a secret of its own, mod 2^64; the sums are multiplied in
//	      pairs, and the products added mod 2^128. The lengths of key and id are the first
//	      pair, so that ("a", "bc") and ("ab", "c") differ in it
//	hash  SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", INDOCRYPT
//	      2012) of the sum, under a key of its own: it shows nothing of the sum
//
// The bound: two different inputs have the same sum with a probability of at most 2^-64 over
// the secrets (UMAC, theorem 4.2). Say they differ in the word x of a pair (x + s)(y + t);
// the other input has x' and y' there. Fix all secrets but t, and suppose that the sums are
// equal for t, and also for t + d, with 0 < d < 2^64. From the one to the other the
// second factor of either input grows by d, or by d - 2^64 if it wraps around. So
// (x + s) times the one growth equals (x' + s) times the other, mod 2^128. If the growths are
// the same, x equals x', which it does not. If they differ, a number above 0 and below
// 2^128 equals 0. So the sums are equal for one t at most. The inputs need not have as many
// pairs, since all that does not depend on t is a constant. Different sums have the same
// hash with 2^-64, as far as SipHash is a pseudorandom function: 2^-63 together.
//
// The secrets are enough for maxPairs pairs. Of a longer input each block is summed with
// the same secrets, and the sums are coefficients of a polynomial over the integers mod
// 2^127 - 1, evaluated at one more secret: n blocks add 2(n+1) / 2^127 to the bound.
//
// A Hasher is safe for concurrent use, and does not allocate.
type Hasher struct {
	k0, k1  uint64    // SipHash's key
	lengths [2]uint64 // secrets of the first pair
	pairs   [maxPairs][2]uint64
	point   uint128 // where the polynomial is evaluated
}

const (
	pairBytes = 16
	// maxPairs holds an opid of 512 bytes and a key of as many.
	maxPairs = 64
)

// NewHasher makes a Hasher. The seed should be random and secret. Hashers of the same seed
// with different purposes have secrets that are independent of each other: those of
// chacha8rand (math/rand/v2) from SHA-256 of purpose, a zero byte and seed.
func NewHasher(seed [16]byte, purpose string) *Hasher {
	secrets := rand.NewChaCha8(sha256.Sum256(append(append([]byte(purpose), 0), seed[:]...)))
	h := &Hasher{k0: secrets.Uint64(), k1: secrets.Uint64()}
	h.point = uint128{secrets.Uint64() >> 1, secrets.Uint64()}
	h.lengths = [2]uint64{secrets.Uint64(), secrets.Uint64()}
	for i := range h.pairs {
		h.pairs[i] = [2]uint64{secrets.Uint64(), secrets.Uint64()}
	}
	return h
}

// Hash returns the hash of a key and an id.
func (h *Hasher) Hash(key, id []byte) uint64 {
	s := h.sum(key, id)
	return sipHash13(h.k0, h.k1, s.lo, s.hi)
}

// sum returns the sum of (key, id).
func (h *Hasher) sum(key, id []byte) uint128 {
	first := pairsOf(key)
	if first+pairsOf(id) > maxPairs {
		return h.longSum(key, id)
	}
	s := uint128{}.addPair(uint64(len(key)), uint64(len(id)), &h.lengths)
	return h.add(h.add(s, 0, key), first, id)
}

// pairsOf is how many pairs add makes of b.
func pairsOf(b []byte) int { return max((len(b)+pairBytes-1)/pairBytes, 1) }

// add adds the words of b to a sum, in pairs, with the secrets from at on. The last pair is
// the last 16 bytes, also if it begins within the pair before; of less than 16 bytes it is
// all of them, some twice: what belongs to the length is always told apart.
func (h *Hasher) add(s uint128, at int, b []byte) uint128 {
	if len(b) < pairBytes {
		x, y := shortPair(b)
		return s.addPair(x, y, &h.pairs[at])
	}
	last := b[len(b)-pairBytes:]
	secrets := h.pairs[at : at+pairsOf(b)]
	for len(secrets) > 1 {
		s = s.addPair(word(b), word(b[8:pairBytes]), &secrets[0])
		b, secrets = b[pairBytes:], secrets[1:]
	}
	return s.addPair(word(last), word(last[8:]), &secrets[0])
}

// shortPair returns two words that hold what there is of less than 16 bytes.
func shortPair(b []byte) (x, y uint64) {
	switch n := len(b); {
	case n >= 8:
		return word(b), word(b[n-8:])
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		return uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16, 0
	}
	return 0, 0
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// longSum is the sum of an input of more than maxPairs pairs.
func (h *Hasher) longSum(key, id []byte) uint128 {
	s := uint128{lo: 1}.timesPlus(h.point, uint64(len(key))).timesPlus(h.point, uint64(len(id)))
	for _, b := range [2][]byte{key, id} {
		for len(b) > 0 {
			n := min(len(b), maxPairs*pairBytes)
			block := h.add(uint128{}, 0, b[:n])
			s = s.timesPlus(h.point, block.lo).timesPlus(h.point, block.hi)
			b = b[n:]
		}
	}
	return s
}

// uint128 is an unsigned integer of 128 bits.
type uint128 struct{ hi, lo uint64 }

// addPair adds the product of two words, each with its secret, mod 2^128.
func (s uint128) addPair(x, y uint64, secrets *[2]uint64) uint128 {
	hi, lo := bits.Mul64(x+secrets[0], y+secrets[1])
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi, _ = bits.Add64(s.hi, hi, carry)
	return s
}

// timesPlus returns s*r + x mod 2^127 - 1. s and r are below 2^127, and so is the result.
func (s uint128) timesPlus(r uint128, x uint64) uint128 {
	// The product's words, the lowest first; the middle two of three terms each.
	h0, w0 := bits.Mul64(s.lo, r.lo)
	h1, l1 := bits.Mul64(s.lo, r.hi)
	h2, l2 := bits.Mul64(s.hi, r.lo)
	w3, l3 := bits.Mul64(s.hi, r.hi)
	w1, c1 := bits.Add64(h0, l1, 0)
	w2, c2 := bits.Add64(h1, h2, c1)
	w3 += c2
	w1, c1 = bits.Add64(w1, l2, 0)
	w2, c2 = bits.Add64(w2, l3, c1)
	w3 += c2
	// 2^127 is 1: what lies above comes back at the lower end.
	above := uint128{w3<<1 | w2>>63, w2<<1 | w1>>63}
	lo, carry := bits.Add64(w0, above.lo, 0)
	hi, _ := bits.Add64(w1&(1<<63-1), above.hi, carry)
	t := uint128{hi, lo}.fold()
	t.lo, carry = bits.Add64(t.lo, x, 0)
	t.hi += carry
	return t.fold()
}

// fold takes the highest bit of s back to the lower end, mod 2^127 - 1.
func (s uint128) fold() uint128 {
	lo, carry := bits.Add64(s.lo, s.hi>>63, 0)
	return uint128{s.hi&(1<<63-1) + carry, lo}
}

// sipHash13 is SipHash-1-3 of two words.
func sipHash13(k0, k1, x, y uint64) uint64 {
	a, b, c, d := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573^x
	a, b, c, d = sipRound(a, b, c, d)
	a, d = a^x, d^y
	a, b, c, d = sipRound(a, b, c, d)
	const length = 16 << 56
	a, d = a^y, d^length
	a, b, c, d = sipRound(a, b, c, d)
	a, c = a^length, c^0xff
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	return a ^ b ^ c ^ d
}

func sipRound(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	a += b
	b = bits.RotateLeft64(b, 13) ^ a
	a = bits.RotateLeft64(a, 32)
	c += d
	d = bits.RotateLeft64(d, 16) ^ c
	a += d
	d = bits.RotateLeft64(d, 21) ^ a
	c += b
	b = bits.RotateLeft64(b, 17) ^ c
	c = bits.RotateLeft64(c, 32)
	return a, b, c, d
}

// mum folds the 128-bit product of a and b.
func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// probeKeys make the S probe hashes of one id independent: with a common
// progression a + i b (double hashing) two ids that agree in a and b would
// agree in all S lines, a floor under the false positive probability.
var probeKeys = [maxProbes][2]uint64{
	{0xA0761D6478BD642F, 0xE7037ED1A0B428DB},
	{0x8EBC6AF09C88C6E3, 0x589965CC75374CC3},
	{0x1D8E4E27C47D124F, 0xEB44ACCAB455D165},
	{0x6C9FB5A1D2F3E847, 0x9C6E6877736C46E3},
	{0xD9A2C1E4F60B8735, 0xB5297A4D68E31DA5},
	{0x27D4EB2F165667C5, 0xC2B2AE3D27D4EB4F},
	{0x85EBCA77C2B2AE63, 0x94D049BB133111EB},
	{0xBF58476D1CE4E5B9, 0xD6E8FEB86659FD93},
}
