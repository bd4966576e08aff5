package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// Incoming is a partition that another shard hands over, as a replica of the target has it
// (move.go). Its methods are for one goroutine.
type Incoming struct {
	p   *partition // whose place it is to take
	seq uint64     // with which it goes on: A

	// mu guards the rest, and is held while files are read. The redo of the adoption takes it with the
	// partition locked.
	mu     longlock.Mutex
	shadow *partition // what has come so far; nil: nothing yet, or it has taken its place
	group  *redoGroup
	runs   []persistence.Run
	tables *persistence.Tables
	tail   *persistence.Tail
	failed error // what came cannot be used

	adopted bool // it has taken the partition's place; guarded by the partition's lock
}

// Receive takes in the file that another shard's store has exported, and checks all of it: it
// must be of this partition, of the same hash seed and number of partitions, and every key,
// row, page and record must be sound and in its place. The partition must be empty. When it
// returns, the file is durable here, under its own name: the one at path is not needed any
// more. A file received before under that name is kept instead, with the pieces appended to it,
// unless it is damaged or ends before the new one begins: another replica may count on it. It reads
// and writes about twice as much as the file has, and takes as much memory as the partition does.
// Errors: ErrMove; ErrCorrupt of package persistence, and other errors of damaged data.
func (s *Store) Receive(partition uint16, path string) (*Incoming, error) {
	p, err := s.partition(partition)
	if err != nil {
		return nil, err
	}
	of, to, ok := persistence.ParseMovedFile(s.db.Base(path))
	if !ok || of != partition {
		return nil, moveError("%s is no file of partition %d", path, partition)
	}
	seqs, err := s.db.Moved(partition)
	if err != nil {
		return nil, err
	}
	if slices.Contains(seqs, to) {
		if in, err := s.Resume(partition, to); err == nil {
			if from, err := p.movedFrom(path); err != nil || in.Last() >= from {
				return in, nil
			}
			in.Close()
		}
	}
	in, err := s.expect(p, to)
	if err != nil {
		return nil, err
	}
	if err := in.load(func() error { return s.db.TakeMoved(path) }); err != nil {
		return nil, errors.Join(err, in.Discard())
	}
	return in, nil
}

// Resume is Receive for a file that was received before, such as before a start, and not adopted,
// with the pieces appended to it. to is the sequence in the file's name (Moving.To).
func (s *Store) Resume(partition uint16, to uint64) (*Incoming, error) {
	p, err := s.partition(partition)
	if err != nil {
		return nil, err
	}
	in, err := s.expect(p, to)
	if err != nil {
		return nil, err
	}
	if err := in.load(nil); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// expect begins to wait for the partition that will take an empty one's place.
func (s *Store) expect(p *partition, to uint64) (*Incoming, error) {
	in := &Incoming{p: p, seq: to}
	// No checkpoint is under way when it begins, and from then on none begins.
	s.snapshots.lock()
	defer s.snapshots.unlock()
	for !p.lockNow() { // the rebuild needs the snapshotter
		s.snapshots.unlock()
		p.lock()
		p.mu.Unlock()
		s.snapshots.lock()
	}
	defer p.mu.Unlock()
	if p.incoming != nil {
		return nil, moveError("partition %d is coming already", p.id)
	}
	if err := p.mayBecome(to); err != nil {
		return nil, err
	}
	if err := p.removeStale(to); err != nil {
		return nil, err
	}
	p.incoming = in
	in.begin()
	return in, nil
}

// removeStale removes the files of earlier moves of the partition, which is locked, that came to
// nothing. Those of adoptions that recovery may have to redo stay.
func (p *partition) removeStale(to uint64) error {
	seqs, err := p.db.Moved(p.id)
	for _, seq := range seqs {
		if err == nil && seq != to && seq > p.adopted {
			err = p.db.RemoveMoved(p.id, seq)
		}
	}
	return err
}

// begin makes a shadow of which nothing is known yet. The partition is locked.
func (in *Incoming) begin() {
	p := in.p
	q := newPartition(p.id, p.count, p.hashes, p.hot.limit, p.pool, p.db)
	q.seen = p.seen.Beside(&q.mu)
	first, last := slotRange(int(p.id), p.count)
	in.shadow, in.group, in.tables = q, newRedoGroup(&q.machine, group), p.db.NewTables(p.id, first, last)
}

// Last is the last sequence that has come.
func (in *Incoming) Last() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shadow == nil {
		return 0
	}
	return in.shadow.seq
}

