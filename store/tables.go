package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CreateTable adds a table, unless the very same is there. Keys that move into it are also checked against the table
// they were in, for its window. Errors: ErrOption, ErrTableExists, ErrTooManyTables,
// ErrOutOfMemory, or that of the commit.
func (s *Store) CreateTable(o TableOptions) error {
	return s.changeCatalog(s.partitions, func(c *catalog, at moment) (*catalog, error) { return c.create(o, at) })
}

// AlterTable changes a table's options and forgets nothing.
func (s *Store) AlterTable(name string, ch TableChange) error {
	return s.changeCatalog(s.partitions, func(c *catalog, at moment) (*catalog, error) { return c.alter(name, ch, at) })
}

// DropTable removes a table but no counter: its keys fall to the table with the
// next shorter prefix, which also asks the dropped table's memory until it has drained.
func (s *Store) DropTable(name string) error {
	return s.changeCatalog(s.partitions, func(c *catalog, at moment) (*catalog, error) { return c.drop(name, at) })
}

// changeCatalog logs new catalogues in some partitions with one commit. All partitions have
// the same live tables, but each its own logged times until which memory drains.
func (s *Store) changeCatalog(ps []*partition, change func(*catalog, moment) (*catalog, error)) error {
	if err := s.writable(); err != nil {
		return err
	}
	s.catalogMu.Lock()
	defer s.catalogMu.Unlock()
	x := s.internal(ps...)
	x.lock()
	encoded, room, err := x.newCatalogs(ps, change)
	if err == nil {
		x.room, err = s.reserve(room)
	}
	if err != nil {
		x.unlock()
		return err
	}
	for i, p := range ps {
		x.log(p, &entry{kind: entryCatalog, id: encoded[i]})
	}
	return x.finish()
}

// newCatalogs returns the partitions' next catalogues, and the bytes of the log that they
// take. It refuses what one of them refuses, filters that would exceed the memory pool,
// and what a filter cannot follow: once they are logged, redo must not fail. The
// partitions are locked.
func (x *decider) newCatalogs(ps []*partition, change func(*catalog, moment) (*catalog, error)) (encoded [][]byte, room int64, err error) {
	if err := x.s.refusal(ps...); err != nil {
		return nil, 0, err
	}
	var need uint64
	for _, p := range ps {
		cat, err := change(p.catalog, x.at(p))
		if err != nil {
			return nil, 0, err
		}
		for _, d := range cat.Tables {
			bytes, err := p.bytesFor(d)
			if err != nil {
				return nil, 0, fmt.Errorf("%w: %v", ErrOption, err)
			}
			need += bytes
		}
		b := cat.encode()
		encoded, room = append(encoded, b), room+int64(entryRoom+len(b))
	}
	if !x.s.pool.grant(need) {
		return nil, 0, ErrOutOfMemory
	}
	x.s.pool.used.Add(-int64(need))
	return encoded, room, nil
}

// bytesFor is the memory that a table's filter is about to take.
func (p *partition) bytesFor(d *tableDef) (uint64, error) {
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

// Tables returns the tables by name. A change shows once it is committed.
func (s *Store) Tables() []TableOptions {
	p := s.partitions[0]
	p.lock()
	live, here := p.catalog.live(), p.here()
	p.mu.Unlock()
	if errors.Is(here.wait(), ErrNotLeader) {
		return s.Tables() // they were taken back; otherwise nothing committed is better known
	}
	out := make([]TableOptions, 0, len(live))
	for _, d := range live {
		out = append(out, d.TableOptions)
	}
	slices.SortFunc(out, func(a, b TableOptions) int { return strings.Compare(a.Name, b.Name) })
	return out
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

func (p *partition) addTableInfo(i *TableInfo, t *tableState, at moment) {
	if t == nil {
		return // a replica that has not heard of its tables yet
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
}
