package observe

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// TestBuckets: every latency lies in its bucket, whose neighbours meet.
func TestBuckets(t *testing.T) {
	for i := range buckets - 1 {
		end := bucketEnd(i)
		if bucketOf(end) != i || bucketOf(end+1) != i+1 {
			t.Fatalf("bucket %d ends at %d, but %d and %d follow", i, end, bucketOf(end), bucketOf(end+1))
		}
		if start := bucketEnd(max(i-1, 0)); i > 64 && float64(end-start) > float64(start)/32+1 {
			t.Fatalf("bucket %d is from %d to %d", i, start, end)
		}
	}
	if got := bucketOf(1 << 63); got != buckets-1 {
		t.Errorf("an endless latency is in bucket %d of %d", got, buckets)
	}
}

func TestPercentiles(t *testing.T) {
	var h histogram
	var all []time.Duration
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		d := time.Duration(rnd.ExpFloat64() * 1e6)
		all = append(all, d)
		h.add(d, 3)
	}
	slices.Sort(all)
	l := h.latency()
	if l.Count != 30_000 {
		t.Fatalf("%d counted", l.Count)
	}
	for _, p := range []float64{0, 50, 99, 99.9, 100} {
		want := all[max(int(p/100*10_000)-1, 0)]
		if got := l.Percentile(p); got < want || float64(got) > float64(want)*33/32+1 {
			t.Errorf("percentile %v: %v, want %v", p, got, want)
		}
	}
	if got := l.AtMost(1<<20 - 1); got != 3*uint64(slices.IndexFunc(all,
		func(d time.Duration) bool { return d >= 1<<20 })) {
		t.Errorf("at most 2^20 ns: %d", got)
	}
	if empty := (Latency{}); empty.Percentile(50) != 0 || empty.AtMost(time.Hour) != 0 {
		t.Error("an empty histogram has latencies")
	}
}

// TestErrorKinds counts from many goroutines and never beyond its bound.
func TestErrorKinds(t *testing.T) {
	var e errorTotals
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				e.count([]byte{'-', 'A' + byte(i%20), ' ', 'x'})
			}
		})
	}
	wg.Wait()
	list := e.figures()
	for _, f := range list {
		if f.Count != 200 {
			t.Errorf("%s: %d", f.Prefix, f.Count)
		}
	}
	for i := range 1000 {
		e.count([]byte("-X" + string(rune(0x100+i))))
	}
	if len(list) != 20 || len(e.figures()) != maxPrefixes || e.total.Load() != 5000 {
		t.Errorf("%d and %d kinds, %d errors", len(list), len(e.figures()), e.total.Load())
	}
}

// TestCountingAllocatesNothing: counting is on the path of every batch.
func TestCountingAllocatesNothing(t *testing.T) {
	var s Stats
	reply := []byte("-ERR no\r\n")
	work := func() {
		tally := s.Tally(1000, time.Millisecond)
		for i := range 1000 {
			tally.Add(i % 11)
		}
		tally.Flush()
		s.Failed(0, reply)
	}
	work()
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRates: what there was per second, also after totals were reset.
func TestRates(t *testing.T) {
	var g gauges
	at := time.Unix(1000, 0)
	for i, tt := range []struct {
		s    sample
		want traffic
	}{
		{sample{at, 100, 1000, 10, 5, 100}, traffic{}},
		{sample{at.Add(2 * time.Second), 300, 3048, 10, 25, 700}, traffic{100, 1024, 0, 10, 300}},
		{sample{at.Add(3 * time.Second), 50, 4048, 20, 7, 70}, traffic{50, 1000, 10, 7, 70}},
		{sample{at.Add(3 * time.Second), 60, 4048, 20, 8, 80}, traffic{}},
	} {
		g.sample(tt.s)
		if got := g.rates(tt.s.at, tt.s.commands); got != tt.want {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got := g.rates(at.Add(3*time.Second+freshEnough), 80); got.commands < 99 || got.commands > 101 {
		t.Errorf("since the last sample: %+v", got)
	}
	if got := g.rates(at.Add(4*time.Second), 10); got != (traffic{}) {
		t.Errorf("after a reset: %+v", got)
	}
}

// TestMemoryFigures are plausible.
func TestMemoryFigures(t *testing.T) {
	st, err := store.Open(store.Options{Dir: t.TempDir(), Fsync: store.No, MinFreeDisk: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer st.CloseNow()
	stats := st.Stats()
	var g gauges
	m := g.memory(&stats)
	if m.heap < 100_000 || m.used < m.heap || m.active < m.heap || m.resident < m.heap || m.mapped < m.heap ||
		m.peak != m.used || m.startup != m.used {
		t.Errorf("%+v", m)
	}
	if d := m.dataset(&stats); d == 0 || d > m.used {
		t.Errorf("a dataset of %d of %d", d, m.used)
	}
	g.seen(m.used + 1)
	g.seen(m.used / 2)
	if g.peak.Load() != m.used+1 || g.startup.Load() != m.used {
		t.Errorf("peak %d, startup %d", g.peak.Load(), g.startup.Load())
	}
}

// TestLatencyHistory keeps a bounded number of samples.
func TestLatencyHistory(t *testing.T) {
	var l Events
	for i := range 1000 {
		l.add("command", time.Unix(int64(i), 0), time.Duration(1000-i)*time.Millisecond)
	}
	e := l.find([]byte("command"))
	if len(e.samples) != latencySamples || e.samples[0].at != 1000-latencySamples || e.max != time.Second {
		t.Errorf("%d samples from %d on, at most %v", len(e.samples), e.samples[0].at, e.max)
	}
}

// TestMonitorLine holds the form of MONITOR's lines.
func TestMonitorLine(t *testing.T) {
	at := time.Unix(1700000000, 42_000)
	got := string(monitorLine(at, "[::1]:80",
		[][]byte{[]byte("set"), []byte("a\"\\\n\r\t\a\b\x00\xff~ "), {}}))
	want := "+1700000000.000042 [0 [::1]:80] \"set\" \"a\\\"\\\\\\n\\r\\t\\a\\b\\x00\\xff~ \" \"\"\r\n"
	if got != want {
		t.Errorf("got %s want %s", got, want)
	}
}
