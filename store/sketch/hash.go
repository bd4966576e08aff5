package sketch

import "encoding/binary"

// The hashes of sketches are Austin Appleby's MurmurHash2 and MurmurHash64A, as other
// implementations of these types have them: bits and cells move from one to the other.
// A client that knows the seed can make items collide; that is in the nature of this format.

// murmur32 is MurmurHash2.
func murmur32(b []byte, seed uint32) uint32 {
	const m = 0x5bd1e995
	h := seed ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	if len(b) > 0 {
		var rest uint32
		for i, c := range b {
			rest |= uint32(c) << (8 * i)
		}
		h = (h ^ rest) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// murmur64 is MurmurHash64A.
func murmur64(b []byte, seed uint64) uint64 {
	const m = 0xc6a4a7935bd1e995
	h := seed ^ uint64(len(b))*m
	for ; len(b) >= 8; b = b[8:] {
		k := binary.LittleEndian.Uint64(b) * m
		k = (k ^ k>>47) * m
		h = (h ^ k) * m
	}
	if len(b) > 0 {
		var rest uint64
		for i, c := range b {
			rest |= uint64(c) << (8 * i)
		}
		h = (h ^ rest) * m
	}
	h = (h ^ h>>47) * m
	return h ^ h>>47
}

// HashItem returns the two hashes that say which bits of a Bloom filter an item has.
func HashItem(item []byte) (a, b uint64) {
	a = murmur64(item, 0xc6a4a7935bd1e995)
	return a, murmur64(item, a)
}

// Fingerprint returns 64 bits of the items of a request, in their order, and of their deltas,
// if there are any: two requests with the same fingerprint are taken for the same. It is part
// of the format.
func Fingerprint(items [][]byte, deltas []int64) int64 {
	h := uint64(len(items))
	for i, item := range items {
		if h = murmur64(item, h); i < len(deltas) {
			h = murmur64(binary.LittleEndian.AppendUint64(nil, uint64(deltas[i])), h)
		}
	}
	return int64(h)
}
