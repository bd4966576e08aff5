package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// Recovery says what Open found and did.
type Recovery struct {
	Took      time.Duration
	Keys      int64  // DBSIZE after recovery
	Sections  uint64 // of the op log, redone
	Entries   uint64 // outcomes in them
	Snapshots int    // partitions that began with a filter snapshot
	Older     int    // of these, partitions that had to use the older one
	Rebuilt   int    // partitions whose filters were rebuilt from records
	Problems  []string
}

// ErrForgotten means that a partition's filter snapshots are all damaged and
// that APPROX tables or objects would lose what they remember.
var ErrForgotten = errors.New("the memory of operations is lost")

// recover brings every partition to where the log ends.
func (s *Store) recover() error {
	all := make([]uint64, len(s.partitions))
	for i := range all {
		all[i] = math.MaxUint64
	}
	found, err := s.recoverPartitions(s.partitions, all)
	if s.recovery = found; err != nil {
		return err
	}
	return s.afterRecovery()
}

// recoverPartitions makes empty partitions what their views on disk and the log hold, the
// log up to a sequence of each: as many at a time as there are processors.
func (s *Store) recoverPartitions(ps []*partition, upTo []uint64) (found Recovery, err error) {
	var (
		mu     sync.Mutex
		next   atomic.Int64
		worker sync.WaitGroup
	)
	for range min(s.procs, len(ps)) {
		worker.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(ps) {
					return
				}
				rec := recovery{s: s, p: ps[i], upTo: upTo[i]}
				failed := rec.run()
				mu.Lock()
				found.merge(rec.found)
				if failed != nil && err == nil {
					err = fmt.Errorf("partition %d: %w", ps[i].id, failed)
				}
				mu.Unlock()
			}
		})
	}
	worker.Wait()
	if errors.Is(err, persistence.ErrCorrupt) || errors.Is(err, ErrLogDamaged) {
		err = fmt.Errorf("%w; restore a backup, or keep the directory for examination", err)
	}
	return found, err
}

// afterRecovery continues logged time, gives a new directory its tables, saves filters
// that had to be rebuilt, and lets sequences jump in a copy of another directory.
func (s *Store) afterRecovery() error {
	if s.replica != nil {
		s.beginReplica()
	}
	for _, p := range s.partitions {
		s.startClock(p)
	}
	fresh := !slices.ContainsFunc(s.partitions, func(p *partition) bool { return p.seq > 0 })
	if fresh && s.replica == nil {
		err := s.changeCatalog(s.partitions, func(*catalog, moment) (*catalog, error) {
			return newCatalog(), nil
		})
		if err != nil {
			return err
		}
	}
	var jumps []*partition
	var drop []unfinished
	for _, p := range s.partitions {
		if p.regions != nil {
			s.member.Store(true)
		}
		if fresh {
			p.savedSeq = int64(p.seq) // nobody has asked for its tables
		}
		if p.catalog == nil {
			return fmt.Errorf("partition %d: %w: it has no tables", p.id, ErrLogDamaged)
		}
		s.recovery.Keys += p.size
		if p.incarnation != s.db.Meta().Incarnation {
			jumps = append(jumps, p)
		}
		if p.fragments.number != 0 && s.replica == nil {
			drop = append(drop, unfinished{p, p.takeUnfinished()})
		}
		if err := s.saveRebuilt(p); err != nil {
			return err
		}
	}
	if s.replica != nil {
		return nil // they are the leader's to log
	}
	if err := s.jump(jumps); err != nil {
		return err
	}
	return s.dropFragments(drop)
}

// saveRebuilt makes the rebuilt filters durable before the damaged snapshots go
// out of the way.
func (s *Store) saveRebuilt(p *partition) error {
	if !p.saving.rebuilt {
		return nil
	}
	p.saving.rebuilt = false
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
	r.Sections += o.Sections
	r.Entries += o.Entries
	r.Snapshots += o.Snapshots
	r.Older += o.Older
	r.Rebuilt += o.Rebuilt
	r.Problems = append(r.Problems, o.Problems...)
}

// recovery recovers one partition: it loads the views, and redoes the log from the oldest
// of them on.
type recovery struct {
	s     *Store
	p     *partition
	upTo  uint64 // the last sequence to redo
	found Recovery
}

