package cluster

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

const (
	// maxEntry is how many bytes of records are packed into one entry, unless a record
	// alone is longer.
	maxEntry = 512 << 10
	// maxInFlight is how many entries are proposed and not applied. With more, entries
	// become smaller and cost more than the wait that they save.
	maxInFlight = 2
	// maxCuts is how many spans of places that were cut are remembered. Who waits for one
	// asks within seconds.
	maxCuts = 1024
)

// Log is the replicated log as the store needs it ([store.Log]): an appended record is proposed to
// Raft, and committed once a majority of the replicas has it on disk. Reads are served from this
// node's own op log.
//
// A record's place is its number in the order of decisions. Records from one on are cut if a
// new leader begins before they are committed.
type Log struct {
	*oplog.Log
	origin uint64 // drawn at each start of the process
	giveUp time.Duration
	// confirm proves that this node led in this term after the call began.
	confirm func(term uint64) error
	// last returns the last sequence of a partition, which is locked.
	last func(partition uint16) uint64

	mu       sync.Mutex
	resolved sync.Cond
	reign    oplog.Reign // in which this node decides; zero: it does not (R2)
	place    uint64      // of the last record
	decided  uint64      // up to this place every record is committed or cut
	cuts     []span      // of places, ascending
	queue    []proposal
	flying   []proposal        // entries, in the order of their numbers
	dropped  map[uint16]uint64 // by partition, the first sequence that was cut and is still in the state
	number   uint64            // of the last entry
	lost     time.Time         // since when this node does not decide while something is undecided
	closed   error

	wake   chan struct{}
	fenced atomic.Uint64 // entries that were ignored
}

// span is a range of places.
type span struct{ from, to uint64 }

// proposal is a record, or an entry made of some, on its way.
type proposal struct {
	reign  oplog.Reign
	number uint64 // of an entry
	upTo   uint64 // place of the last record
	record []byte
	marks  []mark
	room   int64 // bytes of the op log that are reserved until it is stored
	adopts bool  // a partition: of a record in the queue
	// answered: Raft has said what became of the entry, or that it does not know. It can come into
	// the log no more, unless it is there.
	answered bool
	stored   bool // the log of this node has it, or was about to
}

// mark says which sequences a record has of a partition.
type mark struct {
	partition   uint16
	first, last uint64
}

func newLog(local *oplog.Log, origin uint64, giveUp time.Duration) *Log {
	l := &Log{Log: local, origin: origin, giveUp: giveUp, wake: make(chan struct{}, 1)}
	l.resolved.L = &l.mu
	return l
}

// NewBatch returns an empty batch, which is committed to this log.
func (l *Log) NewBatch() *oplog.Batch { return oplog.NewBatch(l) }

// Confirm returns once it is certain that nobody else decides, or that nobody did when it
// was called. ErrNotLeader: it is not.
func (l *Log) Confirm() error {
	reign := l.leads()
	if reign.Term == 0 || l.confirm(reign.Term) != nil {
		return store.ErrNotLeader
	}
	return nil
}

// leads returns the reign in which this node decides.
func (l *Log) leads() oplog.Reign {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reign
}

