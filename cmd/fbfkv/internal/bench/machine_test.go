package bench

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkProcessors says what a second busy processor of this machine is worth:
// the same work, arithmetic or reads that miss the first-level cache, on one thread
// and on two at once. Where rate2/rate1 is far below 2 the two are hardware threads
// of one core, or the host has given one of them to somebody else.
func BenchmarkProcessors(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("there is one processor only")
	}
	const steps = 1 << 24
	arithmetic := func([]uint32) (x uint64) {
		y, z := uint64(1), uint64(2)
		for range steps { // three chains, to fill the core's units
			x = x*6364136223846793005 + 1
			y ^= y<<7 ^ z
			z += y >> 3
		}
		return x + y + z
	}
	chase := func(next []uint32) uint64 {
		at := uint32(0)
		for range steps {
			at = next[at]
		}
		return uint64(at)
	}
	for _, work := range []struct {
		name string
		do   func([]uint32) uint64
	}{{"arithmetic", arithmetic}, {"cache", chase}} {
		b.Run(work.name, func(b *testing.B) {
			var next [2][]uint32
			for i := range next {
				next[i] = cycle(1 << 17) // 512 KB: the second-level cache's
			}
			var once, both float64
			for b.Loop() {
				once += seconds(func() { sink.Store(work.do(next[0])) })
				both += seconds(func() {
					var two sync.WaitGroup
					for i := range next {
						two.Go(func() { sink.Store(work.do(next[i])) })
					}
					two.Wait()
				})
			}
			b.ReportMetric(2*once/both, "rate2/rate1")
		})
	}
}

// cycle returns a permutation that is one cycle, in random order.
func cycle(n int) []uint32 {
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	next := make([]uint32, n)
	for i, at := range order {
		next[at] = uint32(order[(i+1)%n])
	}
	return next
}

// sink keeps the work from being dropped.
var sink atomic.Uint64

func seconds(fn func()) float64 {
	began := time.Now()
	fn()
	return time.Since(began).Seconds()
}
