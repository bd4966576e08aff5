package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// rowIndex finds the rows of a partition by the hashes of their keys, each with one
// read of half a kilobyte. Rows are in Pebble, which makes them durable, keeps them
// in SCAN's order and is asked while there is no index; but a look-up there goes
// through memtables, tables of several levels and their blocks, and takes several
// times as long. When counters that are not in memory are asked for often, that is
// most of what operations cost.
//
// The index is a copy that belongs to the process. It begins once look-ups in Pebble
// have cost about as much as copying all rows (rowindexkeep.go), takes in what is
// written back (add), and is let go when it does not pay, when the disk is nearly
// full, or when anything is wrong with its files. It is made of sorted runs, as
// EXACT's records are, that are never published and that the next start removes.
//
// What it says is used as what Pebble says: only if the key was not evicted since
// the look-up began (hotCounters.evicted). A row is in the index before its
// counter may leave memory.
type rowIndex struct {
	db        *persistence.DB
	partition uint16
	always    bool         // there is to be one, whether it pays or not: for tests
	fillRows  int          // how many rows a run has that is written while the index is filled
	loads     atomic.Int64 // rows that were found in Pebble for want of an index
	asked     atomic.Int64 // look-ups since the last add

	mu     sync.Mutex
	set    *rowSet // nil: there is no index
	number int     // of the present index, or the last one
	run    uint64  // ID of the last run
	credit int64   // what the index may still cost, in rows, until it is asked more
	after  time.Time
	dead   []persistence.Run // to be removed
}

// rowSet is what look-ups ask. It does not change; each change of the index makes
// another one.
type rowSet struct {
	number  int                      // of the index
	refs    atomic.Int32             // of who uses it, and of the index while it is the present one
	whole   bool                     // it has every row; else it is being filled
	readers []*persistence.RunReader // oldest first: a younger run overrides
}

const (
	// fillAfter is how many rows cost as much to copy as one look-up in Pebble.
	fillAfter = 16
	// minFill is how many look-ups there are before an index is thought of.
	minFill = 1024
	// addsPerLookUp is how many rows cost as much to keep in the index as one
	// look-up saves.
	addsPerLookUp = 8
	// rowIndexRest is how long there is no index after one was given up.
	rowIndexRest = 5 * time.Minute
	// maxScreened is how many of the youngest runs are screened.
	maxScreened = 64
)

func newRowIndex(db *persistence.DB, partition uint16, always bool) *rowIndex {
	return &rowIndex{db: db, partition: partition, always: always, fillRows: 64 << 10}
}

// acquire returns the set for look-ups, nil if there is none that is whole. It must
// be released.
func (x *rowIndex) acquire() *rowSet {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil || !x.set.whole {
		return nil
	}
	x.set.refs.Add(1)
	return x.set
}

func (s *rowSet) release() {
	if s != nil && s.refs.Add(-1) == 0 {
		for _, r := range s.readers {
			r.Close()
		}
	}
}

// runs lists the set's runs, oldest first.
func (s *rowSet) runs() (runs []persistence.Run) {
	for _, r := range s.readers {
		runs = append(runs, r.Run)
	}
	return runs
}

// count is how many entries the set has.
func (s *rowSet) count() (n int64) {
	for _, r := range s.readers {
		n += int64(r.Run.Count)
	}
	return n
}

// screen sets, in the masks of keys whose hotHashes are given, the bits of the runs
// that may have them; bit 0 is the youngest run's. It goes through one run's filter
// after the other: the cache misses of all the keys overlap.
func (s *rowSet) screen(hashes, masks []uint64) {
	clear(masks[:len(hashes)])
	for i := range min(len(s.readers), maxScreened) {
		r := s.readers[len(s.readers)-1-i]
		for k, hash := range hashes {
			bit := uint64(0)
			if r.MayHave(hash) {
				bit = 1
			}
			masks[k] |= bit << i
		}
	}
}

// find looks up the row of a key, whose hotHash and mask are given. Safe for
// concurrent use, each with its own found.
func (s *rowSet) find(hash, mask uint64, key []byte, found *persistence.Entries) (r row, ok bool, err error) {
	for i := range s.readers {
		if i < maxScreened && mask>>i&1 == 0 {
			continue
		}
		if err := s.readers[len(s.readers)-1-i].LookUp(hash, found); err != nil {
			return row{}, false, err
		}
		for found.Next() {
			rec, err := decodeRowRecord(found.Value)
			if err != nil {
				return row{}, false, err
			}
			if string(rec.key) == string(key) {
				return row{seq: found.Seq, value: rec.value, expire: rec.expire}, !rec.deleted, nil
			}
		}
		if err := found.Err(); err != nil {
			return row{}, false, err
		}
	}
	return row{}, false, nil
}

// on returns the number of the index, which write-backs must keep right; 0: there is
// none.
func (x *rowIndex) on() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil {
		return 0
	}
	return x.number
}

