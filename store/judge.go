package store

import (
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

// judge decides whether (r.key, id) was applied before (G1): by the filter
// alone where it is negative, by the records where it is positive. The
// partition is locked.
func (r *ref) judge(id []byte, logged int64) {
	if len(r.t.def.Links) == 0 && !r.t.filter.Contains(r.hash) {
		r.verdict = verdictNew
		return
	}
	r.dismissed = false
	tags := r.matches(logged, nil)
	if tags&tagExact != 0 {
		if rec, ok := r.p.recent.find(r.hash, r.key, id); ok {
			r.verdict, r.seen = verdictSeen, rec.seen
			// The reply rests on the original, which must be durable first (G3).
			r.p.need = max(r.p.need, rec.seq)
			return
		}
		l := &r.fromDisk().look
		if !l.done || l.version != r.p.runsVersion {
			*l = look{version: r.p.runsVersion, runs: l.runs[:0]}
			r.matches(logged, &l.runs)
			if len(l.runs) > 0 {
				r.verdict = verdictUnknown
				return
			}
		}
		if l.found {
			r.verdict, r.seen = verdictSeen, l.seen
			return
		}
	}
	r.verdict, r.dismissed = verdictNew, tags == tagExact
	if tags&tagApprox != 0 {
		r.verdict = verdictMaybe
	}
}

// matches asks the filters that may remember the key's opids: its table's, and
// those of tables it belonged to before. It returns the modes of the matching
// segments and, if wanted, the runs in which the record would be: those that
// overlap the time of the matching generations.
func (r *ref) matches(logged int64, runs *[]persistence.Run) (tags uint8) {
	tags = r.t.match(r.hash, runs)
	for _, l := range r.t.def.Links {
		if logged < l.Until && l.covers(r.key) {
			if t := r.p.tables[l.Table]; t != nil {
				tags |= t.match(r.hash, runs)
			}
		}
	}
	return tags
}

func (t *tableState) match(hash uint64, runs *[]persistence.Run) uint8 {
	m, ok := t.filter.Match(hash)
	if !ok {
		return 0
	}
	if runs != nil {
		// Newest first: a retry follows its original soon.
		for i := len(t.runs) - 1; i >= 0; i-- {
			if run := t.runs[i]; run.LastTime >= m.First && run.FirstTime <= m.Last {
				*runs = append(*runs, run)
			}
		}
	}
	return m.Tags
}

// lookUp searches the runs for the opid. No lock is held; judge checks
// afterwards that the runs are still the same, and finds in memory what was
// applied in between.
func (r *ref) lookUp(db *persistence.DB, id []byte) error {
	l := &r.disk.look
	for _, run := range l.runs {
		var bad error
		err := db.LookUp(run, r.hash, func(_ uint64, value []byte) bool {
			rec, err := decodeRunValue(value)
			if bad = err; err != nil {
				return false
			}
			if string(rec.key) != string(r.key) || string(rec.id) != string(id) {
				return true
			}
			l.found, l.seen = true, rec.seen
			return false
		})
		if err == nil {
			err = bad
		}
		if err != nil {
			return err
		}
		if l.found {
			break
		}
	}
	l.done = true
	return nil
}

// again judges a second time, at the operation's turn: an earlier operation of
// the same batch may have been its twin. Runs need not be asked again, for
// what they hold was there at the first judgement.
func (r *ref) again(id []byte, logged int64) {
	if !r.p.twins.mayHave(r.hash) || r.verdict != verdictNew || !r.t.filter.Contains(r.hash) {
		return
	}
	if r.t.def.Mode == Approx {
		r.verdict = verdictMaybe
		return
	}
	if rec, ok := r.p.recent.find(r.hash, r.key, id); ok {
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
