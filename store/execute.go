package store

import (
	"errors"
	"math/bits"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// execution is the working state of one batch on its way through the store:
//
//	route    hash every key and find its partition; no lock
//	lock     all touched partitions, in ascending order
//	prepare  is everything that decide needs in memory? If not: unlock, load
//	         from disk, lock, prepare again
//	decide   each operation in order; outcomes go to the partition's section and,
//	         through redo, into memory
//	apply    the log record's place is fixed before the locks are released
//	wait     until everything the replies depend on is durable (G3)
//
// A large batch of operations with one key each is split: lock to apply happen share
// by share, a few partitions at a time (decider.go), prepare and decide piece by piece.
// So a lock is held for a fraction of the batch only, and only one share waits for what
// is not in memory. Several goroutines work on the shares, unless other batches are
// under way: then the processors are better used for those.
type execution struct {
	s       *Store
	ops     []Op
	refs    []ref
	items   []uint64 // hashes of filter items
	touched []touched
	mask    []uint64 // bit set of touched partitions
	err     error    // first failure of redo or commit: freezes the store
	room    int64    // bytes of the log that are reserved for the batch (G8)
	writes  bool     // the batch contains an operation that may write
	flushes bool     // the batch contains a FLUSHALL
	alone   bool     // the batch's Alone
	isSplit bool     // the operations may be decided piece by piece, by several deciders
	slots   []uint16 // … that share them by the slots of their keys
	crew    *crew
	onBlock func() // the batch's OnBlock
}

// touched is a partition of the batch.
type touched struct {
	p    *partition
	need uint64 // sequence that must be durable before the replies leave: what was seen or written
	sure uint64 // sequence that is durable once the batch's last commit is
}

// ref is one key of one operation.
type ref struct {
	op     int // index of its operation
	key    []byte
	p      *partition
	c      *counter
	slot   uint16
	asks   bool // its operation carries an opid
	failed bool // its operation failed: nothing could be read

	keyHash uint64 // in the table of hot counters
	hash    uint64 // of (key, opid)
	t       *tableState
	verdict verdict
	// dismissed: the filter was positive, but no record confirmed it.
	dismissed bool
	hasTime   bool  // the client's time of the operation is known:
	time      int64 // unix ms
	seen      Seen  // of verdictSeen

	disk *onDisk // what was read outside the lock; nil on the steady path
}

// opRun locates an operation's refs and items in the execution.
type opRun struct {
	first, n         int
	firstItem, items int
}

// Execute decides the batch's operations, those on one key in their order, and commits
// them. It returns when every reply may leave: when what the reply rests on is as
// durable as appendfsync promises (G2, G3). Outcomes and errors are in the Ops. Each
// operation is atomic: a crash keeps all of it or nothing. The whole batch is atomic
// if an operation has several keys, or if Atomic is set. Safe for concurrent use with
// different batches.
func (s *Store) Execute(b *Batch) {
	x := &b.exec
	x.begin(s, b)
	x.onBlock = b.OnBlock
	if len(x.touched) == 0 {
		x.giveBackRoom()
		return
	}
	if d := x.delay(); d > 0 {
		x.blocks()
		time.Sleep(d)
	}
	if x.flushes {
		// No checkpoint may be writing back what this is to delete.
		s.snapshots.mu.Lock()
		defer s.snapshots.mu.Unlock()
		s.snapshots.building.Lock()
		defer s.snapshots.building.Unlock()
	}
	if x.writes && s.behind.Load() {
		x.blocks()
		s.brake()
	}
	if x.alone {
		x.crew.alone((*decider).tryCommit, (*decider).commit)
	} else {
		x.crew.each(s.procs, (*decider).commit)
	}
	x.giveBackRoom()
	x.countReads()
	if x.waits() {
		x.blocks()
	}
	x.wait()
}

// commit decides the decider's operations and fixes their place in the order of
// commits.
func (x *decider) commit() {
	x.lock()
	x.commitLocked()
}

// tryCommit is commit if the partitions are free.
func (x *decider) tryCommit() bool {
	free := x.tryLock()
	if free {
		x.commitLocked()
	}
	return free
}

// commitLocked is commit once the partitions are locked. It unlocks them. What has been
// decided when something must be read is a commit of its own: the locks are not held
// meanwhile. Who saw it waits for it until the batch, which reads first, does.
func (x *decider) commitLocked() {
	rounds := 0
	for from := x.from; ; {
		to := x.pieceFrom(from)
		ready := x.prepare(from, to)
		if !ready && (rounds > 0 || len(x.cold)+len(x.confirm) > fewMissing) {
			x.prepareMore(to, x.to) // to be read with the others
		}
		if !ready && rounds == maxRounds {
			x.fetch() // under the locks: nothing can change any more
			ready = true
			x.prepare(from, to)
		}
		if ready {
			x.decide(from, to)
			if from = to; from == x.to {
				break
			}
			x.nextPiece()
			continue
		}
		x.apply()
		x.unlock()
		x.blocks()
		x.fetch()
		x.lock()
		rounds++
	}
	x.apply()
	x.trim()
	x.unlock()
}

// pieceSize is how many refs of a split batch are prepared and decided before the next
// ones: few enough that what was asked for is still in the processor's caches when it is
// changed, and that little has to be prepared again when something must be read. Tests
// set it lower.
var pieceSize = 2 * group

// fewMissing is how many rows and records the first piece that lacks any may lack without
// it being likely that the others lack some, too.
const fewMissing = 4

// pieceFrom is where the piece that begins with a ref ends.
func (x *decider) pieceFrom(from int) int {
	if !x.isSplit {
		return x.to
	}
	return min(from+pieceSize, x.to)
}

// A batch that writes is delayed while rows are written too slowly: for each of its
// keys about as long as making a counter takes, so that half of the processors is left
// for the rows. Small batches are not: they make few counters, and no sleep is short.
const (
	lateBatch = 512 // keys
	lateDelay = 2 * time.Microsecond
	mostDelay = 20 * time.Millisecond
)

// delay is how long the batch is to be delayed.
func (x *execution) delay() time.Duration {
	if !x.writes || len(x.refs) < lateBatch || !x.s.late.Load() {
		return 0
	}
	return min(time.Duration(len(x.refs))*lateDelay, mostDelay)
}

// brake delays a batch that writes while the background work is far behind, so
// that memory stays bounded: by a second at most, for a slow disk must not look
// like a dead server.
func (s *Store) brake() {
	for range 100 {
		if !s.behind.Load() || s.Failure() != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// blocks calls OnBlock.
func (x *execution) blocks() {
	if x.onBlock != nil {
		x.onBlock()
	}
}

// waits reports whether the batch's replies have to wait for a commit.
func (x *execution) waits() bool {
	for _, d := range x.crew.inUse() {
		if d.wrote {
			return true
		}
	}
	for i := range x.touched {
		if t := &x.touched[i]; t.p.durable.Load() < t.need {
			return true
		}
	}
	return false
}

// maxRounds bounds how often a batch fetches without its locks: other batches
// may evict what it loads again and again.
const maxRounds = 4

// trim makes room in the partitions, now that no ref is used any more.
func (x *decider) trim() {
	for i := range x.touched {
		p := x.touched[i].p
		p.hot.trim(p.durable.Load())
	}
}

// begin routes the batch; an atomic one is not split.
func (x *execution) begin(s *Store, b *Batch) {
	if x.s != s {
		*x = execution{s: s, mask: make([]uint64, (len(s.partitions)+63)/64)}
	}
	ops := b.Ops
	x.ops, x.refs, x.items, x.touched = ops, x.refs[:0], x.items[:0], x.touched[:0]
	x.err, x.room, x.flushes, x.writes, x.alone = nil, 0, false, false, b.Alone
	clear(x.mask)
	writable := s.writable()
	for i := range ops {
		op := &ops[i]
		if op.skipped() {
			continue
		}
		if op.Err = op.checkSizes(); op.Err != nil {
			continue
		}
		if op.Kind.Write() && writable != nil {
			op.Err = writable
			continue
		}
		if op.Kind.Write() {
			x.writes = true
			x.room += op.logRoom(len(s.partitions))
		}
	}
	if x.writes {
		x.reserveRoom()
	}
	if x.isSplit = !b.Atomic && x.split(); !x.isSplit {
		x.routeAll()
	}
	for w, m := range x.mask {
		for ; m != 0; m &= m - 1 {
			x.touched = append(x.touched, touched{p: s.partitions[w*64+bits.TrailingZeros64(m)]})
		}
	}
	x.assign()
}

// reserveRoom reserves space in the log for all that the batch may write, or refuses
// what may write: nothing of it has been applied then (G8).
func (x *execution) reserveRoom() {
	var err error
	if x.room, err = x.s.reserve(x.room); err == nil {
		return
	}
	x.writes = false
	for i := range x.ops {
		if op := &x.ops[i]; op.Kind.Write() && op.Err == nil {
			op.Err = err
		}
	}
}

// reserve reserves space in the log for entries of so many bytes, and returns how much
// that is with their frames.
func (s *Store) reserve(bytes int64) (room int64, err error) {
	room = oplog.Framed(bytes)
	err = s.oplog.Reserve(room)
	if errors.Is(err, persistence.ErrNoSpace) {
		return 0, ErrDiskFull
	}
	if err != nil {
		s.freeze(err)
		return 0, s.Failure()
	}
	return room, nil
}

// moreRoom reserves a little more while partitions are locked: for what nobody could
// foresee. It never waits, and must be given back like the rest.
func (x *decider) moreRoom(bytes int) bool {
	room := oplog.Framed(int64(bytes))
	ok := x.s.oplog.TryReserve(room)
	if ok {
		x.room += room
	}
	return ok
}

// giveBackRoom gives back what the batch has reserved, and its records have not taken.
func (x *execution) giveBackRoom() {
	reserved, used := x.room, int64(0)
	x.room = 0
	for _, d := range x.crew.inUse() {
		reserved += d.room
		used += d.batch.TakeUsed()
		d.room = 0
	}
	x.s.oplog.Release(reserved, used)
}

// lock takes the decider's partitions in ascending order, the one order in which
// anyone waits for more than one.
func (x *decider) lock() {
	for i := range x.touched {
		x.touched[i].p.mu.Lock()
	}
	x.locked()
}

// tryLock is lock if nobody has to be waited for.
func (x *decider) tryLock() bool {
	for i := range x.touched {
		if !x.touched[i].p.mu.TryLock() {
			for _, t := range x.touched[:i] {
				t.p.mu.Unlock()
			}
			return false
		}
	}
	x.locked()
	return true
}

// locked makes the partitions, just locked, ready for the batch. Time is read here,
// so that logged time never goes back within a partition.
func (x *decider) locked() {
	for i := range x.touched {
		x.touched[i].p.need = 0
	}
	x.nextPiece()
	x.at = x.s.clock.now()
}

// nextPiece makes the partitions ready for the next piece of the batch, whose
// preparation sees what was decided before.
func (x *decider) nextPiece() {
	for i := range x.touched {
		p := x.touched[i].p
		p.before = p.recent.mark()
		if p.inserted {
			p.inserted, p.twins = false, twins{}
		}
	}
}

func (x *decider) unlock() {
	for i := range x.touched {
		x.touched[i].p.mu.Unlock()
	}
}

// request asks for the cache lines that refs are about to need, in loops so
// short that many misses are under way at once.
func (x *decider) request(refs []ref) {
	for i := range refs {
		r := &refs[i]
		r.c = r.p.hot.table.guess(r.keyHash)
	}
	x.lines += touch(refs)
	for i := range refs {
		if r := &refs[i]; r.asks {
			r.t = r.p.tableOf(r.key)
			r.t.filter.Touch(r.hash)
		}
	}
}

// touch loads the counters of refs, whose cache misses overlap. Before decide it
// brings back what was found before the rest of the batch was.
func touch(refs []ref) (lines int64) {
	for i := range refs {
		if c := refs[i].c; c != nil {
			lines += c.value
		}
	}
	return lines
}

// group is how many refs are prepared together: enough to keep the memory
// system busy, few enough that what they asked for is still in the first-level
// cache when they need it.
const group = 64

// prepare finds the keys of refs from..to-1 in memory and judges their opids. It
// returns false when rows or records must be fetched first.
func (x *decider) prepare(from, to int) bool {
	x.cold, x.confirm = x.cold[:0], x.confirm[:0]
	x.prepareMore(from, to)
	return len(x.cold) == 0 && len(x.confirm) == 0
}

// prepareMore is prepare for more refs: what they lack is fetched with the rest.
func (x *decider) prepareMore(from, to int) {
	x.judging.positives = x.judging.positives[:0]
	for ; from < to; from += group {
		to := min(from+group, to)
		x.request(x.refs[from:to])
		x.find(from, to)
		x.askFilters(from, to)
	}
	x.confirmPositives()
}

// find finds the keys of refs from..to-1 in memory.
func (x *decider) find(from, to int) {
	for i := from; i < to; i++ {
		r := &x.refs[i]
		if r.failed {
			continue
		}
		if r.c = r.p.hot.get(r.keyHash, r.key); r.c == nil && !x.install(r) {
			x.cold = append(x.cold, i)
		}
	}
}

// install puts a row that was read outside the lock into memory, unless its
// key may have been changed and evicted since, or the knowledge that there is
// no row to read.
func (x *decider) install(r *ref) bool {
	pos := position(r.slot, keyHash(r.key))
	if r.p.rows.lacks(pos) {
		r.c = r.p.hot.install(r.keyHash, r.key, pos)
		return true
	}
	stamp := *r.p.hot.stamp(pos)
	l := &x.fromDisk(r).load
	if !l.done || l.stamp != stamp {
		*l = load{pos: pos, stamp: stamp}
		return false
	}
	c := r.p.hot.install(r.keyHash, r.key, pos)
	// A row that FLUSHALL has not deleted yet is none.
	if l.exists && l.row.seq > r.p.floor {
		row := l.row
		c.kind, c.value, c.expire = TypeCounter, row.value, row.expire
		c.seq = row.seq
		c.is |= isInRow
	} else {
		r.p.rows.missed()
	}
	r.c = c
	return true
}

// apply turns the outcomes into one log record and fixes its place in the
// order of commits while the locks are held: effect, opid and refreshes of an
// operation are one atomic write (G4).
func (x *decider) apply() {
	for i := range x.touched {
		t := &x.touched[i]
		p := t.p
		t.need = max(t.need, p.need)
		if p.recordAt == 0 {
			continue
		}
		x.batch.AppendLog(p.id, p.recordAt, p.record)
		p.logBytes += uint64(len(p.record))
		p.recordAt = 0
		if cap(p.record) > maxKeptRecord {
			p.record = nil
		}
	}
	wrote := !x.batch.Empty()
	x.wrote = x.wrote || wrote
	if x.err == nil && wrote {
		persistence.KillPoint("before-commit")
		// Nothing follows what another share, or batch, could not log.
		if x.err = x.s.Failure(); x.err == nil {
			x.err = x.batch.Apply()
		}
		for i := range x.touched {
			// The commit lies behind all that was seen so far, and ahead of what is
			// seen after it: to that no place in the log was given here (G3).
			t := &x.touched[i]
			t.sure = t.need
		}
	}
	if x.err != nil {
		// Memory is ahead of the log: nothing of it may be seen (G8).
		x.s.freeze(x.err)
	}
}

// maxKeptRecord is the largest record buffer that a partition keeps.
const maxKeptRecord = 1 << 20

// wait returns when the batch is durable, and with it everything its replies
// were derived from (G2, G3). After a failure every operation is answered with it.
func (x *execution) wait() {
	x.err = nil
	began, wrote := x.s.eventBegins(), false
	for _, d := range x.crew.inUse() {
		wrote = wrote || d.wrote
		if d.wait(); x.err == nil {
			x.err = d.err
		}
	}
	if wrote {
		x.s.eventEnds(EventCommit, began)
	}
	if x.err != nil {
		x.failAll()
	}
}

// wait returns when what the decider committed, and what it saw, is durable.
func (x *decider) wait() {
	if x.err == nil && x.wrote {
		if x.err = x.batch.Wait(); x.err != nil {
			x.s.freeze(x.err)
		}
		persistence.KillPoint("after-commit")
		for i := range x.touched {
			if t := &x.touched[i]; x.err == nil {
				t.p.advanceDurable(t.sure)
			}
		}
	}
	for i := range x.touched {
		if t := &x.touched[i]; x.err == nil {
			x.err = t.p.waitDurable(t.need)
		}
	}
}

// failAll answers every operation of a batch of which a commit failed. Their
// outcomes are unknown, and what they read may not be durable (G8).
func (x *execution) failAll() {
	for i := range x.ops {
		if op := &x.ops[i]; op.Kind != Nop && op.Err == nil {
			op.Err = ErrUnknownOutcome
		}
	}
	for _, d := range x.crew.inUse() {
		d.batch = x.s.oplog.NewBatch()
	}
}
