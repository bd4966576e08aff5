package store

import "fmt"

// cut says of a partition that its log ends with a sequence, whatever was decided behind
// that.
type cut struct {
	p    *partition
	upTo uint64
}

// rebuild makes partitions anew from their views on disk and the log, while others serve.
// Uncommitted decisions cannot be undone one by one, so the state that contains them is
// dropped, and its memory freed. Committed entries stay as they are. Operations on the
// partitions wait meanwhile. Callers that already wait for a sequence behind the cut are told
// that the outcome is unknown.
//
// The log must hold nothing of a partition behind its cut, and never get an entry that was
// decided there before. With math.MaxUint64 nothing is taken back: rebuild waits until all
// decided entries are committed. Partitions that one record has touched must be rebuilt together.
//
// It first waits for the checkpoint or the build of runs that is under way in any
// partition, and keeps others from beginning. One that waits for a commit gives up: that
// may have to wait for the caller. It costs reading the log (oplog's
// BeginRecovery), once for all the partitions, and what the recovery of these costs.
//
// On an error nothing was dropped; one after that ends the process (G8).
func (s *Store) rebuild(cuts ...cut) error {
	s.rebuilds.Lock()
	defer s.rebuilds.Unlock()
	defer s.postponeSaving()()
	ids, ps, upTo := make([]uint16, len(cuts)), make([]*partition, len(cuts)), make([]uint64, len(cuts))
	for i, c := range cuts {
		ids[i], ps[i], upTo[i] = c.p.id, c.p, c.upTo
		c.p.mu.Lock()
		c.p.rebuilding = true
		c.p.mu.Unlock()
	}
	if err := s.takeBack(cuts); err != nil {
		comeBack(ps)
		return err
	}
	s.snapshots.lock()
	for _, p := range ps {
		p.drop()
	}
	err := s.oplog.BeginRecovery(ids...)
	if err == nil {
		_, err = s.recoverPartitions(ps, upTo)
		s.oplog.EndRecovery()
	}
	if err != nil {
		s.freeze(err)
		s.db.Stop(fmt.Errorf("rebuild partitions from the op log: %w", err))
	}
	var drop []unfinished
	for _, p := range ps {
		p.committed.begin()
		if p.fragments.number != 0 && s.replica == nil {
			drop = append(drop, unfinished{p, p.takeUnfinished()})
		}
	}
	comeBack(ps)
	s.snapshots.unlock()
	for _, p := range ps {
		if err := s.saveRebuilt(p); err != nil {
			s.log.Error("cannot write a snapshot of a rebuilt partition", "partition", p.id, "error", err)
		}
	}
	if err := s.dropFragments(drop); err != nil {
		s.log.Error("cannot drop the fragments of a change", "error", err)
	}
	return nil
}

// takeBack ends the present life of partitions that are away: what is not behind their cuts
// is committed first.
func (s *Store) takeBack(cuts []cut) error {
	for _, c := range cuts {
		here := c.p.here() // which stays: nothing is decided
		here.seq = min(here.seq, c.upTo)
		if err := here.wait(); err != nil {
			return err
		}
		if last := c.p.committed.upTo(); last > c.upTo {
			return fmt.Errorf("partition %d: entry %d is committed, and cannot be taken back to %d", c.p.id,
				last, c.upTo)
		}
	}
	for _, c := range cuts {
		c.p.committed.end()
	}
	return nil
}

// comeBack lets those go on who wait for partitions.
func comeBack(ps []*partition) {
	for _, p := range ps {
		p.mu.Lock()
		p.rebuilding = false
		p.back.Broadcast()
		p.mu.Unlock()
	}
}

// drop frees what the partition's views hold, and makes it one of which nothing is known.
// The partition is away and the snapshotter locked.
func (p *partition) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes.all()
	for _, c := range p.objects {
		p.dropObject(c)
	}
	for _, t := range p.tables {
		p.memory.add(-int64(t.filter.Bytes()))
		t.filter.Release()
	}
	p.memory.add(-p.holds.clear())
	p.seen.Reset()
	hot := p.hot
	p.views, p.draft, p.saving = newViews(p.count, hot.limit), draft{}, saving{}
	p.savedSeq, p.logBytes, p.retired, p.movedRows = 0, 0, nil, nil
	p.hot.takeOver(hot)
	if p.incoming != nil && p.incoming.adopted {
		p.incoming.tables.Discard() // unless Pebble has them
		p.incoming = nil
	}
}

// takeOver takes the place of others: what batches have read from disk does not count any
// more, and watchers see no key as it was.
func (h *hotCounters) takeOver(from *hotCounters) {
	h.made = from.made
	for i, n := range from.evicted {
		h.evicted[i] = n + 1
	}
}
