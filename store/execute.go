package store

import (
	"errors"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// This file is the walk of a batch, top to bottom. One CINCRBY goes like this:
//
//	Execute        begins here, with the batch that package commands has filled (op.go)
//	begin          checks what may be written and reserves its space in the log
//	               (maintain.go); hashes the key and the opid and finds the partition
//	               (route.go). No lock is held
//	commitShares   takes the partitions of one share after another
//	commit         decides what a share holds, piece by piece:
//	  prepare      finds the key in memory (counter.go) and judges the opid (judge.go) by
//	               the table's filter and by records in memory. Missing ones are read (fetch.go)
//	               with the partitions unlocked, and the piece is prepared again
//	  decide       gives each operation its turn: decide.go checks it and logs its outcome
//	               as an entry (entry.go), which redo.go puts into memory. take notes what
//	               the reply rests on
//	  apply        makes one log record of the entries and fixes its place in the op log,
//	               before the partitions are unlocked
//	wait           until what the replies rest on is committed (commitMark, partition.go)
//
// A large batch of operations with one key each is split: it has several shares, of a few
// partitions each. So a lock is held for a fraction of the batch only, and other batches,
// in other goroutines, take the partitions in between.

// execution is the working state of one batch on its way through the store.
type execution struct {
	turn
	s       *Store
	touched []touched
	mask    []uint64 // bit set of touched partitions
	slots   []uint16 // of the operations' keys, while the batch is being split
	shares  []share
	share   share  // the one that is being decided
	first   int    // which one the last batch began with
	writes  bool   // the batch contains an operation that may write
	flushes bool   // the batch contains a FLUSHALL
	flushed bool   // … which was executed
	isSplit bool   // the operations may be decided piece by piece, and in several shares
	frozen  error  // of one of the share's partitions
	moved   bool   // one of them is another shard's, or about to be
	refused error  // what clients write: why
	asking  bool   // Store.ask
	onBlock func() // the batch's OnBlock

	batch   *oplog.Batch
	wrote   bool    // there is a commit to wait for
	records int     // of the log, which the batch has become
	replica bool    // the batch is Replica
	room    int64   // bytes of the log that are reserved for the batch (G8)
	cold    []int   // refs whose row must be read
	value   []byte  // of a row that is read
	past    []point // what replies rest on in lives of partitions that have ended
}

// share is a part of the batch that is decided and committed by itself. Since nothing
// that it changes belongs to another partition, the shares may be decided in any order.
// Operations on one key are in one share, in their order.
type share struct {
	from, to int       // its refs
	touched  []touched // … and their partitions
}

// touched is a partition of the batch.
type touched struct {
	p    *partition
	life uint64 // of the partition, in which the two below are
	need uint64 // sequence that must be committed before the replies leave: what was seen or written
	sure uint64 // sequence that is committed once the batch's last log record is
}

// partition returns the one that a ref's machine belongs to.
func (x *execution) partition(r *ref) *partition { return x.s.partitions[r.p.id] }

// An execution is the world of its turn:

func (x *execution) maxRecord() int64    { return x.s.maxRecord() }
func (x *execution) endRecord()          { x.apply() }
func (x *execution) incarnation() uint64 { return x.s.db.Meta().Incarnation }

func (x *execution) roomFor(bytes int) bool { return x.room+int64(bytes) <= x.s.maxRecord() }

func (x *execution) sameLife(m *machine, life uint64) error {
	return x.s.partitions[m.id].sameLife(life)
}

// Execute decides the batch's operations, those on one key in their order, and commits them. It
// returns when every reply may leave: when what the reply rests on is committed, as durable as
// appendfsync promises (G2, G3). Outcomes and errors are in the Ops. Each operation is atomic: a
// crash keeps all of it or nothing. The whole batch is atomic if Atomic is set, or if an operation
// has several keys and none is logged in fragments (fragments.go). Safe for concurrent use with
// different batches.
func (s *Store) Execute(b *Batch) {
	x := &b.execution
	x.begin(s, b)
	if len(x.touched) == 0 {
		x.giveBackRoom()
		return
	}
	x.holdBack()
	if x.flushes {
		// No checkpoint may be writing back what this is to delete. One that begins behind
		// the decision waits for the commit itself (R1); nothing else may wait for it here, since
		// a cut needs the lock, and perhaps the commit needs the cut.
		s.snapshots.lock()
	}
	x.commitShares()
	if x.flushes {
		s.snapshots.unlock()
	}
	x.giveBackRoom()
	x.countReads()
	if x.waits() {
		x.blocks()
	}
	x.wait()
}

// begin routes the batch; an atomic one is not split.
func (x *execution) begin(s *Store, b *Batch) {
	if x.s != s {
		*x = execution{s: s, mask: make([]uint64, (len(s.partitions)+63)/64), batch: s.oplog.NewBatch()}
	}
	ops := b.Ops
	x.world, x.undo, x.source = x, s.opts.RegionUndo, b.Source
	x.ops, x.refs, x.items, x.touched, x.shares = ops, x.refs[:0], x.items[:0], x.touched[:0], x.shares[:0]
	x.err, x.room, x.wrote = nil, 0, false
	x.records, x.replica, x.flushes = 0, b.Replica, false
	x.flushed, x.writes, x.past = false, false, x.past[:0]
	x.onBlock, x.hits, x.misses, x.expired, x.judging.used = b.OnBlock, 0, 0, 0, 0
	clear(x.mask)
	writable, member := s.writable(), s.member.Load()
	for i := range ops {
		op := &ops[i]
		if op.skipped() {
			continue
		}
		if op.Err = op.checkSizes(); op.Err != nil {
			continue
		}
		if s.replica != nil && (!s.replica.ready.Load() || b.Replica && op.Kind.Write()) {
			op.Err = ErrNotLeader
			continue
		}
		if op.Kind.Write() && writable != nil {
			op.Err = writable
			continue
		}
		if op.Kind.Write() {
			x.writes = true
			room := op.logRoom(len(s.partitions))
			if member {
				room += op.regionRoom(room)
			}
			if most := s.maxRecord(); room > most || b.Atomic && x.room+room > most {
				op.Err = ErrTooLarge
				continue
			}
			x.room += room
		}
	}
	if x.writes {
		x.reserveRoom()
	}
	x.atomic = b.Atomic
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

// commitShares decides the shares one after another: those that are free first, in two
// passes, then the others. Batches in different goroutines rarely wait for each other so,
// for each begins with another share than the last time.
func (x *execution) commitShares() {
	n := len(x.shares)
	x.first = (x.first + 1) % n
	var done [maxShares]bool
	for pass := range 3 {
		for i := range n {
			i = (x.first + i) % n
			if x.share = x.shares[i]; done[i] || pass < 2 && !x.tryLock() {
				continue
			}
			if pass == 2 {
				x.lock()
			}
			done[i] = true
			if x.commit(); x.err != nil {
				return
			}
		}
	}
}

// commit decides the share's operations and fixes their place in the order of commits.
// The partitions are locked; it unlocks them. Where something must be read, the operations decided
// so far become a commit of their own, since the locks are not held meanwhile. Another batch that
// sees these may wait for that commit before this one does, which reads first. Should commit
// panic, the partitions stay locked and the process must end (G8).
func (x *execution) commit() {
	fetches := 0
	for from := x.share.from; ; {
		to := x.pieceFrom(from)
		ready := x.prepare(from, to)
		if !ready && (fetches > 0 || len(x.cold)+len(x.confirm) > fewMissing) {
			x.prepareMore(to, x.share.to) // to be read with the others
		}
		if !ready && fetches == maxFetches {
			x.fetch() // under the locks: nothing can change any more
			ready = true
			x.prepare(from, to)
		}
		if ready {
			x.decide(from, to)
			if from = to; from == x.share.to {
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
		fetches++
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

// fewMissing is how many rows and records the first piece that lacks any may lack before it is
// likely that other pieces lack some as well.
const fewMissing = 4

// pieceFrom is where the piece that begins with a ref ends.
func (x *execution) pieceFrom(from int) int {
	if !x.isSplit {
		return x.share.to
	}
	return min(from+pieceSize, x.share.to)
}

// maxFetches bounds how often a share fetches without its locks: other batches
// may evict what it loads again and again.
const maxFetches = 4

// lock takes the share's partitions in ascending order, as all callers that wait for several do. For one
// that is away it waits with nothing locked, and with nothing uncommitted that others may wait for.
func (x *execution) lock() {
	for i := 0; i < len(x.share.touched); i++ {
		p := x.share.touched[i].p
		if p.lockNow() {
			continue
		}
		for _, t := range x.share.touched[:i] {
			t.p.mu.Unlock()
		}
		if x.flushes {
			x.s.snapshots.unlock()
		}
		x.commitNow()
		p.lock()
		p.mu.Unlock()
		if x.flushes {
			x.s.snapshots.lock()
		}
		i = -1 // again from the first
	}
	x.locked()
}

// tryLock is lock if nobody has to be waited for.
func (x *execution) tryLock() bool {
	for i := range x.share.touched {
		p := x.share.touched[i].p
		free := p.mu.TryLock()
		if free && p.rebuilding {
			p.mu.Unlock()
			free = false
		}
		if !free {
			for _, t := range x.share.touched[:i] {
				t.p.mu.Unlock()
			}
			return false
		}
	}
	x.locked()
	return true
}

// locked makes partitions just locked ready for the batch. It reads the clock once, so that none's
// time goes back.
func (x *execution) locked() {
	x.frozen, x.moved, x.unread, x.scaled = nil, false, false, false
	x.refused, x.asking = x.s.clientsRefused(), x.s.Asking() != nil
	for i := range x.share.touched {
		t := &x.share.touched[i]
		t.p.draft.need = 0
		x.unread = x.unread || t.p.unreadable > 0
		x.scaled = x.scaled || t.p.isScaled()
		if why := t.p.frozen.Load(); why != nil {
			x.frozen = *why
			x.moved = x.moved || t.p.moved()
		}
		if life := t.p.committed.life.Load(); life != t.life {
			x.past = append(x.past, point{t.p, t.life, t.need})
			t.life, t.need, t.sure = life, 0, 0
		}
	}
	x.nextPiece()
	x.toldAll = false
	x.wall, x.running = x.s.look()
}

// nextPiece makes the partitions ready for the next piece of the batch, whose
// preparation sees what was decided before.
func (x *execution) nextPiece() {
	for i := range x.share.touched {
		p := x.share.touched[i].p
		p.seen.SetMark()
		if p.draft.inserted {
			p.draft.inserted, p.draft.twins = false, twins{}
		}
	}
}

func (x *execution) unlock() {
	for i := range x.share.touched {
		x.share.touched[i].p.mu.Unlock()
	}
}

// prepare finds the keys of refs from..to-1 in memory and judges their opids. It
// returns false when rows or records must be fetched first.
func (x *execution) prepare(from, to int) bool {
	x.cold, x.confirm = x.cold[:0], x.confirm[:0]
	x.prepareMore(from, to)
	return len(x.cold) == 0 && len(x.confirm) == 0
}

// prepareMore is prepare for more refs: what they lack is fetched with the rest.
func (x *execution) prepareMore(from, to int) {
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
func (x *execution) find(from, to int) {
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

// decide decides the operations of refs from..to-1, all unless the batch is split.
func (x *execution) decide(from, to int) {
	if x.isSplit {
		x.decideShare(from, to)
		return
	}
	warm := 0 // refs before it
	for i := 0; i < len(x.ops); i++ {
		op := &x.ops[i]
		if i > 0 && op.Err == nil && op.restsOn(&x.ops[i-1]) {
			op.Err = ErrNotExecuted
		}
		if op.Kind != Nop && op.Err == nil {
			if x.err != nil {
				return
			}
			if x.flushed {
				x.findAgain(op)
			}
			if op.run.first >= warm {
				warm = min(op.run.first+group, len(x.refs))
				x.lines += touch(x.refs[op.run.first:warm])
			}
			x.take(op)
			x.cutRecord(op)
		}
		if op.Kind == IfUnchanged && !op.Applied {
			i += int(op.Delta) // they have no turn (G6)
		}
	}
}

// restsOn reports whether an operation has no turn, as the one before it had no effect.
func (op *Op) restsOn(before *Op) bool {
	return op.Flags&IfPrevious != 0 && (before.Err != nil || op.Flags&IfAdded != 0 && before.Barred)
}

// decideShare is decide for a piece of a share of a batch that is split.
func (x *execution) decideShare(from, to int) {
	for ; from < to && x.err == nil; from += group {
		refs := x.refs[from:min(from+group, to)]
		x.lines += touch(refs)
		for i := range refs {
			if op := &x.ops[refs[i].op]; op.Err == nil {
				x.take(op)
			}
		}
	}
}

// take lets an operation take its turn (decide.go), and notes for each of its keys what
// the reply rests on (G3): on the key's own last change, or on the FLUSHALL that took it;
// on everything that was decided in the partition so far if a filter, the tables, holds or the
// memory of ids had a part in it, for they do not tell which operation it was.
func (x *execution) take(op *Op) {
	if x.frozen != nil && (op.Kind.Write() || x.moved) {
		if op.Err = x.refusal(op); op.Err != nil {
			return
		}
	}
	// under the lock: Leave has told where the log ends, and what is asked may have ended badly
	switch {
	case x.asking && op.Kind.Write():
		op.Err = ErrAsking
		return
	case x.refused != nil && op.Kind.Write() && !op.Kind.internal():
		op.Err = x.refused
		return
	}
	op.Err, op.run.judged = x.decideOne(op), true
	for i := range x.of(op) {
		r := &x.of(op)[i]
		if p := r.p; x.restsOnKey(op, r) {
			p.draft.need = max(p.draft.need, r.c.seq, p.floor)
		} else {
			p.draft.need = p.seq
		}
	}
}

// restsOnKey reports whether a reply rests on the last change of its key alone. An increment of this region
// whose record was found is no newer than that; but a hold may have ended since, or a drain found nothing.
func (x *execution) restsOnKey(op *Op, r *ref) bool {
	if op.Kind.has(ofKeys) {
		return !op.Kind.Write() || len(r.p.holds.due) == 0 && !r.p.catalog.bounded
	}
	known := &r.seen
	return r.verdict == verdictSeen && known.Own() && known.Hold == nil && !known.IsDrain() && op.Err == nil
}

// apply turns the outcomes into one log record and fixes its place in the
// order of commits while the locks are held: effect, opid and refreshes of an
// operation are one atomic write (G4).
func (x *execution) apply() {
	for i := range x.share.touched {
		t := &x.share.touched[i]
		p := t.p
		t.need = max(t.need, p.draft.need)
		if p.draft.first == 0 {
			continue
		}
		t.need = p.seq
		x.batch.AppendLog(p.id, p.draft.first, p.draft.section)
		p.noteSection()
		p.draft.first = 0
		if cap(p.draft.section) > maxKeptSection {
			p.draft.section = nil
		}
	}
	wrote := !x.batch.Empty()
	x.wrote = x.wrote || wrote
	if x.err == nil && wrote {
		persistence.KillPoint("before-commit")
		// Nothing follows what another batch could not log.
		if x.err = x.s.Failure(); x.err == nil {
			x.err = x.batch.Apply()
			x.records++
		}
		for i := range x.share.touched {
			// The commit lies behind all that was seen so far, and ahead of all that is
			// seen later, which has no place in the log yet (G3).
			t := &x.share.touched[i]
			t.sure = t.need
		}
	}
	if x.err != nil && !errors.Is(x.err, ErrUndecided) {
		// Memory is ahead of the log: nothing of it may be seen (G8).
		x.s.freeze(x.err)
	}
}

// maxKeptSection is the largest buffer for sections that a partition keeps, in bytes.
const maxKeptSection = 1 << 20

// trim makes room in the partitions, now that no ref is used any more.
func (x *execution) trim() {
	for i := range x.share.touched {
		p := x.share.touched[i].p
		p.hot.trim(p.committed.upTo())
	}
}

// waits reports whether the batch's replies have to wait for a commit.
func (x *execution) waits() bool {
	return x.wrote || x.s.replica != nil || slices.ContainsFunc(x.touched, func(t touched) bool {
		return t.p.committed.upTo() < t.need
	})
}

// blocks calls OnBlock.
func (x *execution) blocks() {
	if x.onBlock != nil {
		x.onBlock()
	}
}

// wait returns when the batch is committed, and with it everything its replies
// were derived from (G2, G3). After a failure every operation is answered with it.
func (x *execution) wait() {
	x.commitNow()
	for i := range x.touched {
		if t := &x.touched[i]; x.err == nil {
			x.err = t.p.committed.wait(t.life, t.need)
		}
	}
	for _, t := range x.past {
		if x.err == nil {
			x.err = t.wait()
		}
	}
	if x.err == nil && x.records == 0 && !x.replica {
		x.err = x.s.oplog.Confirm()
	}
	if x.err != nil {
		x.failAll()
	}
}

// commitNow returns when what the batch has logged so far is committed.
func (x *execution) commitNow() {
	if x.err != nil || !x.wrote {
		return
	}
	x.wrote = false
	began := x.s.eventBegins()
	err := x.batch.Wait()
	x.s.eventEnds(EventCommit, began)
	persistence.KillPoint("after-commit")
	if errors.Is(err, oplog.ErrCut) {
		return // the partitions' lives end, and with them the waits
	}
	if x.err = err; errors.Is(err, ErrUndecided) {
		return
	}
	if err != nil {
		x.s.freeze(err)
		return
	}
	for i := range x.touched {
		t := &x.touched[i]
		t.p.committed.advance(t.sure)
	}
}

func (x *execution) flushAll(op *Op) error {
	if slices.ContainsFunc(x.touched, func(t touched) bool {
		g := t.p.regions
		return g != nil && !g.alone()
	}) {
		return ErrRegionFlush
	}
	saves := op.Flags&OneDB == 0 && x.s.interval.Load() > 0
	for i := range x.touched {
		p := x.touched[i].p
		if p.gone {
			continue // another shard's, and empty
		}
		x.flush(&p.machine, saves)
	}
	x.flushed = true
	return nil
}

// Batch holds operations and queries of one or several connections. The store decides
// them in order, locks each partition they touch once, and commits them together. If
// there are dozens of operations with one key each, others see only those of one
// partition in their order. Reuse a Batch for its memory; it is not safe for concurrent
// use.
type Batch struct {
	Ops []Op
	// Execute calls OnBlock, if it is not nil, right before it waits for the disk: to
	// read what is not in memory, or for the commit to be as durable as appendfsync
	// promises, which may take long under each policy. No lock is held. It may be called
	// more than once.
	OnBlock func()
	// Atomic makes the whole batch one atomic step, as a transaction needs: others see
	// all of it or nothing, and a crash keeps all of it or nothing. Reset clears it.
	Atomic bool
	// Replica is for a batch of queries about the entries that this node of a cluster knows
	// to be committed, whichever node leads. Reset clears it.
	Replica bool
	// Source is the client that the batch's changes are told to be of (TellChanges). Reset clears it.
	Source int64

	execution execution
}

// Add appends an empty Op of the given kind and returns it. The pointer is
// valid until the next Add.
func (b *Batch) Add(k Kind) *Op {
	if len(b.Ops) < cap(b.Ops) {
		b.Ops = b.Ops[:len(b.Ops)+1]
	} else {
		b.Ops = append(b.Ops, Op{})
	}
	op := &b.Ops[len(b.Ops)-1]
	op.reset(k)
	return op
}

// Reset empties the batch and keeps its memory, unless that is unusually large.
func (b *Batch) Reset() {
	if cap(b.Ops) > maxKeptOps || len(b.execution.refs) > maxKeptKeys ||
		len(b.execution.items) > maxKeptKeys {
		*b = Batch{OnBlock: b.OnBlock}
		return
	}
	b.Ops, b.Atomic, b.Replica, b.Source = b.Ops[:0], false, false, 0
}

// Memory returns about how many bytes the batch keeps for the next operations.
func (b *Batch) Memory() int {
	return cap(b.Ops)*int(unsafe.Sizeof(Op{})) + cap(b.execution.refs)*int(unsafe.Sizeof(ref{}))
}

// What an empty batch keeps of its memory for the next use.
const (
	maxKeptOps  = 4 << 10
	maxKeptKeys = 4 << 10 // of all operations
)
