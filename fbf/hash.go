package fbf

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Hash is the keyed hash of (key, id) that the filter's operations take. The
// key is prefixed with its length, so that ("a", "bc") and ("ab", "c") differ.
// seed should be random and secret, so that clients cannot choose colliding
// ids. It does not allocate for up to 512 bytes in all.
func Hash(seed uint64, key, id []byte) uint64 {
	var buf [528]byte
	var b []byte
	if n := 12 + len(key) + len(id); n <= len(buf) {
		b = buf[:0]
	} else {
		b = make([]byte, 0, n)
	}
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = append(b, key...)
	b = append(b, id...)
	return mum(xxhash.Sum64(b)^seed, 0x9E3779B97F4A7C15)
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
