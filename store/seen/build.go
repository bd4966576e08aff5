package seen

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// Options say what a Build does.
type Options struct {
	Goal Goal
	Now  int64 // logged time, ms: runs expire by it
	// Keep says how long a table keeps its records, ms; false if there is no such table
	// any more. It is called with the lock held.
	Keep func(table uint32) (ms int64, ok bool)
	// Awaited, unless it is nil, says which records of a table are kept for longer. It is
	// called with the lock held.
	Awaited func(table uint32) Awaited
	// GiveWay, unless it is nil, is called every fraction of a millisecond of the work,
	// without the lock.
	GiveWay func()
	Scratch *Scratch // for one Build at a time
}

// Awaited says how long the records of a table are kept beyond Options.Keep, because other
// regions have not said yet that they have what was applied here: one of them may have
// applied the same (key, opid) earlier, and only who has the record can take its own
// application back.
type Awaited struct {
	Acked uint64 // the sequence up to which they have said so
	For   int64  // the records behind it are kept for so long all the same, logged ms
	Bytes uint64 // … while the table's runs have no more than so many bytes; 0: any number
}

// Goal is what a Build does with records and runs.
type Goal uint8

const (
	// Flush makes runs of the records in memory.
	Flush Goal = iota
	// Tidy does that, and merges neighbours as far as one run may span, so that a
	// look-up asks one or two runs for a generation of the filter, not one of each size.
	Tidy
	// Merge leaves the records in memory, and merges runs that MergeDue tells of.
	Merge
)

// Build brings records from memory to disk and replaces runs by others, one Build of a
// Records at a time, while operations go on. It begins with the lock held; the other
// methods are called without it, and take it themselves for moments:
//
//	Begin     seal: later records go elsewhere
//	Run       write runs. From here on they are asked; the records leave memory
//	Publish   make the runs part of the data directory, others not, in a commit of
//	Committed the caller's; until then the log holds their records too
//	Remove    once that is durable: delete the files that are obsolete
//	GiveBack  instead of Remove: let the next Build do what this one has not
type Build struct {
	Options
	rs        *Records
	unchecked uint64
	sealed    []*bundle
	obsolete  []persistence.Run
	published []persistence.Run
}

// Begin begins a Build. The lock is held, and stays locked. The caller makes sure that
// what was added is committed before Run: no search may find in a run what a crash could
// still take back (G4).
func (rs *Records) Begin(o Options) *Build {
	b := &Build{Options: o, rs: rs, obsolete: rs.obsolete}
	rs.obsolete = nil
	if o.Goal != Merge {
		b.sealed = rs.seal()
	}
	return b
}

// Obsolete reports whether a Build has runs to drop. The lock is held.
func (rs *Records) Obsolete() bool { return len(rs.obsolete) > 0 }

// Run turns the sealed records into sorted runs, one for each table, merges runs as the
// goal says, and drops those whose records have expired. The records leave memory once
// their runs are visible. Nothing is fsynced.
func (b *Build) Run() error {
	rs, counts := b.rs, countTables(b.sealed)
	rs.mu.Lock()
	tables := slices.AppendSeq(slices.Collect(maps.Keys(rs.runs)), maps.Keys(counts))
	rs.mu.Unlock()
	slices.Sort(tables)
	for _, table := range slices.Compact(tables) { // with new records, or with runs, which may have to go
		if err := b.buildTable(table, counts[table]); err != nil {
			return err
		}
	}
	rs.mu.Lock()
	rs.release(len(b.sealed))
	rs.version++
	rs.mu.Unlock()
	b.sealed = nil
	return nil
}

// buildTable writes the n new records of one table, some of its runs merged with them or
// with each other.
func (b *Build) buildTable(table uint32, n int) error {
	rs := b.rs
	rs.mu.Lock()
	old := rs.runs[table]
	keep, ok := b.Keep(table)
	await := b.awaited(table)
	rs.mu.Unlock()
	if !ok {
		return nil
	}
	live, late, gone := b.divide(old, keep, await)
	unchecked := uint64(0)
	if b.Awaited != nil {
		var err error
		if unchecked, err = b.countOwn(gone, await.Acked); err != nil {
			return err
		}
	}
	var kept, written []persistence.Run
	for _, g := range b.groups(live, late, newRun(b.sealed, n), keep, await.For) {
		run := g.run
		if len(g.merged) != 1 || g.records {
			var err error
			if run, err = b.write(g, table, n); err != nil {
				rs.db.RemoveRuns(written)
				return err
			}
			written = append(written, run)
		}
		kept = append(kept, run)
	}
	b.replace(table, old, kept, written)
	b.unchecked += unchecked
	return nil
}

// newRun describes a run of n records of sealed bundles alone.
func newRun(bundles []*bundle, n int) persistence.Run {
	if n == 0 {
		return persistence.Run{}
	}
	first, last := bundles[0], bundles[len(bundles)-1]
	count, size := 0, 0
	for _, s := range bundles {
		count, size = count+s.count, size+s.size
	}
	return persistence.Run{
		// about: the tables' share the average
		Count: uint64(n), Bytes: uint64(n * (size/count - recordHeader)),
		FirstSeq: first.firstSeq, FirstTime: first.first, LastSeq: last.lastSeq, LastTime: last.last,
	}
}

// group are runs and records that become one run; a single run without records stays as
// it is.
type group struct {
	run     persistence.Run // its range; Count and Bytes as expected
	merged  []persistence.Run
	records bool // and the new ones
}

