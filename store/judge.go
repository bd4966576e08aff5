package store

import (
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
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
	search    seen.Search // scratch of inNoRun
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
	d.search.Reset()
	d.load, d.tags = load{}, 0
	return d
}

// Which of the batch's opids were applied before (G1) is decided by the filters
// alone where they are negative, by the records where one is positive: one kind
// of memory after another is asked, so that the cache misses of many operations
// overlap. The partitions are locked.

// askFilters judges refs from..to-1 by the filters and notes the positives.
func (x *turn) askFilters(from, to int) {
	j := &x.judging
	for i := from; i < to; i++ {
		r := &x.refs[i]
		if !r.asks || r.failed {
			continue
		}
		if r.hears {
			if m, ok := r.askAll(x.at(r.p).logged); ok {
				j.positives = append(j.positives, positive{ref: i, match: m})
			}
			continue
		}
		if m, ok := r.askFilters(x.at(r.p).logged); ok {
			j.positives = append(j.positives, positive{ref: i, match: m})
		}
	}
}

// confirmPositives judges the refs that askFilters has noted.
func (x *turn) confirmPositives() {
	j := &x.judging
	if len(j.positives) > 1 {
		for i := range j.positives {
			r := &x.refs[j.positives[i].ref]
			j.lines += r.p.seen.TouchIndex(r.hash)
		}
		for i := range j.positives {
			r := &x.refs[j.positives[i].ref]
			j.lines += r.p.seen.TouchRecord(r.hash)
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

// askRunFilters judges an opid by the filters of the runs that may have it, and
// reports whether that was enough.
func (x *turn) askRunFilters(ref int) bool {
	r := &x.refs[ref]
	if !r.disk.search.Exclude(r.hash) {
		return false
	}
	r.isNew(r.disk.tags)
	return true
}

// judgeOne judges one opid.
func (x *turn) judgeOne(ref int) {
	r := &x.refs[ref]
	if m, ok := r.askFilters(x.at(r.p).logged); ok {
		x.askRecords(&positive{ref: ref, match: m})
	}
}

// askFilters judges by the filters that may remember the key's opids: its
// table's, and those of tables it belonged to before. It returns true, and where
// the record may be, when one is positive.
func (r *ref) askFilters(logged int64) (m fbf.Match, positive bool) {
	r.dismissed, r.others = false, 0
	if r.disk != nil {
		if o, ok := r.disk.search.Found(); ok {
			r.verdict, r.seen = verdictSeen, o
			return m, false
		}
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
// by what its search found in runs. If those are yet to be asked the verdict is
// verdictUnknown and the ref in x.confirm.
func (x *turn) askRecords(pos *positive) {
	r := &x.refs[pos.ref]
	tags := pos.match.Tags
	if tags&tagExact != 0 {
		if o, ok := r.findRecent(pos.match, x.ops[r.op].ID); ok {
			r.verdict, r.seen = verdictSeen, o
			return
		}
		if r.hears && x.inNoRun(r, pos.match) {
			r.isNew(tags)
			return
		}
		if d := x.fromDisk(r); !d.search.Holds() {
			d.tags = tags
			if r.beginSearch(&d.search, pos.match, x.at(r.p).logged); d.search.Pending() {
				r.verdict = verdictUnknown
				x.confirm = append(x.confirm, pos.ref)
				return
			}
		} else {
			r.others += d.search.Others()
		}
	}
	r.isNew(tags)
}

// isNew judges an opid of which there is no record, although filters with these tags
// were positive.
func (r *ref) isNew(tags uint8) {
	r.verdict, r.dismissed = verdictNew, tags == tagExact && !r.hears
	if tags&tagApprox != 0 {
		r.verdict = verdictMaybe
	}
}

// findRecent looks for the opid's record in memory, among those of the time of the
// matching generations: what a filter takes for known by mistake is rarely taken for
// something new.
func (r *ref) findRecent(m fbf.Match, id []byte) (o Seen, ok bool) {
	first, last := m.First, m.Last
	if len(r.t.def.Links) > 0 { // generations of other tables may match too
		first, last = math.MinInt64, math.MaxInt64
	}
	o, _, r.others, ok = r.p.seen.Find(first, last, r.hash, r.key, id)
	return o, ok
}

// beginSearch says in which runs the record of the opid would be: those that overlap
// the time of the matching generations.
func (r *ref) beginSearch(s *seen.Search, m fbf.Match, logged int64) {
	s.Begin(&r.p.seen)
	if m.Generations > 0 {
		s.Within(r.t.def.ID, m.First, m.Last)
	}
	if r.hears {
		r.eachFormer(func(t *tableState) { s.Within(t.def.ID, math.MinInt64, math.MaxInt64) })
		return
	}
	r.eachLink(logged, func(t *tableState) {
		if m, ok := t.filter.Match(r.hash); ok {
			s.Within(t.def.ID, m.First, m.Last)
		}
	})
}

// judgeAgain judges a second time, at the operation's turn: an earlier operation of
// the same batch may have been its twin. Only what the batch itself has added needs to
// be asked, for all else was there at the first judgement.
func (r *ref) judgeAgain(id []byte) {
	if !r.p.draft.twins.mayHave(r.hash) || r.verdict != verdictNew || !r.t.filter.Contains(r.hash) {
		return
	}
	if r.t.def.Mode == Approx {
		r.verdict = verdictMaybe
		return
	}
	o, _, others, ok := r.p.seen.FindSinceMark(r.hash, r.key, id)
	if r.others += others; ok {
		r.verdict, r.seen = verdictSeen, o
	}
}

// twins are the hashes that a batch has inserted into a partition, roughly: one
// that is not here was not inserted, and the filter need not be asked again.
type twins [16]uint64

func (t *twins) add(hash uint64) { t[hash>>6&15] |= 1 << (hash & 63) }

func (t *twins) mayHave(hash uint64) bool { return t[hash>>6&15]>>(hash&63)&1 != 0 }

// tableOf returns the table of a key.
func (p *machine) tableOf(key []byte) *tableState {
	return p.tables[p.catalog.find(key).ID]
}