// Append takes a piece of what the source has done since (Moving.Tail), checks it, makes it
// durable and redoes it. Known entries change nothing. After an error only Discard
// is of use.
func (in *Incoming) Append(piece []byte) error {
	record, err := persistence.CutSum(piece)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shadow == nil || in.failed != nil {
		return errors.Join(moveError("partition %d has come, or cannot be used", in.p.id), in.failed)
	}
	if err = in.check(record); err == nil {
		if err = in.tail.Append(record); err == nil {
			err = in.redo(record)
		}
	}
	in.failed = err
	return err
}

// Discard forgets what has come, and removes it from the disk, unless it has taken the
// partition's place.
func (in *Incoming) Discard() error {
	p := in.p
	p.lock()
	defer p.mu.Unlock()
	if in.adopted {
		return nil
	}
	in.forget()
	if p.adopted == in.seq {
		return nil // of the files, after all
	}
	return p.db.RemoveMoved(p.id, in.seq)
}

// Close releases the incoming partition, unless it has taken its place. Its files stay,
// for Resume.
func (in *Incoming) Close() {
	in.p.lock()
	defer in.p.mu.Unlock()
	if !in.adopted {
		in.forget()
	}
}

// forget releases the incoming partition. The one whose place it would take is locked.
func (in *Incoming) forget() {
	if in.p.incoming == in {
		in.p.incoming = nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.release()
}

// abandonComing frees what is coming; its files stay.
func (p *partition) abandonComing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.incoming != nil && !p.incoming.adopted {
		p.incoming.forget()
	}
}

// release frees what has come.
func (in *Incoming) release() {
	if in.shadow == nil {
		return
	}
	in.shadow.drop()
	in.shadow.seen.Take(in.runs)
	in.shadow.seen.Discard()
	in.tables.Discard()
	_ = in.tail.Close() // all of it was fsynced
	in.shadow = nil
}

// load makes the shadow of the files, which it reads to their ends. take, unless it is nil, puts
// them there first.
func (in *Incoming) load(take func() error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shadow == nil { // its adoption came first: the files that it found stay
		return moveError("partition %d was to have come already", in.p.id)
	}
	if take != nil {
		if err := take(); err != nil {
			return err
		}
	}
	first, last := slotRange(int(in.p.id), in.p.count)
	r, err := in.p.db.OpenMoved(in.p.db.MovedPath(in.p.id, in.seq), first, last)
	if err != nil {
		return err
	}
	l := moveLoader{Incoming: in, r: r}
	err = errors.Join(l.load(), r.Close())
	if err == nil {
		in.tail, err = in.p.db.OpenTail(in.p.id, in.seq, func(record []byte) error {
			if err := in.check(record); err != nil {
				return err
			}
			return in.redo(record)
		})
	}
	if err != nil {
		err = fmt.Errorf("partition %d, which moves: %w", in.p.id, err)
	}
	return err
}

// check checks a record of the tail: it must go on where the shadow is, and each of its
// entries must decode and be about a key of the partition.
func (in *Incoming) check(record []byte) error {
	next := in.shadow.seq + 1
	return oplog.Sections(record, func(partition uint16, seq uint64, content []byte) error {
		end, err := sectionEnd(seq, content)
		switch {
		case err != nil:
			return err
		case partition != in.p.id:
			return fmt.Errorf("%w: a section of partition %d in the tail of %d", errCorruptEntry, partition,
				in.p.id)
		case seq < next && end < next:
			return nil // it is known
		case seq != next:
			return missingEntries(next, seq-1)
		case end >= in.seq:
			return moveError("its entry %d is beyond %d, with which it was to go on", end, in.seq)
		}
		next = end + 1
		return in.checkSection(content)
	})
}

func (in *Incoming) checkSection(content []byte) error {
	rd, err := newSectionReader(content)
	for e := (entry{}); err == nil && rd.next(&e); {
		switch row := e.kind.row(); {
		case row.traits&moves != 0:
			return fmt.Errorf("%w: it has moved since", errCorruptEntry)
		case row.traits&ofRegions != 0:
			return fmt.Errorf("%w: partitions of a region do not move", errCorruptEntry)
		case row.key == noKey:
			continue
		}
		if !in.p.owns(Slot(e.key)) {
			return fmt.Errorf("%w: key %q belongs to another partition", errCorruptEntry, e.key)
		}
	}
	return errors.Join(err, rd.err())
}

