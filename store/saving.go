package store

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// saver is the goroutine that brings to disk what is due, in passes. Partitions
// fill at the same pace, yet no more of them are worked off at a time than must
// be: what comes in while all of them are would pile up in memory, where it costs
// operations more than the work itself.
type saver struct {
	s     *Store
	began time.Time // the present SnapshotInterval
	saved int       // partitions checkpointed in it because of its length
	merge int       // the partition whose runs are looked at next
	lacks bool      // this round, or the last one, lacked space on the disk
	told  bool      // … as did the one before, which was told
}

// saveWhenDue checkpoints partitions, each of them every SnapshotInterval, and one
// whose log or records have grown too large at once, and merges runs.
func (s *Store) saveWhenDue() {
	w := saver{s: s, began: time.Now()}
	var tried time.Time
	s.every(cyclePeriod, func() {
		if s.Failure() != nil || w.lacks && time.Since(tried) < diskPeriod {
			return
		}
		tried = time.Now()
		w.round()
	})
}

// round saves and merges what is due.
func (w *saver) round() {
	w.told, w.lacks = w.lacks, false
	w.pass()
	w.mergeRuns()
}

// failed tells of an error in a partition, of a disk that stays full only once.
func (w *saver) failed(what string, p *partition, err error) {
	if lacksSpace(err) {
		told := w.told || w.lacks
		if w.lacks = true; told {
			return
		}
	}
	w.s.log.Error(what, "partition", p.id, "error", err)
}

// pass saves what is due. The partitions' periodic checkpoints are spread over the
// interval.
func (w *saver) pass() {
	s := w.s
	due, load := w.due(time.Now()), s.backlog()
	for i, p := range s.partitions {
		if s.stopping() {
			return
		}
		if err := s.saveIfDue(p, w.saved <= i && i < due, load); err != nil && !errors.Is(err, errPostponed) {
			w.failed("snapshot failed", p, err)
		}
		if err := s.settle(p); err != nil {
			w.failed("a partition that was adopted has no rows yet", p, err)
		}
		s.scanRowsIfDue(p)
	}
	s.warmUpIfDue()
	w.saved = max(w.saved, due)
	if w.saved == len(s.partitions) {
		w.began, w.saved = time.Now(), 0
		s.snapshots.last.Store(&lastSnapshot{at: w.began})
	}
}

// due is how many of the partitions' periodic checkpoints are due by now.
func (w *saver) due(now time.Time) int {
	interval := time.Duration(w.s.interval.Load())
	n := len(w.s.partitions)
	switch since := now.Sub(w.began); {
	case interval <= 0:
		w.began, w.saved = now, 0 // a round begins when it is set
		return 0
	case since >= interval:
		return n
	default:
		return int(int64(n) * int64(since/time.Microsecond) / int64(interval/time.Microsecond+1))
	}
}

// stopping reports whether the store is being closed.
func (s *Store) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// mergeRuns merges runs of partitions in turn, for about as long as a pass is to
// wait for the next one.
func (w *saver) mergeRuns() {
	s := w.s
	began := time.Now()
	for range s.partitions {
		p := s.partitions[w.merge%len(s.partitions)]
		w.merge++
		if s.stopping() {
			return
		}
		if !s.mergeDue(p) {
			continue
		}
		if err := s.mergeRuns(p); err != nil {
			w.failed("merging runs failed", p, err)
		}
		if time.Since(began) >= cyclePeriod {
			return
		}
	}
}

// mergeDue reports whether some of a partition's runs are to become one.
func (s *Store) mergeDue(p *partition) bool {
	p.lock()
	defer p.mu.Unlock()
	return p.seen.MergeDue(s.buildOptions(p, p.moment(s.look()).logged))
}

