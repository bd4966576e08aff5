package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/part"
)

// Regions pull from each other: for each of its own partitions, a region asks every other one for
// its changes since the last one taken, and takes them (take.go). A region tells only its own
// changes, so a region that has taken all logs knows all. It tells durable changes only: a sequence
// that another region knows is never given again.

// ErrGap: the entries asked for are not in the op log any more, or do not say enough, as the region was
// alone then. The asking region must take the state instead (regionstate.go).
var ErrGap = errors.New("the op log does not reach back that far: the state must be fetched")

// Pull is what a region asks another one.
type Pull struct {
	By          part.Region // the region that asks
	Group       uint64
	Incarnation uint64 // of the source, as the asking region knows it
	Partition   uint16 // of the source
	First, Last uint16 // slots: those of a partition here, or there, whichever has fewer
	After       uint64 // the answer begins behind this sequence
	Code        uint64 // of the proof of After; 0: the asking region has none, or has just been told After
	// Acked is a sequence up to which the asking region has committed all: it asks for none of it again.
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
	// told is, by partition and first slot, the end of what this process told last, or found to be right.
	told map[[2]uint16]toldEnd

	reading longlock.Mutex // of at; held while the op log is read for the peer, which may wait for a sync
	at      oplog.Bookmark // up to where it was told all
}

// toldEnd is a position that was told, and the code of its proof.
type toldEnd struct{ seq, code uint64 }

// hasTold reports whether a pull goes on where this process has told something.
func (s *Store) hasTold(q *Pull) bool {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	h := s.peers.of[q.By]
	return h != nil && h.told[[2]uint16{q.Partition, q.First}] == toldEnd{q.After, q.Code}
}

// noteTold notes that a region is told a position, or has it.
func (s *Store) noteTold(q *Pull, at toldEnd) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if h := s.peers.of[q.By]; h != nil && at.code != 0 {
		if h.told == nil {
			h.told = make(map[[2]uint16]toldEnd)
		}
		h.told[[2]uint16{q.Partition, q.First}] = at
	}
}

