package store

import (
	"bytes"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// Stats are the figures of the whole store, for INFO.
type Stats struct {
	Recovery     Recovery
	Partitions   int
	Fsync        Fsync
	Failure      error // why the store is frozen; nil if it is not
	DiskFull     bool
	DiskFree     uint64 // bytes that may still be written; 0 also if it is not known
	MinFreeDisk  uint64 // below which writes are refused
	LastBackup   time.Time
	Keys         int64  // DBSIZE, whether committed or not
	Expires      int64  // keys in memory that have an expiry
	Hits, Misses uint64 // keys that queries found, and did not, since start
	Expired      uint64 // keys removed because their time had come, since start

	HotCounters, DirtyCounters int
	ColdCounters               int64         // still to be read into memory after a start
	RowFilterBytes             int64         // memory of what knows which keys have a row
	FilterBytes, FilterLimit   int64         // all filters; limit 0: none
	Objects                    [maxTypes]int // keys that hold an object, by Type
	Unreadable                 int           // of these, keys whose object cannot be read
	RecentRecords              int           // EXACT records not yet in a run
	RecentBytes                int
	Runs                       int
	RunBytes, RunRecords       uint64
	LogBytes                   uint64 // op log since the last checkpoints
	Entries                    uint64 // outcomes logged since the directory was made or restored
	// outcomes that the last checkpoints do not contain, as Redis counts them
	Changes int64
	heldFigures
	OldestHold time.Time // when the oldest open hold was opened; zero: none is open
	Figures
	Storage persistence.Metrics
}

// Stats returns the present figures.
func (s *Store) Stats() Stats {
	st := Stats{
		Recovery: s.recovery, Partitions: len(s.partitions), Fsync: s.db.Log().Policy(),
		Expired: s.expired.Load(), Hits: s.hits.Load(), Misses: s.misses.Load(),
		Failure: s.Failure(), DiskFull: s.diskFull.Load(),
		FilterBytes: s.pool.used.Load(), FilterLimit: s.pool.limit.Load(),
		MinFreeDisk: uint64(max(s.opts.MinFreeDisk, 0)), LastBackup: s.db.LastBackup(),
		Storage: s.db.Metrics(),
	}
	st.DiskFree, _ = s.db.DiskFree()
	for _, p := range s.partitions {
		if p.lockNow() {
			p.addStats(&st)
			p.mu.Unlock()
		}
	}
	return st
}

// HoldAge is for how long the oldest open hold has been open; 0: none is.
func (st *Stats) HoldAge() time.Duration {
	if st.OldestHold.IsZero() {
		return 0
	}
	return max(time.Since(st.OldestHold), 0)
}

func (p *partition) addStats(st *Stats) {
	st.Keys += p.size
	st.Expires += int64(len(p.newExpiries))
	st.HotCounters += p.hot.len()
	st.ColdCounters += p.coldCounters()
	st.DirtyCounters += len(p.hot.dirty)
	st.RowFilterBytes += int64(p.rows.bytes())
	for t, n := range p.ofType {
		st.Objects[t] += n
	}
	st.Unreadable += p.unreadable
	f := p.seen.Figures()
	st.RecentRecords += f.Recent
	st.RecentBytes += p.seen.Bytes()
	st.Runs += f.Runs
	st.RunBytes += f.RunBytes
	st.RunRecords += f.RunRecords
	st.LogBytes += p.logBytes
	st.Entries += p.seq & (1<<incarnationBits - 1)
	st.Changes += int64(p.seq) - p.savedSeq
	st.heldFigures.add(heldFigures{uint64(len(p.holds.due)), uint64(p.holds.bytes)})
	if ms := p.holds.ages.first(); ms != 0 {
		if t := time.UnixMilli(ms); st.OldestHold.IsZero() || t.Before(st.OldestHold) {
			st.OldestHold = t
		}
	}
	for _, t := range p.tables {
		st.Figures.add(t.figures)
	}
}

// Seed returns the hash seed. Clients must not learn it.
func (s *Store) Seed() [16]byte { return s.db.Meta().Seed }

// Pristine reports whether nothing would be lost with the directory: nobody has made a key
// or a table, applied an operation, or flushed.
func (s *Store) Pristine() bool {
	fresh := newCatalog().encode()
	for _, p := range s.partitions {
		p.lock()
		f := p.seen.Figures()
		used := p.size != 0 || p.floor != 0 || f.Recent+f.Runs > 0 || !bytes.Equal(p.catalog.encode(), fresh)
		p.mu.Unlock()
		if used {
			return false
		}
	}
	return true
}

// countReads adds what the batch's queries found to the store's totals.
func (x *execution) countReads() {
	if x.hits > 0 {
		x.s.hits.Add(x.hits)
	}
	if x.expired > 0 {
		x.s.expired.Add(x.expired)
	}
	if x.misses > 0 {
		x.s.misses.Add(x.misses)
	}
}

// The events that OnEvent tells of.
const (
	EventCommit     = "commit"       // a batch waited until it was committed
	EventCheckpoint = "checkpoint"   // a partition's changes were brought to their rows and filters
	EventSnapshot   = "snapshot"     // SAVE or BGSAVE: a checkpoint of all partitions
	EventExpiry     = "expire-cycle" // keys whose time had come were removed
)

// OnEvent makes the store call fn after each event with how long it took, in the
// goroutine in which it happened: fn must be quick and safe for concurrent use.
func (s *Store) OnEvent(fn func(event string, took time.Duration)) { s.onEvent.Store(&fn) }

// eventBegins returns what eventEnds needs.
func (s *Store) eventBegins() time.Time {
	if s.onEvent.Load() == nil {
		return time.Time{}
	}
	return time.Now()
}

// eventEnds tells of an event.
func (s *Store) eventEnds(event string, began time.Time) {
	if fn := s.onEvent.Load(); fn != nil && !began.IsZero() {
		(*fn)(event, time.Since(began))
	}
}
