package seen

import (
	"cmp"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// Search looks for one operation's record in runs. Under the lock, Begin and Within say
// where to look; Run does so without the lock; then, under the lock again, Holds says
// whether the answer is still good. Records that were in no run at Begin are Find's.
type Search struct {
	rs      *Records
	version uint64             // of rs at Begin
	runs    []*persistence.Run // newest first: a retry follows its original soon
	done    bool
	found   bool
	seq     uint64 // of the record that was found
	record  Original
	others  int // records that only have its hash
}

// Reset forgets the search but keeps its memory.
func (s *Search) Reset() { *s = Search{runs: s.runs[:0]} }

// Begin begins a search that looks nowhere yet. The lock is held.
func (s *Search) Begin(rs *Records) {
	s.Reset()
	s.rs, s.version = rs, rs.version
}

// Within adds a table's runs that overlap the logged times first to last: all that there
// are between math.MinInt64 and math.MaxInt64, whatever a filter still knows. Those that
// cannot have the record cost little, as each has a filter of its own. The lock is held.
func (s *Search) Within(table uint32, first, last int64) {
	runs := s.rs.runs[table]
	for i := len(runs) - 1; i >= 0; i-- {
		// Runs are never changed, only replaced by others, so a pointer is as good.
		if run := &runs[i]; run.LastTime >= first && run.FirstTime <= last {
			s.runs = append(s.runs, run)
		}
	}
}

// Pending reports whether there are runs to be read.
func (s *Search) Pending() bool { return len(s.runs) > 0 }

// Exclude ends the search, without reading, if the runs' filters say that no run has the
// record; else it leaves the runs that may, and returns false. It may be called with the
// lock held or without.
func (s *Search) Exclude(hash uint64) bool {
	s.runs = slices.DeleteFunc(s.runs, func(run *persistence.Run) bool {
		return !s.rs.db.MayHave(*run, hash)
	})
	if len(s.runs) > 0 {
		return false
	}
	s.done = true
	return true
}

// Run reads the runs for the record of (key, id), that with the highest sequence if
// there are several; buf is memory for it. An error is one of reading, or ErrCorrupt. The
// lock is not needed.
func (s *Search) Run(hash uint64, key, id []byte, buf *persistence.Entries) error {
	s.done = true
	for _, run := range s.runs {
		if s.found && run.LastSeq <= s.seq { // a table's older runs, for they are asked newest first
			continue
		}
		if err := s.rs.db.LookUp(*run, hash, buf); err != nil {
			return s.fail(err)
		}
		for buf.Next() { // ascending by sequence
			if !isOf(buf.Value, key, id) {
				s.others++
				continue
			}
			if !s.found || buf.Seq > s.seq {
				o, err := originalOf(buf.Value)
				if err != nil {
					return s.fail(err)
				}
				o.found(buf.Seq)
				s.found, s.seq, s.record = true, buf.Seq, o
			}
		}
		if err := buf.Err(); err != nil {
			return s.fail(err)
		}
	}
	return nil
}

// fail forgets what was found: something newer may be where nothing could be read.
func (s *Search) fail(err error) error {
	s.found = false
	return err
}

// Holds reports whether the runs were searched and are still the same. The lock is held.
func (s *Search) Holds() bool { return s.done && s.version == s.rs.version }

// Found returns what was found, if Holds. The lock is held.
func (s *Search) Found() (o Original, ok bool) { return s.record, s.found && s.Holds() }

// Others returns how many records of other operations with the same hash were met.
func (s *Search) Others() int { return s.others }

// Load lists the partition's runs on disk. They belong to nobody until Assign. The lock
// is held, or nobody else knows of the Records.
func (rs *Records) Load() (err error) {
	if rs.found, err = rs.db.Runs(rs.partition); err != nil {
		return err
	}
	slices.SortFunc(rs.found, func(a, b persistence.Run) int {
		return cmp.Or(cmp.Compare(a.FirstSeq, b.FirstSeq), cmp.Compare(a.ID, b.ID))
	})
	for _, run := range rs.found {
		rs.nextRun = max(rs.nextRun, run.ID+1)
	}
	// After Reset.
	rs.obsolete = slices.DeleteFunc(rs.obsolete, func(r persistence.Run) bool {
		return slices.Contains(rs.found, r)
	})
	return nil
}

// Scan calls fn for each record in those runs that Load found whose table is known, run
// by run in the order of their last logged times, which it is given; until fn returns an
// error.
func (rs *Records) Scan(known func(table uint32) bool,
	fn func(table uint32, hash uint64, last int64) error) error {
	runs := slices.DeleteFunc(slices.Clone(rs.found), func(r persistence.Run) bool { return !known(r.Table) })
	slices.SortFunc(runs, func(a, b persistence.Run) int { return cmp.Compare(a.LastTime, b.LastTime) })
	for _, run := range runs {
		err := rs.db.ScanRun(run, func(hash, _ uint64, _ []byte) error {
			return fn(run.Table, hash, run.LastTime)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Assign gives the tables the runs that Load found. Those belong to nobody whose table
// is not known, which a FLUSHALL at the sequence floor forgot, or whose records a later,
// merged run holds too: that was about to be dropped when the process ended. The lock is
// held, or nobody else knows of the Records.
func (rs *Records) Assign(floor uint64, known func(table uint32) bool) {
	for _, run := range rs.found {
		merged := slices.ContainsFunc(rs.found, func(o persistence.Run) bool {
			return o.Table == run.Table && o.ID > run.ID && o.FirstSeq <= run.FirstSeq &&
				o.LastSeq >= run.LastSeq
		})
		if known(run.Table) && !merged && run.LastSeq > floor {
			rs.runs[run.Table] = append(rs.runs[run.Table], run)
			continue
		}
		rs.obsolete = append(rs.obsolete, run)
	}
	rs.found = nil
}
