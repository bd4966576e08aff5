package store

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
)

// partition is a range of hash slots: what the log has made of it, the share of a batch
// that is being decided, and the checkpoints.
type partition struct {
	db   *persistence.DB
	pool *memoryPool

	// mu guards the machine and what follows but for committed, which guards itself. It is held
	// for one short critical section for each share of a batch.
	mu sync.Mutex
	// rebuilding: the machine is being made anew (rebuild.go). Only the holder of the snapshotter's
	// locks may use it; others wait for back.
	rebuilding bool
	back       sync.Cond
	machine
	changes   *changes
	saving    saving
	committed commitMark
	commits   atomic.Uint64 // of checkpoints; it changes with Store.indexing held
	// frozen is why writes are refused here; nil: they are not. It changes with mu held,
	// but when the whole store freezes.
	frozen     atomic.Pointer[error]
	logIsWhole bool                // its log reaches back to its beginning: no row counts (Check)
	taking     taking              // of other regions' logs (take.go)
	incoming   *Incoming           // what is to take its place, until that is on disk (movein.go)
	movedRows  *persistence.Tables // its rows, until they are ingested
}

// saving is how far a partition's views have come to disk.
type saving struct {
	checkpointSeq uint64                 // captured by the last checkpoint
	rowsAhead     int                    // rows written since then
	state         partitionState         // the state row; guarded by snapshotter.mu
	rebuilt       bool                   // the filters were, by recovery, and no snapshot has them yet
	damaged       []persistence.Snapshot // found by recovery: to be set aside
}

func newPartition(id uint16, count int, h *hashes, hotLimit int, pool *memoryPool,
	db *persistence.DB) *partition {
	p := &partition{db: db, pool: pool}
	p.id, p.count, p.hashes, p.memory, p.outside = id, count, h, pool, p
	p.views = newViews(count, hotLimit)
	p.seen = seen.New(id, &p.mu, db)
	p.back.L, p.committed.cond.L = &p.mu, &p.committed.mu
	return p
}

// lock locks the partition as soon as its views are there. Who holds another one, or the
// snapshotter's locks, must not wait for that.
func (p *partition) lock() {
	p.mu.Lock()
	for p.rebuilding {
		p.back.Wait()
	}
}

// lockNow is lock for callers that can do without: it returns false, with nothing locked, if
// the views are not there.
func (p *partition) lockNow() bool {
	p.mu.Lock()
	if p.rebuilding {
		p.mu.Unlock()
		return false
	}
	return true
}

// point is a sequence of a partition in one of its lives. When uncommitted entries are taken back
// (rebuild.go), a new life begins, and other entries get their sequences.
type point struct {
	p         *partition
	life, seq uint64
}

// here is where the partition, which is locked, is.
func (p *partition) here() point { return point{p, p.committed.life.Load(), p.seq} }

// wait returns once everything up to the point is committed: no reply that depends on it
// leaves before (G3).
func (t point) wait() error { return t.p.committed.wait(t.life, t.seq) }

// waitToSave is wait for who holds the snapshotter's lock.
func (t point) waitToSave() error { return t.p.committed.waitFor(t.life, t.seq, true) }

// commitMark is the sequence up to which a partition's entries are committed, and where
// those wait who need more. Its methods are safe for concurrent use.
type commitMark struct {
	last    atomic.Uint64
	life    atomic.Uint64 // how often what was not committed was taken back
	mu      sync.Mutex
	cond    sync.Cond
	waiting int
	// watchers are told that the mark has moved or failed (pull.go); how often each watches.
	watchers map[chan struct{}]int
	failed   error    // set once, by freeze
	ending   error    // the answer for uncommitted entries: they are being taken back, or nobody knows
	kept     []uint64 // what was committed of each life before
	// postponed counts the callers of postpone for which nobody may wait in order to save.
	postponed int
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
	m.wakeWatchers()
	m.mu.Unlock()
}

// errPostponed: a checkpoint or a build of runs waits for a commit, and that commit waits for a
// caller that needs the snapshotter.
var errPostponed = errors.New("saving is postponed")

// postpone makes all savers that wait for a commit give up, until the caller takes that back
// with -1.
func (m *commitMark) postpone(by int) {
	m.mu.Lock()
	m.postponed += by
	m.cond.Broadcast()
	m.mu.Unlock()
}

// postponeSaving makes checkpoints and builds of runs that wait for a commit give up, until
// resume is called. A caller that commits wait for calls it before it takes the
// snapshotter's locks.
func (s *Store) postponeSaving() (resume func()) {
	for _, p := range s.partitions {
		p.committed.postpone(1)
	}
	return func() {
		for _, p := range s.partitions {
			p.committed.postpone(-1)
		}
	}
}

