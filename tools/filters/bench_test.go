package compare

import (
	"encoding/binary"
	"flag"
	"fmt"
	"testing"

	"github.com/fbfkv/fbfkv/fbf"
)

var target = flag.Float64("target", 1e-6, "false positive probability of every window")

var sizes = []uint64{512 << 10, 4 << 20, 64 << 20, 512 << 20}

// BenchmarkWindow times check-and-insert of new ids and of duplicates; ns/op is per id.
func BenchmarkWindow(b *testing.B) {
	for _, size := range sizes {
		for _, c := range Contestants(*target) {
			b.Run(fmt.Sprintf("size=%dKB/%s", size>>10, c.Name), func(b *testing.B) {
				ids := c.IDsIn(size)
				w, err := c.New(ids)
				if err != nil {
					b.Fatal(err)
				}
				defer w.Release()
				s := NewStream(w, ids)
				s.Fill(1.5)
				b.Run("new", func(b *testing.B) { benchBlocks(b, s.New) })
				b.Run("duplicate", func(b *testing.B) { benchBlocks(b, s.Duplicate) })
			})
		}
	}
}

func benchBlocks(b *testing.B, block func() int) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%Block == 0 {
			block()
		}
	}
}

// BenchmarkHash is what a caller adds for string ids with filters that take a hash.
func BenchmarkHash(b *testing.B) {
	hasher := fbf.NewHasher([16]byte{1}, "bench")
	key, id := []byte("counter:12345678"), make([]byte, 16)
	for n := uint64(0); b.Loop(); n++ {
		binary.LittleEndian.PutUint64(id, n)
		hasher.Hash(key, id)
	}
}

// BenchmarkID is the making of an id, part of every time above.
func BenchmarkID(b *testing.B) {
	var x uint64
	for n := uint64(0); b.Loop(); n++ {
		x ^= IDAt(n)[0]
	}
	_ = x
}
