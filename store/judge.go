package store

import (
	"slices"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
)

// verdict is what is known of an opid.
type verdict uint8

const (
	// verdictUnknown: the filter is positive and only the runs can tell.
	verdictUnknown verdict = iota
	// verdictNew: never applied within the window.
	verdictNew
	// verdictMaybe: the filter of an APPROX table is positive, which counts
	// as a duplicate.
	verdictMaybe
	// verdictSeen: the record of the operation was found.
	verdictSeen
)

// judging is what judging a batch's opids takes, kept for the next batch.
type judging struct {
	positives []positive
	disks     []*onDisk // the first used of them belong to refs of this batch
	used      int
	entries   persistence.Entries
	lines     uint32 // keeps the compiler from dropping loads made ahead
}

// positive is a ref whose opid a filter may know.
type positive struct {
	ref   int
	match fbf.Match // of its table's filter; Tags also of its links'
}

// newOnDisk returns an empty onDisk for the present batch.
func (j *judging) newOnDisk() *onDisk {
	if j.used == len(j.disks) {
		j.disks = append(j.disks, new(onDisk))
	}
	d := j.disks[j.used]
	j.used++
	*d = onDisk{look: look{runs: d.look.runs[:0]}}
	return d
}

// Which of the batch's opids were applied before (G1) is decided by the filters
// alone where they are negative, by the records where one is positive: one kind
// of memory after another is asked, so that the cache misses of many operations
// overlap. The partitions are locked.

// askFilters judges refs from..to-1 by the filters and notes the positives.
func (x *decider) askFilters(from, to int) {
	j := &x.judging
	for i := from; i < to; i++ {
		r := &x.refs[i]
		if !r.asks || r.failed {
			continue
		}
		if m, ok := r.askFilters(x.at.logged); ok {
			j.positives = append(j.positives, positive{ref: i, match: m})
		}
	}
}

// confirmPositives judges the refs that askFilters has noted.
func (x *decider) confirmPositives() {
	j := &x.judging
	if len(j.positives) > 1 {
		for i := range j.positives {
			r := &x.refs[j.positives[i].ref]
			j.lines += r.p.recent.requestIndex(r.hash)
		}
		for i := range j.positives {
			r := &x.refs[j.positives[i].ref]
			j.lines += r.p.recent.requestRecord(r.hash)
		}
	}
	for i := range j.positives {
		x.askRecords(&j.positives[i])
	}
	if len(x.confirm) <= fewPositives {
		x.confirm = slices.DeleteFunc(x.confirm, x.askRunFilters)
	}
}

// fewPositives is how many opids are looked for in the filters of runs under the locks:
// as many as new operations have by mistake of a filter. If there are none in any run,
// nothing needs to be read, and the batch not to be prepared again.
const fewPositives = 8

// askRunFilters judges an opid by the filters of the runs that are to be asked, and
// reports whether that was enough.
func (x *decider) askRunFilters(ref int) bool {
	r := &x.refs[ref]
	l := &r.disk.look
	l.runs = slices.DeleteFunc(l.runs, func(run *persistence.Run) bool { return !x.s.db.MayHave(*run, r.hash) })
	if len(l.runs) > 0 {
		return false
	}
	l.done = true
	r.isNew(l.tags)
	return true
}

// judgeOne judges one opid.
func (x *decider) judgeOne(ref int) {
	if m, ok := x.refs[ref].askFilters(x.at.logged); ok {
		x.askRecords(&positive{ref: ref, match: m})
	}
}

// askFilters judges by the filters that may remember the key's opids: its
// table's, and those of tables it belonged to before. It returns true, and where
// the record may be, when one is positive.
func (r *ref) askFilters(logged int64) (m fbf.Match, positive bool) {
	r.dismissed = false
	if d := r.disk; d != nil && d.look.found && d.look.version == r.p.runsVersion {
		r.verdict, r.seen = verdictSeen, d.look.seen
		return m, false
	}
	m, positive = r.t.filter.Match(r.hash)
	if len(r.t.def.Links) > 0 {
		r.eachLink(logged, func(t *tableState) {
			if l, ok := t.filter.Match(r.hash); ok {
				m.Tags |= l.Tags
				positive = true
			}
		})
	}
	if !positive {
		r.verdict = verdictNew
	}
	return m, positive
}

// eachLink calls fn for the tables that the key belonged to before and whose
// memory has not drained.
func (r *ref) eachLink(logged int64, fn func(*tableState)) {
	for _, l := range r.t.def.Links {
		if logged < l.Until && l.covers(r.key) {
			if t := r.p.tables[l.Table]; t != nil {
				fn(t)
			}
		}
	}
}

