package fbf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestSipHash13 compares with CPython, whose hash of bytes is SipHash-1-3: with
// PYTHONHASHSEED=0 under the key 0, with 1 under the other one.
func TestSipHash13(t *testing.T) {
	for _, c := range []struct{ k0, k1, x, y, want uint64 }{
		{0, 0, 0, 0, 0x76be999e3e25b2a0},
		{0, 0, 1, 2, 0xfb058313e6201d48},
		{0, 0, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x8972188433a5c5b7},
		{0, 0, 1<<64 - 1, 1<<63 + 5, 0x857d6db6d0eed4ad},
		{0xaed66ce184be2329, 0xebe9bbf1f1499052, 0, 0, 0xb74db4a38ac78cf0},
		{0xaed66ce184be2329, 0xebe9bbf1f1499052, 1, 2, 0x8cf4c344e3f0da5a},
		{0xaed66ce184be2329, 0xebe9bbf1f1499052, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x12e9d283f9f37002},
		{0xaed66ce184be2329, 0xebe9bbf1f1499052, 1<<64 - 1, 1<<63 + 5, 0x8d0c41258e720486},
	} {
		if got := sipHash13(c.k0, c.k1, c.x, c.y); got != c.want {
			t.Errorf("%x %x under %x %x: %x, want %x", c.x, c.y, c.k0, c.k1, got, c.want)
		}
	}
}

// definition is the sum of a Hasher as its comment defines it, in integers of any size.
type definition struct {
	k0, k1     uint64
	r, a, b    *big.Int // the point, and the secrets of the lengths
	pairs      [maxPairs][2]*big.Int
	word, pair *big.Int // 2^64, 2^128
}

func newDefinition(seed [16]byte, purpose string) *definition {
	secrets := rand.NewChaCha8(sha256.Sum256([]byte(purpose + "\x00" + string(seed[:]))))
	next := func() *big.Int { return new(big.Int).SetUint64(secrets.Uint64()) }
	d := &definition{k0: secrets.Uint64(), k1: secrets.Uint64(), word: new(big.Int).Lsh(big.NewInt(1), 64),
		pair: new(big.Int).Lsh(big.NewInt(1), 128)}
	hi := next()
	d.r = hi.Rsh(hi, 1).Lsh(hi, 64)
	d.r.Add(d.r, next())
	d.a, d.b = next(), next()
	for i := range d.pairs {
		d.pairs[i] = [2]*big.Int{next(), next()}
	}
	return d
}

func (d *definition) product(x, y uint64, s, t *big.Int) *big.Int {
	a := new(big.Int).SetUint64(x)
	b := new(big.Int).SetUint64(y)
	a.Mod(a.Add(a, s), d.word)
	b.Mod(b.Add(b, t), d.word)
	return a.Mul(a, b)
}

// nh adds the products of b's pairs with the secrets from at on, and returns the next one.
func (d *definition) nh(sum *big.Int, at int, b []byte) int {
	var words []uint64
	switch n := len(b); {
	case n == 0:
		words = []uint64{0, 0}
	case n < 4:
		words = []uint64{uint64(b[0]) + uint64(b[n/2])<<8 + uint64(b[n-1])<<16, 0}
	case n < 8:
		words = []uint64{uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))}
	case n < 16:
		words = []uint64{word(b), word(b[n-8:])}
	default:
		for i := 0; i+16 < n; i += 16 {
			words = append(words, word(b[i:]), word(b[i+8:]))
		}
		words = append(words, word(b[n-16:]), word(b[n-8:]))
	}
	for i := 0; i < len(words); i += 2 {
		sum.Add(sum, d.product(words[i], words[i+1], d.pairs[at][0], d.pairs[at][1]))
		at++
	}
	sum.Mod(sum, d.pair)
	return at
}

func (d *definition) hash(key, id []byte) uint64 {
	sum := new(big.Int)
	if max((len(key)+15)/16, 1)+max((len(id)+15)/16, 1) <= 64 {
		sum.Set(d.product(uint64(len(key)), uint64(len(id)), d.a, d.b))
		d.nh(sum, d.nh(sum, 0, key), id)
	} else {
		p := new(big.Int).Lsh(big.NewInt(1), 127)
		p.Sub(p, big.NewInt(1))
		step := func(c *big.Int) { sum.Mod(sum.Add(sum.Mul(sum, d.r), c), p) }
		sum.SetInt64(1)
		step(big.NewInt(int64(len(key))))
		step(big.NewInt(int64(len(id))))
		for _, s := range [][]byte{key, id} {
			for len(s) > 0 {
				block := new(big.Int)
				n := min(len(s), 1024)
				d.nh(block, 0, s[:n])
				step(new(big.Int).Mod(block, d.word))
				step(new(big.Int).Rsh(block, 64))
				s = s[n:]
			}
		}
	}
	hi := new(big.Int).Rsh(sum, 64)
	return sipHash13(d.k0, d.k1, sum.Mod(sum, d.word).Uint64(), hi.Uint64())
}

