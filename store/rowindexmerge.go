package store

import (
	"errors"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// rowMergeFan is how many runs of rows of about one size become one. Each look-up asks
// the filters of all, so that fewer are better than for EXACT's records (mergeFan).
const rowMergeFan = 4

// mergeRowIndex merges runs of an index, if it is whole, until there are few.
func (s *Store) mergeRowIndex(p *partition) {
	for more := true; more; {
		set := p.index.acquire()
		if set == nil {
			break
		}
		var err error
		if more, err = s.mergeSome(p, set); err != nil && !errors.Is(err, errUnwanted) {
			s.giveUp(p, set.number, err)
		}
		set.release()
	}
	p.index.removeDead()
}

// mergeSome merges some of a set's runs, if that is due.
func (s *Store) mergeSome(p *partition, set *rowSet) (more bool, err error) {
	runs := set.runs()
	from, to := rowMergeRange(runs)
	if from == to {
		return false, nil
	}
	if err := s.diskRoomFor(runBytes(runs[from:to])); err != nil {
		return false, err
	}
	run, err := s.mergeRows(p, set.number, runs[from:to], from == 0)
	if err != nil {
		return false, err
	}
	return true, p.index.merged(set.number, runs[from:to], run)
}

// merged puts one run into the place of those that it was made of.
func (x *rowIndex) merged(number int, old []persistence.Run, run persistence.Run) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil || x.number != number {
		x.dead = append(x.dead, run)
		return errUnwanted
	}
	runs := x.set.runs() // others may have been added
	at := slices.Index(runs, old[0])
	if err := x.replace(slices.Replace(runs, at, at+len(old), run), x.set.whole); err != nil {
		x.dead = append(x.dead, run)
		return err
	}
	x.dead = append(x.dead, old...)
	return nil
}

// mergeRows makes one run of several of the index with a number; oldest: nothing is
// older.
func (s *Store) mergeRows(p *partition, number int, runs []persistence.Run, oldest bool) (persistence.Run, error) {
	sources, err := s.sourcesOf(nil, runs)
	defer closeSources(sources)
	if err != nil {
		return persistence.Run{}, err
	}
	count := uint64(0)
	for _, r := range runs {
		count += r.Count
	}
	// Most of what is asked for is in the oldest run, and would pass its filter.
	w, err := s.db.NewScratchRun(p.index.newRun(count, runBytes(runs)), !oldest)
	if err != nil {
		return persistence.Run{}, err
	}
	defer w.Abort()
	m := rowMerger{add: w.Add, oldest: oldest}
	err = mergeSources(sources, func() error { return s.keepOn(p, number) }, m.next)
	if err == nil {
		err = m.flush()
	}
	if err != nil {
		return persistence.Run{}, err
	}
	return w.Finish(persistence.Run{})
}

// rowMergeRange returns which of the runs, runs[from:to], become one; from is to if
// none do: as many of about one size as have gathered, wherever they are, or all, once
// the younger ones have half as many entries as the oldest.
func rowMergeRange(runs []persistence.Run) (from, to int) {
	if len(runs) < rowMergeFan {
		return 0, 0
	}
	younger := uint64(0)
	for _, r := range runs[1:] {
		younger += r.Count
	}
	if younger >= runs[0].Count/2 {
		return 0, len(runs)
	}
	for to := len(runs); to >= rowMergeFan; to-- {
		if from := ofOneSize(runs[:to], rowMergeFan); from < to-1 {
			return from, to
		}
	}
	return 0, 0
}

// ofOneSize returns the first of the runs that become one with the last, because as
// many as fan have gathered that are about as large as it or smaller, or the last.
func ofOneSize(runs []persistence.Run, fan int) int {
	from := len(runs) - 1
	n := runs[from].Count
	for {
		i, sum := from, n
		for i > 0 && runs[i-1].Count <= n*uint64(fan-1) {
			i--
			sum += runs[i].Count
		}
		if from-i < fan-1 {
			return from
		}
		from, n = i, sum
	}
}
