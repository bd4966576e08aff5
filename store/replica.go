package store

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// A store with Options.Replicated is one replica of a shard: the partitions, and a log that
// several nodes write. One of them leads. It decides as a single node does, but what it
// decides counts only once the log has committed it; the others redo it then.
//
// After Open the store only redoes (Follow). Lead makes it decide, StopLeading ends that, and
// TakeBack makes anew the partitions in which it decided what was not committed. All of
// them, and Follow, are called by one goroutine, in the order of the log.
//
// The rules that keep the replicas the same are R1 to R10. Those that are upheld here:
//
//	R1  what is not committed reaches no view on disk (checkpoint.go)
//	R3  a section of another node's meets a partition that has decided what is not
//	    committed: conflict, seen under the partition's lock (follow)
//	R4  a section is contained in what recovery began with, or the next one; else the
//	    process ends (follow)
//	R5  recovery reaches the sequence of each view, or fails (redoLog): nothing leads, or is
//	    read, before
//	R6  time goes on from what the log says (Lead, startClock)
//	R7  a caller that waits for an entry taken back is told that it was not applied (commitMark)

// maxReplicated bounds a record of a replica, bytes: it becomes one entry of the shared log,
// which is sent as one message.
const maxReplicated = 8 << 20

// maxRecord bounds what an operation may log, and an atomic batch.
func (s *Store) maxRecord() int64 {
	if s.replica != nil {
		return min(maxRecord, maxReplicated)
	}
	return maxRecord
}

// cutRecord makes what the batch has logged so far a record of its own, if that is much for a
// replica and an operation has just had its turn.
func (x *execution) cutRecord(op *Op) {
	if x.s.replica == nil || x.atomic || op.run.n == 0 {
		return
	}
	if p := x.refs[op.run.first].p; len(p.draft.section) > maxReplicated/len(x.s.partitions) {
		x.apply()
	}
}

// replica is what a Store knows of being one.
type replica struct {
	group *redoGroup  // of the section that Follow redoes
	ready atomic.Bool // the log has given the partitions their tables
	leads atomic.Bool
	news  *RegionSet // the regions have changed: for Follow
}

// followed is how many entries of a section Follow decodes before it redoes the first: of a
// longer one, those behind them twice.
const followed = 512

func newReplica() *replica { return &replica{group: newRedoGroup(nil, followed)} }

// errConflict: a partition has decided what is not committed, and something else was.
var errConflict = errors.New("another node's decision was committed")

// beginReplica keeps a replica that was just recovered from deciding.
func (s *Store) beginReplica() {
	ready := true
	for _, p := range s.partitions {
		if p.catalog == nil {
			p.catalog, ready = newCatalog(), false // for those who look; it has no filters
		}
		p.setFrozen(false)
	}
	s.replica.ready.Store(ready)
}

// Replicated reports whether the store is one replica of a shard.
func (s *Store) Replicated() bool { return s.replica != nil }

// Leads reports whether the store decides: it does from Lead to StopLeading.
func (s *Store) Leads() bool { return s.replica == nil || s.replica.leads.Load() }

// Follow redoes sections that were committed and that this store, in its present life, has
// not decided: a record of the log. A section that recovery has redone changes nothing. An error means
// that the process must end (R4). said, unless it is nil, is called once a section is redone and
// before a view on disk can have it: it tells the log that the record is applied, which the next
// start must reach (R5).
func (s *Store) Follow(record []byte, said func()) error {
	defer s.holdForNews()
	err := oplog.Sections(record, func(partition uint16, seq uint64, content []byte) error {
		if int(partition) >= len(s.partitions) {
			return fmt.Errorf("%w: a section of partition %d", ErrLogDamaged, partition)
		}
		p, g := s.partitions[partition], s.replica.group
		err := s.follow(p, g, seq, content, said)
		if errors.Is(err, errConflict) {
			s.log.Warn("operations that this node decided were not committed: it rebuilds the partition",
				"partition", partition)
			if err = s.rebuild(cut{p, p.committed.upTo()}); err == nil {
				err = s.follow(p, g, seq, content, said)
			}
		}
		if err == nil && g.settles {
			if err = s.settle(p); lacksSpace(err) {
				err = nil // it is tried again
			}
		}
		return err
	})
	if err == nil && !s.replica.ready.Load() {
		s.replica.ready.Store(s.hasTables())
	}
	return err
}

// Ready reports whether the partitions have their tables: a new shard's get them from its
// first leader.
func (s *Store) Ready() bool { return s.replica.ready.Load() }

// hasTables reports whether every partition has its tables.
func (s *Store) hasTables() bool {
	for _, p := range s.partitions {
		p.mu.Lock()
		has := len(p.tables) > 0
		p.mu.Unlock()
		if !has {
			return false
		}
	}
	return true
}

