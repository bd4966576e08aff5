package store

import (
	"cmp"
	"errors"
)

// Some changes of tables need that there is nothing under a prefix:
//
//   - A table's SCALE gives the integers of its counters, and of the operations that it remembers, their
//     meaning.
//   - Bounds that regions share hold if each region accounts for all that it does to a counter (escrow.go).
//     Of what was counted before, without bounds or within wider ones, nobody knows whether it fits.
//
// While the partitions are searched (tablesearch.go), writes to the keys concerned are refused, and all
// others go on. Changes of other regions are taken meanwhile: each of them searches for itself.

var (
	// ErrScale: a table's SCALE cannot change. The error says what to do.
	ErrScale = errors.New("SCALE cannot change under counters, holds and remembered operations")
	// ErrTableBounds: MIN and MAX cannot come, or leave less room. The error says what to do.
	ErrTableBounds = errors.New("MIN and MAX cannot be narrowed, nor come over what regions have counted")
	// ErrTableChanging: nothing was applied.
	ErrTableChanging = errors.New("SCALE, MIN or MAX of the key's table is being changed: try again")
)

// changes reports whether a table's counters need to be searched for if another one has them next. shared:
// other regions count the same keys.
func (o *TableOptions) changes(next *TableOptions, shared bool) bool {
	return o.Scale != next.Scale || shared && o.Told() && next.Told() && o.narrowedBy(next)
}

// narrowedBy reports whether a table's bounds leave more room than another one's.
func (o *TableOptions) narrowedBy(next *TableOptions) bool {
	return next.Min.Set && (!o.Min.Set || next.Min.N > o.Min.N) ||
		next.Max.Set && (!o.Max.Set || next.Max.N < o.Max.N)
}

// NeedsSearch reports whether another set of tables may only come once there is nothing under some prefix.
// shared: other regions count the same keys.
func (t TableSet) NeedsSearch(next TableSet, shared bool) bool {
	for _, set := range []TableSet{t, next} {
		for i := range set { // the longest prefix, old or new, has the key
			if t.changes(next, set[i].Prefix, shared) {
				return true
			}
		}
	}
	return false
}

// changes reports whether the table of a key changes so. A set that is not valid may have none.
func (t TableSet) changes(next TableSet, key string, shared bool) bool {
	none := new(TableOptions)
	return cmp.Or(t.Of(key), none).changes(cmp.Or(next.Of(key), none), shared)
}

// isShared reports whether other regions may count the keys of the partition.
func (p *machine) isShared() bool { return p.regions != nil && !p.regions.alone() }

// needsSearch is TableSet.NeedsSearch of a catalogue that comes. Before its first one a partition has no
// keys.
func (p *machine) needsSearch(next *catalog) bool {
	return p.catalog != nil && next != p.catalog && p.catalog.set().NeedsSearch(next.set(), p.isShared())
}

// prepared reports whether all shards were searched for a catalogue that comes: that is so before a cluster
// has tables that were coming (SearchTables).
func (p *machine) prepared(next *catalog) bool {
	c := p.catalog
	return c != nil && c.Coming != nil && next.Coming == nil &&
		!c.Coming.NeedsSearch(next.set(), p.isShared())
}

// checkSearched refuses tables for which the machine would have to be searched and was not.
func (p *machine) checkSearched(next *catalog) error {
	searched := p.prepared(next) ||
		p.searched != nil && !p.searched.set().NeedsSearch(next.set(), p.isShared())
	if p.needsSearch(next) && !searched {
		return ErrTableChanging
	}
	return nil
}

// refuses reports whether a key is not written while the tables change.
func (p *machine) refuses(key []byte) bool {
	now := &p.catalog.find(key).TableOptions
	return p.searched != nil && now.changes(&p.searched.find(key).TableOptions, p.isShared()) ||
		p.catalog.Coming != nil && now.changes(p.catalog.Coming.Of(string(key)), p.isShared())
}
