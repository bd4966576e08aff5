package fbf

import (
	"fmt"
	"testing"
)

// bench is a filter of one segment in steady state: it takes one id per
// millisecond of logged time, and its window is such that generations
// reach the size they are meant for just when their period ends. Rotation, expiry and clearing are
// part of the measured time.
type bench struct {
	f   *Filter
	now int64
	x   uint64
}

func newBench(b *testing.B, size uint64, e float64, roles int) *bench {
	b.Helper()
	o := Options{Window: 1, Error: e, Roles: roles}.withDefaults()
	g := geometryFor(e, o.Roles)
	mu := g.meanFor(laneBudget(e * lastShare))
	limit := limitFor(size/lineBytes/uint64(g.s), mu)
	// Past is MaxPast: a generation then takes limit ids in a period
	o.Window = int64(limit) * (2*o.periods() + 1) / 2
	o.Capacity = uint64(float64(o.Window) / headroom)
	f, err := New(o, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Release)
	n := &bench{f: f}
	var hs [64]uint64
	var present [64]bool
	for n.now < 2*o.Window {
		n.batch(hs[:], present[:])
	}
	if got := f.Bytes(); got < size*9/10 || got > size*11/10 {
		b.Fatalf("%d bytes, want about %d: not in steady state", got, size)
	}
	return n
}

// id is a new pseudo-random id; it costs about 1 ns.
func (n *bench) id() uint64 {
	n.x += 0x9E3779B97F4A7C15
	return mum(n.x, 0xE7037ED1A0B428DB)
}

func (n *bench) plan() {
	for {
		e, ok := n.f.Plan(n.now, func(uint64) bool { return true })
		if !ok {
			return
		}
		if err := n.f.Apply(e); err != nil {
			panic(err)
		}
	}
}

func (n *bench) one() {
	n.now++
	if n.f.Due(n.now) {
		n.plan()
	}
	n.f.CheckAndInsert(n.id(), n.now)
}

func (n *bench) batch(hs []uint64, present []bool) {
	n.now += int64(len(hs))
	if n.f.Due(n.now) || n.f.Room() < uint64(len(hs)) {
		n.plan()
	}
	for i := range hs {
		hs[i] = n.id()
	}
	n.f.CheckAndInsertBatch(hs, n.now, present)
}

var benchSizes = []uint64{512 << 10, 4 << 20, 64 << 20, 512 << 20}

func sizeName(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%dKB", n>>10)
	}
	return fmt.Sprintf("%dMB", n>>20)
}

// eachSize runs f for every target and size.
func eachSize(b *testing.B, f func(b *testing.B, n *bench)) {
	for _, e := range []float64{1e-3, 1e-6, 1e-9} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("error=%.0e/%s", e, sizeName(size)), func(b *testing.B) {
				n := newBench(b, size, e, 1)
				b.ReportAllocs()
				f(b, n)
			})
		}
	}
}

// BenchmarkNew is check and insert of new ids one by one.
func BenchmarkNew(b *testing.B) {
	eachSize(b, func(b *testing.B, n *bench) {
		for b.Loop() {
			n.one()
		}
	})
}

// BenchmarkNewBatch is the same in batches of 64; times are per id.
func BenchmarkNewBatch(b *testing.B) {
	eachSize(b, func(b *testing.B, n *bench) {
		var hs [64]uint64
		var present [64]bool
		for i := 0; b.Loop(); i++ {
			if i%len(hs) == 0 {
				n.batch(hs[:], present[:])
			}
		}
	})
}

// BenchmarkDuplicate checks ids that were inserted up to a window ago.
func BenchmarkDuplicate(b *testing.B) {
	eachSize(b, func(b *testing.B, n *bench) {
		back := n.x - 0x9E3779B97F4A7C15*uint64(n.f.opts.Window*9/10)
		end := n.x
		for n.x = back; b.Loop(); {
			if n.x == end {
				n.x = back
			}
			n.f.CheckAndInsert(n.id(), n.now)
		}
	})
}