// redo redoes a record that was checked.
func (in *Incoming) redo(record []byte) error {
	return oplog.Sections(record, func(_ uint16, seq uint64, content []byte) error {
		if seq <= in.shadow.seq {
			return nil
		}
		_, err := in.group.addAll(seq, content)
		if err == nil {
			err = in.shadow.spoiledHere()
		}
		return err
	})
}

// is reports whether what has come is what was handed over.
func (in *Incoming) is(a adoption) bool {
	q := in.shadow
	if q == nil || in.failed != nil || q.seq != a.last || q.fragments.number != 0 {
		return false
	}
	return !q.missesPages() && q.digest() == a.digest
}

// Adopt lets what was received go on as a partition of this shard, from the last sequence that the
// source has given, with the sequence to (Moving.To); and returns once that is committed and its
// rows are there. It is held under the number of the move, which is not 0, until Release or Vacate.
// Only the leader can; the other replicas, which redo it, must have received the same. It can be
// repeated, so that a later leader ends what another one has left undone; last counts for nothing
// then. ErrNotReceived: not all up to that sequence has come. ErrMove: the number is lower than one
// under which the partition was held here before.
func (s *Store) Adopt(partition uint16, to, last, number uint64) error {
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	x := s.internal(p)
	if x.room, err = s.reserve(entryRoom + 3*binary.MaxVarintLen64); err != nil {
		return err
	}
	x.lock()
	err = x.adopt(p, to, last, number)
	here := p.here()
	x.apply()
	x.unlock()
	x.giveBackRoom()
	if err != nil {
		return err
	}
	if x.wait(); x.err != nil {
		return x.err
	}
	if err := here.wait(); err != nil {
		return err
	}
	return s.settle(p)
}

// adopt logs an adoption, unless that was done. The partition is locked.
func (x *execution) adopt(p *partition, to, last, number uint64) error {
	if err := x.s.Failure(); err != nil {
		return err
	}
	in := p.incoming
	switch {
	case !x.s.Leads():
		return ErrNotLeader
	case !p.gone && p.adopted == to:
		return nil
	case p.number > number:
		return p.tooLow(number)
	case in == nil || in.adopted || in.seq != to:
		return fmt.Errorf("%w: partition %d up to entry %d", ErrNotReceived, p.id, last)
	}
	if err := p.mayBecome(to); err != nil {
		return err
	}
	a := adoption{last: last, number: number}
	in.mu.Lock()
	if in.shadow != nil {
		a.digest = in.shadow.digest()
	}
	is := in.is(a)
	at := moment{}
	if is {
		at = in.shadow.at
	}
	in.mu.Unlock()
	if !is {
		return fmt.Errorf("%w: partition %d up to entry %d", ErrNotReceived, p.id, last)
	}
	x.wall = x.s.notBefore(max(x.wall, at.wall))
	p.ahead = at.logged + 1 - x.running
	x.log(&p.machine, &entry{kind: entryAdopt, value: int64(to), id: a.encode()})
	return nil
}

// digest is a checksum of what replicas must agree upon: all that is in a state row but for
// the directory's incarnation.
func (p *partition) digest() uint64 {
	s := p.stateRow()
	s.incarnation, s.adopted = 0, 0
	return uint64(crc32.Checksum(s.encode(), disk.Castagnoli))
}

// takeOver puts what has come in the place of the partition.
func (p *partition) takeOver(a adoption, seq, to uint64, at moment) error {
	if p.db.ReadOnly() {
		return errComes
	}
	in := p.incoming
	if in != nil && !in.adopted && in.seq == to {
		in.mu.Lock()
		defer in.mu.Unlock()
	}
	if in == nil || in.adopted || in.seq != to || !in.is(a) {
		// The incoming partition is not in memory any more, after a crash, or is of no use
		// there. Its files may be of use.
		if in != nil && in.seq == to && !in.adopted {
			in.release()
		}
		in = &Incoming{p: p, seq: to}
		in.begin()
		if err := in.load(nil); err != nil || !in.is(a) {
			in.release()
			return errors.Join(fmt.Errorf("%w: partition %d up to entry %d", ErrNotReceived, p.id, a.last),
				err)
		}
	}
	number := p.number
	in.takePlace(seq, at)
	p.handed, p.number = a.number, max(number, a.number)
	return nil
}

