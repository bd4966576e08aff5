package store

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// snapshotter takes checkpoints, one at a time.
type snapshotter struct {
	// mu is held by whoever changes what is published: a checkpoint, a FLUSHALL,
	// or a backup, which wants none of that. building is held, after mu, by
	// whoever builds runs: records leave memory also while a backup is copied.
	mu, building sync.Mutex

	sorting sortScratch // of buildRuns
	saving  atomic.Bool // SAVE or BGSAVE is in progress
	last    atomic.Pointer[lastSnapshot]
}

type lastSnapshot struct {
	at   time.Time
	took time.Duration
	err  error
}

// Snapshot takes a checkpoint of every partition now, as SAVE does, and returns when
// it is on disk. ErrSnapshotRunning if another call is in progress.
func (s *Store) Snapshot() error {
	if !s.snapshots.saving.CompareAndSwap(false, true) {
		return ErrSnapshotRunning
	}
	defer s.snapshots.saving.Store(false)
	return s.snapshotAll()
}

// BackgroundSnapshot starts what Snapshot does and returns at once, as BGSAVE
// does. LastSnapshot returns the result.
func (s *Store) BackgroundSnapshot() error {
	if !s.snapshots.saving.CompareAndSwap(false, true) {
		return ErrSnapshotRunning
	}
	s.running.Go(func() {
		defer s.snapshots.saving.Store(false)
		if err := s.snapshotAll(); err != nil {
			s.log.Error("background saving failed", "error", err)
		}
	})
	return nil
}

func (s *Store) snapshotAll() error {
	began := time.Now()
	var err error
	for _, p := range s.partitions {
		if err = s.checkpoint(p, true); err != nil {
			break
		}
	}
	s.eventEnds(EventSnapshot, began)
	s.snapshots.last.Store(&lastSnapshot{at: time.Now(), took: time.Since(began), err: err})
	return err
}

// LastSnapshot returns when every partition last had its checkpoint, how long that
// took, and its error. Periodic checkpoints are spread over SnapshotInterval, and their
// duration is 0.
func (s *Store) LastSnapshot() (at time.Time, took time.Duration, err error) {
	if l := s.snapshots.last.Load(); l != nil {
		return l.at, l.took, l.err
	}
	return time.Time{}, 0, nil
}

// Saving reports whether SAVE or BGSAVE is in progress.
func (s *Store) Saving() bool { return s.snapshots.saving.Load() }

// checkpoint brings the views of a partition's op log to disk and trims the
// log behind them, while operations go on:
//
//	capture     sequence, counts, dirty counters, sealed records, filters
//	runs        the sealed EXACT records become sorted runs (runs.go)
//	write back  the dirty counters become rows
//	state       the state row, in one commit with the runs that come and go
//	flush       all that becomes durable
//	snapshot    the filters, in chunks
//	trim        the log up to the oldest of all that recovery could need
//
// It does nothing if nothing changed since the last one, unless forced.
func (s *Store) checkpoint(p *partition, force bool) error {
	return s.takeCheckpoint(checkpoint{s: s, p: p, tidy: true}, force)
}

func (s *Store) takeCheckpoint(c checkpoint, force bool) error {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	s.snapshots.building.Lock()
	defer s.snapshots.building.Unlock()
	if !c.capture(force) {
		return nil
	}
	began := s.eventBegins()
	err := c.run()
	c.p.endSnapshot()
	s.eventEnds(EventCheckpoint, began)
	return err
}

// flushRecords does the part of a checkpoint that takes EXACT records out of
// memory: they come in faster than anything else grows. Nothing is fsynced;
// after a crash the log brings the records back.
func (s *Store) flushRecords(p *partition, urgent bool) error {
	return (&checkpoint{s: s, p: p, urgent: urgent}).runsOnly()
}

// mergeRuns merges those of a partition's runs that are to become one.
func (s *Store) mergeRuns(p *partition) error {
	return (&checkpoint{s: s, p: p, merge: true}).runsOnly()
}

// runsOnly builds runs: of the records in memory or, to merge, of other runs.
func (c *checkpoint) runsOnly() (err error) {
	c.s.snapshots.building.Lock()
	defer c.s.snapshots.building.Unlock()
	p := c.p
	p.mu.Lock()
	seq := p.seq
	c.now = c.s.clock.now().logged
	if !c.merge {
		c.sealed = p.recent.seal()
	}
	c.obsolete, p.deadRuns = p.deadRuns, nil
	p.mu.Unlock()
	if !c.merge {
		// No look-up may find in a run what a crash could still take back (G4).
		err = p.waitDurable(seq)
	}
	if err == nil {
		err = c.buildRuns()
	}
	c.giveBack()
	return err
}

// checkpoint is one checkpoint of one partition.
type checkpoint struct {
	s        *Store
	p        *partition
	state    partitionState
	now      int64 // logged time: runs expire by it
	dirty    []*counter
	savedSeq int64 // the partition's, before this
	sealed   []*recentSegment
	snapshot *snapshot
	obsolete []persistence.Run
	tidy     bool // merge runs as far as they may be
	merge    bool // merge those that are to become one
	urgent   bool // make haste
	pace     pacer
}

