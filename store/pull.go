package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/part"
)

// Regions pull from each other: each asks every other one, for each of its own partitions, what
// the other has done behind what was taken, and takes that (take.go). A region tells only what
// it did itself, so who has taken all logs knows all. What it tells is durable: a sequence that
// somebody has heard of is never given again.

// ErrGap: what was asked for is not in the op log any more, or does not say enough, as the region was alone
// then. Who asks must take the state instead (regionstate.go).
var ErrGap = errors.New("the op log does not reach back so far: the state must be taken")

// ErrStream: another region's log is not the one that was to be taken, or comes too early.
var ErrStream = errors.New("this is not the log of the region that was to come")

func streamError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrStream, fmt.Sprintf(format, args...))
}

// Pull is what a region asks another one.
type Pull struct {
	By          part.Region // who asks
	Group       uint64
	Incarnation uint64 // of the source, as who asks knows it
	Partition   uint16 // of the source
	First, Last uint16 // slots: those of a partition here, or there, whichever has fewer
	After       uint64 // what follows this sequence
	// Acked is what is given up: a sequence up to which all was taken and is durable there.
	Acked uint64
	Most  int           // bytes, about; a section may exceed it
	Wait  time.Duration // how long to wait if nothing follows yet
}

// peers keep the op log for other regions. Safe for concurrent use.
type peers struct {
	mu sync.Mutex
	of [part.MaxRegions]*peer
}

// peer is another region that reads the op log.
type peer struct {
	hold *oplog.Hold
	// acked is, for each partition, what the peer has acknowledged of each of its slot ranges.
	acked []map[uint16]uint64
}

// holdForRegions keeps the op log for all other regions from now on, unless it is kept already.
func (s *Store) holdForRegions(set *RegionSet) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	for r := range s.peers.of {
		switch m := set.member(part.Region(r)); {
		case m == nil || m.Gone || m.Region == set.Self:
			if h := s.peers.of[r]; h != nil {
				h.hold.Release()
			}
			s.peers.of[r] = nil
		case s.peers.of[r] == nil || s.peers.of[r].hold.Lost():
			s.peers.of[r] = &peer{hold: s.holdFor(m.Region), acked: make([]map[uint16]uint64, len(s.partitions))}
		}
	}
}

// holdFor keeps all of the op log for a region.
func (s *Store) holdFor(r part.Region) *oplog.Hold {
	limit := uint64(s.opts.RegionBacklog)
	if s.opts.RegionRefuse {
		limit = math.MaxUint64
	}
	h := s.db.Log().Hold(fmt.Sprint("region ", r), limit)
	h.Acknowledge(oplog.EntryPartition, math.MaxUint64)
	return h
}

// acknowledge gives up what a peer has taken: of a partition that several of its partitions
// read, what all have.
func (s *Store) acknowledge(q *Pull, ranges int) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	h := s.peers.of[q.By]
	if h == nil {
		return
	}
	if h.hold.Lost() { // it was too far behind
		h.hold = s.holdFor(q.By)
	}
	if h.acked[q.Partition] == nil {
		h.acked[q.Partition] = make(map[uint16]uint64)
	}
	of := h.acked[q.Partition]
	of[q.First] = max(of[q.First], q.Acked)
	if len(of) < ranges {
		return
	}
	low := uint64(math.MaxUint64)
	for _, acked := range of {
		low = min(low, acked)
	}
	h.hold.Acknowledge(q.Partition, low+1)
}

// pullRange returns the slots that a region's partitions of number count ask partition n of
// another one of number other for: those of whichever has fewer; how many ranges there are, and
// whether first begins one.
func pullRange(n, other, count int, first uint16) (last uint16, ranges int, ok bool) {
	from, to := slotRange(n, other)
	if count <= other {
		return to, 1, first == from
	}
	own := int(first) / (slots / count)
	begin, end := slotRange(own, count)
	return end, count / other, first == begin && from <= begin && end <= to
}

// ownPartition returns a partition by its number.
func (s *Store) ownPartition(n uint16) (*partition, error) {
	if int(n) >= len(s.partitions) {
		return nil, streamError("there is no partition %d", n)
	}
	return s.partitions[n], nil
}

// check refuses a pull of somebody else. It returns how many ranges the peer asks for.
func (q *Pull) check(p *partition) (ranges int, err error) {
	g := p.regions
	if g == nil {
		return 0, ErrNoRegions
	}
	m := g.member(q.By)
	switch {
	case q.Group != g.Group:
		return 0, streamError("group %x, and not %x", g.Group, q.Group)
	case m == nil || q.By == g.Self:
		return 0, streamError("region %d does not read this one", q.By)
	case m.Gone:
		return 0, streamError("region %d was removed", q.By)
	case q.Incarnation != p.incarnation:
		return 0, streamError("incarnation %x, and not %x", p.incarnation, q.Incarnation)
	}
	last, ranges, ok := pullRange(int(p.id), p.count, m.Partitions, q.First)
	if !ok || last != q.Last {
		return 0, streamError("partition %d for the slots %d to %d", p.id, q.First, q.Last)
	}
	return ranges, nil
}