// TestHashIsItsDefinition: however Hash goes about it, what is on disk was hashed as the
// comment of Hasher says.
func TestHashIsItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 10_000)
	for i := range text {
		text[i] = byte(rng.Uint32())
	}
	seed := [16]byte(text)
	h, d := NewHasher(seed, "test"), newDefinition(seed, "test")
	check := func(k, n int) {
		at := rng.IntN(len(text) - k - n)
		key, id := text[at:at+k], text[at+k:at+k+n]
		if got, want := h.Hash(key, id), d.hash(key, id); got != want {
			t.Errorf("key of %d bytes, id of %d: %x instead of %x", k, n, got, want)
		}
	}
	for k := range 70 {
		for n := range 70 {
			check(k, n)
		}
	}
	for range 500 {
		check(rng.IntN(600), rng.IntN(600))
		check(rng.IntN(3000), rng.IntN(3000))
	}
	if other := NewHasher(seed, "other"); other.Hash(nil, nil) == h.Hash(nil, nil) ||
		other.pairs[0] == h.pairs[0] {
		t.Error("another purpose has the same secrets")
	}
}

// TestTimesPlus: arithmetic mod 2^127 - 1 at its edges.
func TestTimesPlus(t *testing.T) {
	const all = 1<<64 - 1
	edges := []uint128{{0, 0}, {0, 1}, {0, all}, {1, 0}, {1<<63 - 1, 0}, {1<<63 - 1, all - 1}, {1<<62 + 3,
		1 << 63}}
	toBig := func(u uint128) *big.Int {
		b := new(big.Int).SetUint64(u.hi)
		return b.Lsh(b, 64).Add(b, new(big.Int).SetUint64(u.lo))
	}
	p := toBig(uint128{1<<63 - 1, all})
	for _, s := range edges {
		for _, r := range edges {
			for _, x := range []uint64{0, 1, all} {
				want := new(big.Int).Mul(toBig(s), toBig(r))
				want.Mod(want.Add(want, new(big.Int).SetUint64(x)), p)
				got := s.timesPlus(r, x)
				if got.hi>>63 != 0 || new(big.Int).Mod(toBig(got), p).Cmp(want) != 0 {
					t.Fatalf("%x * %x + %x is %x, want %x", s, r, x, got, want)
				}
			}
		}
	}
}

// Two inputs collide in a hash of this kind, whatever the other secrets are, if the secret
// of one word is not used: what one factor of a product is multiplied with does not count
// while that factor is 0. So of each word the input is 0, and the other one of its pair differs.

// TestEverySecretCounts: inputs of zeros, in which one bit of one word differs.
func TestEverySecretCounts(t *testing.T) {
	h := NewHasher([16]byte{1}, "test")
	for _, n := range []int{1, 3, 4, 8, 12, 16, 31, 32, 100, 512, 992, 1024, 1040, 3000} {
		for _, keyed := range []bool{false, true} { // what differs is in the key
			zeros := make([]byte, n)
			seen := map[uint64]int{h.Hash(nil, zeros): -1}
			if keyed {
				seen = map[uint64]int{h.Hash(zeros, nil): -1}
			}
			for bit := range 8 * n {
				zeros[bit/8] = 1 << (bit % 8)
				got := h.Hash(nil, zeros)
				if keyed {
					got = h.Hash(zeros, nil)
				}
				if other, ok := seen[got]; ok {
					t.Fatalf("%d zeros (key: %v): bit %d hashes like bit %d", n, keyed, bit, other)
				}
				seen[got], zeros[bit/8] = bit, 0
			}
		}
	}
}

// TestHashTellsApart: what differs in lengths only, or in the order of words.
func TestHashTellsApart(t *testing.T) {
	h := NewHasher([16]byte{1}, "test")
	seen := map[uint64]string{}
	add := func(key, id string) {
		t.Helper()
		got := h.Hash([]byte(key), []byte(id))
		if other, ok := seen[got]; ok {
			t.Errorf("(%d bytes, %d bytes) hashes like %s", len(key), len(id), other)
		}
		seen[got] = fmt.Sprint(len(key), " and ", len(id), " bytes")
	}
	for total := range 80 { // the lengths alone
		for k := range total + 1 {
			add(string(make([]byte, k)), string(make([]byte, total-k)))
		}
	}
	for _, total := range []int{1023, 1024, 1025, 2048, 2049, 5000} {
		for _, k := range []int{0, 1, 16, 512, 1000, total} {
			if k <= total {
				add(string(make([]byte, k)), string(make([]byte, total-k)))
			}
		}
	}
	add("a", "bc")
	add("ab", "c")
	// Pairs in another order, words in another order, blocks in another order.
	for _, size := range []int{8, 16, 1024} {
		a, b, c := bytes.Repeat([]byte("a"), size), bytes.Repeat([]byte("b"), size),
			bytes.Repeat([]byte("c"), size)
		for _, order := range [][3][]byte{{a, b, c}, {b, a, c}, {a, c, b}, {c, b, a}} {
			add(string(bytes.Join(order[:], nil)), "")
		}
	}
}

