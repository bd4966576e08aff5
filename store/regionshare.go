package store

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Queries of clients about regions: which region has counted how much.

// noteOwn heeds what the members say of this store: nobody reads it, or it leaves.
func (s *Store) noteOwn(set *RegionSet) {
	known := s.opts.RegionIncarnation
	if s.replica == nil {
		known = s.Meta().Incarnation
	}
	s.leaving.on.Store(set.Leaving)
	switch {
	case set.Removed:
		s.unread.Store(&ErrRemoved)
	case set.Older || set.member(set.Self).Incarnation != known:
		s.unread.Store(&ErrRestored)
	default:
		s.unread.Store(nil)
	}
}

// fence makes the store one that others do not read, now and after a start: a server, or all
// replicas of a shard. found is the evidence (proof.go).
func (s *Store) fence(found error) error {
	if s.replica == nil {
		s.unread.Store(&ErrRestored) // at once
	}
	err := s.say(func(set *RegionSet) { set.Older = true })
	switch {
	case err == nil:
		s.log.Error(ErrRestored.Error(), "found", found)
	case s.replica == nil:
		s.freeze(fmt.Errorf("%w: %w", found, err))
	}
	s.Asked(s.Asking()) // whoever waits for that is refused
	return errors.Join(found, err)
}

// clientsRefused returns why clients may write nothing, as no other region would hear of it; nil
// if they may.
func (s *Store) clientsRefused() error {
	if why := s.unread.Load(); why != nil {
		return *why
	}
	if s.leaving.on.Load() {
		return ErrLeaving
	}
	if s.unheard.Load() {
		return ErrUnheard
	}
	return nil
}

// leaving says that this region will be removed once the others have all its changes.
type leaving struct {
	on   atomic.Bool              // as it is logged, or is being logged
	ends atomic.Pointer[[]uint64] // of the logs when it began; nil: before this process, or this lead
}

// Leave refuses what clients write, until Leave(false). It returns the last sequence that each partition had
// when that began, or the process or the lead did: who has taken them has all that clients have done.
// Errors: as SetRegions.
func (s *Store) Leave(yes bool) (ends []uint64, err error) {
	l := &s.leaving
	err = s.say(func(set *RegionSet) {
		if yes && !set.Leaving {
			l.ends.Store(nil)
		}
		set.Leaving = yes
	})
	if err != nil || !yes {
		return nil, err
	}
	if known := l.ends.Load(); known != nil {
		return *known, nil
	}
	ends = make([]uint64, len(s.partitions))
	for i := range ends { // whoever locks a partition behind this refuses (execution.take)
		ends[i] = s.LastOf(uint16(i))
	}
	l.ends.Store(&ends)
	return ends, nil
}

// Older reports whether this store knows that its directory is an older copy (Examine).
func (s *Store) Older() bool {
	set, _ := s.Regions()
	return set.Older
}

// Leaving reports whether Leave refuses writes.
func (s *Store) Leaving() bool { return s.leaving.on.Load() }

// checkUnheard refuses writes while more of the log is kept for another region than the limit
// allows. It does so only with Options.RegionRefuse, under which nothing is given up.
func (s *Store) checkUnheard() {
	if !s.opts.RegionRefuse {
		return
	}
	s.peers.mu.Lock()
	most := uint64(0)
	for _, p := range s.peers.of {
		if p != nil {
			most = max(most, p.hold.Kept())
		}
	}
	s.peers.mu.Unlock()
	unheard := most > uint64(s.opts.RegionBacklog)
	if s.unheard.Swap(unheard) != unheard {
		s.log.Warn("the op log is kept for another region", "bytes", most, "region_backlog",
			s.opts.RegionBacklog, "writes_refused", unheard)
	}
}
