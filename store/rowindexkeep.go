package store

import (
	"errors"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

const (
	// fillBytes bounds the memory of the rows that are gathered for a run while an
	// index is filled.
	fillBytes = 8 << 20
	// fillFan is how many runs of about one size become one while an index is
	// filled, so that not too many files are open.
	fillFan = 16
	// rowRecordBytes is about how much room a row takes in a run.
	rowRecordBytes = 64
)

// What ends a fill or a merge.
var (
	errUnwanted = errors.New("not wanted any more")
	errNoRoom   = errors.New("the disk is nearly full")
)

// keepRowIndexes fills the partitions' indexes of rows when that pays, and merges
// their runs.
func (s *Store) keepRowIndexes() {
	tick := time.NewTicker(cyclePeriod)
	defer tick.Stop()
	for s.Failure() == nil {
		if s.indexing.TryLock() { // else a test keeps them
			for _, p := range s.partitions {
				s.keepRowIndex(p)
			}
			s.indexing.Unlock()
		}
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

// keepRowIndex does for one partition what is due.
func (s *Store) keepRowIndex(p *partition) {
	if s.stopping() {
		return
	}
	if s.diskFull.Load() {
		p.index.drop(0, rowIndexRest)
	}
	p.mu.Lock()
	rows := p.size
	p.mu.Unlock()
	if p.index.due(rows) {
		s.fillRowIndex(p, rows)
	}
	s.mergeRowIndex(p)
}

// dropRowIndexes ends all indexes of rows.
func (s *Store) dropRowIndexes() {
	for _, p := range s.partitions {
		p.index.drop(0, 0)
		p.index.removeDead()
	}
}

// due reports whether an index of so many rows is worth being filled.
func (x *rowIndex) due(rows int64) bool {
	if n := x.loads.Load(); !x.always && (n < minFill || n < rows/fillAfter) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.set == nil && time.Now().After(x.after) && x.db.OpenRuns() < persistence.MaxOpenRuns/2
}

// wanted returns why the index with a number is not worth any more work; nil if it
// is.
func (s *Store) wanted(p *partition, number int) error {
	switch {
	case s.stopping() || s.Failure() != nil || p.index.on() != number:
		return errUnwanted
	case s.diskFull.Load():
		return errNoRoom
	}
	return nil
}

// keepOn is the pace of a fill or a merge: it gives way, and ends it when it is not
// wanted any more.
func (s *Store) keepOn(p *partition, number int) error {
	giveWay()
	return s.wanted(p, number)
}

// diskRoomFor returns an error if files of so many bytes would leave the disk little more
// room than writes must have.
func (s *Store) diskRoomFor(bytes uint64) error {
	if s.opts.MinFreeDisk < 0 {
		return nil
	}
	free, _, err := s.db.DiskUsage()
	if err == nil && free < 2*uint64(s.opts.MinFreeDisk)+bytes {
		return errNoRoom
	}
	return nil // not every file system can tell
}

// fillRowIndex copies a partition's rows, of which there are about so many, into a
// new index. Rows that are written after it began are added to it, those that were
// written before are seen by the scan: no write-back is under way when it begins.
func (s *Store) fillRowIndex(p *partition, rows int64) {
	s.snapshots.mu.Lock()
	number := p.index.begin()
	s.snapshots.mu.Unlock()
	f := rowFill{s: s, p: p, number: number}
	err := s.diskRoomFor(2 * uint64(rows) * rowRecordBytes)
	if err == nil {
		err = f.copyRows()
	}
	if err == nil {
		err = p.index.complete(number, f.runs)
	}
	if err != nil {
		s.db.RemoveRuns(f.runs)
		if !errors.Is(err, errUnwanted) {
			s.giveUp(p, number, err)
		}
	}
}

// rowFill is an index that is being filled.
type rowFill struct {
	s       *Store
	p       *partition
	number  int
	records rowRecords
	runs    []persistence.Run // oldest first, though none overrides another
	n       int               // rows copied
}

// copyRows makes one run of all the rows there are.
func (f *rowFill) copyRows() (err error) {
	from, to := f.p.rowRange()
	scan := f.s.db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
		err = f.row(k, value)
		return err == nil
	})
	if err = errors.Join(err, scan); err != nil {
		return err
	}
	if err := f.flush(); err != nil {
		return err
	}
	if len(f.runs) < 2 {
		return f.s.wanted(f.p, f.number)
	}
	return f.merge(0)
}

func (f *rowFill) row(k persistence.RowKey, value []byte) error {
	if f.n++; f.n%paceRecords == 0 {
		if err := f.s.keepOn(f.p, f.number); err != nil {
			return err
		}
	}
	r, err := decodeRow(value)
	if err != nil {
		return err
	}
	f.records.add(hotHash(k.Key), r.seq, rowRecord{key: k.Key, value: r.value, expire: r.expire})
	if len(f.records.places) < f.p.index.fillRows && len(f.records.bytes) < fillBytes {
		return nil
	}
	return f.flush()
}

// flush writes what was gathered.
func (f *rowFill) flush() error {
	if len(f.records.places) == 0 {
		return nil
	}
	run, err := f.p.index.write(&f.records, false)
	if err != nil {
		return err
	}
	f.records.reset()
	f.runs = append(f.runs, run)
	for _, p := range f.s.partitions { // those that are whole go on
		f.s.mergeRowIndex(p)
	}
	if from := ofOneSize(f.runs, fillFan); from < len(f.runs)-1 {
		return f.merge(from)
	}
	// What is there will be written once more, as one run.
	return f.s.diskRoomFor(runBytes(f.runs) + 2*fillBytes)
}

// merge makes one of the runs from from on.
func (f *rowFill) merge(from int) error {
	if err := f.s.wanted(f.p, f.number); err != nil {
		return err
	}
	run, err := f.s.mergeRows(f.p, f.number, f.runs[from:], from == 0)
	if err != nil {
		return err
	}
	f.s.db.RemoveRuns(f.runs[from:])
	f.runs = append(f.runs[:from], run)
	return nil
}

// complete puts the runs of all rows below those that were added meanwhile to the
// index with a number, which is whole then.
func (x *rowIndex) complete(number int, runs []persistence.Run) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil || x.number != number {
		return errUnwanted
	}
	if err := x.replace(append(runs, x.set.runs()...), true); err != nil {
		return err
	}
	x.loads.Store(0)
	x.credit = x.set.count()
	return nil
}
