package store

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// snapshotter takes checkpoints, one at a time.
type snapshotter struct {
	mu     sync.Mutex
	saving atomic.Bool // SAVE or BGSAVE is in progress
	last   atomic.Pointer[lastSnapshot]
}

type lastSnapshot struct {
	at   time.Time
	took time.Duration
	err  error
}

// Snapshot checkpoints every partition now, as SAVE does, and returns when
// all is on disk. ErrSnapshotRunning if one is in progress.
func (s *Store) Snapshot() error {
	if !s.snapshots.saving.CompareAndSwap(false, true) {
		return ErrSnapshotRunning
	}
	defer s.snapshots.saving.Store(false)
	return s.snapshotAll()
}

// BackgroundSnapshot starts what Snapshot does and returns at once, as BGSAVE
// does. LastSnapshot tells the outcome.
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
	s.snapshots.last.Store(&lastSnapshot{at: time.Now(), took: time.Since(began), err: err})
	return err
}

// LastSnapshot returns when all partitions were last checkpointed together,
// how long it took and how it ended.
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
//	write back  the dirty counters become rows
//	state       the state row, in one commit with the runs that go
//	snapshot    the filters, in chunks
//	trim        the log up to the oldest of all that recovery could need
//
// It does nothing if nothing changed since the last one, unless forced.
func (s *Store) checkpoint(p *partition, force bool) error {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	return s.takeCheckpoint(p, force)
}

func (s *Store) takeCheckpoint(p *partition, force bool) error {
	c := &checkpoint{s: s, p: p}
	if !c.capture(force) {
		return nil
	}
	err := c.run()
	p.endSnapshot()
	return err
}

// flushRecords does the part of a checkpoint that takes EXACT records out of
// memory: they come in faster than anything else grows.
func (s *Store) flushRecords(p *partition) error {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	if p.state.catalog == nil {
		return s.takeCheckpoint(p, true) // the first one: there is no state row to amend
	}
	c := &checkpoint{s: s, p: p, state: p.state}
	p.mu.Lock()
	c.state.records, c.now = p.seq, s.clock.now().logged
	c.sealed = p.recent.seal()
	p.mu.Unlock()
	err := p.waitDurable(c.state.records)
	if err == nil {
		err = c.buildRuns()
	}
	if err == nil {
		err = c.writeState()
	}
	if err != nil {
		c.giveBack()
	}
	return err
}

// checkpoint is one checkpoint of one partition.
type checkpoint struct {
	s        *Store
	p        *partition
	state    partitionState
	now      int64 // logged time: runs expire by it
	dirty    []*counter
	sealed   []*recentSegment
	snapshot *snapshot
	obsolete []persistence.Run
}

// capture takes what must be exactly as of one sequence.
func (c *checkpoint) capture(force bool) bool {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seq == p.checkpointSeq && !force && len(p.deadRuns) == 0 {
		return false
	}
	p.checkpointSeq, p.logBytes = p.seq, 0
	c.now = c.s.clock.now().logged
	c.state = partitionState{seq: p.seq, records: p.seq, at: p.at, size: p.size, filters: uint64(len(p.filters)), catalog: p.catalog, horizons: p.horizons()}
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
		err = c.writeSnapshot()
	}
	if err == nil {
		return c.trim()
	}
	c.giveBack()
	return err
}

// giveBack lets the next checkpoint do what this one did not.
func (c *checkpoint) giveBack() {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hot.dirty = append(p.hot.dirty, c.dirty...)
	p.deadRuns = append(p.deadRuns, c.obsolete...)
	p.checkpointSeq = 0
}

// writeBackChunk is the number of rows written under one acquisition of the
// partition's lock.
const writeBackChunk = 128

// writeBack writes the dirty counters to their rows. A row may be newer than
// the checkpoint's sequence: it carries its own, and redo goes on past it.
func (c *checkpoint) writeBack() error {
	b := c.s.db.NewBatch()
	var value []byte
	for len(c.dirty) > 0 {
		n := min(len(c.dirty), writeBackChunk)
		c.p.mu.Lock()
		for _, k := range c.dirty[:n] {
			value = c.p.writeRow(b, k, value)
		}
		// Applied under the lock, so that no later FLUSHALL or write-back of
		// the same key can come before it.
		err := b.Apply()
		c.p.mu.Unlock()
		if err == nil {
			err = b.Wait()
		}
		if err != nil {
			c.s.freeze(err)
			return err
		}
		c.dirty = c.dirty[n:]
	}
	return nil
}

// writeRow puts the row of a key into a batch.
func (p *partition) writeRow(b *persistence.Batch, k *counter, value []byte) []byte {
	k.listed = false
	if p.hot.byKey[k.key] != k {
		return value // forgotten by FLUSHALL
	}
	if k.kind != TypeCounter {
		b.DeleteRow(k.rowKey())
		k.inRow = false
	} else {
		value = k.appendRow(value[:0])
		b.PutRow(k.rowKey(), value)
		if k.expire != 0 {
			b.PutExpiry(p.id, k.expire, k.rowKey())
		}
		k.inRow = true
	}
	k.saved = k.seq
	p.hot.track(k)
	return value
}

