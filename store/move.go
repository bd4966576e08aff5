package store

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// A partition moves from one shard's stores to another's while both serve the others.
// Package cluster makes and remembers the requests; the stores do this:
//
//	source  Export    a replica makes a checkpoint of the partition at a sequence S0, and a
//	                  file of all that it has of it on disk: persistence.Image
//	target  Receive   each replica takes the file in beside its snapshots, checks every
//	                  byte, and makes the partition of it in memory, beside its own:
//	                  an Incoming. Records become runs that no header row names yet, rows
//	                  become sstables that Pebble does not have yet
//	        Append    what the source has committed since S0 (Moving.Tail) is made durable
//	                  behind that file, and redone
//	source  HandOver  the leader logs one entry, the last one: S. From then on the partition is held
//	                  under the move's number: nobody is answered here, whichever replica leads
//	target  Adopt     the leader logs one entry (S, a digest of the state there, and the number). To redo
//	                  it the Incoming takes the partition's place, and the sequences jump to
//	                  A, which is beyond all that the source and the target had. It is held here, too
//	either  Release   the leader of the shard that has the partition logs that it is held no longer: the
//	                  target's, or the source's if the move was taken back
//	other   Vacate    the leader of the other one logs one entry. To redo it everything is forgotten, as by a
//	                  FLUSHALL, and from then on nobody is answered there
//
// So between HandOver and Release the partition is answered for by nobody, and which of the two
// shards logs Release, and which one Vacate, is decided elsewhere, once (package cluster: in the
// configuration). Both name the number, and change nothing if the partition is held under another
// one by then: the decision may come late.
//
// S alone says what a partition is, since a committed sequence is never given twice. So the
// replicas may have got it from different ones of the source's, at different S0, in
// different pieces.
//
// # What is where, and what a crash leaves
//
// A replica that has received the partition, and not redone the adoption, has
//
//	snapshots/p<partition>-<A>.moved       the file, fsynced before Receive returns
//	snapshots/p<partition>-<A>.moved.tail  fsynced before Append returns
//
// and in memory what can be made of them again; files in runs/ and tmp/ go at the next start. The
// partition's views on disk are still the old, empty ones. These two files are part of the log,
// as it were: they are kept as long as recovery may have to redo the adoption, that is until
// the state row of a checkpoint behind A is durable. Copies of the directory have both.
//
//	before the adoption is committed   nothing of it is in a view (R1). The decision
//	                                   is taken back as any other one: the
//	                                   partition is what its views and its log say
//	committed, no checkpoint yet       recovery comes from older views to the entry and makes
//	                                   the partition of the two files. A replica that has not
//	                                   got them cannot go on (ErrNotReceived): it has to take
//	                                   the files of another replica of its shard
//	while the rows are ingested        Pebble has all of them, or none; either way the
//	                                   state row is an old one and recovery ingests them. What
//	                                   was written behind A and goes with that, recovery
//	                                   redoes, as behind a FLUSHALL
//	behind the checkpoint              the state row says A. Snapshots before A count for
//	                                   nothing, nor does the log; the two files are removed,
//	                                   by the next checkpoint if not by this one
//
// Between redo and ingestion the partition refuses everybody, since its rows cannot be
// read. Ingestion waits for nothing but the commit of the adoption: while something is
// coming, no checkpoint of that partition is taken.
//
// Vacate needs nothing of its own: redo forgets, the next checkpoint deletes rows, pages,
// expiries and runs, and a crash before that redoes the entry. Sequences go on behind it, so
// that a partition that comes back finds A beyond them.
//
// # Time
//
// Logged time is the partition's own. The adoption is logged with the source's, one
// millisecond on, whatever time the target's empty partition had; so what passes between
// the source's last entry and the adoption ages nothing. Wall time is at least the highest
// that the source has logged.

// errMoved says of a partition that another shard has it, or is about to: ErrNotLeader.
var errMoved = fmt.Errorf("%w: the partition is another shard's, or about to be", ErrNotLeader)

// ErrNotReceived: a partition must be adopted that this store has not received, or not as it
// was when it was handed over.
var ErrNotReceived = errors.New("the partition was not received")

// moved reports whether nobody is answered here because the partition is, or is about to
// be, another shard's, or because its rows are not there yet. The partition is locked.
func (p *partition) moved() bool { return p.handed > 0 || p.gone || p.movedRows != nil }

// setFrozen says why the partition, which is locked, refuses writes; nothing has failed.
func (p *partition) setFrozen(leads bool) {
	switch {
	case !leads:
		p.frozen.Store(&notLeader)
	case p.moved():
		p.frozen.Store(&errMoved)
	default:
		p.frozen.Store(nil)
	}
}

