package observe

import (
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

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