// wait returns once everything up to seq, as it is in a life, is committed. It fails if
// that was taken back.
func (m *commitMark) wait(life, seq uint64) error { return m.waitFor(life, seq, false) }

// waitFor is wait, also for who saves: that may be postponed.
func (m *commitMark) waitFor(life, seq uint64, saves bool) error {
	if m.last.Load() >= seq && m.life.Load() == life { // in this order
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting++
	defer func() { m.waiting-- }()
	for m.life.Load() == life {
		switch {
		case m.last.Load() >= seq:
			return nil
		case m.failed != nil:
			return m.failed
		case m.ending != nil:
			return m.ending
		case saves && m.postponed > 0:
			return errPostponed
		}
		m.cond.Wait()
	}
	if seq > m.kept[life] {
		return ErrNotLeader // only a replica takes back
	}
	return nil
}

// end makes all present and later waiters give up on entries of this life that are not
// committed, and never will be.
func (m *commitMark) end() { m.tell(ErrNotLeader) }

// resume lets callers wait for commits again.
func (m *commitMark) resume() { m.tell(nil) }

// giveUp makes everyone give up who waits for what nobody knows to be committed or not.
func (m *commitMark) giveUp() { m.tell(ErrUndecided) }

func (m *commitMark) tell(err error) {
	m.mu.Lock()
	m.ending = err
	m.cond.Broadcast()
	m.mu.Unlock()
}

// begin begins the next life, in which sequences go on behind the last committed one.
func (m *commitMark) begin() {
	m.mu.Lock()
	m.ending, m.kept = nil, append(m.kept, m.last.Load())
	m.life.Add(1)
	m.cond.Broadcast()
	m.mu.Unlock()
}

// fail makes all present and later waiters for a commit give up.
func (m *commitMark) fail(err error) {
	m.mu.Lock()
	m.failed = err
	m.cond.Broadcast()
	m.wakeWatchers()
	m.mu.Unlock()
}

// memoryPool bounds the memory of all filters of the server.
type memoryPool struct {
	used    atomic.Int64
	objects atomic.Int64 // of it, what objects under keys have
	limit   atomic.Int64 // 0: unlimited
	tables  sync.Map     // by name, the tableUse of those with holds and MAXMEMORY
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

// tableUse is what a table takes, in each partition as it was lately.
type tableUse []atomic.Int64

// noteUse notes what a table takes in a partition, and returns what it takes in all of them.
func (m *memoryPool) noteUse(table string, id uint16, partitions int, bytes int64) (sum uint64) {
	use, ok := m.tables.Load(table)
	if !ok {
		use, _ = m.tables.LoadOrStore(table, make(tableUse, partitions))
	}
	all := use.(tableUse)
	all[id].Store(bytes)
	for i := range all {
		sum += uint64(all[i].Load())
	}
	return sum
}

// noteUse notes what the partition has of the tables with holds and MAXMEMORY. It is locked.
func (p *partition) noteUse() {
	p.pool.tables.Range(func(name, use any) bool {
		n := int64(0)
		if p.catalog != nil {
			if d := p.catalog.byName(name.(string)); d != nil {
				n = p.usedBy(p.tables[d.ID])
			}
		}
		use.(tableUse)[p.id].Store(n)
		return true
	})
}

// add counts memory that tables' filters have taken, or given back.
func (m *memoryPool) add(bytes int64) { m.used.Add(bytes) }

// fits reports whether so many more bytes are within the limit.
func (m *memoryPool) fits(bytes int64) bool {
	limit := m.limit.Load()
	return limit <= 0 || m.used.Load()+bytes <= limit
}

// addObject counts memory that an object has taken, or given back.
func (m *memoryPool) addObject(bytes int64) {
	m.used.Add(bytes)
	m.objects.Add(bytes)
}

// grantObject is grant for an object under a key. Half of the limit is for tables alone: a
// client that may create keys keeps no table from growing. Loaded objects stay, even if they
// take more.
func (m *memoryPool) grantObject(bytes uint64) bool {
	limit := m.limit.Load()
	if has := m.objects.Add(int64(bytes)); limit > 0 && has > limit/2 || !m.grant(bytes) {
		m.objects.Add(-int64(bytes))
		return false
	}
	return true
}

// lockOrdered locks the partition with its unsaved keys in order.
func (p *partition) lockOrdered(lock func()) {
	lock()
	for !p.hot.unsaved.order(orderPiece) {
		p.mu.Unlock()
		lock()
	}
}
