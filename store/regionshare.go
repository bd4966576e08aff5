package store

import (
	"fmt"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/internal/longlock"
)

// Queries of clients about regions: which region has counted how much.

// noteUnread refuses what clients write if no other region reads this one.
func (s *Store) noteUnread(set *RegionSet) {
	known := s.opts.RegionIncarnation
	if s.replica == nil {
		known = s.Meta().Incarnation
	}
	switch {
	case set.Removed:
		s.unread.Store(&ErrRemoved)
	case set.member(set.Self).Incarnation != known:
		s.unread.Store(&ErrRestored)
	default:
		s.unread.Store(nil)
	}
}

// fence makes the directory one that was restored: another incarnation, whose log nobody reads, now
// and after a start. found is the evidence (proof.go).
func (s *Store) fence(found error) error {
	s.fencing.Lock()
	defer s.fencing.Unlock()
	if s.unread.Load() != nil { // others do not read it already
		return found
	}
	s.unread.Store(&ErrRestored) // at once
	err := s.db.Renew()
	if err == nil {
		err = s.jump(s.partitions)
	}
	if err != nil {
		s.freeze(fmt.Errorf("%w: %w", found, err))
		return found
	}
	p := s.partitions[0] // whose lock is held when members change
	p.lock()
	s.noteUnread(&p.regions.RegionSet)
	p.mu.Unlock()
	s.log.Error(ErrRestored.Error(), "found", found)
	return found
}

// clientsRefused returns why clients may write nothing, since no other region would hear of it; nil
// if they may.
func (s *Store) clientsRefused() error {
	if why := s.unread.Load(); why != nil {
		return *why
	}
	if s.unheard.Load() {
		return ErrUnheard
	}
	return nil
}

// leaving says that this region will be removed once the others have all its changes.
type leaving struct {
	on     atomic.Bool
	mu     longlock.Mutex // of the rest, and held while that is logged
	logged bool           // on, as the log has it: false in a replica
	ends   []uint64
}

// Leave refuses what clients write, until Leave(false), or in a shard of a cluster another lead or the end
// of the process. It returns the last sequence that each partition had when that began, or the process
// did: who has taken them has all that clients have done. Errors: as SetRegions.
func (s *Store) Leave(yes bool) (ends []uint64, err error) {
	l := &s.leaving
	l.mu.Lock()
	defer l.mu.Unlock()
	begins := yes && !l.on.Swap(true)
	if set, ok := s.Regions(); ok && s.replica == nil && l.logged != yes {
		set.Leaving = yes
		if err := s.setRegions(set, s.partitions); err != nil {
			l.on.Store(l.logged)
			return nil, err
		}
		l.logged = yes
	}
	if l.on.Store(yes); !yes {
		return nil, nil
	}
	if begins || l.ends == nil {
		l.ends = make([]uint64, len(s.partitions))
		for i := range l.ends { // whoever locks a partition behind this refuses (execution.take)
			l.ends[i] = s.LastOf(uint16(i))
		}
	}
	return l.ends, nil
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
