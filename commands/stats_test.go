package commands

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
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
	if got := l.AtMost(1<<20 - 1); got != 3*uint64(slices.IndexFunc(all, func(d time.Duration) bool { return d >= 1<<20 })) {
		t.Errorf("at most 2^20 ns: %d", got)
	}
	if empty := (Latency{}); empty.Percentile(50) != 0 || empty.AtMost(time.Hour) != 0 {
		t.Error("an empty histogram has latencies")
	}
}

// TestCommandFigures: what is counted is what was sent, in mixed pipelines too.
func TestCommandFigures(t *testing.T) {
	srv := &Server{}
	c := dial(t, newStore(t), srv)
	c.send("INCR a", "GET a", "INCR a", "GET a", "PING", "GET", "CINCRBY a x y", "nonsense", "CLIENT NO-TOUCH maybe")
	c.send("SET f x", "TYPE a", "TTL a", "EXISTS a", "MGET a", "DECR a", "CGET a", "PTTL a", "PERSIST a", "PING")
	want := map[string][3]uint64{ // calls, failed, rejected
		"incr": {2, 0, 0}, "get": {2, 0, 1}, "ping": {2, 0, 0}, "cincrby": {1, 1, 0}, "client|no-touch": {1, 1, 0},
		"set": {1, 1, 0}, "persist": {1, 0, 0}, "cget": {1, 0, 0},
	}
	got := srv.CommandFigures()
	for _, f := range got {
		if w, ok := want[f.Name]; ok && w != [3]uint64{f.Calls, f.Failed, f.Rejected} {
			t.Errorf("%s: %d calls, %d failed, %d rejected, want %v", f.Name, f.Calls, f.Failed, f.Rejected, w)
		}
		delete(want, f.Name)
		if f.Latency.Count != f.Calls || f.Calls > 0 && (f.Time <= 0 || f.Latency.Sum < f.Time) {
			t.Errorf("%s: %d calls and %d latencies, %v of %v", f.Name, f.Calls, f.Latency.Count, f.Time, f.Latency.Sum)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if e := srv.ErrorFigures(); len(e) != 1 || e[0].Prefix != "ERR" || e[0].Count != 5 {
		t.Errorf("errors %v", e)
	}
	c.say("SELECT 0")
	srv.stats.reset()
	if got := srv.CommandFigures(); got != nil || srv.ErrorFigures() != nil {
		t.Errorf("after a reset: %d commands", len(got))
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
	var s commandStats
	slots := make([]slot, 1000)
	for i := range slots {
		slots[i].cmd = Commands.all[i%11]
	}
	reply := []byte("-ERR no\r\n")
	work := func() { s.ranAll(slots, time.Millisecond); s.failed(slots[0].cmd, reply) }
	work()
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
