package store

import (
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// Periods of the background work.
const (
	// cyclePeriod is how often due refreshes and expiries are looked for, as
	// Redis' hz 10 does.
	cyclePeriod = 100 * time.Millisecond
	// expiryBatch bounds the keys that one cycle expires in one partition.
	expiryBatch = 64
	diskPeriod  = time.Second
)

// start begins the background work.
func (s *Store) start() {
	s.running.Go(s.cycle)
	s.running.Go(s.saveWhenDue)
}

// cycle logs refreshes that are due, removes expired keys, prunes drained
// tables and watches the free disk space.
func (s *Store) cycle() {
	tick := time.NewTicker(cyclePeriod)
	defer tick.Stop()
	var checkedDisk time.Time
	var batch Batch
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if time.Since(checkedDisk) >= diskPeriod {
			s.checkDisk()
			checkedDisk = time.Now()
		}
		s.behind.Store(s.backlog().brake)
		if s.writable() != nil {
			continue
		}
		for _, p := range s.partitions {
			s.refreshDue(p)
		}
		s.expireAllDue(&batch)
		s.pruneTables()
	}
}

// checkDisk refuses writes while free space is short, before Pebble meets
// ENOSPC (G8).
func (s *Store) checkDisk() {
	if s.opts.MinFreeDisk < 0 {
		return
	}
	free, _, err := s.db.DiskUsage()
	if err != nil {
		return // not every file system can tell
	}
	full := free < uint64(s.opts.MinFreeDisk)
	if s.diskFull.Swap(full) != full {
		s.log.Warn("free disk space", "bytes", free, "min-free-disk", s.opts.MinFreeDisk, "writes refused", full)
	}
}

// refreshDue logs what is due in the partition's filters although no operation
// asks for it.
func (s *Store) refreshDue(p *partition) {
	now := s.clock.now().logged
	p.mu.Lock()
	due := p.anyDue(now)
	p.mu.Unlock()
	if !due {
		return
	}
	x := s.internal(p)
	x.lock()
	for _, t := range p.tables {
		if t.filter.Due(x.at.logged) {
			x.plan(p, t)
		}
	}
	for _, c := range p.filters {
		x.refreshDue(&ref{key: []byte(c.key()), p: p, c: c})
	}
	x.finish()
}

func (p *partition) anyDue(logged int64) bool {
	for _, t := range p.tables {
		if t.filter.Due(logged) {
			return true
		}
	}
	for _, c := range p.filters {
		if c.filter().due(logged) {
			return true
		}
	}
	return false
}

// internal begins an execution of the store's own on some partitions.
func (s *Store) internal(ps ...*partition) *decider {
	x := new(execution)
	x.begin(s, nil)
	for _, p := range ps {
		x.touched = append(x.touched, touched{p: p})
	}
	x.assign()
	return x.crew.deciders[0]
}

// finish commits an internal execution and returns when it is durable.
func (x *decider) finish() error {
	x.apply()
	x.trim()
	x.unlock()
	x.wait()
	return x.err
}

// expireAllDue removes keys whose time has come from all partitions.
func (s *Store) expireAllDue(b *Batch) {
	drop := s.db.NewBatch()
	for _, p := range s.partitions {
		s.expireDue(p, b, drop)
	}
	if drop.Empty() {
		return
	}
	// The tombstones are durable first: the entries have served. Those of keys
	// whose expiry was changed were outdated.
	if err := commit(drop); err != nil {
		s.freeze(err)
	}
}

// expireDue removes a partition's keys whose time has come: first those that
// only memory knows, then those in the index on disk, whose entries are then to
// be dropped.
func (s *Store) expireDue(p *partition, b *Batch, drop *persistence.Batch) {
	wall := s.clock.now().wall
	p.mu.Lock()
	keys := p.fresh.due(wall, expiryBatch)
	p.mu.Unlock()
	b.Reset()
	op := b.Add(removeExpired)
	for _, k := range keys {
		op.Keys = append(op.Keys, []byte(k))
	}
	type entry struct {
		at int64
		k  persistence.RowKey
	}
	var entries []entry
	err := s.db.Expiries(p.id, wall, func(at int64, k persistence.RowKey) bool {
		k.Key = append([]byte(nil), k.Key...)
		op.Keys = append(op.Keys, k.Key)
		entries = append(entries, entry{at, k})
		return len(op.Keys) < expiryBatch
	})
	if err != nil {
		s.log.Error("expiry cycle", "error", err)
		return
	}
	if len(op.Keys) == 0 {
		return
	}
	began := s.eventBegins()
	s.Execute(b)
	s.eventEnds(EventExpiry, began)
	if op.Err != nil {
		return
	}
	for _, e := range entries {
		drop.DeleteExpiry(p.id, e.at, e.k)
	}
}

// pruneTables forgets tables and links whose memory has drained.
func (s *Store) pruneTables() {
	p := s.partitions[0]
	p.mu.Lock()
	drained := p.catalog.drained(s.clock.now().logged)
	p.mu.Unlock()
	if !drained {
		return
	}
	err := s.changeCatalog(func(c *catalog, at moment) (*catalog, error) { return c.clone().prune(at.logged), nil })
	if err != nil {
		s.log.Error("pruning tables", "error", err)
	}
}