// TestNoFixedDifference: pairs of inputs, chosen without a look at the seed, that differ in
// a way that a hash with weak mixing would not see, differ under each of many seeds.
func TestNoFixedDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	seeds := make([]*Hasher, 16)
	for i := range seeds {
		seeds[i] = NewHasher([16]byte{byte(i)}, "test")
	}
	for range 3000 {
		key, id := make([]byte, rng.IntN(40)), make([]byte, 16+rng.IntN(500))
		for i := range id {
			id[i] = byte(rng.Uint32()) & -byte(rng.Uint32()&1) // many zeros
		}
		twin := bytes.Clone(id)
		for range 1 + rng.IntN(3) { // words to which something is added
			at := rng.IntN(len(twin) - 7)
			d := uint64(1) << rng.IntN(64)
			if rng.IntN(2) == 0 {
				d = rng.Uint64()
			}
			binary.LittleEndian.PutUint64(twin[at:], word(twin[at:])+d)
		}
		if bytes.Equal(id, twin) {
			continue
		}
		same := 0
		for _, h := range seeds {
			if h.Hash(key, id) == h.Hash(key, twin) {
				same++
			}
		}
		if same > 0 {
			t.Fatalf("%x and %x have the same hash under %d of %d seeds", id, twin, same, len(seeds))
		}
	}
}

// oldHash is what Hash was: XXH64 of the seed in front of the input. Of XXH64's four lanes
// one begins with the seed.
func oldHash(seed uint64, key, id []byte) uint64 {
	var buf [528]byte
	b := buf[:0]
	if n := 12 + len(key) + len(id); n > len(buf) {
		b = make([]byte, 0, n)
	}
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = append(b, key...)
	b = append(b, id...)
	return mum(xxhash.Sum64(b)^seed, 0x9E3779B97F4A7C15)
}

// twinFor computes, without the seed, an id whose oldHash with the key other equals the oldHash of
// key and id under every seed. The lanes but the first differ after the first 32 bytes; their next
// words take that back. Keys have at most 19 bytes, ids at least 60. change makes several twins.
func twinFor(key, id, other []byte, change byte) []byte {
	const p1, p2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
	inverse := uint64(1) // of p2 mod 2^64, by Newton's iteration
	for range 6 {
		inverse *= 2 - p2*inverse
	}
	input := func(key []byte) []byte {
		return append(binary.LittleEndian.AppendUint32(make([]byte, 8), uint32(len(key))), key...)
	}
	b := append(input(key), id...)
	twin := append(input(other), b[12+len(other):]...)
	twin[31] ^= change
	for lane, start := range []uint64{p2, 0, 1<<64 - p1} {
		after := func(b []byte) uint64 { return bits.RotateLeft64(start+word(b[8+8*lane:])*p2, 31) * p1 }
		at := 40 + 8*lane
		binary.LittleEndian.PutUint64(twin[at:], word(b[at:])+(after(b)-after(twin))*inverse)
	}
	return twin[12+len(other):]
}

// TestTwinsOfTheOldHash: operations that one user computed, on own keys, to collide under every
// seed with operations of another user do not collide any more.
func TestTwinsOfTheOldHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	key := []byte("view:shop:home")
	for i := range 200 {
		id := fmt.Appendf(nil, "%0100d", i)
		for _, other := range []string{"view:shop:home", "view:m:mine", "view:m:one-longer"} {
			twin := twinFor(key, id, []byte(other), byte(i)|1)
			var seed [16]byte
			binary.LittleEndian.PutUint64(seed[:], rng.Uint64())
			if old := word(seed[:]); bytes.Equal(id, twin) ||
				oldHash(old, key, id) != oldHash(old, []byte(other), twin) {
				t.Fatal("the attack on the old hash is wrong")
			}
			if h := NewHasher(seed, "test"); h.Hash(key, id) == h.Hash([]byte(other), twin) {
				t.Fatalf("%x of %s collides with %x of %s", twin, other, id, key)
			}
		}
	}
}

// TestHashAllocations: also long inputs take no memory.
func TestHashAllocations(t *testing.T) {
	h, key, id := NewHasher([16]byte{1}, "test"), []byte("counter:42"), make([]byte, 5000)
	if n := testing.AllocsPerRun(100, func() { h.Hash(key, id[:36]); h.Hash(key, id) }); n != 0 {
		t.Errorf("Hash allocates %v times", n)
	}
}

// BenchmarkHash compares with the old hash, for a key of 16 bytes and ids of several lengths.
func BenchmarkHash(b *testing.B) {
	h, key := NewHasher([16]byte{1}, "test"), []byte("counter:12345678")
	for _, n := range []int{8, 16, 24, 36, 64, 128, 512, 4096} {
		id := make([]byte, n)
		for name, hash := range map[string]func() uint64{
			"old": func() uint64 { return oldHash(1, key, id) }, "new": func() uint64 {
				return h.Hash(key, id)
			},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for i := uint64(0); b.Loop(); i++ {
					binary.LittleEndian.PutUint64(id, i)
					hash()
				}
			})
		}
	}
}