// Append queues a record, which is proposed once somebody waits for it, or for a later one: a
// batch may be several records. The partitions concerned are locked, so that the records are queued
// in the order of the decisions, and the reign is the one in which they were made.
func (l *Log) Append(record []byte) (place uint64, size int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return 0, 0, l.closed
	}
	if l.reign.Term == 0 {
		return 0, 0, errors.New("a record was decided by a node that does not lead")
	}
	// It keeps what its batch has reserved, and gives that back when it is stored (R8).
	size = int(oplog.Framed(int64(len(record))))
	p := proposal{reign: l.reign, upTo: l.place + 1, record: slices.Clone(record), room: int64(size),
		adopts: store.Adopts(record)}
	err = oplog.Sections(record, func(partition uint16, seq uint64, _ []byte) error {
		p.marks = append(p.marks, mark{partition, seq, l.last(partition)})
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	l.place++
	l.queue = append(l.queue, p)
	return l.place, size, nil
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Wait returns once the record at a place is committed. ErrCut: it never will be.
// ErrUndecided: leadership was lost, and for a while nobody knows (R7).
func (l *Log) Wait(place uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.decided < place && len(l.queue) > 0 && len(l.flying) < maxInFlight {
		l.signal()
	}
	for {
		switch {
		case slices.ContainsFunc(l.cuts, func(c span) bool { return c.from <= place && place <= c.to }):
			return oplog.ErrCut
		case l.decided >= place:
			return nil
		case l.closed != nil:
			return l.closed
		case !l.lost.IsZero() && time.Since(l.lost) >= l.giveUp:
			return store.ErrUndecided
		}
		l.resolved.Wait()
	}
}

// setReign says in which reign this node decides, or that it does not. Every partition is locked when
// it stops.
func (l *Log) setReign(reign oplog.Reign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reign = reign
	l.lost = time.Time{}
	if reign.Term == 0 && l.isUndecided() {
		l.lost = time.Now()
		time.AfterFunc(l.giveUp, l.resolved.Broadcast)
	}
}

// undecided reports whether this node has decided what is not committed, and not taken back.
func (l *Log) undecided() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isUndecided()
}

// isUndecided is undecided with the lock held.
func (l *Log) isUndecided() bool { return l.decided < l.place || len(l.dropped) > 0 }

// givenUp reports whether those who wait are told that the outcome is unknown.
func (l *Log) givenUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost.IsZero() && l.isUndecided() && time.Since(l.lost) >= l.giveUp
}

// next takes the next entry from the queue, encoded; nil if there is none, or enough is in
// flight. Fewer bytes than the entry in flight wait for that entry: an entry costs each node as
// much as some hundred operations do. An adoption is an entry of its own: a node that has not received
// the partition must be able to start again with all that it has applied, and so has nothing of that
// entry (Node.apply).
func (l *Log) next() (data []byte, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || len(l.flying) >= maxInFlight || l.closed != nil {
		return nil, 0
	}
	n, size := 1, len(l.queue[0].record)
	for n < len(l.queue) && l.queue[n].reign == l.queue[0].reign && size+len(l.queue[n].record) <= maxEntry &&
		!l.queue[n-1].adopts && !l.queue[n].adopts {
		size += len(l.queue[n].record)
		n++
	}
	if last := len(l.flying) - 1; last >= 0 && n == len(l.queue) && size < len(l.flying[last].record) {
		return nil, 0
	}
	l.number++
	c := command{kind: commandSections, reign: l.queue[0].reign, origin: l.origin, number: l.number}
	data = c.encode(make([]byte, 0, sectionsHeader+size))
	entry := proposal{reign: c.reign, number: c.number, upTo: l.queue[n-1].upTo}
	for _, p := range l.queue[:n] {
		data = append(data, p.record...)
		entry.marks = append(entry.marks, p.marks...)
		entry.room += p.room
	}
	entry.record = data[sectionsHeader:]
	l.flying = append(l.flying, entry)
	l.queue = slices.Delete(l.queue, 0, n)
	return data, c.number
}

// propose proposes entries until stop is closed. failed is told when Raft did not accept one, before
// that counts as answered: what follows it in the queue must not be accepted either.
func (l *Log) propose(r *raft.Raft, stop <-chan struct{}, failed func(error)) {
	for {
		data, number := l.next()
		if data == nil {
			select {
			case <-stop:
				return
			case <-l.wake:
			}
			continue
		}
		future := r.ApplyLog(raft.Log{Data: data}, 0)
		go func() {
			if err := future.Error(); err != nil {
				failed(err)
			}
			l.answered(number)
		}()
	}
}

// answered notes that Raft has answered for an entry.
func (l *Log) answered(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.flying {
		if p := &l.flying[i]; p.number == number {
			p.answered = true
		}
	}
	l.resolved.Broadcast()
}