// capture takes what must be exactly as of one sequence.
func (c *checkpoint) capture(force bool) bool {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seq == p.checkpointSeq && !force && len(p.deadRuns) == 0 {
		return false
	}
	c.savedSeq = p.savedSeq
	p.checkpointSeq, p.savedSeq, p.logBytes, p.rowsAhead = p.seq, int64(p.seq), 0, 0
	c.now = c.s.clock.now().logged
	c.state = partitionState{seq: p.seq, floor: p.floor, records: p.seq, incarnation: p.incarnation, at: p.at, size: p.size, filters: uint64(len(p.filters)), catalog: p.catalog, horizons: p.horizons()}
	c.dirty, p.hot.dirty = p.hot.dirty, nil
	c.sealed = p.recent.seal()
	c.obsolete, p.deadRuns = p.deadRuns, nil
	c.snapshot = p.beginSnapshot()
	return true
}

// horizons copies the tables' horizons.
func (p *partition) horizons() map[uint32]horizon {
	out := make(map[uint32]horizon, len(p.tables))
	for id, t := range p.tables {
		out[id] = horizon{forgotten: t.horizon.forgotten, buckets: slices.Clone(t.horizon.buckets)}
	}
	return out
}

func (c *checkpoint) run() error {
	p := c.p
	// Runs and snapshots are synced files; the log they are built from must
	// be at least as durable (G4). persistence syncs it before it publishes.
	err := p.waitDurable(c.state.seq)
	if err == nil {
		err = c.buildRuns()
	}
	if err == nil {
		err = c.writeBack()
	}
	if err == nil {
		err = c.writeState()
	}
	if err == nil {
		c.forgetExpiries()
		// What follows rests on it: a snapshot is no newer than the state row, and
		// what a crash could bring back of the rows and runs must find its log and
		// its files.
		if err = c.s.db.Flush(); err != nil {
			c.s.commitFailed(err)
		}
	}
	if err == nil {
		err = c.writeSnapshot()
	}
	if err == nil {
		c.s.db.RemoveRuns(c.obsolete)
		return c.trim()
	}
	c.giveBack()
	p.mu.Lock()
	p.checkpointSeq, p.savedSeq = 0, c.savedSeq
	p.mu.Unlock()
	return err
}

// giveBack lets the next checkpoint do what this one did not.
func (c *checkpoint) giveBack() {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hot.dirty = append(p.hot.dirty, c.dirty...)
	p.deadRuns = append(p.deadRuns, c.obsolete...)
}

// writeState writes the state row, publishes the runs built since the last
// checkpoint and drops obsolete ones, in one commit. The op log, which holds the
// runs' operations, is durable before it (G4).
func (c *checkpoint) writeState() error {
	p := c.p
	p.mu.Lock()
	publish := p.runsToPublish()
	p.mu.Unlock()
	b := c.s.db.NewChanges()
	flushed := c.deleteFlushed(b)
	b.PutState(p.id, c.state.encode())
	for _, r := range c.obsolete {
		b.DropRun(r)
	}
	if err := b.PublishRuns(publish); err != nil {
		c.s.commitFailed(err)
		return err
	}
	if err := c.s.commit(b); err != nil {
		return err
	}
	flushed()
	p.mu.Lock()
	for _, r := range slices.Concat(publish, c.obsolete) { // FLUSHALL drops some unpublished
		delete(p.unpublished, r.ID)
	}
	p.mu.Unlock()
	p.state = c.state
	return nil
}

// runsToPublish lists the runs that no header row names yet.
func (p *partition) runsToPublish() (runs []persistence.Run) {
	for _, id := range slices.Sorted(maps.Keys(p.tables)) {
		for _, r := range p.tables[id].runs {
			if p.unpublished[r.ID] {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// forgetExpiries drops from memory the expiries that are in the index on disk
// now.
func (c *checkpoint) forgetExpiries() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.fresh = slices.DeleteFunc(c.p.fresh, func(e expiry) bool {
		return e.c.clean() || e.c.expire != e.at
	})
	c.p.fresh.init()
}

// commit commits changes of Pebble.
func (s *Store) commit(b *persistence.Changes) error {
	err := b.Commit()
	if err != nil {
		s.commitFailed(err)
	}
	return err
}

// commitFailed freezes the store, unless all that was lacking is space on the disk: then
// nothing has happened, and the next attempt may find some.
func (s *Store) commitFailed(err error) {
	if !errors.Is(err, persistence.ErrNoSpace) {
		s.freeze(err)
	}
}

func (c *checkpoint) writeSnapshot() error {
	w, err := c.s.db.CreateSnapshot(c.p.id, c.snapshot.seq)
	if err != nil {
		return err
	}
	defer w.Abort()
	return c.snapshot.write(c.p, w)
}

// trim deletes the op log up to what recovery needs if the newest snapshot
// should turn out to be damaged: the older one's sequence.
func (c *checkpoint) trim() error {
	list, err := c.s.db.Snapshots(c.p.id)
	if err != nil || len(list) < 2 {
		return err
	}
	keep := min(list[1].Seq, c.state.seq)
	persistence.KillPoint("before-trim")
	if err := c.s.oplog.Trim(c.p.id, keep+1); err != nil {
		c.s.commitFailed(err)
		return err
	}
	persistence.KillPoint("trim")
	return nil
}