// holdForRegions keeps the op log for all other regions from now on, unless it is kept already, and notes
// whether they read it.
func (s *Store) holdForRegions(set *RegionSet) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	s.heldFor.Store(set.mark())
	s.noteOwn(set)
	for r := range s.peers.of {
		switch m := set.member(part.Region(r)); {
		case m == nil || m.Gone || m.Region == set.Self:
			if h := s.peers.of[r]; h != nil {
				h.hold.Release()
			}
			s.peers.of[r] = nil
		case s.peers.of[r] == nil || s.peers.of[r].hold.Lost():
			s.peers.of[r] = &peer{hold: s.holdFor(m.Region),
				acked: make([]map[uint16]uint64, len(s.partitions))}
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

// peer returns the state of a region that reads the op log.
func (s *Store) peer(r part.Region) *peer {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if h := s.peers.of[r]; h != nil {
		return h
	}
	return new(peer)
}

// acknowledge gives up what a peer has taken: of a partition that several of its partitions
// read, what all have. upTo is what this one has, of a log that reaches so far.
func (s *Store) acknowledge(q *Pull, upTo uint64, ranges int) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	h := s.peers.of[q.By]
	if h == nil {
		return
	}
	if h.hold.Lost() { // it was too far behind; the new one keeps all that is not acknowledged anew
		h.hold, h.acked = s.holdFor(q.By), make([]map[uint16]uint64, len(s.partitions))
	}
	if h.acked[q.Partition] == nil {
		h.acked[q.Partition] = make(map[uint16]uint64)
	}
	of := h.acked[q.Partition]
	if last, known := of[q.First]; known && upTo <= last {
		return
	}
	of[q.First] = upTo
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

// checkPeer refuses somebody who does not read this region.
func (q *Pull) checkPeer(p *partition) error {
	g := p.regions
	if g == nil {
		return ErrNoRegions
	}
	m := g.member(q.By)
	switch {
	case q.Group != g.Group:
		return streamError("group %x, and not %x", g.Group, q.Group)
	case m == nil || q.By == g.Self:
		return streamError("region %d does not read this one", q.By)
	case m.Gone:
		return streamError("region %d was removed", q.By)
	case q.Incarnation != p.logIncarnation():
		return streamError("incarnation %x, and not %x", p.logIncarnation(), q.Incarnation)
	case g.Older:
		return streamError("%s has gone back in time: its directory is an older copy; remove that region, and "+
			"let it join with an empty directory", g.name(g.Self))
	}
	return nil
}

// check refuses a pull of somebody else. It returns how many ranges the peer asks for.
func (q *Pull) check(p *partition) (ranges int, err error) {
	if err := q.checkPeer(p); err != nil {
		return 0, err
	}
	last, ranges, ok := pullRange(int(p.id), p.count, p.regions.member(q.By).Partitions, q.First)
	if !ok || last != q.Last {
		return 0, streamError("partition %d for the slots %d to %d", p.id, q.First, q.Last)
	}
	return ranges, nil
}

// Pull returns what this region has done in a partition behind a sequence, as far as it is
// durable: for Store.Take of the region that asks. If nothing follows in q.Wait, it says only that.
// Errors: ErrNoRegions, ErrStream, ErrGap, or of the op log. Safe for concurrent use.
func (s *Store) Pull(q Pull) ([]byte, error) {
	if p, err := s.ownPartition(q.Partition); err == nil {
		p.committed.waitBehind(q.After, q.Wait)
	}
	t, err := s.newTeller(&q, s.differing([]Pull{q}))
	if err == nil {
		_, err = s.tell(q.By, []*teller{t}, q.Most)
	}
	if err = cmp.Or(err, t.failure()); err != nil {
		return nil, err
	}
	return Pack(t.finish()), nil
}

// newTeller begins the answer to a pull, unless it is refused, as one that goes on where the log differs from
// what was told, and notes what that acknowledges.
func (s *Store) newTeller(q *Pull, differ map[RegionTaken]bool) (*teller, error) {
	p, err := s.ownPartition(q.Partition)
	if err != nil {
		return nil, err
	}
	p.lock()
	ranges, err := q.check(p)
	if err == nil && q.After < p.regions.since { // the log says too little of the time alone
		err = ErrGap
	}
	var catalog *catalog
	last := p.seq
	var d pulled
	if err == nil {
		catalog, d = p.catalog, q.head(p)
		d.after, d.upTo = q.After, q.After
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := s.checkAhead(q.By, q.After, last); err != nil {
		return nil, err
	}
	wrong, compared := differ[RegionTaken{d.RegionSource, q.After}]
	if wrong {
		return nil, fmt.Errorf("%w: region %d has read another entry %d", ErrAhead, q.By, q.After)
	}
	s.acknowledge(q, min(q.Acked, last), ranges)
	committed, dead, err := d.begins(p)
	if err != nil {
		return nil, err
	}
	if compared && q.After <= committed {
		s.noteTold(q, toldEnd{q.After, q.Code})
	}
	// another replica was ahead of this one, or nobody has noted yet what is durable
	committed = max(committed, q.After)
	d.upTo = max(d.upTo, dead)
	return &teller{pulled: d, s: s, p: p, catalog: catalog, committed: committed, dead: dead,
		w: sectionWriter{last: q.After, end: q.After}}, nil
}

// head begins an answer. The partition is locked.
func (q *Pull) head(p *partition) pulled {
	return pulled{RegionSource: RegionSource{p.self(), p.id}, group: p.regions.Group,
		incarnation: p.logIncarnation(), first: q.First, last: q.Last}
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

// What package regions needs to read many logs at once: which ones there are, and a way to wait
// for all of them together.

// PullRange is what one partition here reads of one of another region.
type PullRange struct {
	Own         uint16 // partition here
	Source      RegionSource
	First, Last uint16 // slots
}

// PullRanges returns what this region reads of another one, by slots. All slots are in one of them,
// and none is in two; in a shard of a cluster those that it has. Errors: ErrNoRegions; ErrStream,
// if the other is no member, or this one.
func (s *Store) PullRanges(from part.Region) ([]PullRange, error) {
	set, ok := s.Regions()
	if !ok {
		return nil, ErrNoRegions
	}
	m := set.member(from)
	if m == nil || m.Gone || from == set.Self {
		return nil, streamError("region %d is none that this one reads", from)
	}
	own := len(s.partitions)
	all := make([]PullRange, max(own, m.Partitions))
	for i := range all {
		first, last := slotRange(i, len(all))
		all[i] = PullRange{first >> s.shift, RegionSource{from, uint16(i * m.Partitions / len(all))}, first,
			last}
	}
	return slices.DeleteFunc(all, func(r PullRange) bool { return !s.partitions[r.Own].isMember() }), nil
}

// CommittedOf returns the last sequence of a partition that is committed; 0 if there is no such
// partition.
func (s *Store) CommittedOf(partition uint16) uint64 {
	p, err := s.ownPartition(partition)
	if err != nil {
		return 0
	}
	return p.committed.upTo()
}

// Behind is a place in the log of a partition.
type Behind struct {
	Partition uint16
	Seq       uint64
}

// AwaitAny returns when something is committed behind any of the places, or ctx is done, which
// is no error. It fails if the store has, or has no such partition. Safe for concurrent use.
func (s *Store) AwaitAny(ctx context.Context, at []Behind) error {
	wake := make(chan struct{}, 1)
	for _, b := range at {
		p, err := s.ownPartition(b.Partition)
		if err != nil {
			return err
		}
		p.committed.watch(wake)
		defer p.committed.unwatch(wake)
	}
	for {
		for _, b := range at {
			if s.CommittedOf(b.Partition) > b.Seq {
				return nil
			}
		}
		if err := s.Failure(); err != nil {
			return fmt.Errorf("waiting for what is committed: %w", err)
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// watch makes the mark tell a channel, which has room for one, that it has moved or failed. A
// channel may watch many marks, and a mark may be watched by a channel more than once.
func (m *commitMark) watch(wake chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers == nil {
		m.watchers = make(map[chan struct{}]int)
	}
	m.watchers[wake]++
}

func (m *commitMark) unwatch(wake chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers[wake]--; m.watchers[wake] == 0 {
		delete(m.watchers, wake)
	}
}

// wakeWatchers tells all channels. The mark is locked.
func (m *commitMark) wakeWatchers() {
	for wake := range m.watchers {
		select {
		case wake <- struct{}{}:
		default: // it has been told, and has not looked yet
		}
	}
}
