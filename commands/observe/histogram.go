package observe

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// The shape of a latency histogram: 2^subBits buckets for every doubling of the
// latency, so that a bucket is at most 1/32 wider than its lower end, up to
// maxLatency, beyond which everything counts as that.
const (
	subBits    = 5
	maxLatency = 1<<40 - 1 // nanoseconds, about 18 minutes
	buckets    = (40-subBits)<<subBits + 1<<subBits
)

// histogram counts latencies. It is added to with atomics alone; who reads it
// meanwhile may see a count that lacks from another, which no reader minds.
type histogram struct {
	counts [buckets]atomic.Uint64
	sum    atomic.Uint64 // nanoseconds
}

// bucketOf returns the bucket of a latency in nanoseconds: the latency itself
// where it is small, else its leading subBits+1 bits and how many follow them.
func bucketOf(ns uint64) int {
	ns = min(ns, maxLatency)
	shift := max(bits.Len64(ns)-subBits-1, 0)
	return shift<<subBits + int(ns>>shift)
}

// bucketEnd returns the largest latency, in nanoseconds, that bucket i holds.
func bucketEnd(i int) uint64 {
	if i < 2<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i-shift<<subBits)+1)<<shift - 1
}

// add counts n times the same latency.
func (h *histogram) add(took time.Duration, n uint64) {
	ns := uint64(max(took, 0))
	h.counts[bucketOf(ns)].Add(n)
	h.sum.Add(ns * n)
}

// latency returns what was counted so far; h may be nil.
func (h *histogram) latency() Latency {
	var l Latency
	if h == nil {
		return l
	}
	l.Sum = time.Duration(h.sum.Load())
	for i := range h.counts {
		n := h.counts[i].Load()
		l.Count += n
		l.counts[i] = n
	}
	return l
}

// Latency is the distribution of a command's latencies at one moment. How long
// a command takes is how long the batch took that it was executed in, commit
// included: that is what its client waited for.
type Latency struct {
	Count uint64
	// Sum is the latencies' sum, for a mean.
	Sum    time.Duration
	counts [buckets]uint64
}

// AtMost returns how many latencies were at most d. It is exact for powers of
// two nanoseconds less one, and leaves out a part of a bucket (3 %) elsewhere.
func (l *Latency) AtMost(d time.Duration) uint64 {
	n := uint64(0)
	for i := 0; i < buckets && bucketEnd(i) <= uint64(max(d, 0)); i++ {
		n += l.counts[i]
	}
	return n
}

// Percentile returns the latency that p percent of all, 0 to 100, do not
// exceed; it is at most 1/32 too long. Without latencies it is 0.
func (l *Latency) Percentile(p float64) time.Duration {
	rank := max(uint64(math.Ceil(p*float64(l.Count)/100-1e-6)), 1) // 99.9 has no exact binary form
	n := uint64(0)
	for i := range l.counts {
		if n += l.counts[i]; n >= rank {
			return time.Duration(bucketEnd(i))
		}
	}
	return 0
}
