package main

import (
	"sync"
	"sync/atomic"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range and resolution of recorded latencies, ns and decimal digits.
const (
	minLatency    = 1000
	maxLatency    = 100e9
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(minLatency, maxLatency, latencyDigits)
}

// recorder takes the latencies of one worker. What belongs to an interval goes
// to the collector when the interval is over.
type recorder struct {
	from, end int64 // of the present interval, ns of the run's clock
	number    int
	now       *hdrhistogram.Histogram
	collector *collector
	last      int64        // when the last operation was answered
	done      atomic.Int64 // operations answered, also while warming up and with an error
	failed    atomic.Int64 // of them, with an error
	_         [64]byte     // workers' counts on lines of their own
}

// record notes that n operations were answered at a time, after a latency.
// Nothing is noted before the run's measurement begins.
func (r *recorder) record(at, latency int64, n int) {
	if at < r.from {
		return
	}
	if at >= r.end {
		r.rotate(at)
	}
	r.last = at
	// The range is clamped; nothing else can go wrong.
	_ = r.now.RecordValues(min(max(latency, 0), maxLatency), int64(n))
}

// error notes that n operations were answered with an error at a time.
func (r *recorder) error(at int64, n int) {
	r.failed.Add(int64(n))
	if at >= r.from {
		r.last = at
	}
}

// rotate hands the interval over and begins the one that holds a time.
func (r *recorder) rotate(at int64) {
	r.flush()
	for at >= r.end {
		r.from, r.end, r.number = r.end, r.end+r.collector.interval, r.number+1
	}
}

// flush hands over what was recorded.
func (r *recorder) flush() {
	r.collector.full <- part{r.number, r.now}
	r.now = <-r.collector.empty
}

// part is what one worker recorded in one interval.
type part struct {
	number int
	h      *hdrhistogram.Histogram
}

// collector adds up what the workers record. It works on a goroutine of its own
// so that no connection waits for it.
type collector struct {
	interval int64 // ns
	full     chan part
	empty    chan *hdrhistogram.Histogram
	total    *hdrhistogram.Histogram
	series   []moment
	pending  map[int]*hdrhistogram.Histogram
	over     sync.WaitGroup
	p99      atomic.Int64 // of total, ns
}

// moment is one interval of the run. Latencies are in seconds.
type moment struct {
	Second                   float64 // of its end, since the measurement began
	Operations               int64
	P50, P95, P99, P999, Max float64
}

// newCollector serves a number of workers; each has a histogram in hand and
// there is one more for each.
func newCollector(workers int, interval int64) *collector {
	c := &collector{
		interval: interval,
		full:     make(chan part, workers),
		empty:    make(chan *hdrhistogram.Histogram, 2*workers),
		total:    newHistogram(),
		pending:  map[int]*hdrhistogram.Histogram{},
	}
	for range workers {
		c.empty <- newHistogram()
	}
	c.over.Go(c.collect)
	return c
}

// recorder returns one for a worker that measures from a time on.
func (c *collector) recorder(from int64) *recorder {
	return &recorder{from: from, end: from + c.interval, now: newHistogram(), collector: c}
}

func (c *collector) collect() {
	for p := range c.full {
		c.total.Merge(p.h)
		c.p99.Store(c.total.ValueAtQuantile(99))
		sum := c.pending[p.number]
		if sum == nil {
			// Workers are at most an interval or two apart.
			c.settle(p.number - 4)
			sum = newHistogram()
			c.pending[p.number] = sum
		}
		sum.Merge(p.h)
		p.h.Reset()
		c.empty <- p.h
	}
	c.settle(int(^uint(0) >> 1))
}

// settle makes moments of the intervals up to a number.
func (c *collector) settle(number int) {
	for n, h := range c.pending {
		if n > number {
			continue
		}
		for len(c.series) <= n {
			c.series = append(c.series, moment{Second: float64(len(c.series)+1) * float64(c.interval) / 1e9})
		}
		m := &c.series[n]
		m.Operations = h.TotalCount()
		l := latencyOf(h)
		m.P50, m.P95, m.P99, m.P999, m.Max = l.P50, l.P95, l.P99, l.P999, l.Max
		delete(c.pending, n)
	}
}

// finish returns once everything handed over is in total and series.
func (c *collector) finish() {
	close(c.full)
	c.over.Wait()
}

// latency is a summary of latencies in seconds.
type latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func latencyOf(h *hdrhistogram.Histogram) latency {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e9 }
	return latency{Mean: h.Mean() / 1e9, P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e9}
}
