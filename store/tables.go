package store

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// CreateTable adds a table, unless the very same is there. Keys that move into it are also checked
// against the table they were in, for its window. Errors: ErrOption, ErrTableExists,
// ErrTooManyTables, ErrOutOfMemory, or that of the commit.
func (s *Store) CreateTable(o TableOptions) error {
	return s.changeTables(func(t TableSet) (TableSet, error) { return t.Create(o) })
}

// AlterTable changes a table's options and forgets nothing.
func (s *Store) AlterTable(name string, ch TableChange) error {
	return s.changeTables(func(t TableSet) (TableSet, error) { return t.Alter(name, ch) })
}

// DropTable removes a table but no counter: its keys fall to the table with the
// next shorter prefix, which also asks the dropped table's memory until it has drained.
func (s *Store) DropTable(name string) error {
	return s.changeTables(func(t TableSet) (TableSet, error) { return t.Drop(name) })
}

func (s *Store) changeTables(change func(TableSet) (TableSet, error)) error {
	return s.changeCatalog(s.partitions, func(c *catalog, at moment) (*catalog, error) {
		next, err := change(c.set())
		if err != nil {
			return nil, err
		}
		n, err := c.match(next, at)
		if err == nil && n.Coming != nil { // this was a cluster's
			n = n.clone()
			n.Coming = nil
		}
		return n, err
	})
}

// SetTables makes the tables those of a cluster, which has counted their changes: the version. It returns
// once they are committed, in all partitions at once. A partition that has this version, or
// a newer one, stays as it is: its tables never go back to what they were. Those that are coming,
// unless they are nil, may need a search (SearchTables): until they have come, keys concerned are not
// written. Errors: as CreateTable's. If open holds are in the way, no new ones are opened that would be: the
// caller tries again.
func (s *Store) SetTables(t, coming TableSet, version uint64) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if coming != nil {
		if err := coming.Validate(); err != nil {
			return err
		}
	}
	err := s.changeCatalog(s.partitions, func(c *catalog, at moment) (*catalog, error) {
		if c.Version >= version {
			return c, nil
		}
		return c.follow(t, coming, version, at)
	})
	var next TableSet
	if errors.Is(err, ErrHoldsOpen) {
		next = t
	}
	for _, p := range s.partitions {
		p.lock()
		p.nextTables = next
		p.mu.Unlock()
	}
	return err
}