// begin makes an index without rows, which write-backs add to from now on, and
// returns its number. No write-back is in progress.
func (x *rowIndex) begin() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bury()
	x.number++
	x.swap(&rowSet{number: x.number})
	return x.number
}

// swap makes s the set; nil: there is none any more. x.mu is held.
func (x *rowIndex) swap(s *rowSet) {
	if s != nil {
		s.refs.Store(1)
	}
	x.set.release()
	x.set = s
}

// bury has the files of the present index removed. x.mu is held.
func (x *rowIndex) bury() {
	if x.set != nil {
		x.dead = append(x.dead, x.set.runs()...)
		x.swap(nil)
	}
}

// replace makes the runs those of the index. x.mu is held.
func (x *rowIndex) replace(runs []persistence.Run, whole bool) error {
	s := &rowSet{number: x.number, whole: whole}
	for _, r := range runs {
		reader, err := x.db.ReadRun(r)
		if err != nil {
			s.refs.Store(1)
			s.release()
			return err
		}
		s.readers = append(s.readers, reader)
	}
	x.swap(s)
	return nil
}

// add takes rows that were just written into the index with a number. They may leave
// memory once it returns, or once the index is dropped.
func (x *rowIndex) add(number int, rows *rowRecords) error {
	run, err := x.write(rows, true)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil || x.number != number {
		x.dead = append(x.dead, run)
		return nil
	}
	if err := x.replace(append(x.set.runs(), run), x.set.whole); err != nil {
		x.dead = append(x.dead, run)
		return err
	}
	return nil
}

// pays settles what an index costs for a number of rows added against what
// it has saved since, and reports whether it is to be kept.
func (x *rowIndex) pays(added int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil || !x.set.whole || x.always {
		return true
	}
	x.credit = min(x.credit+addsPerLookUp*x.asked.Swap(0)-int64(added), x.set.count())
	return x.credit >= 0
}

// write makes a run of rows. Nobody knows it yet.
func (x *rowIndex) write(rows *rowRecords, filtered bool) (persistence.Run, error) {
	rows.sort()
	w, err := x.db.NewScratchRun(x.newRun(uint64(len(rows.places)), uint64(len(rows.bytes))), filtered)
	if err != nil {
		return persistence.Run{}, err
	}
	defer w.Abort()
	for _, r := range rows.places {
		if err := w.Add(r.hash, r.seq, rows.bytes[r.from:r.to]); err != nil {
			return persistence.Run{}, err
		}
	}
	return w.Finish(persistence.Run{})
}

// newRun describes a new run of about so many entries and bytes.
func (x *rowIndex) newRun(count, bytes uint64) persistence.Run {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.run++
	return persistence.Run{Partition: x.partition, ID: x.run, Count: count, Bytes: bytes}
}

// drop ends the index with that number, or whichever there is if it is 0, for some
// time at least, and reports whether there was one.
func (x *rowIndex) drop(number int, rest time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil || number != 0 && x.number != number {
		return false
	}
	x.bury()
	x.loads.Store(0)
	x.asked.Store(0)
	x.rest(rest)
	return true
}

// rest puts off the next index. x.mu is held.
func (x *rowIndex) rest(d time.Duration) {
	if d == 0 {
		return
	}
	if after := time.Now().Add(d); after.After(x.after) {
		x.after = after
	}
}

// removeDead removes the files of runs that are no longer part of the index. Those
// in use are still read by who uses them.
func (x *rowIndex) removeDead() {
	x.mu.Lock()
	dead := x.dead
	x.dead = nil
	x.mu.Unlock()
	x.db.RemoveRuns(dead)
}

// addStats adds the index's figures.
func (x *rowIndex) addStats(st *Stats) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set == nil {
		return
	}
	if x.set.whole {
		st.RowIndexes++
	}
	st.RowIndexRows += uint64(x.set.count())
	st.RowIndexRuns += len(x.set.readers)
	for _, r := range x.set.readers {
		st.RowIndexBytes += int64(r.Memory())
	}
}

// indexRows adds rows that were just written to the partition's index with a number,
// or gives it up.
func (s *Store) indexRows(p *partition, number int, rows *rowRecords) {
	n := len(rows.places)
	if n == 0 {
		return
	}
	if err := p.index.add(number, rows); err != nil {
		s.giveUp(p, number, err)
	}
	rows.reset()
	if !p.index.pays(n) || s.db.OpenRuns() >= persistence.MaxOpenRuns {
		p.index.drop(number, rowIndexRest)
	}
}

// giveUp ends the index with a number: something is wrong with its files. Pebble has
// every row.
func (s *Store) giveUp(p *partition, number int, err error) {
	if p.index.drop(number, rowIndexRest) {
		s.log.Error("index of rows: given up for a while, look-ups go on without", "partition", p.id, "error", err)
	}
}