func (r *recovery) run() error {
	s, p := r.s, r.p
	views, err := p.loadViews(s.db, s.oplog)
	if err != nil {
		return err
	}
	if err := r.judge(views); err != nil {
		return err
	}
	r.found.Sections, r.found.Entries, err = p.redoLog(s.oplog, r.upTo)
	if err != nil {
		return err
	}
	if last := p.committed.upTo(); p.seq < last { // of the life before
		return fmt.Errorf("%w: it ends at entry %d, but entries up to %d were committed", ErrLogDamaged,
			p.seq, last)
	}
	p.spoilUnloaded()
	for _, u := range p.listUnreadable() {
		r.problem(u.String())
	}
	if p.marks.rebuilt {
		if err := r.recount(); err != nil {
			return err
		}
		p.marks.rebuilt, p.saving.rebuilt = false, true
	}
	p.committed.advance(p.seq)
	if err := p.takeRows(); err != nil {
		return err
	}
	if s.Failure() == nil {
		p.setFrozen(s.Leads())
	}
	return r.beginRowFilter()
}

// judge reports what is wrong with the views, and decides what happens when no snapshot is
// left: only EXACT tables have records, from which their filters can be rebuilt.
func (r *recovery) judge(views loadedViews) error {
	s, p := r.s, r.p
	for i, err := range views.damage {
		r.problem(fmt.Sprintf("filter snapshot %s cannot be used: %v", views.snapshots[i].Path, err))
	}
	damaged := views.snapshots[:len(views.damage)]
	if len(damaged) < len(views.snapshots) {
		r.found.Snapshots++
		if len(damaged) > 0 {
			r.found.Older++
		}
		// A damaged one must not be kept in the place of the one that was loaded.
		return r.setAside(damaged)
	}
	if !views.filtersLost {
		return nil
	}
	r.found.Rebuilt++
	if views.forgets() && !s.opts.AcceptForgottenWindow {
		return fmt.Errorf("%w: every filter snapshot of the partition is missing or damaged, and it has "+
			"APPROX tables or keys that are no counters, "+
			"which only snapshots remember; restore a backup, or start with --accept-forgotten-window to "+
			"go on without", ErrForgotten)
	}
	p.saving.damaged = damaged
	wall := max(s.WallTime(), p.at.wall)
	r.problem("the table filters are rebuilt from the EXACT records")
	return p.rebuildFilters(views.state, wall)
}

func (r *recovery) setAside(damaged []persistence.Snapshot) error {
	for _, snap := range damaged {
		if err := r.s.db.SetAside(snap); err != nil {
			return err
		}
	}
	return nil
}

// loadedViews says what loadViews has found.
type loadedViews struct {
	state     partitionState         // of the newest checkpoint; zero if there was none
	snapshots []persistence.Snapshot // newest first
	damage    []error                // what is wrong with the first of them; the next one was loaded
	// filtersLost: no snapshot is left, and the log does not reach back to the beginning.
	filtersLost bool
}

// forgets reports whether lost snapshots take with them what nothing else remembers:
// APPROX tables and objects.
func (v *loadedViews) forgets() bool {
	forgets := v.state.objects > 0
	for _, d := range v.state.catalog.Tables {
		forgets = forgets || d.Mode == Approx
	}
	return forgets
}

// loadViews makes an empty partition what its views on disk hold: the state row of the
// newest checkpoint, the newest snapshot that is whole, and the runs. Each of them contains
// the log up to a sequence of its own, which p.marks then has, and redoLog brings them to
// the same one. It changes nothing on disk. The caller decides what to do about damage,
// and calls rebuildFilters if the filters are lost.
func (p *partition) loadViews(db *persistence.DB, log Log) (v loadedViews, err error) {
	if v.state, err = p.loadState(db); err != nil {
		return v, err
	}
	if v.snapshots, err = db.Snapshots(p.id); err != nil {
		return v, err
	}
	// Snapshots from before another shard's partition was adopted are of no use.
	v.snapshots = slices.DeleteFunc(v.snapshots, func(s persistence.Snapshot) bool {
		return s.Seq < p.adopted
	})
	if again, err := p.comesAgain(db, v); err != nil || again {
		v.state = partitionState{}
		return v, errors.Join(err, p.seen.Load())
	}
	if err := db.Holds(p.id, p.putHold); err != nil {
		return v, err
	}
	if err := p.checkHolds(&v.state); err != nil {
		return v, err
	}
	for _, snap := range v.snapshots {
		loaded, err := openSnapshot(db, snap)
		if err == nil {
			p.adopt(loaded)
			break
		}
		v.damage = append(v.damage, err)
	}
	if len(v.damage) == len(v.snapshots) && v.state.seq > 0 {
		first, _, ok := log.Bounds(p.id)
		v.filtersLost = !ok || first > 1 || p.adopted > 0
	}
	err = p.loadPages(func(fn func(persistence.Page) error) error { return db.Pages(p.id, fn) })
	if err != nil {
		return v, err
	}
	if p.regions != nil {
		for _, c := range p.objects {
			if err := p.loadAside(c); err != nil {
				return v, err
			}
		}
	}
	return v, p.seen.Load()
}