// dropQueue cuts what was not proposed. It is in the state until that is made anew.
func (l *Log) dropQueue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return
	}
	from := l.decided
	if n := len(l.flying); n > 0 {
		from = l.flying[n-1].upTo
	}
	if l.dropped == nil {
		l.dropped = make(map[uint16]uint64)
	}
	firstOf(l.queue, l.dropped)
	l.forget(l.queue, from)
	l.queue = nil
	l.settle()
}

// awaitAnswers returns once nothing of this node can come into the log any more that is not there: the queue
// was dropped, and nothing decides. false: the log was closed.
func (l *Log) awaitAnswers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.closed == nil && slices.ContainsFunc(l.flying, func(p proposal) bool { return !p.answered }) {
		l.resolved.Wait()
	}
	return l.closed == nil
}

// firstOf notes the first sequences of proposals, by partition.
func firstOf(ps []proposal, first map[uint16]uint64) {
	for _, p := range ps {
		for _, m := range p.marks {
			if _, known := first[m.partition]; !known {
				first[m.partition] = m.first
			}
		}
	}
}

// forget cuts proposals, the last ones, whose places are behind one. The lock is held.
func (l *Log) forget(ps []proposal, behind uint64) {
	for _, p := range ps {
		l.Release(p.room, 0)
	}
	if behind < l.place {
		l.cuts = append(l.cuts, span{behind + 1, l.place})
		l.cuts = slices.Delete(l.cuts, 0, max(len(l.cuts)-maxCuts, 0))
	}
	l.resolved.Broadcast()
}

// settle notes that everything is decided, if nothing is under way. The lock is held.
func (l *Log) settle() {
	if len(l.flying)+len(l.queue) == 0 {
		l.decided = l.place
	}
}

// reserved returns how many bytes of the op log are reserved for entries that are about to be
// stored, once. An entry of this node that Raft has taken without the one before is refused: a
// reign has no gap, whatever Raft does (R2). Raft leads no longer then.
func (l *Log) reserved(entries []*raft.Log) (bytes int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		if e.Type != raft.LogCommand {
			continue
		}
		c, err := decodeCommand(e.Data)
		if err != nil || c.kind != commandSections || c.origin != l.origin {
			continue
		}
		i := slices.IndexFunc(l.flying, func(p proposal) bool { return p.number == c.number })
		switch {
		case i < 0:
			continue
		case i > 0 && !l.flying[i-1].stored:
			return bytes, errReignGap
		}
		bytes, l.flying[i].room, l.flying[i].stored = bytes+l.flying[i].room, 0, true
	}
	return bytes, nil
}

// errReignGap is why an entry is not stored.
var errReignGap = errors.New("Raft has taken an entry of this node, and not the one before")

// isOurs reports whether sections that were committed are what this process has proposed
// next, and what its state contains.
func (l *Log) isOurs(c *command) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.origin == l.origin && len(l.flying) > 0 && l.flying[0].number == c.number
}

// committed notes that the oldest entry in flight is committed. Each partition that it
// concerns is told first.
func (l *Log) committed(tell func(partition uint16, seq uint64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.flying[0].marks {
		tell(m.partition, m.last)
	}
	l.decided = l.flying[0].upTo
	l.flying = slices.Delete(l.flying, 0, 1)
	l.settle()
	l.resolved.Broadcast()
	l.signal()
}

// cut notes that what is undecided never will be committed, and returns the first sequence of it,
// by partition.
func (l *Log) cut() (first map[uint16]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = make(map[uint16]uint64)
	firstOf(slices.Concat(l.flying, l.queue), first)
	for partition, seq := range l.dropped {
		if was, known := first[partition]; !known || seq < was {
			first[partition] = seq
		}
	}
	l.forget(slices.Concat(l.flying, l.queue), l.decided)
	l.flying, l.queue, l.dropped = nil, nil, nil
	l.settle()
	l.lost = time.Time{}
	return first
}

// close makes everyone give up who waits, now or later.
func (l *Log) close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = err
	l.resolved.Broadcast()
}