// follow redoes a committed section that was decided elsewhere, in an open store: the next
// one of the partition, of which seq is the first sequence. One that recovery began with
// changes nothing. After an error other than of decoding, or errConflict, the partition must
// be rebuilt. One section of a partition at a time, and none while that is being rebuilt.
func (s *Store) follow(p *partition, g *redoGroup, seq uint64, content []byte, said func()) error {
	rd, err := newSectionReader(content)
	if err != nil {
		return err
	}
	g.reader = rd
	g.p, g.entries, g.settles = &p.machine, g.entries[:0], false
	more := g.fill(&g.reader)
	flushes := len(g.entries) > 0 && g.entries[len(g.entries)-1].kind.is(noSaving)
	// Entries beyond the group's room are decoded twice: nothing of a section is redone
	// before all of it is known to be sound.
	g.rest = g.reader
	for g.rest.id = nil; g.rest.next(&g.next); {
		flushes = flushes || g.next.kind.is(noSaving)
	}
	if err := g.rest.err(); err != nil {
		return err
	}
	if flushes { // as Execute does
		defer s.postponeSaving()()
		s.snapshots.lock()
		defer s.snapshots.unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq <= p.recovered { // R4
		return p.contains(seq, content)
	}
	if p.committed.upTo() < p.seq { // R3
		return errConflict
	}
	if seq != p.seq+1 {
		return missingEntries(p.seq+1, seq-1)
	}
	p.logBytes += uint64(len(content))
	spoiled := p.spoiled
	for ; ; more = g.fill(&g.reader) {
		if err := g.finish(); err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if p.spoiled > spoiled {
		s.log.Error("a key has become unreadable on this node", "partition", p.id, "unreadable",
			p.listUnreadable())
	}
	p.noteEnd(content)
	// Reads judge other regions' expiries by the leader's logged time, as the cursors do.
	_, running := s.look()
	p.ahead = p.at.logged - running
	if said != nil {
		said()
	}
	p.committed.advance(p.seq)
	p.hot.trim(p.seq)
	g.settles = p.movedRows != nil
	if r := p.regions; r != nil && r.mark() != s.heldFor.Load() {
		set := r.RegionSet
		s.replica.news = &set
	}
	return nil
}

// contains refuses a section that began before recovery did, and is not contained in what that began with.
func (p *machine) contains(seq uint64, content []byte) error {
	end, err := sectionEnd(seq, content)
	if err == nil && end > p.recovered {
		err = fmt.Errorf("%w: entries %d to %d come where entry %d is the last", ErrLogDamaged, seq, end,
			p.recovered)
	}
	return err
}

// Lead lets the store decide from now on. Everything that was committed before has been
// redone, and nothing is undecided (R6). First it logs, in each partition, what a start
// logs on a single node: the tables of a new shard, a jump, that unfinished fragments are
// dropped.
func (s *Store) Lead() error {
	x := s.internal(s.partitions...)
	x.lock()
	fresh := !s.replica.ready.Load()
	for _, p := range s.partitions {
		s.startClock(p)
	}
	x.wall, x.running = s.look()
	s.leaving.ends.Store(nil)
	s.Asked(s.Asking()) // of a lead before
	for _, p := range s.partitions {
		if fresh {
			x.log(&p.machine, &entry{kind: entryCatalog, id: newCatalog().encode()})
		}
		if p.fragments.number != 0 {
			x.log(&p.machine, &entry{kind: entryDrop, delta: int64(p.takeUnfinished())})
		}
		if p.incarnation != s.db.Meta().Incarnation {
			x.logJump(&p.machine)
		}
		if g := p.regions; g != nil { // what this node said when it led before may have been taken back
			s.noteOwn(&g.RegionSet)
			if s.Asking() == nil {
				s.ask(&g.RegionSet)
			}
		}
		p.committed.resume()
		p.setFrozen(true)
	}
	s.replica.ready.Store(true)
	s.replica.leads.Store(true)
	x.apply()
	x.unlock()
	x.giveBackRoom()
	err := x.err
	go x.wait() // which notes the commit
	return err
}

// StopLeading refuses to decide from now on: whatever is decided afterwards waits for that
// (R2). leads is called while every partition is locked.
func (s *Store) StopLeading(cleared func()) {
	s.replica.leads.Store(false)
	x := s.internal(s.partitions...)
	x.lock()
	defer x.unlock()
	for _, p := range s.partitions {
		if s.Failure() == nil {
			p.setFrozen(false)
		}
	}
	cleared()
}

var notLeader = ErrNotLeader

// TakeBack makes anew partitions of which decisions were not committed and never will be:
// first has the first sequence of these, by partition. Nothing decides.
func (s *Store) TakeBack(first map[uint16]uint64) error {
	var cuts []cut
	for _, p := range s.partitions {
		if seq, ok := first[p.id]; ok {
			cuts = append(cuts, cut{p, seq - 1})
		}
	}
	if len(cuts) == 0 {
		return nil
	}
	return s.rebuild(cuts...)
}

// Last returns the last sequence of a partition. Log.NewBatch's Append may call it: the
// partition is locked.
func (s *Store) Last(partition uint16) uint64 { return s.partitions[partition].seq }

// Committed tells the store that what it has decided in a partition is committed up to a
// sequence. It takes no lock that a partition's holder may have.
func (s *Store) Committed(partition uint16, seq uint64) {
	s.partitions[partition].committed.advance(seq)
}

// GiveUp tells callers that wait for a commit that the outcome is unknown (R7),
// until the next call of Lead or TakeBack.
func (s *Store) GiveUp() {
	for _, p := range s.partitions {
		p.committed.giveUp()
	}
}

// failAll answers every operation of a batch of which a commit failed. Their outcomes are unknown,
// and what they read, or were refused for, may not be committed (G8). Only if nothing was committed
// of it is it certain that nothing of it was applied (R7).
func (x *execution) failAll() {
	why := ErrUnknownOutcome
	switch {
	case errors.Is(x.err, ErrUndecided), errors.Is(x.err, ErrNotLeader) && x.records > 1:
		why = ErrUndecided
	case errors.Is(x.err, ErrNotLeader):
		why = ErrNotLeader
	}
	for i := range x.ops {
		if op := &x.ops[i]; op.Kind != Nop && (op.Err == nil || op.run.judged) {
			op.Err = why
		}
	}
	x.batch = x.s.oplog.NewBatch()
}