// backlog says from which size on a partition's share of the store's backlog must be
// worked off. The limits are shared: one busy partition may use what the others leave.
type backlog struct {
	log     uint64 // bytes of the log: it bounds the time of recovery
	records uint64 // bytes of records in memory
	urgent  bool   // records come in faster than they go
	brake   bool   // much faster: writes are to wait
	late    bool   // counters are made faster than their rows: writes must slow down
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
	logs, records := make([]uint64, len(s.partitions)), make([]uint64, len(s.partitions))
	var allLogs, allRecords uint64
	rows, due := 0, 0
	for i, p := range s.partitions {
		if !p.lockNow() {
			continue
		}
		logs[i], records[i] = p.logBytes, uint64(p.seen.Bytes())
		if due += p.maxDirty(); p.rowsDue() {
			rows += p.saving.rowsAhead + len(p.hot.dirty)
		}
		p.mu.Unlock()
		allLogs, allRecords = allLogs+logs[i], allRecords+records[i]
	}
	memory := uint64(s.opts.RecordMemory)
	return backlog{
		log:     largest(logs, allLogs, s.maxLog()/2),
		records: largest(records, allRecords, memory*3/4),
		urgent:  allRecords >= 2*memory,
		brake:   allRecords >= brakeAt*memory || allLogs >= brakeAt*s.maxLog(),
		late:    rows >= max(lateAt*maxRowsAhead, due+due/2),
	}
}

// largest returns how large the sizes must be that have to go for less than limit
// of their sum to remain. So partitions that fill at the same pace do not become
// due at the same time: each is twice as full as the mean when its turn comes.
func largest(sizes []uint64, sum, limit uint64) uint64 {
	slices.Sort(sizes)
	least := uint64(math.MaxUint64)
	for i := len(sizes) - 1; sum >= limit && i >= 0; i-- {
		least = sizes[i]
		sum -= least
	}
	return least
}

