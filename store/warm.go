package store

import (
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// Warm-up. After a start, a rebuild or a move, all counters of a partition are on disk, and a client
// pays a look-up of its own for each that it asks for. So they are read into memory in the
// background, in the order of rows, as far as hot-counters has room. If there are more than that,
// those that changed last are chosen. Warm-up evicts nothing, and what it has read is evicted before
// what clients have used.

// warming is the warm-up of one partition.
type warming struct {
	p       *partition
	hot     *hotCounters
	evicted [256]uint32 // of hot, before any row was read.
	oldest  uint64      // Rows of a lower sequence stay on disk.
	piece   []hotSlot   // Counters that are not in memory yet.
}

// warmPiece is how many rows are read between two acquisitions of the partition's lock.
const warmPiece = 256

// warmUpIfDue begins to warm up the partitions that need it, unless that is under way.
func (s *Store) warmUpIfDue() {
	due := slices.ContainsFunc(s.partitions, (*partition).warmUpDue)
	if !due || !s.warming.CompareAndSwap(false, true) {
		return
	}
	s.running.Go(func() {
		defer s.warming.Store(false)
		for _, p := range s.partitions {
			if err := s.warmUp(p); err != nil {
				s.log.Error("cannot read counters ahead of their use", "partition", p.id, "error", err)
			}
		}
	})
}

// warmUpDue reports whether nobody has read the partition's rows yet.
func (p *partition) warmUpDue() bool {
	if !p.lockNow() {
		return false
	}
	defer p.mu.Unlock()
	return !p.hot.warm && p.movedRows == nil // else its rows are not there yet
}

// warmUp reads counters of a partition into memory, if that is due.
func (s *Store) warmUp(p *partition) error {
	if !p.warmUpDue() {
		return nil
	}
	w, err := s.beginWarming(p)
	if err != nil {
		return err
	}
	from, to := p.rowRange()
	more, rows, pace := true, 0, pacer{}
	err = eachRow(s.db, from, to, func(k persistence.RowKey, r *row) bool {
		w.read(k, r)
		if rows++; rows%warmPiece == 0 {
			more = !s.stopping() && w.install()
			pace.step()
		}
		return more
	})
	if more && err == nil {
		w.install()
	}
	p.lock()
	w.hot.warm = true
	p.mu.Unlock()
	return err
}

// beginWarming makes room in the table for what will be read.
func (s *Store) beginWarming(p *partition) (*warming, error) {
	p.lock()
	w := &warming{p: p, hot: p.hot, evicted: p.hot.evicted}
	size, limit := p.size, int64(p.hot.limit)
	p.mu.Unlock()
	slots := makeHotSlots(int(max(0, min(size, limit))))
	p.lock()
	if p.hot == w.hot && len(slots) > len(w.hot.table.slots) {
		w.hot.table.resize(slots)
		w.hot.ring = slices.Grow(w.hot.ring, int(min(size, limit)))
	}
	p.mu.Unlock()
	if size <= limit {
		return w, nil
	}
	var err error
	w.oldest, err = s.newestRows(p, float64(limit)/float64(size))
	return w, err
}

// A sample of rows is taken at so many places, of so many rows each.
const (
	samplePlaces = 64
	sampleRows   = 64
)

// newestRows returns the sequence from which on about a share of a partition's rows are.
func (s *Store) newestRows(p *partition, share float64) (uint64, error) {
	var seqs []uint64
	from, to := p.rowRange()
	for i := range uint64(samplePlaces) {
		n := 0
		err := eachRow(s.db, from+(to-from)/samplePlaces*i, to, func(_ persistence.RowKey, r *row) bool {
			seqs = append(seqs, r.seq)
			n++
			return n < sampleRows
		})
		if err != nil || len(seqs) == 0 {
			return 0, err
		}
	}
	slices.Sort(seqs)
	return seqs[int(math.Ceil(float64(len(seqs)-1)*(1-share)))], nil
}

// read makes a counter of a row, unless the row is too old.
func (w *warming) read(k persistence.RowKey, r *row) {
	if r.kind != TypeCounter || r.seq < w.oldest {
		return
	}
	c := newCounter(k.Key, k.Position())
	c.showRow(r)
	w.piece = append(w.piece, hotSlot{hotHash(k.Key), c})
}

// install puts what was read into memory, but for keys that are there, or may have been there since the
// rows were read: such a key may have changed, and may have got a newer row. It returns false if there
// is no use in reading more.
func (w *warming) install() (more bool) {
	p, h := w.p, w.hot
	p.lock()
	defer p.mu.Unlock()
	if p.hot != h {
		return false // it was rebuilt, or another shard's has taken its place
	}
	for _, s := range w.piece {
		c := s.c
		switch {
		case h.len() >= h.limit:
			return false
		case *h.stamp(c.pos) != w.evicted[byte(c.pos)] || h.table.get(s.hash, []byte(c.key())) != nil:
		case c.seq > p.floor: // FLUSHALL has not deleted the others yet
			h.table.put(s.hash, c)
			h.evictable(c)
		}
	}
	w.piece = w.piece[:0]
	return true
}

// coldCounters is how many counters are still to be read into memory. The partition is locked.
func (p *partition) coldCounters() int64 {
	if p.hot.warm {
		return 0
	}
	return max(0, min(p.size, int64(p.hot.limit))-int64(p.hot.len()))
}
