package store

import (
	"math/rand/v2"
	"testing"
)

// TestSlot holds slots that Redis Cluster's documentation and CLUSTER KEYSLOT
// give, and every length against the checksum's definition, bit by bit.
func TestSlot(t *testing.T) {
	for key, want := range map[string]uint16{
		"foo": 12182, "somekey": 11058, "foo{hash_tag}": 2515, "{hash_tag}": 2515, "hash_tag": 2515,
		"123456789": 0x31C3,
	} {
		if got := Slot([]byte(key)); got != want {
			t.Errorf("%s: slot %d, want %d", key, got, want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 64 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		var want uint16
		for _, c := range b {
			want ^= uint16(c) << 8
			for range 8 {
				carry := want>>15 == 1
				if want <<= 1; carry {
					want ^= 0x1021
				}
			}
		}
		if got := crc16(b); got != want {
			t.Errorf("%x: checksum %04x, want %04x", b, got, want)
		}
	}
}
