package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftmsg"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
)

const (
	// metaLogValue is the name of the meta group's log.
	metaLogValue = "log"
	// metaLogKeeps is how many bytes the log may have when its first entries stay though a snapshot
	// has them: they spare a node that lacks them the snapshot.
	metaLogKeeps = 16 << 10
)

// ErrContradicts ends the process, which drops the log when it starts again.
var ErrContradicts = errors.New("the log of the meta group contradicts its leader's snapshot")

// MetaLog is the log of the meta group, a raft.LogStore: a few configurations, all of which are one
// value of the node's own. Safe for concurrent use.
type MetaLog struct {
	s      *Stable     // the meta group's
	failed func(error) // is told of an error after which the log is not what Raft takes it for (R8)

	mu      longlock.Mutex
	entries []*raft.Log // without a gap
	size    int         // bytes of the value
	cut     bool        // the last entries were deleted, and none stored since
}

// It is no raft.MonotonicLogStore, of which Raft deletes everything when it takes a snapshot: also
// entries behind that, which it then misses.
var _ raft.LogStore = (*MetaLog)(nil)

// OpenMetaLog reads the log, and drops it if it contradicts the snapshot, which has then come from a leader.
func OpenMetaLog(s *Stable, failed func(error)) (*MetaLog, error) {
	b, err := s.Get([]byte(metaLogValue))
	if err != nil {
		return nil, err
	}
	entries, err := raftmsg.DecodeEntries(b)
	l := &MetaLog{s: s, failed: failed, entries: entries, size: len(b)}
	for i, e := range entries {
		if i > 0 && e.Index != entries[i-1].Index+1 {
			err = raftmsg.ErrMalformed
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the log of the meta group", persistence.ErrCorrupt)
	}
	if contradicts, err := l.Contradicts(); err != nil || !contradicts {
		return l, err
	}
	return l, l.set(nil)
}

// Contradicts reports whether the log has another entry where the snapshot ends, so that it has
// none of the leader's from there on. Raft keeps such entries when it takes a leader's snapshot,
// and then accepts none behind it.
func (l *MetaLog) Contradicts() (bool, error) {
	snapshot, err := l.s.Last()
	if err != nil || snapshot == nil {
		return false, err
	}
	var e raft.Log
	return l.GetLog(snapshot.Index, &e) == nil && e.Term != snapshot.Term, nil
}

// FirstIndex returns the index of the first entry, 0 if there is none.
func (l *MetaLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return 0, nil
	}
	return l.entries[0].Index, nil
}

// LastIndex returns the index of the last entry, 0 if there is none.
func (l *MetaLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return 0, nil
	}
	return l.entries[len(l.entries)-1].Index, nil
}

// GetLog reads an entry. raft.ErrLogNotFound: there is none with that index.
func (l *MetaLog) GetLog(index uint64, log *raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 || index < l.entries[0].Index ||
		index-l.entries[0].Index >= uint64(len(l.entries)) {
		return raft.ErrLogNotFound
	}
	*log = *l.entries[index-l.entries[0].Index]
	return nil
}

// StoreLog stores an entry, as StoreLogs does.
func (l *MetaLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably. The stored entries may end before the first of them: a snapshot
// then covers the gap, and takes the place of all stored entries.
func (l *MetaLog) StoreLogs(logs []*raft.Log) error {
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
	err := l.set(next)
	if err == nil {
		l.cut = false
	}
	return err
}

// DeleteRange deletes entries, both ends included, durably: the last ones, or as many of the first
// ones as are not worth keeping. The last of the first ones stays, since a snapshot may end there:
// if entries follow that a new leader lacks, Raft looks there, and not in the snapshot, for where
// both logs are still the same.
func (l *MetaLog) DeleteRange(lo, hi uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.entries)
	if n == 0 || lo > l.entries[n-1].Index || hi < l.entries[0].Index {
		return nil
	}
	if hi < l.entries[n-1].Index {
		next := l.entries
		for size := l.size; next[0].Index < hi && size > metaLogKeeps; next = next[1:] {
			size -= len(raftmsg.EncodeEntries(next[0]))
		}
		if len(next) == n {
			return nil // no fsync for nothing
		}
		return l.set(next)
	}
	first := l.entries[0].Index
	err := l.set(l.entries[:max(lo, first)-first])
	if err == nil {
		l.cut = true
	}
	return err
}

// set makes entries the present ones. When Raft cannot store entries in the place of those that it
// has deleted, it goes on as if it still had these, and takes what follows them from another
// leader: a gap.
func (l *MetaLog) set(entries []*raft.Log) error {
	b := raftmsg.EncodeEntries(entries...)
	if err := l.s.Set([]byte(metaLogValue), b); err != nil {
		if l.cut || !errors.Is(err, persistence.ErrBadOptions) {
			l.failed(err)
		}
		return err
	}
	l.entries, l.size = entries, len(b)
	return nil
}

// IsLong reports whether the log needs a snapshot before it gets another entry: all that is in the node's
// own values, a snapshot and two configurations among them, takes 1 MiB.
func (l *MetaLog) IsLong() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size > 2*MaxContent
}
