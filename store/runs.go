package store

import (
	"math/bits"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// buildRuns turns the sealed records into sorted runs, one for each table, and
// drops runs whose records have expired. The records leave memory once their
// run is visible. A run becomes part of the data directory with the next
// checkpoint's state row; until then the log holds its records too.
func (c *checkpoint) buildRuns() error {
	p := c.p
	counts := countTables(c.sealed)
	for _, id := range c.tables() {
		if err := c.buildRun(id, counts[id]); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.recent.release(len(c.sealed))
	for id, n := range counts {
		if t := p.tables[id]; t != nil {
			t.recent -= n
		}
	}
	p.runsVersion++
	p.mu.Unlock()
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

// buildRun writes the n new records of one table, some of its runs merged with
// them or with each other.
func (c *checkpoint) buildRun(table uint32, n int) error {
	p := c.p
	p.mu.Lock()
	t := p.tables[table]
	if t == nil {
		p.mu.Unlock()
		return nil
	}
	runs, keep := slices.Clone(t.runs), t.def.keep(c.now)
	p.mu.Unlock()
	live := slices.DeleteFunc(slices.Clone(runs), func(r persistence.Run) bool {
		return r.LastTime+keep < c.now
	})
	groups := c.groups(live, newRun(c.sealed, n), keep)
	var kept, written []persistence.Run
	for _, g := range groups {
		run := g.run
		if len(g.merged) != 1 || g.records {
			var err error
			if run, err = c.writeRun(g, table, n); err != nil {
				c.s.db.RemoveRuns(written)
				return err
			}
			written = append(written, run)
		}
		kept = append(kept, run)
	}
	c.replaceRuns(t, runs, kept, written)
	return nil
}

// newRun describes a run of n records of sealed segments alone.
func newRun(segments []*recentSegment, n int) persistence.Run {
	if n == 0 {
		return persistence.Run{}
	}
	first, last := segments[0], segments[len(segments)-1]
	count, size := 0, 0
	for _, s := range segments {
		count, size = count+s.count, size+s.size
	}
	return persistence.Run{
		Count: uint64(n), Bytes: uint64(n * (size/count - recordHeader)), // about: the tables' share the average
		FirstSeq: first.firstSeq, FirstTime: first.first, LastSeq: last.lastSeq, LastTime: last.last,
	}
}

// runGroup are runs and records that become one run; a single run without
// records stays as it is.
type runGroup struct {
	run     persistence.Run // its range; Count and Bytes as expected
	merged  []persistence.Run
	records bool // and the new ones
}

// groups says what is merged with what. At a periodic checkpoint neighbours are
// merged as far as one run may span, so that a look-up asks one or two runs for
// a generation of the filter, not one of each size.
func (c *checkpoint) groups(runs []persistence.Run, new persistence.Run, keep int64) (groups []runGroup) {
	all := slices.Clone(runs)
	if new.Count > 0 {
		all = append(all, new)
	}
	from, end := len(all), len(all)
	if c.merge {
		from, end = mergeRange(all, keep)
	}
	for i := 0; i < len(all); {
		to := i + 1
		switch {
		case i == from && from < end:
			to = end
		case c.tidy:
			for to < len(all) && all[to].LastTime-all[i].FirstTime <= keep/8 {
				to++
			}
		}
		g := runGroup{run: all[i], records: to > len(runs), merged: runs[i:min(to, len(runs))]}
		for _, r := range all[i+1 : to] {
			g.run.LastSeq, g.run.LastTime = r.LastSeq, r.LastTime
			g.run.Count, g.run.Bytes = g.run.Count+r.Count, g.run.Bytes+r.Bytes
		}
		groups, i = append(groups, g), to
	}
	return groups
}

// replaceRuns makes live the table's runs. What was published goes with the
// next checkpoint's commit, the rest at once.
func (c *checkpoint) replaceRuns(t *tableState, old, live, written []persistence.Run) {
	p := c.p
	gone := slices.DeleteFunc(old, func(r persistence.Run) bool { return slices.Contains(live, r) })
	var remove []persistence.Run
	p.mu.Lock()
	for _, r := range written {
		p.unpublished[r.ID] = true
	}
	if p.tables[t.def.ID] == t {
		t.runs = live
	} else { // dropped meanwhile
		gone = append(gone, live...)
	}
	p.runsVersion++
	for _, r := range gone {
		if p.unpublished[r.ID] {
			delete(p.unpublished, r.ID)
			remove = append(remove, r)
		} else {
			c.obsolete = append(c.obsolete, r)
		}
	}
	p.mu.Unlock()
	c.s.db.RemoveRuns(remove)
}

const (
	// mergeFan is how many runs of about one size become one: their number stays
	// logarithmic while each record is rewritten seldom. Most runs of that many
	// small ones already span what a run may, so that a record is written twice.
	mergeFan = 16
	// closeFan is the least number of runs that become one because together
	// they span what a run may.
	closeFan = 4
)

// mergeDue reports whether some of a partition's runs are to become one.
func (s *Store) mergeDue(p *partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.clock.now().logged
	for _, t := range p.tables {
		if from, to := mergeRange(t.runs, t.def.keep(now)); from < to {
			return true
		}
	}
	return false
}

// mergeRange returns which of a table's runs, all[from:to], become one; from is to
// if none do. A run spans no more than an eighth of the remembering time, so that
// runs expire in pieces.
func mergeRange(all []persistence.Run, keep int64) (from, to int) {
	if len(all) < closeFan {
		return 0, 0
	}
	if from = similar(all, keep); from < len(all)-1 {
		return from, len(all)
	}
	return complete(all, keep)
}

// similar returns the first of the runs that are merged with the last one because
// mergeFan of about one size have gathered.
func similar(all []persistence.Run, keep int64) int {
	from := len(all) - 1
	last := &all[from]
	n, first := last.Count, last.FirstTime
	for {
		i, sum := from, n
		for i > 0 && sizeClass(all[i-1].Count) <= sizeClass(n) && last.LastTime-min(first, all[i-1].FirstTime) <= keep/8 {
			i--
			sum += all[i].Count
			first = min(first, all[i].FirstTime)
		}
		if from-i < mergeFan-1 {
			return from
		}
		from, n = i, sum
	}
}

// complete returns the first runs that are merged because no other can join them,
// the next one being too far away. They are left as they are if most of their
// records have been merged before.
func complete(all []persistence.Run, keep int64) (from, to int) {
	for to = closeFan; to < len(all); to++ {
		for all[to-1].LastTime-all[from].FirstTime > keep/8 {
			from++
		}
		sum, most := uint64(0), uint64(0)
		for _, r := range all[from:to] {
			sum, most = sum+r.Count, max(most, r.Count)
		}
		if to-from >= closeFan && all[to].LastTime-all[from].FirstTime > keep/8 && most <= sum/2 {
			return from, to
		}
	}
	return 0, 0
}

// sizeClass is the logarithm of a run's size to the base mergeFan.
func sizeClass(records uint64) int { return bits.Len64(records) / 4 }

// writeRun writes the run of a group; n are the table's new records.
func (c *checkpoint) writeRun(g runGroup, table uint32, n int) (persistence.Run, error) {
	run := g.run
	c.p.mu.Lock()
	run.Partition, run.Table, run.ID = c.p.id, table, c.p.nextRun
	c.p.nextRun++
	c.p.mu.Unlock()
	var sources []runSource
	if g.records {
		sources = append(sources, newRecordSorter(&c.s.snapshots.sorting, c.sealed, table, n))
	}
	sources, err := c.s.sourcesOf(sources, g.merged)
	defer closeSources(sources)
	if err != nil {
		return run, err
	}
	w, err := c.s.db.NewRun(run)
	if err != nil {
		return run, err
	}
	defer w.Abort()
	if err := mergeSources(sources, !c.urgent, w.Add); err != nil {
		return run, err
	}
	return w.Finish(run)
}

// runBytes is how many bytes the values of runs have.
func runBytes(runs []persistence.Run) (n uint64) {
	for _, r := range runs {
		n += r.Bytes
	}
	return n
}
