package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// Recovery says what Open found and did.
type Recovery struct {
	Took      time.Duration
	Keys      int64  // DBSIZE after recovery
	Records   uint64 // sections of the op log redone
	Entries   uint64 // outcomes in them
	Snapshots int    // partitions that began with a filter snapshot
	Older     int    // of these, partitions that had to use the older one
	Rebuilt   int    // partitions whose filters were rebuilt from records
	Problems  []string
}

// ErrForgotten means that a partition's filter snapshots are all damaged and
// that APPROX tables or objects would lose what they remember.
var ErrForgotten = errors.New("the memory of operations is lost")

// ErrLogDamaged means that the op log has a gap, or ends before what was built from it.
var ErrLogDamaged = errors.New("op log is damaged")

// recover brings every partition to where the log ends.
func (s *Store) recover() error {
	var (
		mu     sync.Mutex
		errs   []error
		next   atomic.Int64
		worker sync.WaitGroup
	)
	for range min(4, len(s.partitions)) {
		worker.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(s.partitions) {
					return
				}
				rec := recovery{s: s, p: s.partitions[i]}
				err := rec.run()
				mu.Lock()
				s.recovery.merge(rec.found)
				if err != nil {
					errs = append(errs, fmt.Errorf("partition %d: %w", i, err))
				}
				mu.Unlock()
			}
		})
	}
	worker.Wait()
	if len(errs) > 0 {
		err := errs[0]
		if errors.Is(err, persistence.ErrCorrupt) || errors.Is(err, ErrLogDamaged) {
			err = fmt.Errorf("%w; restore a backup, or keep the directory for examination", err)
		}
		return err
	}
	return s.afterRecovery()
}

// afterRecovery continues logged time, gives a new directory its tables, saves filters
// that had to be rebuilt, and lets sequences jump in a copy of another directory.
func (s *Store) afterRecovery() error {
	wall, _ := s.opts.Clock()
	logged, fresh := int64(0), true
	for _, p := range s.partitions {
		logged = max(logged, p.at.logged)
		fresh = fresh && p.seq == 0
	}
	if fresh {
		logged = wall
	}
	s.clock.startAt(logged + 1)
	if fresh {
		err := s.changeCatalog(func(_ *catalog, _ moment) (*catalog, error) { return newCatalog(), nil })
		if err != nil {
			return err
		}
	}
	var jumps []*partition
	var drop []unfinished
	for _, p := range s.partitions {
		if fresh {
			p.saving.savedSeq = int64(p.seq) // nobody has asked for its tables
		}
		if p.catalog == nil {
			return fmt.Errorf("partition %d: %w: it has no tables", p.id, ErrLogDamaged)
		}
		s.recovery.Keys += p.size
		if p.incarnation != s.db.Meta().Incarnation {
			jumps = append(jumps, p)
		}
		if p.pieces.number != 0 {
			drop = append(drop, unfinished{p, p.pieces.number})
			p.pieces = pieces{}
		}
		if p.marks.rebuilt {
			p.marks.rebuilt = false
			if err := s.saveRebuilt(p); err != nil {
				return err
			}
		}
	}
	if err := s.jump(jumps); err != nil {
		return err
	}
	return s.dropPieces(drop)
}