func (p *partition) loadState(db *persistence.DB) (state partitionState, err error) {
	b, ok, err := db.State(p.id)
	if err != nil || !ok {
		return state, err
	}
	p.saving.state, err = p.setState(b)
	return p.saving.state, err
}

// recount counts the keys of a partition that has lost objects: the logged
// count includes them.
func (r *recovery) recount() error {
	from, to := r.p.rowRange()
	keys, _, err := r.s.collect(r.p, from, to, math.MaxInt, r.p.mu.Lock)
	if err != nil {
		return err
	}
	r.p.size = 0
	for _, k := range keys {
		if c := r.p.hot.peek(k.key); c == nil && k.kind != TypeNone || c != nil && c.kind != TypeNone {
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

// redoLog redoes the log from the oldest of the loaded views on, up to a sequence. The
// log must have no gap and must reach at least as far as all views: whatever they hold was
// committed in it first, so a shorter log was damaged. It returns how many sections it
// redid, and the entries in them.
func (p *partition) redoLog(log Log, upTo uint64) (sections, entries uint64, err error) {
	reach := max(p.marks.counters, p.marks.filters, p.marks.records, p.marks.reach)
	from := min(p.marks.counters, p.marks.filters, p.marks.records)
	if p.marks.rebuilt {
		from = min(p.marks.counters, p.marks.records)
		if first, _, ok := log.Bounds(p.id); ok {
			from = max(min(from, first-1), p.adopted) // everything that is left, for its opids
		}
	}
	p.seq = from
	g := newRedoGroup(&p.machine, group)
	err = log.Read(p.id, from+1, func(seq uint64, content []byte) error {
		if seq > upTo {
			return nil
		}
		if p.marks.adopt > 0 {
			if !adopts(content, p.marks.adopt) {
				return nil
			}
			p.seq = seq - 1
		}
		n, err := g.add(seq, content)
		sections, entries = sections+1, entries+n
		return err
	})
	if err == nil {
		err = g.finish()
	}
	if err != nil {
		return sections, entries, err
	}
	if p.seq < reach {
		return sections, entries, fmt.Errorf("%w: it ends at entry %d, but entries up to %d were committed",
			ErrLogDamaged, p.seq, reach)
	}
	p.recovered = p.seq
	p.seen.Assign(p.floor, p.hasTable)
	p.marks = marks{rebuilt: p.marks.rebuilt}
	for _, t := range p.tables {
		if t.filter == nil {
			return sections, entries, fmt.Errorf("%w: table %q has no filter", ErrLogDamaged, t.def.Name)
		}
	}
	return sections, entries, nil
}

// jump logs the jump of partitions whose entries are another incarnation's.
func (s *Store) jump(partitions []*partition) error {
	if len(partitions) == 0 {
		return nil
	}
	x := s.internal(partitions...)
	x.lock()
	var err error
	if x.room, err = s.reserve(int64(len(partitions) * entryRoom)); err != nil {
		x.unlock()
		return err
	}
	for _, p := range partitions {
		x.logJump(&p.machine)
	}
	return x.finish()
}

// rowOf reads a row, in recovery; nil if there is none.
func (p *partition) rowOf(c *counter) (*row, error) {
	if p.logIsWhole {
		return nil, nil
	}
	value, ok, err := p.db.Row(nil, c.rowKey())
	if err != nil || !ok {
		return nil, err
	}
	row, err := decodeRow(value)
	if err != nil || row.seq <= p.floor {
		return nil, err
	}
	return &row, nil
}

// unfinished are fragments that recovery has found.
type unfinished struct {
	p      *partition
	number uint64
}

// dropFragments logs that unfinished fragments are dropped.
func (s *Store) dropFragments(all []unfinished) error {
	for _, u := range all {
		x := s.internal(u.p)
		x.lock()
		if err := x.world.reserveMore(entryRoom); err != nil {
			x.unlock()
			return err
		}
		x.log(&u.p.machine, &entry{kind: entryDrop, delta: int64(u.number)})
		if err := x.finish(); err != nil {
			return err
		}
	}
	return nil
}
