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
	sources := make([]segmentSource, len(c.sealed))
	scratch := &c.s.snapshots.sorted
	*scratch = (*scratch)[:0]
	for i, seg := range c.sealed {
		from := len(*scratch)
		*scratch = seg.sorted(*scratch)
		sources[i] = segmentSource{seg: seg, list: (*scratch)[from:]}
	}
	counts := make(map[uint32]int)
	for _, r := range *scratch {
		counts[r.table]++
	}
	for _, id := range c.tables() {
		if err := c.buildRun(id, sources, counts[id]); err != nil {
			return err
		}
	}
	if cap(*scratch) > maxKeptSorted {
		*scratch = nil
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

// maxKeptSorted is how many references the builder of runs keeps memory for.
const maxKeptSorted = 1 << 18

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

// buildRun writes the n new records of one table, now and then merged with the
// youngest runs.
func (c *checkpoint) buildRun(table uint32, sources []segmentSource, n int) error {
	p := c.p
	p.mu.Lock()
	t := p.tables[table]
	if t == nil {
		p.mu.Unlock()
		return nil
	}
	runs, keep := slices.Clone(t.runs), t.def.keep(c.now)
	run := persistence.Run{Partition: p.id, Table: table, ID: p.nextRun}
	p.nextRun++
	p.mu.Unlock()
	live := slices.DeleteFunc(slices.Clone(runs), func(r persistence.Run) bool {
		return r.LastTime+keep < c.now
	})
	if n > 0 {
		first, last := sources[0].seg, sources[len(sources)-1].seg
		run.Count = uint64(n)
		run.FirstSeq, run.FirstTime, run.LastSeq, run.LastTime = first.firstSeq, first.first, last.lastSeq, last.last
		merge := mergeFrom(live, run, keep)
		run, err := c.writeRun(run, live[merge:], sources)
		if err != nil {
			return err
		}
		live = append(live[:merge:merge], run)
		p.mu.Lock()
		p.unpublished[run.ID] = true
		p.mu.Unlock()
	}
	c.replaceRuns(t, runs, live)
	return nil
}

// replaceRuns makes live the table's runs. What was published goes with the
// next checkpoint's commit, the rest at once.
func (c *checkpoint) replaceRuns(t *tableState, old, live []persistence.Run) {
	p := c.p
	gone := slices.DeleteFunc(old, func(r persistence.Run) bool { return slices.Contains(live, r) })
	var remove []persistence.Run
	p.mu.Lock()
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

// mergeFan is how many runs of about one size become one: their number stays
// logarithmic while each record is rewritten seldom.
const mergeFan = 8

// mergeFrom returns the index from which runs are merged with a new one:
// whenever mergeFan-1 runs of its size class or below have gathered, as long
// as the merged run spans no more than an eighth of the remembering time, so
// that runs expire in pieces.
func mergeFrom(runs []persistence.Run, new persistence.Run, keep int64) int {
	n, first, last := new.Count, new.FirstTime, new.LastTime
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
func (c *checkpoint) writeRun(run persistence.Run, merged []persistence.Run, segments []segmentSource) (persistence.Run, error) {
	var sources []runSource
	defer func() {
		for _, s := range sources {
			s.close()
		}
	}()
	for _, s := range segments {
		s.table = run.Table
		sources = append(sources, &s)
	}
	for _, m := range merged {
		run.FirstSeq, run.FirstTime = min(run.FirstSeq, m.FirstSeq), min(run.FirstTime, m.FirstTime)
		it, err := c.s.db.IterateRun(m)
		if err != nil {
			return run, err
		}
		sources = append(sources, &iteratorSource{it: it})
	}
	w, err := c.s.db.NewRun(run)
	if err != nil {
		return run, err
	}
	defer w.Abort()
	if err := mergeSources(sources, w.Add); err != nil {
		return run, err
	}
	return w.Finish(run)
}
