package store

import "sync/atomic"

// changes is who is told of changed keys, if anybody is.
type changes struct {
	listener atomic.Pointer[func(key []byte, source int64)]
}

// TellChanges makes the store tell of every entry that may change what a key answers, whoever made it:
// a batch, with its Source, or 0 for the expiry cycle, another region or the leader of the shard. A nil
// key stands for all keys: of FLUSHALL, a partition that comes, goes or is made anew, and of a table.
//
// The call comes with the partition of the key locked: a reader that decided before has the old value,
// every later one has the new. So it must not wait, call the store or keep the key. The entry may not be
// committed yet, and may be taken back; replies then never showed it. nil ends the calls.
func (s *Store) TellChanges(to func(key []byte, source int64)) {
	if to == nil {
		s.changes.listener.Store(nil)
		return
	}
	s.changes.listener.Store(&to)
}

// entry tells of an entry.
func (c *changes) entry(e *entry, source int64) {
	to := c.listener.Load()
	if to == nil {
		return
	}
	switch row := e.kind.row(); {
	case row.traits&changesAll != 0:
		(*to)(nil, 0)
	case row.key != noKey:
		(*to)(e.key, source)
	}
}

// all tells of all keys.
func (c *changes) all() {
	if c == nil {
		return
	}
	if to := c.listener.Load(); to != nil {
		(*to)(nil, 0)
	}
}
