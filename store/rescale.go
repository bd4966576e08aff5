package store

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fbfkv/fbfkv/store/seen"
)

// A table's SCALE gives the integers of its counters, and of the operations that it remembers, their
// meaning. So it changes only where there are none. While the partitions are searched for them, writes
// to the keys whose scale would change are refused (machine.rescaling), and all others go on.

// ErrScale: a table's SCALE cannot change. The error says what to do.
var ErrScale = errors.New("SCALE cannot change under counters, holds and remembered operations")

// scaleError is an ErrScale because of a key.
func scaleError[K string | []byte](remedy string, key K) error {
	return fmt.Errorf("%w: %s, or take another PREFIX (key %q)", ErrScale, remedy, key)
}

// beginRescale makes sure that a change of catalogues changes the scale of nothing. It ends with endRescale.
func (s *Store) beginRescale(ps []*partition, change func(*catalog, moment) (*catalog, error)) error {
	for _, p := range ps {
		r, err := s.mark(p, change)
		if err == nil && r != nil {
			err = r.search()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endRescale lets writes in again.
func (s *Store) endRescale(ps []*partition) {
	for _, p := range ps {
		p.lock()
		p.rescaling = nil
		p.mu.Unlock()
	}
}

// rescale is the search of one partition.
type rescale struct {
	s         *Store
	p         *partition
	old, next TableSet
	upTo      uint64 // all that there may be was logged up to this sequence
}

// mark has a partition refuse writes to the keys whose scale changes; nil if there can be none.
func (s *Store) mark(p *partition, change func(*catalog, moment) (*catalog, error)) (*rescale, error) {
	p.lock()
	defer p.mu.Unlock()
	next, err := change(p.catalog, p.moment(s.look()))
	if err != nil || !p.catalog.rescales(next) || p.catalog.prepared(next) {
		return nil, err
	}
	if p.rescaling = next; p.gone {
		return nil, nil // it is empty
	}
	return s.begin(p, next.set())
}

// begin begins a search of a partition that refuses the writes already. It is locked.
func (s *Store) begin(p *partition, next TableSet) (*rescale, error) {
	for key := range p.holds.keys {
		if p.rescales([]byte(key)) {
			return nil, scaleError("settle or cancel the holds that are open", key)
		}
	}
	return &rescale{s, p, p.catalog.set(), next, p.seq}, nil
}

// SearchScales makes sure that the tables that are coming, by SetTables, change the scale of nothing, or
// returns ErrScale. It must be called after they were set, and by the leader, which alone knows
// what there is.
func (s *Store) SearchScales() error {
	for _, p := range s.partitions {
		p.lock()
		var r *rescale
		var err error
		switch c := p.catalog; {
		case !s.Leads():
			err = ErrNotLeader
		case !p.gone && c.Coming != nil && c.set().Rescales(c.Coming):
			r, err = s.begin(p, c.Coming)
		}
		p.mu.Unlock()
		if err == nil && r != nil {
			err = r.search()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// changes reports whether the scale of a key changes.
func (r *rescale) changes(key []byte) bool {
	return r.old.scaleOf(string(key)) != r.next.scaleOf(string(key))
}

// search looks for a counter, and for a record, of such a key.
func (r *rescale) search() error {
	from, end := r.p.rowRange()
	for cursor := cursorAt(from); cursor < cursorAt(end); {
		var found []byte
		_, next, err := r.s.scanPartition(r.p, cursor, scanRescale, func(key []byte, t Type) {
			if t == TypeCounter && r.changes(key) {
				found = key
			}
		})
		if err != nil {
			return err
		}
		if found != nil {
			return scaleError("delete the counters", found)
		}
		cursor = next
	}
	// The first lets go of expired runs, and makes runs of what memory has, which the next may let go of.
	for range 2 {
		if err := r.s.flushRecords(r.p, true); err != nil {
			return err
		}
	}
	for range 3 {
		if err := r.searchRuns(); !errors.Is(err, fs.ErrNotExist) { // else merged meanwhile
			return err
		}
	}
	return ErrRescaling
}

// scanRescale is how many keys are searched at a time.
const scanRescale = 4096

// searchRuns looks for a record in runs.
func (r *rescale) searchRuns() error {
	tables, _, err := r.s.recordsInRuns(r.p, r.upTo)
	for i := 0; err == nil && i < len(tables); i++ {
		err = r.p.seen.ScanRuns(tables[i], 0, func(_, _ uint64, value []byte) error {
			o, err := seen.ReadRecord(value)
			if err == nil && r.changes(o.Key) {
				err = scaleError("try again once WINDOW and SKEW have passed since the last operation with an opid",
					o.Key)
			}
			return err
		})
	}
	return err
}