// refusal returns why the store cannot log something in partitions, which are locked; those
// that are empty because another shard has them do not mind.
func (s *Store) refusal(ps ...*partition) error {
	if err := s.Failure(); err != nil {
		return err
	}
	if !s.Leads() {
		return ErrNotLeader
	}
	for _, p := range ps {
		if why := p.frozen.Load(); why != nil && !p.gone {
			return *why
		}
	}
	return nil
}

// refusal returns why a write is refused: a partition that it changes is frozen, or one
// of those that the atomic batch touches; or why a read is: a partition is another shard's.
// The share has a frozen partition.
func (x *execution) refusal(op *Op) error {
	switch {
	case !op.Kind.Write():
		for i := range x.of(op) {
			if x.partition(&x.of(op)[i]).moved() {
				return errMoved
			}
		}
		return nil
	case x.atomic:
		return x.frozen
	case op.Kind.has(allKeys):
		return x.s.refusal(x.s.partitions...)
	}
	for i := range x.of(op) {
		if why := x.partition(&x.of(op)[i]).frozen.Load(); why != nil {
			return *why
		}
	}
	return nil
}

func (s *Store) partition(n uint16) (*partition, error) {
	if int(n) >= len(s.partitions) {
		return nil, moveError("there is no partition %d", n)
	}
	if s.member.Load() {
		return nil, ErrRegions
	}
	return s.partitions[n], nil
}

// Moving is a partition on its way to another shard, as the source has it. Its methods are
// for one goroutine.
type Moving struct {
	// From is the sequence of the exported file: S0.
	From uint64
	// To is the sequence with which the partition goes on in the other shard: A.
	To uint64
	// Name is the name of the file.
	Name string

	p    *partition
	s    *Store
	hold *oplog.Hold
}

// A partition goes on with a multiple of moveStep after a move: so it may log as many entries
// between Export and Hold.
const moveStep = 1 << 32

// Export writes all of a partition, as of a committed sequence, to a file in dir, durably,
// while operations go on. Any replica can. behind is the last sequence of the empty partition
// in the other shard, as its leader has it (LastOf). From then on the store keeps the op log
// for Tail, until Close, or until the partition is exported again; when it alone keeps more
// than limit bytes of it, or of other files, the move must begin anew. Errors: ErrMove, if
// another shard has the partition, or it has just come and its rows are not there yet; one of a
// checkpoint.
func (s *Store) Export(partition uint16, dir string, behind, limit uint64) (*Moving, error) {
	p, err := s.partition(partition)
	if err != nil {
		return nil, err
	}
	m := s.holdTail(p, limit)
	if err := m.export(dir, behind, limit); err != nil {
		m.hold.Release()
		return nil, err
	}
	return m, nil
}

// ExportTail is Export without the file, of which the other shard has got one from another replica: only Tail
// is of use, as far back as the log reaches.
func (s *Store) ExportTail(partition uint16, limit uint64) (*Moving, error) {
	p, err := s.partition(partition)
	if err != nil {
		return nil, err
	}
	return s.holdTail(p, limit), nil
}

// holdTail has the log kept for a partition from now on.
func (s *Store) holdTail(p *partition, limit uint64) *Moving {
	m := &Moving{p: p, s: s, hold: s.db.Log().Hold(fmt.Sprint("move of partition ", p.id), limit)}
	for other := range s.partitions {
		if other != int(p.id) {
			m.hold.Acknowledge(uint16(other), math.MaxUint64)
		}
	}
	m.hold.Acknowledge(oplog.EntryPartition, math.MaxUint64)
	return m
}

func (m *Moving) export(dir string, behind, limit uint64) error {
	s, p := m.s, m.p
	if err := s.checkpoint(p, true); err != nil {
		return fmt.Errorf("checkpoint of a partition that moves: %w", err)
	}
	// What the checkpoint, or a later one, has published stays as it is while it is listed.
	s.snapshots.mu.Lock()
	im, err := s.db.Image(p.id, limit)
	s.snapshots.mu.Unlock()
	if err != nil {
		return err
	}
	defer im.Close()
	state, err := decodeState(im.State)
	p.lock()
	adopted, gone := p.adopted, p.gone
	p.mu.Unlock()
	switch {
	case err != nil:
		return err
	case gone:
		return moveError("another shard has partition %d", p.id)
	case state.adopted != adopted, im.Snapshot.Seq != state.seq: // nobody could save it
		return moveError("partition %d has no snapshot of its last checkpoint; try again", p.id)
	}
	first, last := slotRange(int(p.id), p.count)
	m.From, m.To = state.seq, (max(state.seq, behind)/moveStep+1)*moveStep
	m.Name = persistence.MovedFile(p.id, m.To)
	var pace pacer
	n := 0
	return im.Write(dir, m.To, first, last, moveHeader{p.count, p.hashes.proof, state.seq}.encode(), func() {
		if n++; n%256 == 0 {
			pace.step()
		}
	})
}

