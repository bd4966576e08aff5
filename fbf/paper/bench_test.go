package paper

import (
	"fmt"
	"testing"
)

// BenchmarkNew is the optimised check and the insert of new ids, eight
// constituents, 20 hash functions (1e-6), for comparison with package fbf.
func BenchmarkNew(b *testing.B) {
	for _, mb := range []uint64{4, 512} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			f, err := New(mb<<20, 20, 6)
			if err != nil {
				b.Fatal(err)
			}
			x, period := uint64(0), int(mb<<20/60)
			for range 8 {
				for range period {
					x += 0x9E3779B97F4A7C15
					f.Insert(x)
				}
				f.Refresh()
			}
			n := 0
			for b.Loop() {
				x += 0x9E3779B97F4A7C15
				if !f.Contains(x) {
					f.Insert(x)
				}
				if n++; n%period == 0 {
					b.StopTimer()
					f.Refresh()
					b.StartTimer()
				}
			}
		})
	}
}