// askRecords judges an opid that a filter may know by the records in memory and
// by what lookUp found in runs. If those are yet to be asked the verdict is
// verdictUnknown and the ref in x.confirm.
func (x *decider) askRecords(pos *positive) {
	r := &x.refs[pos.ref]
	tags := pos.match.Tags
	if tags&tagExact != 0 {
		if rec, ok := r.findRecent(pos.match, x.ops[r.op].ID); ok {
			r.verdict, r.seen = verdictSeen, rec.seen
			return
		}
		if l := &x.fromDisk(r).look; !l.done || l.version != r.p.runsVersion {
			*l = look{version: r.p.runsVersion, tags: tags, runs: r.runs(pos.match, x.at.logged, l.runs[:0])}
			if len(l.runs) > 0 {
				r.verdict = verdictUnknown
				x.confirm = append(x.confirm, pos.ref)
				return
			}
		}
	}
	r.isNew(tags)
}

// isNew judges an opid of which there is no record, although filters with these tags
// were positive.
func (r *ref) isNew(tags uint8) {
	r.verdict, r.dismissed = verdictNew, tags == tagExact
	if tags&tagApprox != 0 {
		r.verdict = verdictMaybe
	}
}

// findRecent looks for the opid's record in memory, among those of the time of the
// matching generations: what a filter takes for known by mistake is rarely taken for
// something new.
func (r *ref) findRecent(m fbf.Match, id []byte) (record, bool) {
	if len(r.t.def.Links) > 0 { // generations of other tables may match too
		return r.p.recent.find(r.hash, r.key, id)
	}
	return r.p.recent.findWithin(m.First, m.Last, r.hash, r.key, id)
}

// runs appends the runs in which the record of the opid would be: those that
// overlap the time of the matching generations.
func (r *ref) runs(m fbf.Match, logged int64, dst []*persistence.Run) []*persistence.Run {
	if m.Generations > 0 {
		dst = r.t.overlapping(m, dst)
	}
	r.eachLink(logged, func(t *tableState) {
		if m, ok := t.filter.Match(r.hash); ok {
			dst = t.overlapping(m, dst)
		}
	})
	return dst
}

// overlapping appends the table's runs that overlap the time of a match, newest
// first: a retry follows its original soon. They are never changed, only
// replaced by others.
func (t *tableState) overlapping(m fbf.Match, dst []*persistence.Run) []*persistence.Run {
	for i := len(t.runs) - 1; i >= 0; i-- {
		if run := &t.runs[i]; run.LastTime >= m.First && run.FirstTime <= m.Last {
			dst = append(dst, run)
		}
	}
	return dst
}

// lookUp searches the runs for the opid. No lock is held; judge checks
// afterwards that the runs are still the same, and finds in memory what was
// applied in between.
func (x *decider) lookUp(r *ref) error {
	l, id, found := &r.disk.look, x.ops[r.op].ID, &x.judging.entries
	l.done = true
	for _, run := range l.runs {
		if err := x.s.db.LookUp(*run, r.hash, found); err != nil {
			return err
		}
		for found.Next() {
			if !isOf(found.Value, r.key, id) {
				continue
			}
			seen, err := seenOf(found.Value)
			l.found, l.seen = err == nil, seen
			return err
		}
		if err := found.Err(); err != nil {
			return err
		}
	}
	return nil
}

// again judges a second time, at the operation's turn: an earlier operation of
// the same batch may have been its twin. Only what the batch itself has added needs to
// be asked, for all else was there at the first judgement.
func (r *ref) again(id []byte, logged int64) {
	if !r.p.draft.twins.mayHave(r.hash) || r.verdict != verdictNew || !r.t.filter.Contains(r.hash) {
		return
	}
	if r.t.def.Mode == Approx {
		r.verdict = verdictMaybe
		return
	}
	if rec, ok := r.p.recent.findSince(r.p.draft.before, r.hash, r.key, id); ok {
		r.verdict, r.seen = verdictSeen, rec.seen
	}
}

// twins are the hashes that a batch has inserted into a partition, roughly: one
// that is not here was not inserted, and the filter need not be asked again.
type twins [16]uint64

func (t *twins) add(hash uint64) { t[hash>>6&15] |= 1 << (hash & 63) }

func (t *twins) mayHave(hash uint64) bool { return t[hash>>6&15]>>(hash&63)&1 != 0 }

// tableOf returns the table of a key.
func (p *partition) tableOf(key []byte) *tableState {
	return p.tables[p.catalog.find(key).ID]
}