// saveWhenDue checkpoints partitions: all of them every SnapshotInterval, and
// one whose log or records have grown too large at once.
func (s *Store) saveWhenDue() {
	tick := time.NewTicker(cyclePeriod)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if s.Failure() != nil {
			return
		}
		interval := time.Duration(s.interval.Load())
		all := interval > 0 && time.Since(last) >= interval
		load := s.backlog()
		for _, p := range s.partitions {
			if err := s.saveIfDue(p, all, load); err != nil {
				s.log.Error("snapshot failed", "partition", p.id, "error", err)
			}
			s.scanRowsIfDue(p)
		}
		if all {
			last = time.Now()
			s.snapshots.last.Store(&lastSnapshot{at: last})
		}
	}
}

// backlog says which of the partitions' backlogs have grown so large together
// that those with more than their share must be worked off. Together: one busy
// partition may use what the others leave.
type backlog struct {
	log     bool // the log: it bounds the time of recovery
	records bool // records in memory
	urgent  bool // which come in faster than they go
	brake   bool // much faster: writes are to wait
}

// brakeAt is how many times what they may take records or log may grow to
// before writes are delayed.
const brakeAt = 8

// maxLog is how long the log may grow before it is worked off: what is written
// then, the filters, should not be much more than what went into the log.
func (s *Store) maxLog() uint64 {
	limit := s.opts.MaxLogBytes
	return uint64(limit + min(s.pool.used.Load(), 2*limit))
}

// backlog adds up what the partitions have to work off.
func (s *Store) backlog() backlog {
	var log uint64
	var records int
	for _, p := range s.partitions {
		p.mu.Lock()
		log += p.logBytes
		records += p.recent.bytes()
		p.mu.Unlock()
	}
	return backlog{
		log:     log >= s.maxLog()*3/4,
		records: int64(records) >= s.opts.RecordMemory*3/4,
		urgent:  int64(records) >= 2*s.opts.RecordMemory,
		brake:   int64(records) >= brakeAt*s.opts.RecordMemory || log >= brakeAt*s.maxLog(),
	}
}

// saveIfDue checkpoints a partition or flushes its records, if it is time.
func (s *Store) saveIfDue(p *partition, all bool, load backlog) error {
	long, rows, records := s.overdue(p, load)
	switch {
	case all:
		return s.checkpoint(p, false)
	case long:
		return s.takeCheckpoint(checkpoint{s: s, p: p, urgent: load.urgent}, false)
	case rows:
		return s.flushRows(p)
	case s.db.PinsLog(p.id, pinnedAt*s.maxLog()):
		return s.unpin(p)
	case records:
		return s.flushRecords(p, load.urgent)
	}
	return nil
}

// pinnedAt is how many times maxLog the log may take on disk, of which the
// half or so is kept for the older snapshots, before partitions are asked to let
// go of its oldest file.
const pinnedAt = 3

// unpin checkpoints a partition that has been too quiet for its own good: the
// log is kept from its older snapshot on, and a file of the log is kept whole,
// so that its few records there keep all the files behind. One of which nothing
// has changed gets an entry that says nothing new: a snapshot is named after its
// sequence.
func (s *Store) unpin(p *partition) error {
	x := s.internal(p)
	x.lock()
	if p.seq == p.checkpointSeq {
		x.log(p, &entry{kind: entryCatalog, id: p.catalog.encode()})
	}
	if err := x.finish(); err != nil {
		return err
	}
	return s.checkpoint(p, true)
}

// minWriteBack is how many keys of a partition may have changed before their rows
// are written out of turn, whatever the limit of keys in memory: each write-back
// costs an fsync or two.
const minWriteBack = 4096

// maxRowsAhead is how many rows of all partitions may be written out of turn
// before a checkpoint follows. Until then a start redoes the log of all of them,
// and to make a counter takes longer there than to change one.
const maxRowsAhead = 256 << 10

// 1/recordShare of a partition's records are in memory, at least: with fewer a run
// would span so little time that the records in it were written a third time until
// it spans as much as a run may.
const recordShare = 128

// overdue reports whether a partition should be checkpointed before its time,
// because of its share of the log; whether too many of its keys have changed, so
// that none of them can leave memory; and whether its records in memory should go
// to disk.
func (s *Store) overdue(p *partition, load backlog) (checkpoint, rows, records bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(s.partitions)
	checkpoint = load.log && p.logBytes >= s.maxLog()/uint64(n)
	rows = len(p.hot.dirty) > max(p.hot.limit/2, minWriteBack)
	checkpoint = checkpoint || rows && p.rowsAhead+len(p.hot.dirty) > maxRowsAhead/n
	var onDisk uint64
	for _, t := range p.tables {
		onDisk += t.runBytes()
	}
	records = load.records && p.recent.bytes() >= max(int(s.opts.RecordMemory)/n, int(onDisk/recordShare))
	return checkpoint, rows, records
}

func (t *tableState) runBytes() (n uint64) {
	for _, r := range t.runs {
		n += r.Bytes
	}
	return n
}
