package seen

import (
	"sync"

	"github.com/fbfkv/fbfkv/persistence"
)

// Records are what one partition's EXACT tables know of their operations: those added
// last in memory, the others in runs on disk. Its owner's lock guards it; the methods say
// which need it held. (*Build and *Search do their long work without.)
type Records struct {
	partition uint16
	mu        sync.Locker
	db        *persistence.DB

	bundles []*bundle // oldest first; the last one grows
	mark    mark
	runs    map[uint32][]persistence.Run // by table, oldest first
	version uint64                       // counts changes of runs: a Search holds while it stays
	nextRun uint64                       // id of the next run
	// obsolete were merged into others, have expired or belong to tables that are gone;
	// the next Build drops them.
	obsolete    []persistence.Run
	unpublished map[uint64]bool   // runs, by id, that no header row names yet
	found       []persistence.Run // by Load, until Assign
}

// mark is a place in the chain of bundles. It is good until bundles are released.
type mark struct{ bundle, count int }

// New returns the records of a partition, none. mu is the lock that guards them, db has
// the partition's runs.
func New(partition uint16, mu sync.Locker, db *persistence.DB) Records {
	return Records{partition: partition, mu: mu, db: db, nextRun: 1, runs: make(map[uint32][]persistence.Run),
		unpublished: make(map[uint64]bool)}
}

// Add remembers an operation. Sequences and logged times ascend. Of several records of
// one (key, opid) the one with the highest sequence counts, and supersedes the others:
// Find and Search tell of no other. The lock is held.
func (rs *Records) Add(r *Record) {
	if len(rs.bundles) == 0 {
		rs.bundles = append(rs.bundles, new(bundle))
	}
	s := rs.bundles[len(rs.bundles)-1]
	if len(s.chunks) > maxChunks {
		s = new(bundle)
		rs.bundles = append(rs.bundles, s)
	}
	s.add(r)
}

// MaxOthers is how many operations may have the same hash and each be found in turn. The
// owner adds no more: the hash is keyed, so that there is no second one unless the key is
// known, and then looking through them must not take long.
const MaxOthers = 64

// Find looks in memory for the record of (key, id), whose hash is given, that was added
// at the logged times first to last. It returns the newest, and its sequence; others says
// how many records of other operations with that hash it met. The lock is held.
func (rs *Records) Find(first, last int64, hash uint64, key, id []byte) (o Original, seq uint64, others int,
	ok bool) {
	for i := len(rs.bundles) - 1; i >= 0; i-- {
		s := rs.bundles[i]
		if s.last < first || s.first > last {
			continue
		}
		if b := s.find(hash, key, id, &others); b != nil {
			o, seq = decode(b)
			return o, seq, others, true
		}
	}
	return Original{}, 0, others, false
}

// SetMark sets the mark behind the newest record. The lock is held, and stays held until the
// last FindSinceMark.
func (rs *Records) SetMark() {
	rs.mark = mark{}
	if n := len(rs.bundles) - 1; n >= 0 {
		rs.mark = mark{n, rs.bundles[n].count}
	}
}

// FindSinceMark is Find for a record added behind the mark, which costs the same however
// many there are before it. The lock is held.
func (rs *Records) FindSinceMark(hash uint64, key, id []byte) (o Original, seq uint64, others int, ok bool) {
	for i := len(rs.bundles) - 1; i >= rs.mark.bundle; i-- {
		from := 0
		if i == rs.mark.bundle {
			from = rs.mark.count
		}
		if b := rs.bundles[i].findFrom(from, hash, key, id, &others); b != nil {
			o, seq = decode(b)
			return o, seq, others, true
		}
	}
	return Original{}, 0, others, false
}

// decode returns what Find does of a record that it has found.
func decode(b []byte) (Original, uint64) {
	o, _ := originalOf(recordValue(b)) // which add has encoded
	o.found(recordSeq(b))
	return o, recordSeq(b)
}

// found fills in what the record's sequence tells.
func (o *Original) found(seq uint64) {
	if o.Own() {
		o.Dot = seq
	}
}