// saveRebuilt makes the rebuilt filters durable before the damaged snapshots go
// out of the way.
func (s *Store) saveRebuilt(p *partition) error {
	if err := s.checkpoint(p, true); err != nil {
		return err
	}
	for _, snap := range p.saving.damaged {
		if snap.Seq == p.saving.state.seq {
			continue // replaced by the new one, which has its name
		}
		if err := s.db.SetAside(snap); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	p.saving.damaged = nil
	return nil
}

func (r *Recovery) merge(o Recovery) {
	r.Records += o.Records
	r.Entries += o.Entries
	r.Snapshots += o.Snapshots
	r.Older += o.Older
	r.Rebuilt += o.Rebuilt
	r.Problems = append(r.Problems, o.Problems...)
}

// recovery recovers one partition: the state row of the newest checkpoint, the
// newest valid filter snapshot, the runs, and then the op log from the oldest
// of the three on.
type recovery struct {
	s     *Store
	p     *partition
	state partitionState
	found Recovery
}

func (r *recovery) run() error {
	if err := r.loadState(); err != nil {
		return err
	}
	if err := r.loadSnapshot(); err != nil {
		return err
	}
	if err := r.p.loadPages(r.s.db); err != nil {
		return err
	}
	if err := r.p.seen.Load(); err != nil {
		return err
	}
	if r.p.marks.rebuilt {
		if err := r.p.seen.Scan(r.p.hasTable, r.p.reinsert); err != nil {
			return err
		}
	}
	if err := r.redoLog(); err != nil {
		return err
	}
	p := r.p
	if key, yes := p.missesPages(); yes {
		return fmt.Errorf("%w: the pages of key %q are missing", persistence.ErrCorrupt, key)
	}
	rebuilt := p.marks.rebuilt
	p.marks = marks{rebuilt: rebuilt}
	if rebuilt {
		if err := r.recount(); err != nil {
			return err
		}
	}
	p.committed.advance(p.seq)
	for _, t := range p.tables {
		if t.filter == nil {
			return fmt.Errorf("%w: table %q has no filter", ErrLogDamaged, t.def.Name)
		}
	}
	return r.beginRowFilter()
}

func (r *recovery) loadState() error {
	b, ok, err := r.s.db.State(r.p.id)
	if err != nil || !ok {
		return err
	}
	if r.state, err = decodeState(b); err != nil {
		return err
	}
	p := r.p
	p.size, p.at = r.state.size, r.state.at
	p.seq, p.floor, p.incarnation = r.state.seq, r.state.floor, r.state.incarnation
	p.marks.counters, p.marks.records = r.state.seq, r.state.records
	p.saving.state, p.saving.savedSeq = r.state, int64(r.state.seq)
	return nil
}

// loadSnapshot loads the newest snapshot that is whole. A damaged one is
// reported and the older one used; if none is left the filters are rebuilt
// from records, which only EXACT tables have.
func (r *recovery) loadSnapshot() error {
	list, err := r.s.db.Snapshots(r.p.id)
	if err != nil {
		return err
	}
	for i, snap := range list {
		err := r.open(snap)
		if err == nil {
			r.found.Snapshots++
			if i > 0 {
				r.found.Older++
			}
			// A damaged one must not be kept in the place of this one.
			return r.setAside(list[:i])
		}
		r.problem(fmt.Sprintf("filter snapshot %s cannot be used: %v", snap.Path, err))
	}
	first, _, ok := r.s.oplog.Bounds(r.p.id)
	if r.state.seq == 0 || ok && first == 1 {
		return nil // the log reaches back to the beginning
	}
	return r.lostFilters(list)
}

func (r *recovery) setAside(damaged []persistence.Snapshot) error {
	for _, snap := range damaged {
		if err := r.s.db.SetAside(snap); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) open(snap persistence.Snapshot) error {
	in, err := r.s.db.OpenSnapshot(snap)
	if err != nil {
		return err
	}
	defer in.Close()
	return r.p.loadSnapshot(in, math.MaxInt64)
}

// lostFilters decides what happens when no snapshot is left.
func (r *recovery) lostFilters(damaged []persistence.Snapshot) error {
	p := r.p
	p.marks.rebuilt, p.marks.filters, p.marks.catalog = true, 0, r.state.seq
	r.found.Rebuilt++
	lost := r.state.objects > 0
	for _, d := range r.state.catalog.Tables {
		lost = lost || d.Mode == Approx
	}
	if lost && !r.s.opts.AcceptForgottenWindow {
		return fmt.Errorf("%w: every filter snapshot of the partition is missing or damaged, and it has APPROX tables or keys that are no counters, "+
			"which only snapshots remember; restore a backup, or start with --accept-forgotten-window to go on without", ErrForgotten)
	}
	// Their logged time begins at zero: what is inserted now is older than the
	// state, and a generation must cover the times of its records (judge.go).
	if err := p.setCatalog(r.state.catalog, moment{}); err != nil {
		return err
	}
	p.saving.damaged = damaged
	wall, _ := r.s.opts.Clock()
	for id, t := range p.tables {
		t.horizon = r.state.horizons[id]
		if t.def.Mode == Approx {
			// Operations made before now may have been applied and forgotten (G7).
			t.horizon.forget(wall + t.def.Skew.Milliseconds() + 1)
		}
	}
	r.problem("the table filters are rebuilt from the EXACT records")
	return nil
}

// recount counts the keys of a partition that has lost objects: the logged
// count includes them.
func (r *recovery) recount() error {
	first, _ := slotRange(int(r.p.id), r.p.count)
	keys, _, err := r.s.collect(r.p, uint64(first)<<48, math.MaxInt)
	if err != nil {
		return err
	}
	r.p.size = 0
	for _, k := range keys {
		if c := r.p.hot.peek(k.key); c == nil || c.kind != TypeNone {
			r.p.size++
		}
	}
	return nil
}

func (r *recovery) problem(text string) {
	text = fmt.Sprintf("partition %d: %s", r.p.id, text)
	r.found.Problems = append(r.found.Problems, text)
	r.s.log.Warn("recovery", "problem", text)
}

// hasTable reports whether the partition has a table.
func (p *partition) hasTable(id uint32) bool { return p.tables[id] != nil }

// reinsert puts an id into a table's filter that is being rebuilt. What the filter does
// to take it is not logged: the snapshot that follows holds it.
func (p *partition) reinsert(table uint32, hash uint64, logged int64) error {
	t := p.tables[table]
	for n := 0; n < maxEvents && t.filter.Due(logged); n++ {
		ev, ok := t.filter.Plan(logged, func(uint64) bool { return true })
		if !ok {
			break
		}
		if err := p.applyEvent(t.filter, ev); err != nil {
			return err
		}
	}
	t.filter.Insert(hash, logged)
	return nil
}

// redoLog redoes the log from the oldest of checkpoint, snapshot and runs.
// The log must have no gap and must reach at least as far as all of them:
// whatever they hold was committed in it first, so a shorter log was damaged.
func (r *recovery) redoLog() error {
	p := r.p
	reach := max(p.marks.counters, p.marks.filters, p.marks.records)
	from := min(p.marks.counters, p.marks.filters, p.marks.records)
	if p.marks.rebuilt {
		from = min(p.marks.counters, p.marks.records)
		if first, _, ok := r.s.oplog.Bounds(p.id); ok {
			from = min(from, first-1) // everything that is left, for its opids
		}
	}
	p.seq = from
	err := r.s.oplog.Read(p.id, from+1, func(seq uint64, record []byte) error {
		if seq != p.seq+1 {
			return fmt.Errorf("%w: entries %d to %d are missing", ErrLogDamaged, p.seq+1, seq-1)
		}
		r.found.Records++
		return r.redoRecord(record)
	})
	if err != nil {
		return err
	}
	if p.seq < reach {
		return fmt.Errorf("%w: it ends at entry %d, but entries up to %d were committed", ErrLogDamaged, p.seq, reach)
	}
	p.seen.Assign(p.floor, p.hasTable)
	return nil
}

func (r *recovery) redoRecord(record []byte) error {
	p := r.p
	rd, err := newRecordReader(record)
	if err != nil {
		return err
	}
	var e entry
	for rd.next(&e) {
		p.seq++
		r.found.Entries++
		p.resolve(&e, p.seq)
		if err := p.redo(&e, p.seq, rd.at); err != nil {
			return fmt.Errorf("entry %d: %w", p.seq, err)
		}
	}
	p.at.logged, p.at.wall = max(p.at.logged, rd.at.logged), rd.at.wall
	p.saving.logBytes += uint64(len(record))
	return rd.err
}
