package observe

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// gauges are figures of INFO that have to be looked at from time to time.
type gauges struct {
	snapshots atomic.Uint64 // SAVE and BGSAVE, since start
	startup   atomic.Uint64 // used memory at the first look
	peak      atomic.Uint64 // the most memory used, as far as was seen

	mu   sync.Mutex
	last sample
	rate traffic
	base store.Stats // at CONFIG RESETSTAT
}

// sample is what Sample saw.
type sample struct {
	at                 time.Time
	commands, in, out  uint64
	rounds, roundNanos uint64
}

// traffic is how much there is of something per second.
type traffic struct{ commands, in, out, rounds, roundNanos float64 }

// sample computes what there was per second since the last one. Totals that
// were reset meanwhile count from nothing.
func (g *gauges) sample(now sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seconds := now.at.Sub(g.last.at).Seconds()
	per := func(now, last uint64) float64 {
		if now < last {
			last = 0
		}
		return float64(now-last) / seconds
	}
	if g.last.at.IsZero() || seconds <= 0 {
		g.rate = traffic{}
	} else {
		g.rate = traffic{per(now.commands, g.last.commands), per(now.in, g.last.in), per(now.out, g.last.out),
			per(now.rounds, g.last.rounds), per(now.roundNanos, g.last.roundNanos)}
	}
	g.last = now
}

// freshEnough is how old the last sample has to be for commands to be counted
// from there on, so that the rate is not that of the second before.
const freshEnough = 200 * time.Millisecond

// rates returns what there was per second between the last two samples;
// commands, of which there were so many by now, since the last one if that is
// some time ago.
func (g *gauges) rates(now time.Time, commands uint64) traffic {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.rate
	if since := now.Sub(g.last.at); !g.last.at.IsZero() && since >= freshEnough &&
		commands >= g.last.commands {
		r.commands = float64(commands-g.last.commands) / since.Seconds()
	}
	return r
}

// reset makes the store's totals begin anew, as INFO stats shows them.
func (g *gauges) reset(s *store.Store) {
	stats := s.Stats()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base = stats
}

// since returns the store's figures with the totals since CONFIG RESETSTAT.
func (g *gauges) since(s *store.Stats) store.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := *s
	r.Hits -= g.base.Hits
	r.Misses -= g.base.Misses
	r.Expired -= g.base.Expired
	r.Applied -= g.base.Applied
	r.Duplicates -= g.base.Duplicates
	r.Stale -= g.base.Stale
	r.Refused -= g.base.Refused
	return r
}

// seen notes how much memory is used.
func (g *gauges) seen(used uint64) {
	g.startup.CompareAndSwap(0, used)
	for {
		peak := g.peak.Load()
		if used <= peak || g.peak.CompareAndSwap(peak, used) {
			return
		}
	}
}

// memoryFigures are figures of the process' memory, in bytes.
type memoryFigures struct {
	heap     uint64 // objects on the Go heap, those included that nobody needs any more
	active   uint64 // the heap's pages that hold any
	mapped   uint64 // what Go has of the system
	resident uint64 // what the process has of the system
	used     uint64 // the heap and what the storage engine has beside it
	peak     uint64
	startup  uint64
}

// The names of Go's own figures.
const (
	metricObjects  = "/memory/classes/heap/objects:bytes"
	metricUnused   = "/memory/classes/heap/unused:bytes"
	metricTotal    = "/memory/classes/total:bytes"
	metricReleased = "/memory/classes/heap/released:bytes"
)

// readMetrics reads figures of the Go runtime, without stopping anything.
func readMetrics(names ...string) []uint64 {
	samples := make([]metrics.Sample, len(names))
	for i, n := range names {
		samples[i].Name = n
	}
	metrics.Read(samples)
	values := make([]uint64, len(names))
	for i := range samples {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			values[i] = samples[i].Value.Uint64()
		}
	}
	return values
}

// heapInUse is the size of the objects on the Go heap.
func heapInUse() uint64 { return readMetrics(metricObjects)[0] }

// memory looks at the process' memory.
func (g *gauges) memory(s *store.Stats) memoryFigures {
	v := readMetrics(metricObjects, metricUnused, metricTotal, metricReleased)
	m := memoryFigures{heap: v[0], active: v[0] + v[1], mapped: v[2] - v[3]}
	m.used = m.heap
	if storageOffHeap {
		m.used += uint64(s.Storage.BlockCacheSize) + s.Storage.MemTableSize
	}
	if m.resident = residentMemory(); m.resident == 0 {
		m.resident = m.mapped
	}
	g.seen(m.used)
	m.peak, m.startup = g.peak.Load(), g.startup.Load()
	return m
}

// hotCounterBytes is about what a counter in memory takes, its key apart.
const hotCounterBytes = 200

// dataset is about what of the memory holds data: filters, counters, records.
func (m *memoryFigures) dataset(s *store.Stats) uint64 {
	return min(uint64(s.FilterBytes)+uint64(s.RecentBytes)+hotCounterBytes*uint64(s.HotCounters), m.used)
}

// memoryStat is one figure of MEMORY STATS: an integer, a ratio, or what db.0
// consists of.
type memoryStat struct {
	name  string
	value any // int64, float64 or []memoryStat
}

