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

// Log is the replicated log as the store needs it ([store.Log]): what is appended is
// proposed to Raft, and committed once a majority of the replicas has it on disk. What is read
// is this node's own op log.
//
// A record's place is its number in the order of decisions. Records from one on are cut if a
// new leader begins before they are committed.
type Log struct {
	*oplog.Log
	origin uint64 // drawn at each start of the process
	giveUp time.Duration
	// confirm proves that this node led with this fence after the call began.
	confirm func(fence uint64) error
	// last returns the last sequence of a partition, which is locked.
	last func(partition uint16) uint64

	mu       sync.Mutex
	resolved sync.Cond
	fence    uint64 // the term in which this node has begun to lead; 0: it does not (R2)
	place    uint64 // of the last record
	decided  uint64 // up to this place every record is committed or cut
	cuts     []span // of places, ascending
	queue    []proposal
	flying   []proposal // entries, in the order of their numbers
	number   uint64     // of the last entry
	lost     time.Time  // since when the fence is gone while something is undecided
	closed   error

	wake   chan struct{}
	fenced atomic.Uint64 // entries that were ignored
}

// span is a range of places.
type span struct{ from, to uint64 }

// proposal is a record, or an entry made of some, on its way.
type proposal struct {
	fence  uint64
	number uint64 // of an entry
	upTo   uint64 // place of the last record
	record []byte
	marks  []mark
	room   int64 // bytes of the op log that are reserved until it is stored
}

// mark is the last sequence of what a record has of a partition.
type mark struct {
	partition uint16
	seq       uint64
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
	l.mu.Lock()
	fence := l.fence
	l.mu.Unlock()
	if fence == 0 || l.confirm(fence) != nil {
		return store.ErrNotLeader
	}
	return nil
}

// Append queues a record, which is proposed once somebody waits for it, or for a later one: a
// batch may be several records. The partitions concerned are locked, so that the
// order here is that of the decisions, and the fence is that under which they were made.
func (l *Log) Append(record []byte) (place uint64, size int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return 0, 0, l.closed
	}
	if l.fence == 0 {
		return 0, 0, errors.New("a record was decided by a node that does not lead")
	}
	// It keeps what its batch has reserved, and gives that back when it is stored (R8).
	size = int(oplog.Framed(int64(len(record))))
	p := proposal{fence: l.fence, upTo: l.place + 1, record: slices.Clone(record), room: int64(size)}
	err = oplog.Sections(record, func(partition uint16, _ uint64, _ []byte) error {
		p.marks = append(p.marks, mark{partition, l.last(partition)})
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
	for l.decided < place {
		if l.closed != nil {
			return l.closed
		}
		if !l.lost.IsZero() && time.Since(l.lost) >= l.giveUp {
			return store.ErrUndecided
		}
		l.resolved.Wait()
	}
	for _, c := range l.cuts {
		if c.from <= place && place <= c.to {
			return oplog.ErrCut
		}
	}
	return nil
}

// setFence sets or clears the fence. Every partition is locked when it is cleared.
func (l *Log) setFence(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fence = term
	l.lost = time.Time{}
	if term == 0 && l.decided < l.place {
		l.lost = time.Now()
		time.AfterFunc(l.giveUp, l.resolved.Broadcast)
	}
}

// undecided reports whether records are neither committed nor cut.
func (l *Log) undecided() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decided < l.place
}

// givenUp reports whether those who wait are told that the outcome is unknown.
func (l *Log) givenUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost.IsZero() && l.decided < l.place && time.Since(l.lost) >= l.giveUp
}

// next takes the next entry from the queue, encoded; nil if there is none, or enough is in
// flight. What is less than the entry in flight waits for that: an entry costs each node as much
// as some hundred operations do.
func (l *Log) next() (data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || len(l.flying) >= maxInFlight || l.closed != nil {
		return nil
	}
	n, size := 1, len(l.queue[0].record)
	for n < len(l.queue) && l.queue[n].fence == l.queue[0].fence && size+len(l.queue[n].record) <= maxEntry {
		size += len(l.queue[n].record)
		n++
	}
	if last := len(l.flying) - 1; last >= 0 && n == len(l.queue) && size < len(l.flying[last].record) {
		return nil
	}
	l.number++
	c := command{kind: commandSections, fence: l.queue[0].fence, origin: l.origin, number: l.number}
	data = c.encode(make([]byte, 0, sectionsHeader+size))
	entry := proposal{fence: c.fence, number: c.number, upTo: l.queue[n-1].upTo}
	for _, p := range l.queue[:n] {
		data = append(data, p.record...)
		entry.marks = append(entry.marks, p.marks...)
		entry.room += p.room
	}
	entry.record = data[sectionsHeader:]
	l.flying = append(l.flying, entry)
	l.queue = slices.Delete(l.queue, 0, n)
	return data
}

// propose proposes entries until stop is closed. failed is told when Raft did not accept one:
// what follows it in the queue must not be accepted either.
func (l *Log) propose(r *raft.Raft, stop <-chan struct{}, failed func(error)) {
	for {
		data := l.next()
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
		}()
	}
}

// reserved returns how many bytes of the op log are reserved for entries that are about to
// be stored, once.
func (l *Log) reserved(entries []*raft.Log) (bytes int64) {
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
		for i := range l.flying {
			if p := &l.flying[i]; p.number == c.number {
				bytes, p.room = bytes+p.room, 0
			}
		}
	}
	return bytes
}

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
		tell(m.partition, m.seq)
	}
	l.decided = l.flying[0].upTo
	l.flying = slices.Delete(l.flying, 0, 1)
	l.resolved.Broadcast()
	l.signal()
}

// firstUndecided returns the first sequence, by partition, of what is undecided.
func (l *Log) firstUndecided() (first map[uint16]uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = make(map[uint16]uint64)
	for _, p := range slices.Concat(l.flying, l.queue) {
		err = oplog.Sections(p.record, func(partition uint16, seq uint64, _ []byte) error {
			if _, ok := first[partition]; !ok {
				first[partition] = seq
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return first, nil
}

// cut notes that what is undecided never will be committed.
func (l *Log) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range slices.Concat(l.flying, l.queue) {
		l.Release(p.room, 0)
	}
	if l.decided < l.place {
		l.cuts = append(l.cuts, span{l.decided + 1, l.place})
		l.cuts = slices.Delete(l.cuts, 0, max(len(l.cuts)-maxCuts, 0))
	}
	l.decided, l.flying, l.queue = l.place, nil, nil
	l.lost = time.Time{}
	l.resolved.Broadcast()
}

// close makes everyone give up who waits, now or later.
func (l *Log) close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = err
	l.resolved.Broadcast()
}
