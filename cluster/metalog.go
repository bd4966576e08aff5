package cluster

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence"
)

// metaLogValue is the name of the meta group's log.
const metaLogValue = "log"

// metaLog is the log of the meta group, a raft.LogStore: a few configurations, all of which are one
// value of the node's own. Safe for concurrent use.
type metaLog struct {
	s *Stable // the meta group's

	mu      sync.Mutex
	entries []*raft.Log // without a gap
	size    int         // bytes of the value
}

// It is no raft.MonotonicLogStore, of which Raft deletes everything when it takes a snapshot: also entries behind
// that, which it then misses.
var _ raft.LogStore = (*metaLog)(nil)

// openMetaLog reads the log.
func openMetaLog(s *Stable) (*metaLog, error) {
	b, err := s.Get([]byte(metaLogValue))
	if err != nil {
		return nil, err
	}
	l, d := &metaLog{s: s, size: len(b)}, decoder{b: b}
	for !d.bad && len(d.b) > 0 {
		e := d.entry()
		d.bad = d.bad || len(l.entries) > 0 && e.Index != l.entries[len(l.entries)-1].Index+1
		l.entries = append(l.entries, e)
	}
	if d.bad {
		return nil, fmt.Errorf("%w: the log of the meta group", persistence.ErrCorrupt)
	}
	return l, nil
}

// FirstIndex returns the index of the first entry, 0 if there is none.
func (l *metaLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return 0, nil
	}
	return l.entries[0].Index, nil
}

// LastIndex returns the index of the last entry, 0 if there is none.
func (l *metaLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return 0, nil
	}
	return l.entries[len(l.entries)-1].Index, nil
}

// GetLog reads an entry. raft.ErrLogNotFound: there is none with that index.
func (l *metaLog) GetLog(index uint64, log *raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 || index < l.entries[0].Index || index-l.entries[0].Index >= uint64(len(l.entries)) {
		return raft.ErrLogNotFound
	}
	*log = *l.entries[index-l.entries[0].Index]
	return nil
}

// StoreLog stores an entry, as StoreLogs does.
func (l *metaLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably. What is there may end before the first of them: a snapshot has what is
// between, and takes the place of all.
func (l *metaLog) StoreLogs(logs []*raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.entries[:len(l.entries):len(l.entries)]
	for _, e := range logs {
		switch n := len(next); {
		case n > 0 && e.Index > next[n-1].Index+1:
			next = nil
		case n > 0 && e.Index <= next[n-1].Index:
			return fmt.Errorf("entry %d of the meta group follows entry %d", e.Index, next[n-1].Index)
		}
		copied := *e
		next = append(next, &copied)
	}
	return l.set(next)
}

// DeleteRange deletes entries, both ends included, durably: the first or the last ones.
func (l *metaLog) DeleteRange(lo, hi uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next []*raft.Log
	for _, e := range l.entries {
		if e.Index < lo || e.Index > hi {
			next = append(next, e)
		}
	}
	return l.set(next)
}

// set makes entries the present ones.
func (l *metaLog) set(entries []*raft.Log) error {
	var e encoder
	for _, log := range entries {
		e.entry(log)
	}
	if err := l.s.Set([]byte(metaLogValue), e.b); err != nil {
		return err
	}
	l.entries, l.size = entries, len(e.b)
	return nil
}

// isLong reports whether the log needs a snapshot before it gets another entry: all that is in the node's
// own values, a snapshot and two configurations among them, takes 1 MiB.
func (l *metaLog) isLong() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size > 2*maxConfiguration
}
