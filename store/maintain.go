package store

import (
	"errors"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
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
	s.running.Go(s.keepTime)
	s.running.Go(s.cycle)
	s.running.Go(s.saveWhenDue)
	s.warmUpIfDue()
}

// keepTime looks at the clock. Nothing else may hold it up, as a slow disk holds up
// cycle: what nobody looks at for long is a gap, in which ids do not age.
func (s *Store) keepTime() {
	s.every(fbf.LookPeriod, func() { s.look() })
}

// every does something in every period, until the store closes.
func (s *Store) every(period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			do()
		}
	}
}

// cycle logs refreshes that are due, removes expired keys, prunes drained
// tables and watches the free disk space.
func (s *Store) cycle() {
	var checkedDisk time.Time
	var clockBehind bool
	var batch Batch
	s.every(cyclePeriod, func() {
		if time.Since(checkedDisk) >= diskPeriod {
			s.checkDisk()
			s.checkClock(&clockBehind)
			s.giveUpHeard()
			s.checkUnheard()
			s.dropFollowers()
			checkedDisk = time.Now()
		}
		load := s.backlog()
		s.behind.Store(load.brake)
		s.late.Store(load.late)
		if s.writable() != nil {
			return
		}
		for _, p := range s.partitions {
			s.refreshDue(p)
		}
		s.expireAllDue(&batch)
		for _, p := range s.partitions {
			s.expireHolds(p, &batch)
		}
		if s.member.Load() && s.Leads() {
			for _, p := range s.partitions {
				s.dropEnded(p, &batch)
			}
		}
		s.pruneTables()
	})
}

// checkDisk refuses writes while free space is short, before a batch or Pebble meets
// ENOSPC (G8). If the disk fills up between two looks, Reserve notices.
func (s *Store) checkDisk() {
	if err := s.db.CheckIdentity(); err != nil {
		s.db.Stop(err)
	}
	full := errors.Is(s.db.CheckSpace(), persistence.ErrNoSpace)
	free, err := s.db.DiskFree()
	short := full
	if err == nil && s.opts.MinFreeDisk > 0 { // not every file system can tell
		full = full || free < uint64(s.opts.MinFreeDisk)
		short = full || free/2 < uint64(s.opts.MinFreeDisk)
	}
	if short {
		s.releaseFollowed()
	}
	if s.diskFull.Swap(full) != full {
		s.log.Warn("free disk space", "bytes", free, "min_free_disk", s.opts.MinFreeDisk, "writes_refused",
			full)
	}
}

// reserveRoom reserves space in the log for all that the batch may write, or refuses
// what may write: nothing of it has been applied then (G8).
func (x *execution) reserveRoom() {
	var err error
	if x.room, err = x.s.reserve(x.room); err == nil {
		return
	}
	x.writes = false
	for i := range x.ops {
		if op := &x.ops[i]; op.Kind.Write() && op.Err == nil {
			op.Err = err
		}
	}
}

// reserve reserves space in the log for entries of so many bytes, and returns how much
// that is with their frames.
func (s *Store) reserve(bytes int64) (room int64, err error) {
	room = oplog.Framed(bytes)
	err = s.oplog.Reserve(room)
	if errors.Is(err, persistence.ErrNoSpace) {
		s.tellNoSpace(bytes, err)
		return 0, ErrDiskFull
	}
	if err != nil {
		s.freeze(err)
		return 0, s.Failure()
	}
	return room, nil
}

// tellNoSpace logs, once a second at most, that operations are refused because the disk has
// no space for their records.
func (s *Store) tellNoSpace(bytes int64, err error) {
	now := time.Now().Unix()
	if last := s.noSpace.Load(); last != now && s.noSpace.CompareAndSwap(last, now) {
		s.log.Warn("the disk has no space for the op log: writes are refused", "bytes", bytes, "error", err)
	}
}

// reserveMore reserves space for entries that could not be foreseen, while partitions are
// locked. It goes back like the rest. It waits for the disk only if many batches have used up
// the slack at once: that says nothing about the disk.
func (x *execution) reserveMore(bytes int) error {
	room := oplog.Framed(int64(bytes))
	var err error
	if !x.s.oplog.TryReserve(room) {
		room, err = x.s.reserve(int64(bytes))
	}
	x.room += room
	return err
}

// giveBack gives back space that reserveMore has reserved, and that no entry needs.
func (x *execution) giveBack(bytes int) {
	room := oplog.Framed(int64(bytes))
	x.s.oplog.Release(room, 0)
	x.room -= room
}

// giveBackRoom gives back what the batch has reserved, and its records have not taken.
func (x *execution) giveBackRoom() {
	x.s.oplog.Release(x.room, x.batch.TakeUsed())
	x.room = 0
}

// refreshDue logs what is due in the partition's filters and objects although no operation
// asks for it.
func (s *Store) refreshDue(p *partition) {
	if !p.lockNow() {
		return
	}
	due := p.anyDue(p.moment(s.look()).logged)
	p.noteUse()
	p.mu.Unlock()
	if !due {
		return
	}
	x := s.internal(p)
	if x.lock(); x.frozen != nil {
		x.unlock()
		return
	}
	for _, t := range p.tables {
		if t.filter.Due(x.at(&p.machine).logged) {
			_ = x.plan(&p.machine, t) // it stays due
		}
	}
	for _, c := range p.objects {
		_ = c.object().upkeep(&x.turn, &ref{key: []byte(c.key()), p: &p.machine, c: c})
	}
	x.finish()
}