// Close ends what Export has begun.
func (m *Moving) Close() { m.hold.Release() }

// errEnough ends the reading of a tail.
var errEnough = errors.New("enough")

// Tail returns what the partition has committed behind a sequence, at most about so many
// bytes but for one section: a piece for Incoming.Append, and the last sequence in it. piece
// is nil if there is nothing. It reads the op log from the file on that has that sequence.
// ErrMove: the log does not reach back so far, and the move must begin anew.
func (m *Moving) Tail(behind uint64, most int) (piece []byte, last uint64, err error) {
	p := m.p
	committed := p.committed.upTo()
	last = behind
	if committed <= behind {
		return nil, behind, nil
	}
	err = m.s.db.Log().Tail(p.id, behind+1, func(seq uint64, content []byte) error {
		if seq > committed || len(piece) > 0 && len(piece)+len(content) > most {
			return errEnough
		}
		end, err := sectionEnd(seq, content)
		if err != nil {
			return err
		}
		if seq != last+1 {
			return moveError("entries %d to %d of partition %d were trimmed", last+1, seq-1, p.id)
		}
		piece, last = oplog.AppendSection(piece, p.id, seq, content), end
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, behind, err
	}
	switch {
	case m.hold.Lost():
		return nil, behind, moveError("the op log was needed for something else than partition %d", p.id)
	case len(piece) == 0:
		return nil, behind, moveError("entries %d to %d of partition %d were trimmed", last+1, committed,
			p.id)
	}
	return persistence.AppendSum(piece), last, nil
}

// sectionEnd returns the sequence of the last entry of a section.
func sectionEnd(seq uint64, content []byte) (end uint64, err error) {
	rd, err := newSectionReader(content)
	end = seq - 1
	for e := (entry{}); err == nil && rd.next(&e); {
		end++
		end = e.endsAt(end)
	}
	return end, cmp.Or(err, rd.err())
}

// HandOver refuses everything that is asked of a partition from now on, with ErrNotLeader, and
// returns its last sequence once that is committed. It is logged, so that every later leader
// refuses as well, until Release or Vacate. number is the move's, and not 0. Only the
// leader can. It can be repeated; a higher number takes the place of the one before, and one that
// is lower than any before is refused, also after Release: ErrMove.
func (s *Store) HandOver(partition uint16, number uint64) (last uint64, err error) {
	p, err := s.partition(partition)
	if err != nil {
		return 0, err
	}
	x := s.internal(p)
	if x.room, err = s.reserve(entryRoom); err != nil {
		return 0, err
	}
	x.lock()
	switch err = x.canHold(p); {
	case err != nil:
	case p.number > number:
		err = p.tooLow(number)
	case p.handed < number: // a caller that knows only of an earlier move releases it no more
		x.log(&p.machine, &entry{kind: entryHandOver, value: int64(number)})
	}
	x.apply()
	s.thaw(p)
	here := p.here()
	x.unlock()
	x.giveBackRoom()
	if err != nil {
		return 0, err
	}
	if x.wait(); x.err != nil {
		return 0, x.err
	}
	return here.seq, here.wait()
}

// canHold returns why nothing can be logged of the partition, which is locked, be it held or not.
func (x *execution) canHold(p *partition) error {
	switch {
	case !x.s.Leads():
		return ErrNotLeader
	case x.s.Failure() != nil:
		return x.s.Failure()
	case p.gone || p.movedRows != nil:
		return moveError("partition %d is not here", p.id)
	}
	return nil
}

// Release lets a partition be served again that is held under a number, and returns once that is
// committed. One that is held under another number, or not at all, stays as it is. Tables that the
// other partitions have, and this one has not, or has with other options, are changed in the same
// step, unless it knows a newer version: that reaches them by SetTables. Only the leader can. It
// can be repeated. Errors: as SetTables'.
func (s *Store) Release(partition uint16, number uint64) error {
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	s.catalogMu.Lock()
	defer s.catalogMu.Unlock()
	want := s.newestTables(p)
	x := s.internal(p)
	x.lock()
	if err = x.canHold(p); err == nil && number > 0 && p.handed == number {
		err = x.release(p, want)
	}
	s.thaw(p)
	if err != nil {
		x.unlock()
		return err
	}
	return x.finish()
}

// release logs the end of a hold. The partition is locked.
func (x *execution) release(p *partition, want *catalog) error {
	encoded, room, err := x.newCatalogs([]*partition{p}, func(c *catalog, at moment) (*catalog, error) {
		if want == nil {
			return c, nil
		}
		return c.follow(want.set(), want.Coming, want.Version, at)
	})
	if err == nil {
		x.room, err = x.s.reserve(room + entryRoom)
	}
	if err != nil {
		return err
	}
	if encoded[0] != nil {
		x.log(&p.machine, &entry{kind: entryCatalog, id: encoded[0]})
	}
	x.log(&p.machine, &entry{kind: entryHandOver})
	return nil
}

// newestTables returns the newest catalogue of the other partitions, nil if there are none. While
// one is held the tables of all stay as they are.
func (s *Store) newestTables(p *partition) (newest *catalog) {
	for i := 1; i < len(s.partitions); i++ {
		q := s.partitions[(int(p.id)+i)%len(s.partitions)]
		q.lock()
		if newest == nil || q.catalog.Version > newest.Version {
			newest = q.catalog
		}
		q.mu.Unlock()
	}
	return newest
}

// Handed returns the number under which a partition is held, and its last sequence; 0: it is not.
func (s *Store) Handed(partition uint16) (number, last uint64) {
	p := s.partitions[partition]
	p.lock()
	defer p.mu.Unlock()
	return p.handed, p.seq
}

// Adopted returns the sequence with which a partition has gone on here, 0 if another shard has it
// or it never moved.
func (s *Store) Adopted(partition uint16) uint64 {
	p := s.partitions[partition]
	p.lock()
	defer p.mu.Unlock()
	if p.gone {
		return 0
	}
	return p.adopted
}

// thaw is setFrozen, unless the store has failed.
func (s *Store) thaw(p *partition) {
	if s.Failure() == nil {
		p.setFrozen(s.Leads())
	}
}

// LastOf returns the last sequence of a partition.
func (s *Store) LastOf(partition uint16) uint64 {
	p := s.partitions[partition]
	p.lock()
	defer p.mu.Unlock()
	return p.seq
}

// Received returns with which sequence a partition is to go on that was received before and not
// adopted, such as before a start: Resume takes it up. 0: there is none.
func (s *Store) Received(partition uint16) (to uint64, err error) {
	p, err := s.partition(partition)
	if err != nil {
		return 0, err
	}
	seqs, err := s.db.Moved(partition)
	for _, seq := range seqs {
		if seq > s.LastOf(p.id) {
			to = max(to, seq)
		}
	}
	return to, err
}

// Vacant reports whether a partition is empty because another shard has it.
func (s *Store) Vacant(partition uint16) bool {
	p := s.partitions[partition]
	p.lock()
	defer p.mu.Unlock()
	return p.gone
}

// Vacate forgets a partition that another shard has, and that is held under a number here, 0: not
// held, and returns once that is committed. From then on everything that is asked of it is refused
// with ErrNotLeader, until it is adopted. Memory is freed at once; what is on disk goes with the
// next checkpoint. Only the leader can. It can be repeated. ErrMove: it is held under another
// number.
func (s *Store) Vacate(partition uint16, number uint64) error {
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	x := s.internal(p)
	if x.room, err = s.reserve(entryRoom); err != nil {
		return err
	}
	x.flushes = true // as FLUSHALL does
	s.snapshots.lock()
	x.lock()
	switch {
	case !s.Leads():
		err = ErrNotLeader
	case s.Failure() != nil:
		err = s.Failure()
	case p.incoming != nil:
		err = moveError("partition %d is just coming", partition)
	case !p.gone && p.handed != number:
		err = moveError("partition %d is held under the number %d, and not %d", partition, p.handed, number)
	case !p.gone:
		x.log(&p.machine, &entry{kind: entryVacate, value: x.wall})
		s.thaw(p)
	}
	x.apply()
	x.unlock()
	s.snapshots.unlock()
	x.giveBackRoom()
	if err != nil {
		return err
	}
	x.wait()
	return x.err
}

// removeMoved removes the files of what the state row, which is durable, contains.
func (c *checkpoint) removeMoved() error {
	seqs, err := c.s.db.Moved(c.p.id)
	for _, seq := range seqs {
		if err == nil && seq <= c.state.adopted {
			err = c.s.db.DropMoved(c.p.id, seq)
		}
	}
	return err
}
