package store

import "github.com/fbfkv/fbfkv/persistence"

// runSource yields entries of a run to be, ascending by (hash, sequence).
type runSource interface {
	// next returns the entries that follow, some at a time so that a call for
	// each does not count; none at the end. They are valid until the next call.
	next() ([]persistence.RunEntry, error)
	close()
}

// iteratorSource yields the entries of a run on disk.
type iteratorSource struct {
	it     *persistence.RunIterator
	closed bool
}

func (s *iteratorSource) next() ([]persistence.RunEntry, error) {
	if entries := s.it.Next(); len(entries) > 0 {
		return entries, nil
	}
	s.closed = true
	return nil, s.it.Close()
}

func (s *iteratorSource) close() {
	if !s.closed {
		s.closed = true
		_ = s.it.Close() // the merge has failed for another reason
	}
}

// sourcesOf appends runs on disk to sources. The caller closes what is returned, also
// beside an error.
func (s *Store) sourcesOf(sources []runSource, runs []persistence.Run) ([]runSource, error) {
	for _, r := range runs {
		it, err := s.db.IterateRun(r)
		if err != nil {
			return sources, err
		}
		sources = append(sources, &iteratorSource{it: it})
	}
	return sources, nil
}

func closeSources(sources []runSource) {
	for _, s := range sources {
		s.close()
	}
}

// paceRecords is after how many records a merge, which is work for a whole core,
// gives way: a fraction of a millisecond, so that whoever serves clients never waits
// for a scheduler's time slice. (It does not sleep: while all processors are busy
// that takes many times as long as asked for, and what is to be saved piles up.)
const paceRecords = 2048

// mergeSources calls add for the entries of all sources in order, until it returns an
// error; a gentle merge gives way after each paceRecords of them. An entry that
// several sources have is added once.
func mergeSources(sources []runSource, gentle bool, add func(hash, seq uint64, value []byte) error) error {
	t, err := newLoserTree(sources)
	if err != nil {
		return err
	}
	first, hash, seq := true, uint64(0), uint64(0)
	for n := 1; len(t.heads) > 0; n++ {
		if gentle && n%paceRecords == 0 {
			giveWay()
		}
		e := t.least()
		if first || e.Hash != hash || e.Seq != seq {
			if err := add(e.Hash, e.Seq, e.Value); err != nil {
				return err
			}
		}
		first, hash, seq = false, e.Hash, e.Seq
		if err := t.advance(); err != nil {
			return err
		}
	}
	return nil
}