// WriteMemoryStats writes the figures of INFO memory as MEMORY STATS does, with Redis'
// names where there is such a thing.
func (v *View) WriteMemoryStats(w *resp.Writer) { writeStats(w, v.memoryStats()) }

// memoryStats are the figures of INFO memory as MEMORY STATS shows them.
func (v *View) memoryStats() []memoryStat {
	m, s := &v.memory, &v.Stats
	dataset := m.dataset(s)
	keys := max(s.Keys, 0)
	perKey := int64(0)
	if keys > 0 {
		perKey = int64(m.used-min(m.used, m.startup)) / keys
	}
	return []memoryStat{
		{"peak.allocated", int64(m.peak)},
		{"total.allocated", int64(m.used)},
		{"startup.allocated", int64(m.startup)},
		{"replication.backlog", int64(0)},
		{"clients.slaves", int64(0)},
		{"clients.normal", v.Clients.Total},
		{"cluster.links", int64(0)},
		{"aof.buffer", int64(s.Storage.MemTableSize)},
		{"filters", s.FilterBytes},
		{"recent.records", int64(s.RecentBytes)},
		{"block.cache", s.Storage.BlockCacheSize},
		{"db.0", []memoryStat{
			{"overhead.hashtable.main", int64(hotCounterBytes * s.HotCounters)},
			{"overhead.hashtable.expires", int64(0)},
			{"overhead.hashtable.slot-to-keys", int64(0)},
		}},
		{"overhead.total", int64(m.used - dataset)},
		{"keys.count", keys},
		{"keys.bytes-per-key", perKey},
		{"dataset.bytes", int64(dataset)},
		{"dataset.percentage", share(dataset, max(m.used-min(m.used, m.startup), dataset))},
		{"peak.percentage", share(m.used, m.peak)},
		{"allocator.allocated", int64(m.heap)},
		{"allocator.active", int64(m.active)},
		{"allocator.resident", int64(m.mapped)},
		{"allocator-fragmentation.ratio", share(m.active, m.heap) / 100},
		{"allocator-fragmentation.bytes", int64(m.active) - int64(m.heap)},
		{"allocator-rss.ratio", share(m.mapped, m.active) / 100},
		{"allocator-rss.bytes", int64(m.mapped) - int64(m.active)},
		{"rss-overhead.ratio", share(m.resident, m.mapped) / 100},
		{"rss-overhead.bytes", int64(m.resident) - int64(m.mapped)},
		{"fragmentation", share(m.resident, m.used) / 100},
		{"fragmentation.bytes", int64(m.resident) - int64(m.used)},
	}
}

// share is a part of a whole in percent; of nothing it is 0.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// writeStats writes figures as a map.
func writeStats(w *resp.Writer, list []memoryStat) {
	w.Map(len(list))
	for _, s := range list {
		w.BulkString(s.name)
		switch value := s.value.(type) {
		case int64:
			w.Int(value)
		case float64:
			w.Double(value)
		case []memoryStat:
			writeStats(w, value)
		}
	}
}

// advice is a sign of trouble with memory that MEMORY DOCTOR looks for.
type advice struct {
	found func(st *store.Stats, m *runtime.MemStats) bool
	text  string
}

// memoryAdvice is what MEMORY DOCTOR knows.
var memoryAdvice = []advice{
	{
		func(st *store.Stats, _ *runtime.MemStats) bool {
			return st.FilterLimit > 0 && st.FilterBytes > st.FilterLimit/10*9
		},
		"Filters use more than nine tenths of filter-maxmemory. At the limit APPROX tables refuse new " +
			"operations and the " +
			"error of EXACT ones' filters rises: raise it, shorten a WINDOW, or allow a larger ERROR.",
	},
	{
		func(st *store.Stats, _ *runtime.MemStats) bool {
			return st.DirtyCounters > 100_000 && st.DirtyCounters > st.HotCounters/2
		},
		"More than half of the counters in memory wait to be written back. Shorten save's interval, or " +
			"see whether the disk is slow.",
	},
	{
		func(_ *store.Stats, m *runtime.MemStats) bool {
			return m.HeapIdle-m.HeapReleased > m.HeapInuse && m.HeapIdle > 256<<20
		},
		"More memory is kept for reuse than is in use, perhaps after a peak. MEMORY PURGE gives it back " +
			"to the operating system.",
	},
}

// MemoryDoctor says what is wrong with the memory of a process that holds a store
// (MEMORY DOCTOR).
func MemoryDoctor(st *store.Stats) string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var found []string
	for i := range memoryAdvice {
		if a := &memoryAdvice[i]; a.found(st, &m) {
			found = append(found, " * "+a.text)
		}
	}
	if len(found) == 0 {
		found = []string{"No memory issue was found in this instance."}
	}
	return strings.Join(found, "\n") + "\n"
}

// MallocStats renders the figures of Go's allocator (MEMORY MALLOC-STATS).
func MallocStats() string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value uint64
	}{
		{"heap in use", m.HeapInuse}, {"heap allocated", m.HeapAlloc}, {"heap idle", m.HeapIdle},
		{"heap released", m.HeapReleased}, {"heap objects", m.HeapObjects}, {"stacks in use", m.StackInuse},
		{"from the system", m.Sys}, {"next collection at", m.NextGC}, {"collections", uint64(m.NumGC)},
	} {
		fmt.Fprintf(&b, "%s: %d\n", f.name, f.value)
	}
	return b.String()
}
