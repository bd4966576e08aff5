package store

import (
	"sync"
)

// A flush of all regions. A vector of what a FLUSHALL has seen cannot be kept for each key that
// there ever was, so regions agree on it: it begins a new era. RegionSet.Era says which one it is,
// and whoever learns of a later one empties its store, in the same record.
//
//	a region's log     … its old era │ entryFlush, entryRegions │ its new era …
//	what it answers                    Pull begins here, with the new era's number
//
// A region tells nothing from before the last flush in its log, as it is dead everywhere, or will be;
// so all of one answer is of one era:
//
//	the source's era   the reader
//	older              passes it: its cursor goes on, and all else is forgotten
//	the same           takes it
//	newer              refuses it (ErrEra) until it has flushed as well
//
// So a region that has taken an entry of an era's log was in that era. Therefore its cursors, and those
// that others told, stay: only acknowledgements of this era reach the clocks of a key of this era. Ids
// are forgotten, and so are pending take-backs.
//
// All writes of a region before it learns of a flush are lost, even if it was away for long.

// beginEra locks out, if regions are of a later era than those that there are, who must not be at
// work when everything is deleted: those who take something, which is of the era that ends, and those
// who save (Execute). done ends that, and can be called twice. catalogMu is held.
func (s *Store) beginEra(set *RegionSet) (flushes bool, done func()) {
	if now, ok := s.Regions(); !ok || set.Era <= now.Era {
		return false, func() {}
	}
	for _, p := range s.partitions {
		p.taking.mu.Lock()
	}
	s.snapshots.lock()
	return true, sync.OnceFunc(func() {
		s.snapshots.unlock()
		for _, p := range s.partitions {
			p.taking.mu.Unlock()
		}
	})
}

// begins notes the present era in an answer. It returns the sequence up to which all is committed, and
// the one up to which all is dead. Later commits may be of a later era.
func (d *pulled) begins(p *partition) (committed, dead uint64, err error) {
	for err == nil {
		committed = p.committed.upTo()
		p.lock()
		d.era, dead = p.regions.Era, p.floor
		life := p.committed.life.Load()
		p.mu.Unlock()
		if dead <= committed {
			break
		}
		err = p.committed.wait(life, dead) // nobody is to hear of an era that a crash may end
	}
	return committed, dead, err
}