// groups says what is merged with what. The first late ones of the runs are beyond the
// remembering time.
func (b *Build) groups(runs []persistence.Run, late int, new persistence.Run, keep,
	await int64) (groups []group) {
	all := slices.Clone(runs)
	if new.Count > 0 {
		all = append(all, new)
	}
	from, end := len(all), len(all)
	if b.Goal == Merge {
		from, end = mergeRanges(all, late, keep, await)
	}
	for i := 0; i < len(all); {
		to := i + 1
		switch {
		case i == from && from < end:
			to = end
		case b.Goal == Tidy:
			for to < len(all) && all[to].LastTime-all[i].FirstTime <= keep/8 {
				to++
			}
		}
		g := group{run: all[i], records: to > len(runs), merged: runs[i:min(to, len(runs))]}
		for _, r := range all[i+1 : to] {
			g.run.LastSeq, g.run.LastTime = r.LastSeq, r.LastTime
			g.run.Count, g.run.Bytes = g.run.Count+r.Count, g.run.Bytes+r.Bytes
		}
		groups, i = append(groups, g), to
	}
	return groups
}

// write writes the run of a group; n are the table's new records.
func (b *Build) write(g group, table uint32, n int) (persistence.Run, error) {
	rs, run := b.rs, g.run
	rs.mu.Lock()
	run.Partition, run.Table, run.ID = rs.partition, table, rs.nextRun
	rs.nextRun++
	rs.mu.Unlock()
	var sources []source
	defer func() { closeSources(sources) }()
	if g.records {
		sources = append(sources, newSorter(b.Scratch, b.sealed, table, n))
	}
	for _, r := range g.merged {
		it, err := rs.db.IterateRun(r)
		if err != nil {
			return run, err
		}
		sources = append(sources, &runSource{it: it})
	}
	w, err := rs.db.NewRun(run)
	if err != nil {
		return run, err
	}
	defer w.Abort()
	if err := mergeSources(sources, b.GiveWay, w.Add); err != nil {
		return run, err
	}
	return w.Finish(run)
}

// replace makes live the table's runs. Published runs go with the caller's next
// commit, the others at once.
func (b *Build) replace(table uint32, old, live, written []persistence.Run) {
	rs := b.rs
	gone := slices.DeleteFunc(slices.Clone(old), func(r persistence.Run) bool {
		return slices.Contains(live, r)
	})
	var remove []persistence.Run
	rs.mu.Lock()
	for _, r := range written {
		rs.unpublished[r.ID] = true
	}
	if _, ok := b.Keep(table); ok {
		rs.runs[table] = live
	} else {
		gone = written // the table was dropped meanwhile, and Drop took the others
	}
	rs.version++
	for _, r := range gone {
		if rs.unpublished[r.ID] {
			delete(rs.unpublished, r.ID)
			remove = append(remove, r)
		} else {
			b.obsolete = append(b.obsolete, r)
		}
	}
	rs.mu.Unlock()
	rs.db.RemoveRuns(remove)
}

// Publish makes the runs that no header row names yet durable, adds their header rows to
// changes, and drops those of obsolete ones.
func (b *Build) Publish(changes *persistence.Changes) error {
	rs := b.rs
	rs.mu.Lock()
	b.published = nil
	for _, table := range slices.Sorted(maps.Keys(rs.runs)) {
		for _, r := range rs.runs[table] {
			if rs.unpublished[r.ID] {
				b.published = append(b.published, r)
			}
		}
	}
	rs.mu.Unlock()
	for _, r := range b.obsolete {
		changes.DropRun(r)
	}
	return changes.PublishRuns(b.published)
}

// Committed is called once the changes given to Publish are committed.
func (b *Build) Committed() {
	b.rs.mu.Lock()
	defer b.rs.mu.Unlock()
	for _, r := range slices.Concat(b.published, b.obsolete) { // Forget drops some unpublished
		delete(b.rs.unpublished, r.ID)
	}
}

// Remove deletes the files of obsolete runs, once their drop is durable.
func (b *Build) Remove() { b.rs.db.RemoveRuns(b.obsolete) }

// GiveBack lets the next Build do what this one has not, after Run or an error.
func (b *Build) GiveBack() {
	b.rs.mu.Lock()
	defer b.rs.mu.Unlock()
	b.rs.obsolete = append(b.rs.obsolete, b.obsolete...)
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

// MergeDue reports whether a Build for Merge with these options has something to do. The
// lock is held.
func (rs *Records) MergeDue(o Options) bool {
	for table, runs := range rs.runs {
		if keep, ok := o.Keep(table); ok {
			late := o.late(runs, keep)
			if from, to := mergeRanges(runs, late, keep, o.awaited(table).For); from < to {
				return true
			}
		}
	}
	return false
}

// mergeRanges is mergeRange where the first late ones of all are beyond the remembering
// time: those become one among themselves, and may span as much more as they are kept
// longer.
func mergeRanges(all []persistence.Run, late int, keep, await int64) (from, to int) {
	if from, to = mergeRange(all[late:], keep); from < to {
		return from + late, to + late
	}
	return mergeRange(all[:late], max(keep, await))
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
		for i > 0 && sizeClass(all[i-1].Count) <= sizeClass(n) &&
			last.LastTime-min(first, all[i-1].FirstTime) <= keep/8 {
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