// TouchIndex and TouchRecord ask for what Find will need, first in the index, then in
// the records: called for many hashes in turn, they let the cache misses of all overlap.
// What they return only keeps the loads from being dropped. The lock is held.
func (rs *Records) TouchIndex(hash uint64) (x uint32) {
	for _, s := range rs.bundles {
		x += s.index.first(hash)
	}
	return x
}

// TouchRecord is described at TouchIndex.
func (rs *Records) TouchRecord(hash uint64) (x uint32) {
	for _, s := range rs.bundles {
		if loc := s.index.first(hash); loc != 0 {
			x += uint32(s.at(uint64(loc - 1))[recordHeader-1])
		}
	}
	return x
}

// Drain hands the records in memory to fn, as they were added, and forgets them. fn
// borrows the value. The lock is held, and no Build is under way.
func (rs *Records) Drain(fn func(table uint32, seq uint64, value []byte)) {
	for _, s := range rs.bundles {
		for i := range s.count {
			b := s.at(s.heads.at(i).location())
			fn(recordTable(b), recordSeq(b), recordValue(b))
		}
	}
	rs.release(len(rs.bundles))
	rs.mark = mark{}
}

// Forget forgets all records, as FLUSHALL does. The runs' files go with the next Build.
// The lock is held, and no Build is under way.
func (rs *Records) Forget() {
	rs.bundles, rs.mark = nil, mark{}
	for table := range rs.runs {
		rs.Drop(table)
	}
	rs.version++
}

// Reset makes the records those of a partition of which nothing is known yet; Load and
// Assign may follow. Files on disk stay there, except those of runs that were never published:
// the next Build removes these. The lock is held, and no Build is under way.
func (rs *Records) Reset() {
	rs.release(len(rs.bundles))
	rs.Forget()
	clear(rs.unpublished)
}

// Drop forgets the runs of a table that is gone. The lock is held.
func (rs *Records) Drop(table uint32) {
	rs.obsolete = append(rs.obsolete, rs.runs[table]...)
	delete(rs.runs, table)
	rs.version++
}

// seal ends the growing bundle and returns all that are not empty; nil when there is
// none.
func (rs *Records) seal() []*bundle {
	n := len(rs.bundles)
	if n > 0 && rs.bundles[n-1].count > 0 {
		rs.bundles = append(rs.bundles, new(bundle))
		n++
	}
	if n <= 1 {
		return nil
	}
	return rs.bundles[: n-1 : n-1]
}

// release drops the n oldest bundles, which are in visible runs now. Nobody may use
// them any more.
func (rs *Records) release(n int) {
	for _, s := range rs.bundles[:n] {
		s.recycle()
	}
	rs.bundles = append([]*bundle(nil), rs.bundles[n:]...)
}

// Figures count records.
type Figures struct {
	Recent     int    // records in memory
	Runs       int    // runs on disk
	RunRecords uint64 // records in them
	RunBytes   uint64 // bytes of their values
}

// Bytes is the memory that records hold. The lock is held.
func (rs *Records) Bytes() (n int) {
	for _, s := range rs.bundles {
		n += s.size
	}
	return n
}

// Figures returns those of all tables together. The lock is held.
func (rs *Records) Figures() (f Figures) {
	for _, s := range rs.bundles {
		f.Recent += s.count
	}
	for _, runs := range rs.runs {
		f.add(runs)
	}
	return f
}

// TableFigures returns those of one table. The lock is held.
func (rs *Records) TableFigures(table uint32) (f Figures) {
	f.Recent = countTables(rs.bundles)[table]
	f.add(rs.runs[table])
	return f
}

// RunBytes is TableFigures' figure of that name. The lock is held.
func (rs *Records) RunBytes(table uint32) uint64 {
	var f Figures
	f.add(rs.runs[table])
	return f.RunBytes
}

func (f *Figures) add(runs []persistence.Run) {
	f.Runs += len(runs)
	for _, r := range runs {
		f.RunRecords += r.Count
		f.RunBytes += r.Bytes
	}
}