// writeState writes the state row and drops obsolete runs in one commit.
func (c *checkpoint) writeState() error {
	b := c.s.db.NewBatch()
	b.PutState(c.p.id, c.state.encode())
	for _, r := range c.obsolete {
		b.DropRun(r.Partition, r.Table, r.ID)
	}
	if err := commit(b); err != nil {
		c.s.freeze(err)
		return err
	}
	c.obsolete, c.p.state = nil, c.state
	return nil
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

func commit(b *persistence.Batch) error {
	if err := b.Apply(); err != nil {
		return err
	}
	return b.Wait()
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
	b := c.s.db.NewBatch()
	b.TrimLog(c.p.id, keep+1)
	persistence.KillPoint("before-trim")
	if err = b.Apply(); err == nil {
		persistence.KillPoint("trim")
		err = b.Wait()
	}
	if err != nil {
		c.s.freeze(err)
	}
	return err
}

// buildRuns turns the sealed records into sorted runs on disk, one for each
// table, and drops runs whose records have expired. The records leave memory
// once their run is durable and visible.
func (c *checkpoint) buildRuns() error {
	byTable := make(map[uint32][]record)
	for _, seg := range c.sealed {
		seg.each(func(r record) { byTable[r.table] = append(byTable[r.table], r) })
	}
	for _, id := range c.tables() {
		if err := c.buildRun(id, byTable[id]); err != nil {
			return err
		}
	}
	c.p.mu.Lock()
	c.p.recent.release(len(c.sealed))
	for id, records := range byTable {
		if t := c.p.tables[id]; t != nil {
			t.recent -= len(records)
		}
	}
	c.p.runsVersion++
	c.p.mu.Unlock()
	c.sealed = nil
	return nil
}

// tables lists the partition's tables: each may have runs to drop.
func (c *checkpoint) tables() (ids []uint32) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for id := range c.p.tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// buildRun writes the new records of one table, now and then merged with the
// youngest runs.
func (c *checkpoint) buildRun(table uint32, records []record) error {
	p := c.p
	p.mu.Lock()
	t := p.tables[table]
	var runs []persistence.Run
	var keep int64
	if t != nil {
		runs = slices.Clone(t.runs)
		keep = t.def.keep(c.now)
	}
	id := p.nextRun
	p.nextRun++
	p.mu.Unlock()
	if t == nil {
		return nil
	}
	live := slices.DeleteFunc(slices.Clone(runs), func(r persistence.Run) bool {
		return r.LastTime+keep < c.now
	})
	merge := len(live)
	if len(records) > 0 {
		merge = mergeFrom(live, records, keep)
		run, err := c.writeRun(id, table, live[merge:], records)
		if err != nil {
			return err
		}
		live = append(live[:merge:merge], run)
	}
	for _, r := range runs {
		if !slices.Contains(live, r) {
			c.obsolete = append(c.obsolete, r)
		}
	}
	p.mu.Lock()
	t.runs = live
	p.runsVersion++
	p.mu.Unlock()
	return nil
}

// mergeFan is how many runs of about one size become one: their number stays
// logarithmic while each record is rewritten seldom.
const mergeFan = 8

// mergeFrom returns the index from which runs are merged with new records:
// whenever mergeFan-1 runs of their size class or below have gathered, as long
// as the merged run spans no more than an eighth of the remembering time, so
// that runs expire in pieces.
func mergeFrom(runs []persistence.Run, records []record, keep int64) int {
	n, first, last := uint64(len(records)), records[0].logged, records[len(records)-1].logged
	from := len(runs)
	for {
		i, sum := from, n
		for i > 0 && sizeClass(runs[i-1].Count) <= sizeClass(n) && last-min(first, runs[i-1].FirstTime) <= keep/8 {
			i--
			sum += runs[i].Count
			first = min(first, runs[i].FirstTime)
		}
		if from-i < mergeFan-1 {
			return from
		}
		from, n = i, sum
	}
}

// sizeClass is the logarithm of a run's size to the base mergeFan.
func sizeClass(records uint64) int { return bits.Len64(records) / 3 }

// writeRun writes one run of the records and of the runs merged into it.
func (c *checkpoint) writeRun(id uint64, table uint32, merged []persistence.Run, records []record) (persistence.Run, error) {
	first, last := records[0], records[len(records)-1]
	run := persistence.Run{
		Partition: c.p.id, Table: table, ID: id,
		FirstSeq: first.seq, LastSeq: last.seq, FirstTime: first.logged, LastTime: last.logged,
	}
	entries := make([]runEntry, 0, len(records))
	var values []byte // of all entries: one allocation grows instead of many
	hold := func(hash, seq uint64, from int) {
		entries = append(entries, runEntry{hash: hash, seq: seq, value: values[from:len(values):len(values)]})
	}
	for i := range records {
		r, from := &records[i], len(values)
		values = r.appendTo(values)
		hold(r.hash, r.seq, from)
	}
	for _, m := range merged {
		run.FirstSeq, run.FirstTime = min(run.FirstSeq, m.FirstSeq), min(run.FirstTime, m.FirstTime)
		err := c.s.db.ScanRun(m, func(hash, seq uint64, value []byte) error {
			from := len(values)
			values = append(values, value...)
			hold(hash, seq, from)
			return nil
		})
		if err != nil {
			return run, err
		}
	}
	slices.SortFunc(entries, func(a, b runEntry) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.seq, b.seq))
	})
	w, err := c.s.db.NewRun(run)
	if err != nil {
		return run, err
	}
	defer w.Abort()
	for i := range entries {
		if i > 0 && entries[i].hash == entries[i-1].hash && entries[i].seq == entries[i-1].seq {
			continue // redone into memory although its run was on disk already
		}
		if err := w.Add(entries[i].hash, entries[i].seq, entries[i].value); err != nil {
			return run, err
		}
	}
	return w.Commit(run)
}

type runEntry struct {
	hash, seq uint64
	value     []byte
}
