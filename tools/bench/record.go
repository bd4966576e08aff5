package main

import "github.com/HdrHistogram/hdrhistogram-go"

// The range and resolution of recorded latencies, ns and decimal digits.
const (
	minLatency    = 1000
	maxLatency    = 100e9
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(minLatency, maxLatency, latencyDigits)
}

// recorder takes latencies, in all and interval by interval.
type recorder struct {
	began     int64 // when the measurement begins, ns of the run's clock
	from, end int64 // of the present interval
	interval  int64
	now       *hdrhistogram.Histogram
	total     *hdrhistogram.Histogram
	series    []moment
	last      int64 // when the last operation was answered
	done      int64 // operations answered, also while warming up and with an error
}

// moment is one interval of the run. Latencies are in seconds.
type moment struct {
	Second float64 // of its end, since the measurement began
	latency
}

func newRecorder(began, interval int64) *recorder {
	return &recorder{began: began, from: began, end: began + interval, interval: interval, now: newHistogram(), total: newHistogram()}
}

// record notes that n operations were answered at a time, after a latency.
// Nothing is noted before the run's measurement begins.
func (r *recorder) record(at, latency int64, n int) {
	if at < r.from {
		return
	}
	for at >= r.end {
		r.flush()
	}
	r.last = at
	// The range is clamped; nothing else can go wrong.
	_ = r.now.RecordValues(min(max(latency, 0), maxLatency), int64(n))
}

// error notes that an operation was answered with an error at a time.
func (r *recorder) error(at int64) {
	if at >= r.began {
		r.last = at
	}
}

// flush ends the present interval.
func (r *recorder) flush() {
	m := moment{Second: float64(r.end-r.began) / 1e9}
	if r.now.TotalCount() > 0 {
		m.latency = latencyOf(r.now)
	}
	r.series = append(r.series, m)
	r.total.Merge(r.now)
	r.now.Reset()
	r.from, r.end = r.end, r.end+r.interval
}

// latency is a summary of latencies in seconds.
type latency struct{ Mean, P50, P95, P99, P999, Max float64 }

func latencyOf(h *hdrhistogram.Histogram) latency {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e9 }
	return latency{Mean: h.Mean() / 1e9, P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e9}
}
