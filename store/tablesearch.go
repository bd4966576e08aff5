package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fbfkv/fbfkv/store/seen"
)

// The remedies of both.
const (
	endOpenHolds = "settle or cancel the holds that are open"
	endCounters  = "delete the counters"
	endShared    = "in all regions DROP tables that bound the counters, and delete these; once all have " +
		"heard of that, try again"
	endRecords = "try again once WINDOW and SKEW have passed since the last operation with an opid"
)

// refusal is the error about a key that is in the way.
func (r *tableSearch) refusal(remedy string, key []byte) error {
	err := ErrTableBounds
	if r.old.Of(string(key)).Scale != r.next.Of(string(key)).Scale {
		err = ErrScale
	}
	return fmt.Errorf("%w: %s, or take another PREFIX (key %q)", err, remedy, key)
}

// beginSearch makes sure that nothing is in the way of a change of catalogues. It ends with endSearch.
func (s *Store) beginSearch(ps []*partition, change func(*catalog, moment) (*catalog, error)) error {
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

// endSearch lets writes in again.
func (s *Store) endSearch(ps []*partition) {
	for _, p := range ps {
		p.lock()
		p.searched = nil
		p.mu.Unlock()
	}
}

// tableSearch is the search of one partition.
type tableSearch struct {
	s         *Store
	p         *partition
	old, next TableSet
	shared    bool
	upTo      uint64 // all that there may be was logged up to this sequence
}

// mark has a partition refuse writes to the keys that must be searched for; nil if there can be none.
func (s *Store) mark(p *partition, change func(*catalog, moment) (*catalog, error)) (*tableSearch, error) {
	p.lock()
	defer p.mu.Unlock()
	next, err := change(p.catalog, p.moment(s.look()))
	if err != nil || !p.needsSearch(next) || p.prepared(next) {
		return nil, err
	}
	if err = p.checkTold(next); err != nil { // says more
		return nil, err
	}
	if p.searched = next; p.gone {
		return nil, nil // it is empty
	}
	return s.begin(p, next.set())
}

// begin begins a search of a partition that refuses the writes already. It is locked.
func (s *Store) begin(p *partition, next TableSet) (*tableSearch, error) {
	r := &tableSearch{s, p, p.catalog.set(), next, p.isShared(), p.seq}
	for key := range p.holds.keys {
		if r.changes([]byte(key)) {
			return nil, r.refusal(endOpenHolds, []byte(key))
		}
	}
	if r.shared {
		for key := range p.regions.owed.byKey {
			if r.changes([]byte(key)) {
				return nil, r.refusal(endShared, []byte(key))
			}
		}
	}
	return r, nil
}

// SearchTables makes sure that nothing is in the way of the tables that are coming, by SetTables, or returns
// ErrScale or ErrTableBounds. It must be called after they were set, and by the leader, which alone knows
// what there is.
func (s *Store) SearchTables() error {
	for _, p := range s.partitions {
		p.lock()
		var r *tableSearch
		var err error
		switch c := p.catalog; {
		case !s.Leads():
			err = ErrNotLeader
		case !p.gone && c.Coming != nil && c.set().NeedsSearch(c.Coming, p.isShared()):
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

// changes reports whether nothing must be known of a key.
func (r *tableSearch) changes(key []byte) bool { return r.old.changes(r.next, string(key), r.shared) }

// search looks for a counter, and for a record, of such a key.
func (r *tableSearch) search() error {
	keys := r.searchCounters
	if r.shared {
		keys = r.searchParts
	}
	if err := keys(); err != nil {
		return err
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
	return ErrTableChanging
}

// searchPage is how many keys are searched at a time.
const searchPage = 4096

func (r *tableSearch) searchCounters() error {
	from, end := r.p.rowRange()
	for cursor := cursorAt(from); cursor < cursorAt(end); {
		var found []byte
		_, next, err := r.s.scanPartition(r.p, cursor, searchPage, func(key []byte, t Type) {
			if t == TypeCounter && r.changes(key) {
				found = key
			}
		})
		if err != nil {
			return err
		}
		if found != nil {
			return r.refusal(endCounters, found)
		}
		cursor = next
	}
	return nil
}

// searchParts looks for counters that regions share. A counter that has ended is in the way until all regions
// know of its end: in another one it may go on.
func (r *tableSearch) searchParts() error {
	from, _ := r.p.rowRange()
	_, last := slotRange(int(r.p.id), r.p.count)
	var after []byte
	for more := true; more; {
		var keys []foundKey
		var here point
		var err error
		from = max(from, r.s.positionOfNext(after))
		keys, more, here, err = r.s.partsBehind(r.p, after, last, from, searchPage)
		if err = cmp.Or(err, here.wait()); err != nil {
			return err
		}
		for i := range keys {
			if after = keys[i].key; len(keys[i].parts) > 0 && r.changes(after) {
				return r.refusal(endShared, after)
			}
		}
	}
	return nil
}

// searchRuns looks for a record in runs.
func (r *tableSearch) searchRuns() error {
	tables, _, err := r.s.recordsInRuns(r.p, r.upTo)
	for i := 0; err == nil && i < len(tables); i++ {
		err = r.p.seen.ScanRuns(tables[i], 0, func(_, _ uint64, value []byte) error {
			o, err := seen.ReadRecord(value)
			if err == nil && r.changes(o.Key) {
				err = r.refusal(endRecords, o.Key)
			}
			return err
		})
	}
	return err
}