func (p *machine) anyDue(logged int64) bool {
	for _, t := range p.tables {
		if t.filter.Due(logged) {
			return true
		}
	}
	for _, c := range p.objects {
		if c.object().due(logged) {
			return true
		}
	}
	return false
}

// internal begins a batch of the store's own on some partitions.
func (s *Store) internal(ps ...*partition) *execution {
	x := new(execution)
	x.begin(s, new(Batch))
	for _, p := range ps {
		x.touched = append(x.touched, touched{p: p})
	}
	x.assign()
	return x
}

// finish logs an internal batch and returns when it is committed.
func (x *execution) finish() error {
	x.apply()
	x.trim()
	x.unlock()
	x.giveBackRoom()
	x.wait()
	return x.err
}

// servedExpiry is an entry of the index of expiries whose key was removed, or was
// outdated.
type servedExpiry struct {
	p       *partition
	commits uint64 // of the partition's checkpoints before that
	at      int64
	k       persistence.RowKey
}

// expireAllDue removes keys whose time has come from all partitions.
func (s *Store) expireAllDue(b *Batch) {
	var served []servedExpiry
	for _, p := range s.partitions {
		served = s.expireDue(p, b, served)
	}
	if len(served) == 0 {
		return
	}
	drop := s.db.NewChanges()
	s.indexing.Lock()
	defer s.indexing.Unlock()
	// The tombstones are committed, for Execute has waited (R1). But what another
	// region did may have brought a key back with the expiry that it had; if its row
	// was written since, the entry is of that row. The next cycle looks again.
	for _, e := range served {
		if e.commits == e.p.commits.Load() {
			drop.DeleteExpiry(e.p.id, e.at, e.k)
		}
	}
	_ = s.commit(drop)
}

// expireDue removes a partition's keys whose time has come: first those that
// only memory knows, then those in the index on disk, whose entries it appends.
func (s *Store) expireDue(p *partition, b *Batch, served []servedExpiry) []servedExpiry {
	if p.frozen.Load() != nil || !p.lockNow() {
		return served
	}
	commits, before := p.commits.Load(), len(served)
	wall, _ := s.look()
	keys := p.newExpiries.due(wall, expiryBatch)
	p.mu.Unlock()
	b.Reset()
	op := b.Add(removeExpired)
	for _, k := range keys {
		op.Keys = append(op.Keys, []byte(k))
	}
	err := s.db.Expiries(p.id, wall, func(at int64, k persistence.RowKey) bool {
		k.Key = append([]byte(nil), k.Key...)
		op.Keys = append(op.Keys, k.Key)
		served = append(served, servedExpiry{p, commits, at, k})
		return len(op.Keys) < expiryBatch
	})
	if err != nil {
		s.log.Error("the expiry cycle failed", "error", err)
		return served[:before]
	}
	if len(op.Keys) == 0 {
		return served
	}
	began := s.eventBegins()
	s.Execute(b)
	s.eventEnds(EventExpiry, began)
	if op.Err != nil {
		return served[:before]
	}
	return served
}

// expireHolds ends a partition's holds whose time has come: none is open a second later.
func (s *Store) expireHolds(p *partition, b *Batch) {
	for range maxHoldBatches {
		if p.frozen.Load() != nil || !p.lockNow() {
			return
		}
		wall, _ := s.look()
		b.Reset()
		op := b.Add(endHolds)
		var ids []string
		room := maxEndBytes
		for _, h := range p.holds.expired(wall, endBatch) {
			if room -= len(h.of.key) + len(h.id); room < 0 && len(ids) > 0 {
				break
			}
			op.Keys, ids = append(op.Keys, []byte(h.of.key)), append(ids, h.id)
		}
		p.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		op.Object = ids
		if s.Execute(b); op.Err != nil {
			return
		}
	}
}

// maxHoldBatches bounds what one cycle does in one partition, endBatch how many holds each batch ends, and
// maxEndBytes how long their keys and opids are together: many holds may end at once.
const (
	maxHoldBatches = 64
	endBatch       = 1024
	maxEndBytes    = 128 << 10
)

// pruneTables forgets tables and links whose memory has drained, in each partition by its
// own logged time.
func (s *Store) pruneTables() {
	var drained []*partition
	for _, p := range s.partitions {
		if p.frozen.Load() != nil || !p.lockNow() {
			continue
		}
		if p.catalog.drained(p.moment(s.look()).logged) {
			drained = append(drained, p)
		}
		p.mu.Unlock()
	}
	if len(drained) == 0 {
		return
	}
	err := s.changeCatalog(drained, func(c *catalog, at moment) (*catalog, error) {
		return c.clone().prune(at.logged), nil
	})
	if err != nil {
		s.log.Error("pruning tables failed", "error", err)
	}
}
