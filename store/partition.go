package store

import (
	"container/heap"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// partition is a range of hash slots: what the log has made of it, the share of a batch
// that is being decided, and the checkpoints.
type partition struct {
	id     uint16
	count  int // of partitions
	hashes *hashes
	pool   *memoryPool
	db     *persistence.DB

	// mu guards what follows but for committed, which guards itself. It is held for one
	// short critical section for each share of a batch.
	mu sync.Mutex
	// rebuilding: the views are being made anew (rebuild.go). Only the holder of the snapshotter's locks
	// may use them; others wait for back.
	rebuilding bool
	back       sync.Cond
	views
	seen      seen.Records               // what EXACT tables know of each operation: a view, too
	ids       [part.MaxRegions]RegionIDs // what was made of the opids of each region
	beyond    uint64                     // RegionIDs.BeyondBounds
	draft     draft
	saving    saving
	committed commitMark
	commits   atomic.Uint64 // of checkpoints; it changes with Store.indexing held
	ahead     int64         // logged time minus running time (clock.go)
	// frozen is why writes are refused here; nil: they are not. It changes with mu held,
	// but when the whole store freezes.
	frozen            atomic.Pointer[error]
	logIsWhole        bool      // its log reaches back to its beginning: no row counts (Check)
	regionIncarnation uint64    // Options.RegionIncarnation, of a replica
	taking            taking    // of other regions' logs (take.go)
	incoming          *Incoming // what is to take its place, until that is on disk (movein.go)
	// dropped is the sequence of the last key that was dropped of each bucket (DigestBuckets),
	// since the process began; nil: none was.
	dropped []uint64
}

// views are what a partition has made of its entries up to seq: all that recovery makes
// anew.
type views struct {
	incarnation uint64 // of the directory, as of seq (Store.jump)
	seq         uint64 // of the last entry
	recovered   uint64 // … that recovery has redone (R4)
	at          moment // of the last section
	size        int64  // DBSIZE: keys that exist, expired ones not yet removed included
	hot         *hotCounters
	rows        *rowFilter // which keys may have a row
	newExpiries expiries   // keys whose expiry no row's index knows yet
	tables      map[uint32]*tableState
	objects     map[string]*counter // the keys that hold one; they never leave memory
	ofType      [maxTypes]int       // how many
	unreadable  int                 // … that cannot be read
	spoiled     int                 // … of these, how many became so in this process
	catalog     *catalog
	floor       uint64    // the last FLUSHALL: what is missing rests on it
	deadObjects []uint64  // objects whose pages are to be deleted (pages.go)
	fragments   fragments // of a change that is not finished (fragments.go)
	// what it deletes is still on disk, and nothing newer is that memory lacks
	flushDue  bool
	adopted   uint64              // the sequence with which it went on in this shard; 0: it began here
	gone      bool                // another shard has it: it is empty, and nobody is answered
	handed    uint64              // it is being handed over, under this number; 0: it is not
	number    uint64              // the highest under which it was ever held here; 0: it was not
	movedRows *persistence.Tables // its rows, until they are ingested
	regions   *regions            // nil: it is no member of regions
	end       logEnd              // of its last section, if a member logged it since the store was opened
	ended     ended               // keys of which something can be dropped (regiondrop.go)
	// marks tell redo what the loaded views already contain.
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
	state         partitionState // the state row; guarded by snapshotter.mu
	// retired are filters whose memory a snapshot in progress may still read.
	snapshotting bool
	retired      []func()
	rebuilt      bool                   // the filters were, by recovery, and no snapshot has them yet
	damaged      []persistence.Snapshot // found by recovery: to be set aside
}

// marks are the sequences up to which loaded state already contains the log.
type marks struct {
	counters uint64 // rows, DBSIZE
	filters  uint64 // tables' filters and objects
	catalog  uint64 // the tables
	records  uint64 // EXACT runs
	// adopt: nothing of the log counts before the adoption that goes on with it; 0: all does.
	// The log must reach up to reach.
	adopt, reach uint64
	// rebuilt: the filters were lost and are rebuilt from runs and log, so
	// that logged refreshes have nothing to act on.
	rebuilt bool
}

func newPartition(id uint16, count int, h *hashes, hotLimit int, pool *memoryPool,
	db *persistence.DB) *partition {
	p := &partition{id: id, count: count, hashes: h, pool: pool, db: db}
	p.views = newViews(count, hotLimit)
	p.seen = seen.New(id, &p.mu, db)
	p.back.L, p.committed.cond.L = &p.mu, &p.committed.mu
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

// lock locks the partition as soon as its views are there. Who holds another one, or the
// snapshotter's locks, must not wait for that.
func (p *partition) lock() {
	p.mu.Lock()
	for p.rebuilding {
		p.back.Wait()
	}
}

// lockNow is lock for who can do without: it returns false, with nothing locked, if the
// views are not there.
func (p *partition) lockNow() bool {
	p.mu.Lock()
	if p.rebuilding {
		p.mu.Unlock()
		return false
	}
	return true
}

// point is a sequence of a partition. When what is not committed is taken back
// (rebuild.go), others get its sequences: they are those of another life.
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
	// watchers are told that the mark has moved or failed (pullwait.go); how often each watches.
	watchers map[chan struct{}]int
	failed   error    // set once, by freeze
	ending   error    // what is told of what is not committed: it is being taken back, or nobody knows
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

// errPostponed: what was to be saved is not committed yet, and somebody needs the snapshotter
// for what that waits for.
var errPostponed = errors.New("saving is postponed")

// postpone makes everyone give up who waits, in order to save, for what is not committed:
// until the caller takes that back with -1.
func (m *commitMark) postpone(by int) {
	m.mu.Lock()
	m.postponed += by
	m.cond.Broadcast()
	m.mu.Unlock()
}

// postponeSaving makes checkpoints and builds of runs give up that wait for a commit, until
// resume is called. A caller whom commits wait for does so before it takes the
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

// end makes everyone give up who waits, now or later, for what is not committed in this
// life, and never will be.
func (m *commitMark) end() { m.tell(ErrNotLeader) }

// resume lets those wait again who need what is not committed.
func (m *commitMark) resume() { m.tell(nil) }

// giveUp makes everyone give up who waits for what nobody knows to be committed or not.
func (m *commitMark) giveUp() { m.tell(ErrUndecided) }

func (m *commitMark) tell(err error) {
	m.mu.Lock()
	m.ending = err
	m.cond.Broadcast()
	m.mu.Unlock()
}

// begin begins the next life, in which sequences go on behind what is committed.
func (m *commitMark) begin() {
	m.mu.Lock()
	m.ending, m.kept = nil, append(m.kept, m.last.Load())
	m.life.Add(1)
	m.cond.Broadcast()
	m.mu.Unlock()
}

// fail makes everyone who waits, now or later, for what is not committed give up.
func (m *commitMark) fail(err error) {
	m.mu.Lock()
	m.failed = err
	m.cond.Broadcast()
	m.wakeWatchers()
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

// release frees the memory of filters and objects, when the partition is given up.
func (p *partition) release() {
	for _, t := range p.tables {
		t.filter.Release()
	}
	for _, c := range p.objects {
		c.object().release()
	}
}

// memoryPool bounds the memory of all filters of the server.
type memoryPool struct {
	used    atomic.Int64
	objects atomic.Int64 // of it, what objects under keys have
	limit   atomic.Int64 // 0: unlimited
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

// addObject counts memory that an object has taken, or given back.
func (m *memoryPool) addObject(bytes int64) {
	m.used.Add(bytes)
	m.objects.Add(bytes)
}

// grantObject is grant for an object under a key. Half of the limit is for tables alone: a
// client that may create keys keeps no table from growing. What was loaded stays, even if it
// is more.
func (m *memoryPool) grantObject(bytes uint64) bool {
	limit := m.limit.Load()
	if has := m.objects.Add(int64(bytes)); limit > 0 && has > limit/2 || !m.grant(bytes) {
		m.objects.Add(-int64(bytes))
		return false
	}
	return true
}

// planner asks a filter for its next event and settles its memory.
type planner struct {
	pool     *memoryPool
	ofObject bool // the filter is an object's, not a table's
	granted  uint64
}

func (g *planner) grant(bytes uint64) bool {
	grant := g.pool.grant
	if g.ofObject {
		grant = g.pool.grantObject
	}
	if !grant(bytes) {
		return false
	}
	g.granted += bytes
	return true
}

// settle gives back what was reserved but is counted by redo.
func (g *planner) settle() {
	if g.ofObject {
		g.pool.addObject(-int64(g.granted))
	} else {
		g.pool.used.Add(-int64(g.granted))
	}
	g.granted = 0
}

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
