package raftgroup

import (
	"errors"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// LogStore is the op log as a raft.LogStore: an entry of Raft's log is a record of the op
// log, and there is no second log. Safe for concurrent use.
type LogStore struct {
	// Log has the entries.
	Log *oplog.Log
	// Reserved returns how many bytes of the op log are reserved for entries that are about to be
	// stored; they are taken whatever comes out. Its error keeps the entries from being stored.
	// nil: none are.
	Reserved func(logs []*raft.Log) (int64, error)
	// Settle is called before the log changes, and if it fails the log does not. nil: nothing needs
	// to be done then.
	Settle func() error
	// Failed is told of an error after which the log is not what Raft takes it for, so
	// that the process must end (R8). It may be called more than once. A full disk is no such
	// error, as long as nothing has changed.
	Failed func(error)
	// Lost is told of entries that Raft wants to delete because the leader has others in their
	// place, though they were committed. nil: that is an error as any other.
	Lost func(from, to uint64)

	cut atomic.Bool // entries were deleted and none stored since
}

// ErrKeepsLost is why entries are not deleted.
var ErrKeepsLost = errors.New("the entries were committed, and the shard has lost them")

// The log is monotonic: Raft leaves no gap, and deletes everything before it begins anew.
var _ raft.MonotonicLogStore = (*LogStore)(nil)

// IsMonotonic returns true.
func (s *LogStore) IsMonotonic() bool { return true }

// FirstIndex returns the index of the first entry, 0 if there is none.
func (s *LogStore) FirstIndex() (uint64, error) {
	first, _ := s.Log.EntryBounds()
	return first, nil
}

// LastIndex returns the index of the last entry, 0 if there is none.
func (s *LogStore) LastIndex() (uint64, error) {
	_, last := s.Log.EntryBounds()
	return last, nil
}

// GetLog reads an entry. raft.ErrLogNotFound: there is none with that index.
func (s *LogStore) GetLog(index uint64, log *raft.Log) error {
	var e oplog.Entry
	err := s.Log.Entry(index, &e)
	if errors.Is(err, oplog.ErrNoEntry) {
		return raft.ErrLogNotFound
	}
	*log = raft.Log{
		Index: e.Index, Term: e.Term, Type: raft.LogType(e.Type),
		Data: e.Data, Extensions: e.Extensions, AppendedAt: e.AppendedAt,
	}
	return err
}

// StoreLog stores an entry, as StoreLogs does.
func (s *LogStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably, with one fsync. oplog's ErrNoSpace: none was stored.
func (s *LogStore) StoreLogs(logs []*raft.Log) error {
	es := make([]oplog.Entry, len(logs))
	for i, log := range logs {
		es[i] = oplog.Entry{
			Index: log.Index, Term: log.Term, Type: uint8(log.Type),
			Data: log.Data, Extensions: log.Extensions, AppendedAt: log.AppendedAt,
		}
	}
	reserved := int64(0)
	if s.Reserved != nil {
		var gap error
		if reserved, gap = s.Reserved(logs); gap != nil {
			s.Log.Release(reserved, 0)
			if s.cut.Load() {
				return s.failed(gap)
			}
			return gap // Raft steps down, and the log is what it takes it for
		}
	}
	err := s.settle()
	if err == nil {
		err = s.Log.AppendEntries(es, reserved)
	}
	if err == nil {
		s.cut.Store(false)
	}
	return s.failed(err)
}

// DeleteRange deletes entries, both ends included: durably if they are the last ones or all; the
// first ones are given up with their files, but for the last of them, as MetaLog's are. oplog's
// ErrNoSpace: none was deleted.
func (s *LogStore) DeleteRange(lo, hi uint64) error {
	_, last := s.Log.EntryBounds()
	if applied := s.Log.Applied(); s.Lost != nil && hi == last && lo <= applied {
		s.Lost(lo, applied)
		return ErrKeepsLost
	}
	if hi < last {
		if hi--; hi < lo {
			return nil
		}
	}
	err := s.settle()
	if err == nil {
		err = s.Log.DeleteEntries(lo, hi)
	}
	if err == nil && hi >= last {
		s.cut.Store(true)
	}
	return s.failed(err)
}

func (s *LogStore) settle() error {
	if s.Settle == nil {
		return nil
	}
	return s.Settle()
}

// failed tells Failed of an error. When Raft cannot store entries in the place of those
// that it has deleted, it goes on as if it still had these.
func (s *LogStore) failed(err error) error {
	full := errors.Is(err, persistence.ErrNoSpace) && !s.cut.Load()
	if err != nil && !full && s.Failed != nil {
		s.Failed(err)
	}
	return err
}
