package fbf

import (
	"fmt"
	"testing"
)

// growth is what a server's filters are while a window fills for the first time: one for every
// partition, each of several segments, together larger than the second-level cache.
type growth struct {
	fs   [16]bench
	hash uint64 // of the last id
	hs   [64]uint64
}

// growthRate is the ids per second and filter: a server at 800 000 operations a second.
const growthRate = 50_000

// newGrowth fills the filters, at a steady rate from their first id on, until each holds n ids.
func newGrowth(tb testing.TB, e float64, n uint64) *growth {
	g := &growth{}
	for i := range g.fs {
		f, err := New(Options{Window: 125_000, Error: e}, 0)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(f.Release)
		g.fs[i].f = f
	}
	for g.fs[0].f.inserted < n {
		g.group()
	}
	return g
}

// group checks and inserts 64 new ids as the server does: it requests all, judges all, applies all.
func (g *growth) group() (found int) {
	for i := range g.hs {
		g.hash += 0x9E3779B97F4A7C15
		g.hs[i] = mum(g.hash, 0xE7037ED1A0B428DB)
	}
	for i, h := range g.hs {
		g.fs[i&15].f.Touch(h)
	}
	for i, h := range g.hs {
		if _, ok := g.fs[i&15].f.Match(h); ok {
			found++
		}
	}
	for i, h := range g.hs {
		n := &g.fs[i&15]
		n.now = int64(n.f.inserted * 1000 / growthRate)
		if n.f.Due(n.now) {
			n.plan()
		}
		n.f.Insert(h, n.now)
	}
	return found
}

// BenchmarkGrowing is check and insert of a new id in groups of 64 spread over 16 filters that
// have grown to 1.5 million ids each, at the targets of an APPROX and an EXACT table.
func BenchmarkGrowing(b *testing.B) {
	for _, e := range []float64{1e-6 / 16, 1e-3} {
		b.Run(fmt.Sprintf("error=%.0e", e), func(b *testing.B) {
			g := newGrowth(b, e, 1_500_000)
			b.ResetTimer()
			for i := 0; i < b.N; i += len(g.hs) {
				g.group()
			}
		})
	}
}