// comesAgain gives up views that a crash has left of a partition: the first checkpoint behind
// its adoption had written its state, and no snapshot. The adoption is redone.
func (p *partition) comesAgain(db *persistence.DB, v loadedViews) (bool, error) {
	if p.adopted == 0 || len(v.snapshots) > 0 {
		return false, nil
	}
	seqs, err := db.Moved(p.id)
	if err != nil || !slices.Contains(seqs, p.adopted) {
		return false, err
	}
	again := marks{adopt: p.adopted, reach: v.state.seq}
	p.views, p.saving = newViews(p.count, p.hot.limit), saving{}
	p.savedSeq, p.logBytes, p.movedRows = 0, 0, nil
	p.marks = again
	return true, nil
}

// errComes: a check has come to an adoption that is not in the views yet.
var errComes = errors.New("another shard's partition takes this one's place")

// takePlace makes the partition what has come: its adoption has a sequence and a time. No
// checkpoint of it is under way.
func (in *Incoming) takePlace(seq uint64, at moment) {
	p, q := in.p, in.shadow
	for _, c := range p.objects {
		p.dropObject(c)
	}
	for _, t := range p.tables {
		p.memory.add(-int64(t.filter.Bytes()))
		p.retire(t.filter.Release)
	}
	p.memory.add(-p.holds.clear())
	p.seen.Replace(&q.seen)
	old := p.views
	if p.movedRows != nil {
		p.movedRows.Discard() // it came, and went again, before recovery has ingested anything
	}
	p.views = q.views
	p.holds.whole, p.holds.loaded = true, seq
	p.hot.takeOver(old.hot)
	for i := range p.hot.made {
		p.hot.made[i]++ // keys may have come and gone where the partition was
	}
	p.seq, p.adopted, p.movedRows, p.gone = in.seq, in.seq, in.tables, false
	p.incarnation, p.recovered, p.marks, p.deadObjects = old.incarnation, old.recovered, marks{}, nil
	p.at = p.at.after(at)
	p.savedSeq += int64(in.seq - seq) // nobody has changed anything
	if p.frozen.Load() == nil {
		p.frozen.Store(&errMoved) // until its rows are there
	}
	_ = in.tail.Close() // all of it was fsynced
	in.shadow, in.adopted, p.incoming = nil, true, in
}

// settle ingests the rows of a partition whose adoption is committed, and lets it be served.
func (s *Store) settle(p *partition) error {
	if !p.lockNow() {
		return nil
	}
	due := p.movedRows != nil
	p.mu.Unlock()
	if !due {
		return nil
	}
	s.rebuilds.Lock() // which also redo, and ingest
	defer s.rebuilds.Unlock()
	p.lock()
	due = p.movedRows != nil && p.committed.upTo() >= p.adopted
	p.mu.Unlock()
	if !due || s.Failure() != nil {
		return nil
	}
	if err := p.takeRows(); err != nil {
		s.commitFailed(err)
		return err
	}
	p.lock()
	s.thaw(p)
	p.mu.Unlock()
	return nil
}

// takeRows ingests the rows of a partition that was adopted, if that is due. The adoption is
// committed.
func (p *partition) takeRows() error {
	if p.movedRows == nil {
		return nil
	}
	if err := p.movedRows.Ingest(); err != nil {
		return err
	}
	p.mu.Lock()
	p.movedRows, p.incoming = nil, nil
	p.mu.Unlock()
	return nil
}

// Adopts reports whether a record, which is sound, adopts a partition: to follow it, that must have been
// received.
func Adopts(record []byte) (yes bool) {
	_ = oplog.Sections(record, func(_ uint16, _ uint64, content []byte) error {
		rd, err := newSectionReader(content)
		for e := (entry{}); err == nil && !yes && rd.next(&e); {
			yes = e.kind == entryAdopt
			if e.kind != entryJump && e.kind != entryCatalog {
				break // it would be the first one
			}
		}
		return nil
	})
	return yes
}
