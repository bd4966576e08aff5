package store

import (
	"container/heap"
	"sync"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
)

// partition owns the counters, filters and records of a range of hash slots.
// Everything but the durability fields is guarded by mu, which is held for one
// short critical section per pipeline.
type partition struct {
	id     uint16
	count  int // of partitions
	seed   uint64
	pool   *memoryPool
	mu     sync.Mutex
	seq    uint64 // of the last entry
	at     moment // of the last record
	size   int64  // DBSIZE: keys that exist, expired ones not yet removed included
	hot    *hotCounters
	rows   *rowFilter // which keys may have a row
	fresh  expiries   // keys whose expiry no row's index knows yet
	tables map[uint32]*tableState
	// filters are the FBF keys. They never leave memory.
	filters    map[string]*counter
	catalog    *catalog
	recent     recents
	loadedRuns []persistence.Run      // during recovery: found on disk
	damaged    []persistence.Snapshot // during recovery: to be set aside
	nextRun    uint64                 // id of the next run
	// deadRuns were merged into others or belong to tables that are gone; the
	// next checkpoint drops them.
	deadRuns []persistence.Run
	// unpublished are the runs, by id, that the next checkpoint makes durable.
	unpublished map[uint64]bool
	// runsVersion counts changes of any table's runs: a look-up made outside
	// the lock holds only while it stays the same.
	runsVersion uint64
	// marks tell redo what is already contained in what recovery loaded.
	marks marks
	// record collects the section of the batch being decided.
	record        []byte
	recordAt      uint64         // sequence of its first entry; 0: no record begun
	need          uint64         // what the batch being decided has seen
	inserted      bool           // the batch being decided remembered an opid here
	twins         twins          // which
	before        recentMark     // and the records that were in memory before it
	floor         uint64         // the last FLUSHALL: what is missing rests on it
	flushDue      bool           // what it deletes is still on disk, and nothing newer is that memory lacks
	logBytes      uint64         // written since the last checkpoint
	checkpointSeq uint64         // captured by the last checkpoint
	savedSeq      int64          // what follows has changed since; FLUSHALL counts as all that it deletes
	rowsAhead     int            // rows written since then
	incarnation   uint64         // of the directory when the last entry was logged
	state         partitionState // the state row; guarded by snapshotter.mu
	// retired are filters whose memory a snapshot in progress may still read.
	snapshotting bool
	retired      []func()

	// durable is the last sequence that is as durable as promised (G3).
	durable  atomic.Uint64
	waitMu   sync.Mutex
	waitCond sync.Cond
	waiting  int
	failed   error // set once, by freeze
}

// marks are the sequences up to which loaded state already contains the log.
type marks struct {
	counters uint64 // rows, DBSIZE
	filters  uint64 // tables' filters and FBF keys
	catalog  uint64 // the tables
	records  uint64 // EXACT runs
	// rebuilt: the filters were lost and are rebuilt from runs and log, so
	// that logged refreshes have nothing to act on.
	rebuilt bool
}

func newPartition(id uint16, count int, seed uint64, hotLimit int, pool *memoryPool) *partition {
	p := &partition{
		id: id, count: count, seed: seed, pool: pool,
		hot:     newHotCounters(hotLimit),
		rows:    newRowFilter(count),
		tables:  make(map[uint32]*tableState),
		filters: make(map[string]*counter),

		unpublished: make(map[uint64]bool),
	}
	p.waitCond.L = &p.waitMu
	return p
}

// advanceDurable publishes that everything up to seq is durable and wakes who
// waits for it.
func (p *partition) advanceDurable(seq uint64) {
	for {
		old := p.durable.Load()
		if seq <= old {
			return
		}
		if p.durable.CompareAndSwap(old, seq) {
			break
		}
	}
	p.waitMu.Lock()
	if p.waiting > 0 {
		p.waitCond.Broadcast()
	}
	p.waitMu.Unlock()
}

// waitDurable returns once everything up to seq is durable: no reply that
// depends on seq leaves before (G3).
func (p *partition) waitDurable(seq uint64) error {
	if p.durable.Load() >= seq {
		return nil
	}
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	p.waiting++
	defer func() { p.waiting-- }()
	for p.durable.Load() < seq {
		if p.failed != nil {
			return p.failed
		}
		p.waitCond.Wait()
	}
	return nil
}

// fail makes everyone who waits, now or later, for what is not durable give up.
func (p *partition) fail(err error) {
	p.waitMu.Lock()
	p.failed = err
	p.waitCond.Broadcast()
	p.waitMu.Unlock()
}

// retire frees a filter's memory, later if a snapshot is being taken.
func (p *partition) retire(release func()) {
	if p.snapshotting {
		p.retired = append(p.retired, release)
		return
	}
	release()
}

// memoryPool bounds the memory of all filters of the server.
type memoryPool struct {
	used  atomic.Int64
	limit atomic.Int64 // 0: unlimited
}

// grant reserves bytes if the limit allows.
func (m *memoryPool) grant(bytes uint64) bool {
	limit := m.limit.Load()
	if used := m.used.Add(int64(bytes)); limit > 0 && used > limit {
		m.used.Add(-int64(bytes))
		return false
	}
	return true
}

// planner asks a filter for its next event and settles its memory.
type planner struct {
	pool    *memoryPool
	granted uint64
}

func (g *planner) grant(bytes uint64) bool {
	if !g.pool.grant(bytes) {
		return false
	}
	g.granted += bytes
	return true
}

// settle gives back what was reserved but is counted by redo.
func (g *planner) settle() { g.pool.used.Add(-int64(g.granted)); g.granted = 0 }

// applyEvent redoes a filter event and accounts for the memory it changed.
func (p *partition) applyEvent(f *fbf.Filter, ev fbf.Event) error {
	before := f.Bytes()
	err := f.Apply(ev)
	p.pool.used.Add(int64(f.Bytes()) - int64(before))
	return err
}

// expiries is a heap of keys by expiry time: the keys of a partition whose
// expiry changed since the last checkpoint wrote it into the index on disk.
type expiries []expiry

type expiry struct {
	at int64
	c  *counter
}

func (h expiries) Len() int           { return len(h) }
func (h expiries) Less(i, j int) bool { return h[i].at < h[j].at }
func (h expiries) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *expiries) Push(x any)        { *h = append(*h, x.(expiry)) }
func (h *expiries) Pop() any {
	old := *h
	n := len(old) - 1
	x := old[n]
	*h = old[:n]
	return x
}

func (h *expiries) init() { heap.Init(h) }

func (h *expiries) add(c *counter) { heap.Push(h, expiry{at: c.expire, c: c}) }

// due removes and returns up to n keys whose expiry came by a wall time.
func (h *expiries) due(wall int64, n int) (keys []string) {
	for len(*h) > 0 && (*h)[0].at <= wall && len(keys) < n {
		e := heap.Pop(h).(expiry)
		if e.c.expire == e.at && e.c.kind != TypeNone {
			keys = append(keys, e.c.key())
		}
	}
	return keys
}