// Pull returns what this region has done in a partition behind a sequence, as far as it is
// durable: for Store.Take of the region that asks. If nothing follows in q.Wait, it says only that.
// Errors: ErrNoRegions, ErrStream, ErrGap, or of the op log. Safe for concurrent use.
func (s *Store) Pull(q Pull) ([]byte, error) {
	p, err := s.ownPartition(q.Partition)
	if err != nil {
		return nil, err
	}
	p.lock()
	ranges, err := q.check(p)
	// Its log says nothing of a FLUSHALL before there were regions, and too little of what it did alone.
	if err == nil && q.After < max(p.floor, p.regions.since) {
		err = ErrGap
	}
	var catalog *catalog
	d := pulled{first: q.First, last: q.Last, after: q.After, upTo: q.After}
	if err == nil {
		catalog = p.catalog
		d.RegionSource, d.group, d.incarnation = RegionSource{p.self(), p.id}, p.regions.Group, p.incarnation
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.acknowledge(&q, ranges)
	p.committed.waitBehind(q.After, q.Wait)
	committed := p.committed.upTo()
	if committed < q.After {
		return nil, streamError("entry %d, and the last one is %d", q.After, committed)
	}
	if committed > q.After && s.Fsync() != Always {
		if err := s.Sync(); err != nil { // a sequence that others know must not be given again
			return nil, err
		}
	}
	t := teller{pulled: &d, catalog: catalog, committed: committed, most: q.Most, w: sectionWriter{last: q.After, end: q.After}}
	if committed > q.After {
		err = s.db.Log().Tail(p.id, q.After+1, t.section)
		if err == nil && d.upTo < committed || errors.Is(err, errGap) {
			return nil, ErrGap
		}
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
	}
	d.sections = t.w.finish(d.sections)
	p.lock()
	d.wall = max(p.at.wall, t.w.next)
	for _, id := range t.tables {
		if t := p.tables[id]; t != nil {
			d.tables = append(d.tables, pulledTable{id, []byte(t.def.Name)})
		} else {
			d.tables = append(d.tables, pulledTable{id, []byte(DefaultTable)}) // it was dropped
		}
	}
	p.mu.Unlock()
	return d.appendTo(nil), nil
}

// errGap ends the reading of a log that lacks something.
var errGap = errors.New("gap")

// teller makes sections of a log what others are told.
type teller struct {
	*pulled
	catalog   *catalog
	committed uint64
	most      int
	w         sectionWriter
	tables    []uint32 // that are named, ascending
}

// section tells of a section of the op log that begins with a sequence.
func (t *teller) section(seq uint64, content []byte) error {
	rd, err := newSectionReader(content)
	if err != nil {
		return err
	}
	end, err := sectionEnd(seq, content)
	switch {
	case err != nil || end <= t.upTo:
		return err
	case seq > t.committed:
		return errEnough
	case seq > t.upTo+1:
		return errGap
	case t.most > 0 && len(t.sections)+len(t.w.entries) > t.most:
		return errEnough
	}
	e := pulledEntry{seq: seq - 1, wall: rd.at.wall, end: end, first: true}
	for rd.next(&e.entry) {
		if e.seq++; e.kind == entryJump {
			e.seq = max(e.seq, uint64(e.value))
		}
		if e.seq > t.upTo && t.tells(&e) {
			t.sections = t.w.add(t.sections, &e)
			e.first = false
		}
	}
	t.upTo = end
	return rd.err()
}

// tells reports whether who asks hears of an entry, and makes it what is told.
func (t *teller) tells(e *pulledEntry) bool {
	if !e.told() {
		return false
	}
	switch e.kind {
	case entryCursor:
		e.r.cursor.Vector = nil
		return true
	case entryLevelled: // and not what others have said
		return e.r.levelled.By.Region == t.Region
	}
	if slot := Slot(e.key); slot < t.first || slot > t.last || !t.catalog.find(e.key).Told() {
		return false
	}
	if e.hasOpid() {
		if i, ok := slices.BinarySearch(t.tables, e.table); !ok {
			t.tables = slices.Insert(t.tables, i, e.table)
		}
	}
	return true
}

// waitBehind returns when something behind a sequence is committed, or after a while.
func (m *commitMark) waitBehind(seq uint64, most time.Duration) {
	if most <= 0 || m.upTo() > seq {
		return
	}
	timer := time.AfterFunc(most, func() {
		m.mu.Lock()
		m.cond.Broadcast()
		m.mu.Unlock()
	})
	defer timer.Stop()
	end := time.Now().Add(most)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting++
	defer func() { m.waiting-- }()
	for m.upTo() <= seq && m.failed == nil && time.Now().Before(end) {
		m.cond.Wait()
	}
}
