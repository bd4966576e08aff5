package store

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
)

// snapshotter takes checkpoints, one at a time.
type snapshotter struct {
	// mu is held by a checkpoint or a FLUSHALL, which change the published files, and by a
	// backup, during which nothing may change them. building is held, after mu, by a
	// builder of runs: records leave memory also while a backup is copied.
	mu, building longlock.Mutex

	scratch seen.Scratch // of the builder of runs
	saving  atomic.Bool  // SAVE or BGSAVE is in progress
	last    atomic.Pointer[lastSnapshot]
}

// lock keeps everyone else from changing what is published, and from building runs.
func (s *snapshotter) lock() {
	s.mu.Lock()
	s.building.Lock()
}

func (s *snapshotter) unlock() {
	s.building.Unlock()
	s.mu.Unlock()
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
//	runs        the sealed EXACT records become sorted runs
//	write back  the dirty counters become rows, the dirty pages of sketches are written
//	state       the state row, in one commit with the runs that come and go
//	flush       all that becomes durable
//	snapshot    the filters, in chunks
//	trim        the log up to the oldest of all that recovery could need
//
// R1: nothing that is not committed reaches a view on disk. Rows, their expiries, runs,
// state rows, snapshots and backups each wait for the commit of the highest sequence that
// they may contain (commitMark.wait), with no lock held that a commit needs. If it fails,
// they are not written, and the checkpoint is given back. To fsync the op log, as package
// persistence does besides, is not enough: a replicated log may take back what is on the
// disk of one node.
//
// It does nothing if nothing changed since the last one, unless forced.
func (s *Store) checkpoint(p *partition, force bool) error {
	return s.takeCheckpoint(checkpoint{s: s, p: p}, seen.Tidy, force)
}

func (s *Store) takeCheckpoint(c checkpoint, goal seen.Goal, force bool) error {
	s.snapshots.lock()
	defer s.snapshots.unlock()
	for {
		c := c
		if !c.capture(goal, force) {
			return nil
		}
		began := s.eventBegins()
		err := c.run()
		c.p.endSnapshot()
		s.eventEnds(EventCheckpoint, began)
		if !errors.Is(err, errSpoiled) {
			return err
		}
	}
}

// flushRecords does the part of a checkpoint that takes EXACT records out of
// memory: they come in faster than anything else grows. Nothing is fsynced;
// after a crash the log brings the records back.
func (s *Store) flushRecords(p *partition, urgent bool) error {
	return s.buildRuns(p, seen.Flush, urgent)
}

// mergeRuns merges those of a partition's runs that are to become one.
func (s *Store) mergeRuns(p *partition) error { return s.buildRuns(p, seen.Merge, false) }

// buildRuns builds runs: of the records in memory or, to merge, of other runs.
func (s *Store) buildRuns(p *partition, goal seen.Goal, urgent bool) (err error) {
	s.snapshots.building.Lock()
	defer s.snapshots.building.Unlock()
	if !p.lockNow() {
		return nil
	}
	if p.incoming != nil {
		p.mu.Unlock()
		return nil
	}
	here := p.here()
	b := s.beginBuild(p, goal, urgent)
	p.mu.Unlock()
	defer b.GiveBack()
	if goal != seen.Merge {
		// No look-up may find in a run what could still be taken back (R1, G4).
		err = here.waitToSave()
	}
	if err == nil {
		err = b.Run()
		p.forgetUnchecked(b)
	}
	return err
}

// beginBuild begins to build runs, which gives way to others unless that is urgent. The
// partition is locked, the snapshotter's building is held.
func (s *Store) beginBuild(p *partition, goal seen.Goal, urgent bool) *seen.Build {
	now := p.moment(s.look()).logged
	o := s.buildOptions(p, now)
	o.Goal, o.GiveWay, o.Scratch = goal, giveWay, &s.snapshots.scratch
	if urgent {
		o.GiveWay = nil
	}
	return p.seen.Begin(o)
}

// buildOptions are those that say, at a logged time, which records are kept. To be called
// with the partition locked.
func (s *Store) buildOptions(p *partition, logged int64) seen.Options {
	o := seen.Options{Now: logged, Keep: p.keep(logged)}
	if p.regions != nil && !p.regions.alone() {
		keep := s.opts.RegionRetention.Milliseconds()
		o.Awaited = func(table uint32) seen.Awaited {
			if s.opts.RegionRefuse {
				acked, _ := p.ackedByRegions()
				return seen.Awaited{Acked: acked, For: math.MaxInt64 / 2}
			}
			return p.awaited(table, keep)
		}
	}
	return o
}

// keep returns how long a table's records are kept, ms of logged time; false if there is
// no such table. To be called with the partition locked.
func (p *machine) keep(logged int64) func(table uint32) (ms int64, ok bool) {
	return func(table uint32) (int64, bool) {
		t := p.tables[table]
		if t == nil {
			return 0, false
		}
		return t.def.keep(logged), true
	}
}

// checkpoint is one checkpoint of one partition.
type checkpoint struct {
	s        *Store
	p        *partition
	state    partitionState
	at       point // when it began; of a state, the state's
	dirty    []*counter
	need     uint64 // sequence that must be committed before the next changes of Pebble (R1)
	savedSeq int64  // the partition's, before this
	build    *seen.Build
	snapshot *snapshot
	pages    []dirtyPages // to be written
	holds    savedHolds   // likewise
	spoiled  bool         // errSpoiled
	urgent   bool         // make haste
	pace     pacer
}

// capture takes what must be exactly as of one sequence.
func (c *checkpoint) capture(goal seen.Goal, force bool) bool {
	p := c.p
	if !p.lockNow() {
		return false
	}
	defer p.mu.Unlock()
	if p.incoming != nil {
		return false // what is coming must not have to wait
	}
	if p.seq == p.saving.checkpointSeq && !force && !p.seen.Obsolete() {
		return false
	}
	if p.fragments.number != 0 || len(p.tables) == 0 {
		return false // no view can hold a change that has only begun, or a replica without tables
	}
	c.at, c.savedSeq = p.here(), p.savedSeq
	p.saving.checkpointSeq, p.savedSeq, p.logBytes, p.saving.rowsAhead = p.seq, int64(p.seq), 0,
		0
	c.state = p.stateRow()
	c.dirty, p.hot.dirty = p.hot.dirty, nil
	c.build = c.s.beginBuild(p, goal, c.urgent)
	c.snapshot = p.beginSnapshot()
	c.pages, c.holds = p.takeDirtyPages(), p.holds.takeChanged()
	return true
}

// stateRow returns what a checkpoint of now puts into the state row.
func (p *machine) stateRow() partitionState {
	return partitionState{
		seq: p.seq, floor: p.floor, records: p.seq, incarnation: p.incarnation, at: p.at,
		size: p.size, objects: uint64(len(p.objects)), holds: uint64(len(p.holds.due)), holdSum: p.holds.sum,
		catalog: p.catalog, horizons: p.horizons(),
		adopted: p.adopted, gone: p.gone, handed: p.handed, number: p.number, regions: p.regions.clone(),
	}
}

// horizons copies the tables' horizons.
func (p *machine) horizons() map[uint32]horizon {
	out := make(map[uint32]horizon, len(p.tables))
	for id, t := range p.tables {
		out[id] = horizon{forgotten: t.horizon.forgotten, buckets: slices.Clone(t.horizon.buckets)}
	}
	return out
}

func (c *checkpoint) run() error {
	p := c.p
	// Runs are asked as soon as they are built, so what they are made of is committed
	// before (R1). The state row is of the same sequence.
	err := c.at.waitToSave()
	if err == nil {
		err = c.build.Run()
		c.p.forgetUnchecked(c.build)
	}
	if err == nil {
		err = c.writeBack()
	}
	if err == nil {
		err = c.writePages()
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
		c.build.Remove()
		return errors.Join(c.trim(), c.removeMoved())
	}
	c.giveBack()
	c.build.GiveBack()
	p.mu.Lock()
	p.holds.whole = true
	p.saving.checkpointSeq, p.savedSeq = 0, c.savedSeq
	p.mu.Unlock()
	return err
}

// giveBack lets the next checkpoint write the rows and pages that this one did not.
func (c *checkpoint) giveBack() {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hot.dirty = append(p.hot.dirty, c.dirty...)
	c.giveBackPages()
}

// writeState writes the state row, publishes the runs built since the last
// checkpoint and drops obsolete ones, in one commit. All of it is of the state's
// sequence or an earlier one, for which run has waited (R1).
func (c *checkpoint) writeState() error {
	p := c.p
	b := c.s.db.NewChanges()
	flushed := c.deleteFlushed(b)
	b.PutState(p.id, c.state.encode())
	c.putHolds(b)
	if err := c.build.Publish(b); err != nil {
		c.s.commitFailed(err)
		return err
	}
	if err := c.commit(b); err != nil {
		return err
	}
	flushed()
	c.build.Committed()
	p.saving.state = c.state
	return nil
}

// putHolds writes the holds that have changed since the last checkpoint: the rows are exactly as of the
// state's sequence.
func (c *checkpoint) putHolds(b *persistence.Changes) {
	if c.holds.drop {
		b.DropHolds(c.p.id)
	}
	for _, h := range c.holds.gone {
		b.DeleteHold(c.p.id, h.name())
	}
	var row []byte
	for _, h := range c.holds.put {
		row = h.encode(row[:0])
		b.PutHold(c.p.id, h.name(), row)
	}
}

// forgetExpiries drops from memory the expiries that are in the index on disk
// now.
func (c *checkpoint) forgetExpiries() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.newExpiries = slices.DeleteFunc(c.p.newExpiries, func(e expiry) bool {
		return e.c.clean() || e.c.expire != e.at
	})
	c.p.newExpiries.init()
}

// commit commits changes of Pebble once all that they show is committed (R1).
func (c *checkpoint) commit(b *persistence.Changes) error {
	if err := (point{c.p, c.at.life, c.need}).waitToSave(); err != nil {
		return err
	}
	c.s.indexing.Lock()
	defer c.s.indexing.Unlock()
	c.p.commits.Add(1)
	return c.s.commit(b)
}

// commit commits changes of Pebble that show only what is committed (R1).
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
