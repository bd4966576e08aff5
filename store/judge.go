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
		if !r.look.done || r.look.version != r.p.runsVersion {
			r.look = look{version: r.p.runsVersion, runs: r.look.runs[:0]}
			r.matches(logged, &r.look.runs)
			if len(r.look.runs) > 0 {
				r.verdict = verdictUnknown
				return
			}
		}
		if r.look.found {
			r.verdict, r.seen = verdictSeen, r.look.seen
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
	for _, run := range r.look.runs {
		var bad error
		err := db.LookUp(run, r.hash, func(_ uint64, value []byte) bool {
			rec, err := decodeRunValue(value)
			if bad = err; err != nil {
				return false
			}
			if string(rec.key) != string(r.key) || string(rec.id) != string(id) {
				return true
			}
			r.look.found, r.look.seen = true, rec.seen
			return false
		})
		if err == nil {
			err = bad
		}
		if err != nil {
			return err
		}
		if r.look.found {
			break
		}
	}
	r.look.done = true
	return nil
}

// again judges a second time, at the operation's turn: an earlier operation of
// the same batch may have been its twin. Runs need not be asked again, for
// what they hold was there at the first judgement.
func (r *ref) again(id []byte, logged int64) {
	if !r.p.inserted || r.verdict != verdictNew || !r.t.filter.Contains(r.hash) {
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

// tableOf returns the table of a key.
func (p *partition) tableOf(key []byte) *tableState {
	return p.tables[p.catalog.find(key).ID]
}
