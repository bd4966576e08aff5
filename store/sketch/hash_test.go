package sketch

import "testing"

// TestMurmur: hashes agree with other implementations (sketch-vectors.txt, section 2).
func TestMurmur(t *testing.T) {
	for item, want := range map[string]struct {
		a, b     uint64
		zero, a6 uint32
	}{
		"":            {0x1ab11ea5a7b2c56e, 0xbbddcb5ab56dd547, 0, 0x26eb34a8},
		"a":           {0x4292cee227b9150a, 0x7e9b527031f50c11, 0x92685f5e, 0x5c22f2fa},
		"abc":         {0xca52f3863690cd7b, 0x492e507dc7ce3d23, 0x13577c9b, 0x9efbb2a3},
		"abcd":        {0xc19f5358d983a6bf, 0xe0cf7f46f508e46e, 0x26873021, 0x49a10bc5},
		"abcdefg":     {0x9fa0b24601c1e9a9, 0x593e9b0945664832, 0xf9a1cef3, 0xc6d6041c},
		"abcdefgh":    {0xd435df7a565a8af1, 0xbf3d673c0b1029cf, 0x042287e6, 0x3e70529b},
		"hello world": {0xbae8fb35317acde1, 0xa5c3078260d44436, 0x44a81419, 0x8596aa75},
		"\x00":        {0, 0x5825f5f3bd962979, 0xe94e6ebd, 0x2bb1a13b},
		"The quick brown fox jumps over the lazy dog": {0xc7a616a28f4a74d6, 0xfab0774384f74e2a, 0x212729d0,
			0x7db42000},
	} {
		a := murmur64([]byte(item), 0xc6a4a7935bd1e995)
		if b := murmur64([]byte(item), a); a != want.a || b != want.b {
			t.Errorf("%q: %x %x", item, a, b)
		}
		if zero, six := murmur32([]byte(item), 0), murmur32([]byte(item), 6); zero != want.zero ||
			six != want.a6 {
			t.Errorf("%q: %x %x", item, zero, six)
		}
	}
}