// CheckTables reports whether SetTables would find room for tables here, also on a replica that does
// not lead: nil, ErrOption, ErrTooManyTables or ErrOutOfMemory.
func (s *Store) CheckTables(t TableSet) error {
	if err := t.Validate(); err != nil {
		return err
	}
	var need uint64
	for _, p := range s.partitions {
		p.lock()
		next, err := p.catalog.match(t, p.moment(s.look()))
		if err == nil {
			var bytes uint64
			bytes, err = p.bytesForAll(next)
			need += bytes
		}
		if err == nil {
			err = p.checkTold(next)
		}
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return s.roomFor(need)
}

// changeCatalog logs new catalogues in some partitions with one commit. All partitions have
// the same live tables, but each its own logged times until which memory drains.
func (s *Store) changeCatalog(ps []*partition, change func(*catalog, moment) (*catalog, error)) error {
	if err := s.writable(); err != nil {
		return err
	}
	s.catalogMu.Lock()
	defer s.catalogMu.Unlock()
	err := s.beginSearch(ps, change)
	if err == nil {
		err = s.logCatalogs(ps, change)
	}
	s.endSearch(ps) // not deferred: in a panic partitions stay locked
	return err
}

// logCatalogs logs the catalogues. catalogMu is held.
func (s *Store) logCatalogs(ps []*partition, change func(*catalog, moment) (*catalog, error)) error {
	x := s.internal(ps...)
	x.lock()
	err := s.refusal(ps...)
	var encoded [][]byte
	var room int64
	if err == nil {
		encoded, room, err = x.newCatalogs(ps, change)
	}
	if err == nil {
		x.room, err = s.reserve(room)
	}
	if err != nil {
		x.unlock()
		return err
	}
	for i, p := range ps {
		if p.draft.need = p.seq; encoded[i] != nil {
			x.log(&p.machine, &entry{kind: entryCatalog, id: encoded[i]})
		}
	}
	return x.finish()
}

// newCatalogs returns the partitions' next catalogues, and the bytes of the log that they
// take. It refuses what one of them refuses, filters that would exceed the memory pool,
// and what a filter cannot follow: once they are logged, redo must not fail. The
// partitions are locked.
func (x *execution) newCatalogs(ps []*partition,
	change func(*catalog, moment) (*catalog, error)) (encoded [][]byte, room int64, err error) {
	var need uint64
	for _, p := range ps {
		cat, err := change(p.catalog, x.at(&p.machine))
		if err != nil {
			return nil, 0, err
		}
		if cat == p.catalog {
			encoded = append(encoded, nil) // there is nothing to log
			continue
		}
		bytes, err := p.bytesForAll(cat)
		if err == nil {
			err = cmp.Or(p.checkTold(cat), p.checkSearched(cat))
		}
		if err != nil {
			return nil, 0, err
		}
		need += bytes
		b := cat.encode()
		encoded, room = append(encoded, b), room+int64(entryRoom+len(b))
	}
	return encoded, room, x.s.roomFor(need)
}

// roomFor reports whether the memory pool has so many bytes: nil or ErrOutOfMemory.
func (s *Store) roomFor(need uint64) error {
	if !s.pool.grant(need) {
		return ErrOutOfMemory
	}
	s.pool.used.Add(-int64(need))
	return nil
}

// bytesForAll is the memory that the filters of a catalogue's tables are about to take.
func (p *machine) bytesForAll(cat *catalog) (need uint64, err error) {
	for _, d := range cat.Tables {
		bytes, err := p.bytesFor(d)
		if err != nil {
			return 0, fmt.Errorf("%w: %v", ErrOption, err)
		}
		need += bytes
	}
	return need, nil
}

// bytesFor is the memory that a table's filter is about to take.
func (p *machine) bytesFor(d *tableDef) (uint64, error) {
	t := p.tables[d.ID]
	if t == nil {
		o := d.filterOptions(1, p.count)
		return o.InitialBytes(), o.Validate()
	}
	if t.def.TableOptions == d.TableOptions {
		return 0, nil
	}
	return t.filter.AlterBytes(d.filterOptions(t.tests, p.count))
}

// Tables returns the tables. A change shows once it is committed.
func (s *Store) Tables() TableSet {
	p := s.partitions[0]
	p.lock()
	set, here := p.catalog.set(), p.here()
	p.mu.Unlock()
	if errors.Is(here.wait(), ErrNotLeader) {
		return s.Tables() // they were taken back; otherwise nothing committed is better known
	}
	return set
}

// TablesVersion returns the version of the cluster's tables that every partition has (0: none), and
// the newest that any partition has. A change shows once it is committed. Errors come from the commit.
func (s *Store) TablesVersion() (all, newest uint64, err error) {
	all = math.MaxUint64
	for _, p := range s.partitions {
		p.lock()
		has, here := p.catalog.Version, p.here()
		p.mu.Unlock()
		if err := here.wait(); err != nil {
			return 0, 0, err
		}
		all, newest = min(all, has), max(newest, has)
	}
	return all, newest, nil
}

// TableInfo describes a table, summed over the partitions. A change shows once it is
// committed. ErrNoTable if there is none of that name.
func (s *Store) TableInfo(name string) (info TableInfo, err error) {
	var seen []point
	for _, p := range s.partitions {
		p.lock()
		seen = append(seen, p.here())
		if d := p.catalog.byName(name); d != nil {
			info.TableOptions = d.TableOptions
			p.addTableInfo(&info, p.tables[d.ID], p.moment(s.look()))
		} else {
			err = ErrNoTable
		}
		p.mu.Unlock()
	}
	for _, at := range seen {
		if lost := at.wait(); errors.Is(lost, ErrNotLeader) {
			return s.TableInfo(name) // it was taken back
		} else if lost != nil {
			return TableInfo{}, lost
		}
	}
	return info, err
}

func (p *machine) addTableInfo(i *TableInfo, t *tableState, at moment) {
	if t == nil {
		return // a replica that does not know its tables yet
	}
	d := t.def
	if before := t.horizon.before(at.logged, d.keep(at.logged)); before > 1 {
		i.ForgottenBefore = max(i.ForgottenBefore, before)
	}
	i.ForgottenBefore = max(i.ForgottenBefore, d.ForgottenBefore)
	i.Filter.add(adaptiveInfo(t.filter, at.logged))
	f := p.seen.TableFigures(d.ID)
	i.Records += f.RunRecords + uint64(f.Recent)
	i.RecordBytes += f.RunBytes
	i.Runs += f.Runs
	i.Figures.add(t.figures)
	p.countHolds()
	i.heldFigures.add(t.held)
}
