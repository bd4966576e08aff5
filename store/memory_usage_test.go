package store

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/fbfkv/fbfkv/internal/raced"
)

func memoryUsage(s *Store, key string) Op { return do(s, Op{Kind: MemoryUsage, Key: []byte(key)}) }

// measuresAlone runs a test that measures the heap in a process of its own, as what earlier tests left
// behind comes and goes, and reports whether this is that process.
func measuresAlone(t *testing.T) bool {
	if raced.Slowdown > 1 {
		t.Skip("the race detector needs memory of its own")
	}
	const child = "FBFKV_TEST_MEASURES_ALONE"
	if os.Getenv(child) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v: %s", err, out)
	}
	return false
}

// heapBytes is what lives on the heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // pools need two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryUsage compares the estimate with what the runtime says, for short keys and for long ones, which
// take no more than their length beyond that.
func TestMemoryUsage(t *testing.T) {
	if !measuresAlone(t) {
		return
	}
	const n = 100_000
	for _, format := range []string{"counter:%08d", "views:/products/running-shoes/reviews:%08d"} {
		var s *Store
		var measured []float64
		for range 3 {
			s = testStore(t, nil)
			before := heapBytes()
			var b Batch
			for i := range n {
				o := b.Add(Get) // only remembered as missing: no log, no record
				o.Key = fmt.Appendf(nil, format, i)
				if len(b.Ops) == 1000 {
					s.Execute(&b)
					b = Batch{}
				}
			}
			measured = append(measured, float64(heapBytes()-before)/n)
			runtime.KeepAlive(s)
		}
		slices.Sort(measured)
		key := fmt.Sprintf(format, 0)
		incr(s, key, 1)
		estimate, m := float64(memoryUsage(s, key).Value), measured[1]
		t.Logf("a key of %d bytes takes %.0f", len(key), m)
		most := float64(128 + max(len(key)-shortKey, 0))
		if estimate < m*0.75 || estimate > m*1.25 || m > most {
			t.Errorf("%q is estimated to need %.0f bytes and needs %.0f, at most %.0f", key, estimate,
				measured, most)
		}
	}
}

func TestMemoryUsageOfKinds(t *testing.T) {
	s := testStore(t, nil)
	if op := memoryUsage(s, "none"); op.Found || op.Err != nil {
		t.Errorf("%+v", op)
	}
	incr(s, "k", 1)
	do(s, Op{Kind: FBFReserve, Key: []byte("f"),
		Object: &FilterOptions{Fixed: true, Bits: 1 << 20, Hashes: 3, Past: 2, Refresh: 1 << 40}})
	k, f := memoryUsage(s, "k"), memoryUsage(s, "f")
	p := s.partitions[Slot([]byte("f"))>>s.shift]
	if want := int64(p.objects["f"].object().bytes()); f.Value < want || f.Value > want+1000 || want < 3<<17 {
		t.Errorf("a filter of %d bytes is said to need %d", want, f.Value)
	}
	do(s, Op{Kind: ExpireAt, Key: []byte("k"), ExpireAt: 1 << 60})
	if with := memoryUsage(s, "k"); k.Value < 50 || with.Value <= k.Value {
		t.Errorf("%d bytes, with an expiry %d", k.Value, with.Value)
	}
}

// TestCounterIsOneCacheLine: an operation that finds its counter pays for one
// cache miss, whatever it then reads or changes.
func TestCounterIsOneCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(counter{}); n != 64 {
		t.Errorf("a counter takes %d bytes", n)
	}
}