// saveIfDue checkpoints a partition or flushes its records, if it is time.
func (s *Store) saveIfDue(p *partition, all bool, load backlog) error {
	long, rows, records := s.overdue(p, load)
	switch {
	case all:
		return s.checkpoint(p, false)
	case long:
		return s.takeCheckpoint(checkpoint{s: s, p: p, urgent: load.urgent}, seen.Flush, false)
	case rows:
		return s.flushRows(p)
	case s.oplog.KeepsOldest(p.id, pinnedAt*s.maxLog()):
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
	if x.lock(); s.refusal(p) != nil {
		changed := p.seq != p.saving.checkpointSeq
		x.unlock()
		switch {
		case !errors.Is(x.frozen, ErrNotLeader):
			return x.frozen
		case changed:
			return s.checkpoint(p, false)
		}
		return nil // the leader will log something
	}
	if p.seq == p.saving.checkpointSeq {
		encoded := p.catalog.encode()
		if err := x.reserveMore(entryRoom + len(encoded)); err != nil {
			x.unlock()
			return err
		}
		x.log(&p.machine, &entry{kind: entryCatalog, id: encoded})
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

// rowsDue reports whether so many keys have changed that their rows must be written.
func (p *machine) rowsDue() bool { return len(p.hot.dirty) > p.maxDirty() }

// maxDirty is how many keys may have changed before their rows are due.
func (p *machine) maxDirty() int { return max(p.hot.limit/2, minWriteBack) }

// lateAt is how many times maxRowsAhead keys may have changed since the checkpoints of
// partitions whose rows are due before writes are slowed down: so many new ones a start
// redoes in a second or two. Where hot-counters lets more wait by itself, it is half as
// many again as that.
const lateAt = 3

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
	p.lock()
	defer p.mu.Unlock()
	n := len(s.partitions)
	checkpoint = p.logBytes >= load.log
	rows = p.rowsDue()
	checkpoint = checkpoint || rows && p.saving.rowsAhead+len(p.hot.dirty) > maxRowsAhead/n
	size := uint64(p.seen.Bytes())
	records = size >= load.records && (load.urgent || size >= p.seen.Figures().RunBytes/recordShare)
	return checkpoint, rows, records
}

// A batch that writes is delayed while rows are written too slowly: for each of its
// keys about as long as making a counter takes, so that half of the processors is left
// for the rows. Small batches are not: they make few counters, and no sleep is short.
const (
	lateBatch = 512 // keys
	lateDelay = 2 * time.Microsecond
	mostDelay = 20 * time.Millisecond
)

// holdBack delays a batch that writes while the background work is behind, or other regions are asked.
func (x *execution) holdBack() {
	if a := x.s.Asking(); a != nil && x.writes {
		x.blocks()
		select {
		case <-a.Done():
		case <-x.s.stop: // nobody can say any more that it may write: it gets ErrAsking
		}
	}
	if d := x.delay(); d > 0 {
		x.blocks()
		time.Sleep(d)
	}
	if x.writes && x.s.behind.Load() {
		x.blocks()
		x.s.brake()
	}
}

// delay returns how long the batch must wait.
func (x *execution) delay() time.Duration {
	if !x.writes || len(x.refs) < lateBatch || !x.s.late.Load() {
		return 0
	}
	return min(time.Duration(len(x.refs))*lateDelay, mostDelay)
}

// brake delays a batch that writes while the background work is far behind, so
// that memory stays bounded: by a second at most, for a slow disk must not look
// like a dead server.
func (s *Store) brake() {
	for range 100 {
		if !s.behind.Load() || s.Failure() != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// timeSlice is about how long work for a whole core goes on before it gives way between two
// pieces. So goroutines that serve clients do not wait for the end of a scheduler's time
// slice, which is twenty times as long. A shorter one would let unsaved data pile up: under
// full load these goroutines give way only after each round, of about a millisecond. Tests
// set it to zero.
var timeSlice = 500 * time.Microsecond

// giveWay lets other goroutines run. Tests count it.
var giveWay = runtime.Gosched

// pacer is the pace of work in pieces that take unlike times, for they wait for a lock.
// Its zero value is ready for use.
type pacer struct{ began time.Time }

// step is called between pieces of the work, without a lock.
func (p *pacer) step() {
	if time.Since(p.began) >= timeSlice {
		giveWay()
		p.began = time.Now()
	}
}

// giveWay is called between pieces of a checkpoint, without a lock. Nothing gives way
// while clients are delayed because saving is behind.
func (c *checkpoint) giveWay() {
	if !c.s.late.Load() && !c.s.behind.Load() {
		c.pace.step()
	}
}

// scanRows puts all of a partition's rows into a new filter. Rows that are
// captured after the scan began put themselves there (putRow), and those that
// were captured before can be seen by the scan: no write-back is under way when
// it begins.
func (s *Store) scanRows(p *partition) error {
	s.snapshots.mu.Lock()
	p.mu.Lock()
	p.rows = newRowFilter(p.count)
	p.rows.grow(int(p.size) + int(p.size)/4)
	f := p.rows
	p.mu.Unlock()
	s.snapshots.mu.Unlock()
	var piece []uint64
	flush := func() (more bool) {
		p.lock()
		defer p.mu.Unlock()
		for _, pos := range piece {
			f.add(pos)
		}
		piece = piece[:0]
		return p.rows == f && !f.tooBig // else FLUSHALL or a rebuild has made another one
	}
	stopped := false
	from, to := p.rowRange()
	err := s.db.Rows(from, to, func(k persistence.RowKey, _ []byte) bool {
		if piece = append(piece, k.Position()); len(piece) == scanPiece {
			select {
			case <-s.stop:
				stopped = true
			default:
				stopped = !flush()
			}
		}
		return !stopped
	})
	if err != nil || stopped {
		return err
	}
	if flush() {
		p.mu.Lock()
		f.whole = true
		p.mu.Unlock()
	}
	return nil
}

// scanRowsIfDue begins to fill a partition's filter of rows, if that pays and no
// other is being filled.
func (s *Store) scanRowsIfDue(p *partition) {
	p.lock()
	due := p.rows.scanDue(p.size)
	p.mu.Unlock()
	if !due || !s.scanning.CompareAndSwap(false, true) {
		return
	}
	s.running.Go(func() {
		defer s.scanning.Store(false)
		if err := s.scanRows(p); err != nil {
			s.log.Error("cannot build the filter of rows", "partition", p.id, "error", err)
		}
	})
}

// beginRowFilter makes the filter of a partition that was recovered: if it has no
// rows, or none that counts because of a FLUSHALL, an empty one is whole.
func (r *recovery) beginRowFilter() error {
	f := newRowFilter(r.p.count)
	f.whole = true
	r.p.rows = f
	if r.p.flushDue {
		return nil
	}
	from, to := r.p.rowRange()
	err := r.s.db.Rows(from, to, func(persistence.RowKey, []byte) bool {
		f.whole = false
		return false
	})
	return err
}

const (
	// pagesPiece is how many pages are copied under one acquisition of the partition's
	// lock.
	pagesPiece = 4
	// pagesCommit is how many are written with one commit.
	pagesCommit = 256
)

// pagesWritten is what one commit writes.
type pagesWritten struct {
	upTo        point // of the last entry that may be in it
	pages       []dirtyPages
	deadObjects []uint64
}

// errSpoiled ends a checkpoint whose snapshot has an object that has become unreadable since: its
// pages are not written any more, and the change that was refused may have changed some. A later
// version, which could redo that change, would take them for whole.
var errSpoiled = errors.New("a key has become unreadable while it was saved")

// writePages writes the pages that were dirty when the checkpoint began, and deletes those
// of objects that are gone. A page may be newer than the checkpoint: it carries its own
// sequence. Nothing is written before it is committed (R1, G4).
func (c *checkpoint) writePages() error {
	b := c.s.db.NewChanges()
	for {
		w := c.capturePages(b)
		if c.spoiled {
			c.p.pagesFailed(&w)
			return errSpoiled
		}
		if b.Empty() {
			return nil
		}
		err := w.upTo.wait()
		if err == nil {
			err = c.s.commit(b)
		}
		if err != nil {
			c.p.pagesFailed(&w)
			return err
		}
	}
}

// capturePages puts the next dirty pages into a commit, as they are now.
func (c *checkpoint) capturePages(b *persistence.Changes) (w pagesWritten) {
	p := c.p
	for n := 0; n < pagesCommit; n += pagesPiece {
		p.mu.Lock()
		for _, object := range p.deadObjects {
			b.DropPages(p.id, object, object)
		}
		w.deadObjects, p.deadObjects = append(w.deadObjects, p.deadObjects...), nil
		for range pagesPiece {
			c.capturePage(b, &w)
		}
		w.upTo = p.here()
		p.mu.Unlock()
		if len(c.pages) == 0 {
			break
		}
		c.giveWay()
	}
	return w
}

// capturePage puts the next dirty page into a commit, unless its object is gone. The
// partition is locked.
func (c *checkpoint) capturePage(b *persistence.Changes, w *pagesWritten) {
	for len(c.pages) > 0 {
		d := &c.pages[0]
		if len(d.list) == 0 || !d.isAt() {
			u, is := d.c.object().(*unreadable)
			c.spoiled = c.spoiled || is && len(d.list) > 0 && u.created == d.o.created
			c.pages = c.pages[1:]
			continue
		}
		n := d.list[0]
		d.list = d.list[1:]
		seq, content := sketch.TakePage(d.o.Sketch, n)
		b.PutPage(c.p.id, persistence.Page{Object: d.o.created, Number: n, Seq: seq, Content: content})
		if last := len(w.pages) - 1; last < 0 || w.pages[last].o != d.o {
			w.pages = append(w.pages, dirtyPages{c: d.c, o: d.o})
		}
		at := &w.pages[len(w.pages)-1]
		at.list = append(at.list, n)
		return
	}
}

// pagesFailed makes what a failed commit was to write dirty again.
func (p *partition) pagesFailed(w *pagesWritten) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadObjects = append(w.deadObjects, p.deadObjects...)
	for _, d := range w.pages {
		d.o.Memory().NotWritten(d.list)
	}
}

// giveBackPages lets the next checkpoint write the pages that this one did not. The
// partition is locked.
func (c *checkpoint) giveBackPages() {
	for _, d := range c.pages {
		d.o.Memory().GiveBack(d.list)
	}
	c.pages = nil
}
