package store

import (
	"container/heap"
	"sync"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
)

// partition is a range of hash slots: what the log has made of it, the share of a batch
// that is being decided, and the checkpoints.
type partition struct {
	id    uint16
	count int // of partitions
	seed  uint64
	pool  *memoryPool

	// mu guards what follows but for committed, which guards itself. It is held for one
	// short critical section for each share of a batch.
	mu sync.Mutex
	views
	draft     draft
	saving    saving
	committed commitMark
}

// views are what a partition has made of its entries up to seq: all that recovery makes
// anew.
type views struct {
	incarnation uint64 // of the directory, as of seq (jump.go)
	seq         uint64 // of the last entry
	at          moment // of the last section
	size        int64  // DBSIZE: keys that exist, expired ones not yet removed included
	hot         *hotCounters
	rows        *rowFilter // which keys may have a row
	fresh       expiries   // keys whose expiry no row's index knows yet
	tables      map[uint32]*tableState
	objects     map[string]*counter // the keys that hold one; they never leave memory
	ofType      [maxTypes]int       // how many
	catalog     *catalog
	seen        seen.Records // what EXACT tables know of each operation
	floor       uint64       // the last FLUSHALL: what is missing rests on it
	goners      []uint64     // objects whose pages are to be deleted (pages.go)
	pieces      pieces       // of a change that is not finished (pieces.go)
	flushDue    bool         // what it deletes is still on disk, and nothing newer is that memory lacks
	// marks tell redo what is already contained in what recovery loaded.
	marks marks
}

// draft is what the batch at hand has logged in a partition, and seen of it, since its
// share was locked.
type draft struct {
	section  []byte // for the log record
	first    uint64 // sequence of its first entry; 0: it has none
	need     uint64 // sequence that the replies rest on (G3)
	inserted bool   // the present piece remembered an opid here
	twins    twins  // which
}

// saving is how far a partition's views have come to disk.
type saving struct {
	logBytes      uint64         // written since the last checkpoint
	checkpointSeq uint64         // captured by the last checkpoint
	savedSeq      int64          // what follows has changed since; FLUSHALL counts as all that it deletes
	rowsAhead     int            // rows written since then
	incarnation   uint64         // of the directory when the last entry was logged
	state         partitionState // the state row; guarded by snapshotter.mu
	// retired are filters whose memory a snapshot in progress may still read.
	snapshotting bool
	retired      []func()
	damaged      []persistence.Snapshot // found by recovery: to be set aside
}

// marks are the sequences up to which loaded state already contains the log.
type marks struct {
	counters uint64 // rows, DBSIZE
	filters  uint64 // tables' filters and objects
	catalog  uint64 // the tables
	records  uint64 // EXACT runs
	// rebuilt: the filters were lost and are rebuilt from runs and log, so
	// that logged refreshes have nothing to act on.
	rebuilt bool
}

func newPartition(id uint16, count int, seed uint64, hotLimit int, pool *memoryPool, db *persistence.DB) *partition {
	p := &partition{id: id, count: count, seed: seed, pool: pool}
	p.views = newViews(count, hotLimit)
	p.seen = seen.New(id, &p.mu, db)
	p.committed.cond.L = &p.committed.mu
	return p
}

// newViews returns those of one of count partitions of which nothing is known yet.
func newViews(count, hotLimit int) views {
	return views{
		hot:     newHotCounters(hotLimit),
		rows:    newRowFilter(count),
		tables:  make(map[uint32]*tableState),
		objects: make(map[string]*counter),
	}
}

// commitMark is the sequence up to which a partition's entries are committed, and where
// those wait who need more. Its methods are safe for concurrent use.
type commitMark struct {
	last    atomic.Uint64
	mu      sync.Mutex
	cond    sync.Cond
	waiting int
	failed  error // set once, by freeze
}

// upTo returns the last sequence that is committed.
func (m *commitMark) upTo() uint64 { return m.last.Load() }

// advance publishes that everything up to seq is committed and wakes who waits for it.
func (m *commitMark) advance(seq uint64) {
	for {
		old := m.last.Load()
		if seq <= old {
			return
		}
		if m.last.CompareAndSwap(old, seq) {
			break
		}
	}
	m.mu.Lock()
	if m.waiting > 0 {
		m.cond.Broadcast()
	}
	m.mu.Unlock()
}

// wait returns once everything up to seq is committed: no reply that depends on seq
// leaves before (G3).
func (m *commitMark) wait(seq uint64) error {
	if m.last.Load() >= seq {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting++
	defer func() { m.waiting-- }()
	for m.last.Load() < seq {
		if m.failed != nil {
			return m.failed
		}
		m.cond.Wait()
	}
	return nil
}

// fail makes everyone who waits, now or later, for what is not committed give up.
func (m *commitMark) fail(err error) {
	m.mu.Lock()
	m.failed = err
	m.cond.Broadcast()
	m.mu.Unlock()
}

// retire frees a filter's memory, later if a snapshot is being taken.
func (p *partition) retire(release func()) {
	if p.saving.snapshotting {
		p.saving.retired = append(p.saving.retired, release)
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
