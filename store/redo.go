package store

import (
	"fmt"
	"math"

	"github.com/fbfkv/fbfkv/fbf"
)

// redo applies one logged outcome to the partition. It is the one function by
// which live traffic and recovery change state: it consults neither filter
// membership nor any clock ("decide once, redo everywhere"). What the marks
// say is already contained in the loaded state is left alone, so that redoing
// from an earlier point of the log than necessary changes nothing (G4).
func (p *partition) redo(e *entry, seq uint64, at moment) error {
	if seq > p.marks.counters {
		if e.flags&flagCreated != 0 {
			p.size++
			if e.c != nil { // live it is never nil
				p.hot.made[byte(e.c.pos)]++
			}
		}
		if e.kind == entryDelete {
			p.size--
		}
	}
	switch e.kind {
	case entryApply:
		p.redoSet(e, seq)
		p.remember(e, seq, at)
	case entrySet:
		p.redoSet(e, seq)
	case entryDelete:
		p.redoDelete(e, seq)
	case entryControl, entryTighten, entryCatalog:
		return p.redoTable(e, seq, at)
	case entryJump:
		return p.redoJump(e, seq)
	case entryFlush:
		return p.redoFlush(e, seq, at)
	case entryReserve, entryAdd, entryRefresh, entryExpire:
		return p.redoFilterKey(e, seq, at)
	default:
		return fmt.Errorf("%w: kind %d", errCorruptEntry, e.kind)
	}
	return nil
}

// resolve fills the derived fields of an entry that was read from the log.
// Live, Decide has filled them on its way.
func (p *partition) resolve(e *entry, seq uint64) {
	switch e.kind {
	case entryApply:
		e.hash = fbf.Hash(p.seed, e.key, e.id)
		e.t = p.tables[e.table]
		e.c = p.resolveCounter(e, seq > p.marks.counters)
	case entrySet, entryDelete:
		e.c = p.resolveCounter(e, seq > p.marks.counters)
	case entryControl, entryTighten:
		e.t = p.tables[e.table]
	case entryAdd:
		e.hash = fbf.Hash(p.seed, e.key, e.id)
		e.c = p.resolveCounter(e, false)
	case entryReserve:
		e.c = p.resolveCounter(e, seq > p.marks.filters)
	case entryRefresh, entryExpire:
		e.c = p.resolveCounter(e, false)
	}
}

// resolveCounter finds the key of an entry in memory and, if asked to, adds it.
// Its row is not read: an entry carries the whole post-image, and the next
// checkpoint overwrites or deletes the row.
func (p *partition) resolveCounter(e *entry, install bool) *counter {
	hash := hotHash(e.key)
	c := p.hot.get(hash, e.key)
	if c == nil && install {
		c = p.hot.install(hash, e.key, position(Slot(e.key), keyHash(e.key)))
	}
	return c
}

// redoSet gives a counter its post-image.
func (p *partition) redoSet(e *entry, seq uint64) {
	if c := p.replaced(e, seq); c != nil {
		c.kind, c.value, c.seq = TypeCounter, e.value, seq
		p.setExpire(c, e.expire)
		p.hot.changed(c)
	}
}

// redoDelete leaves a tombstone in memory until the row is gone.
func (p *partition) redoDelete(e *entry, seq uint64) {
	if c := p.replaced(e, seq); c != nil {
		c.kind, c.value, c.expire, c.seq = TypeNone, 0, 0, seq
		p.hot.changed(c)
	}
}

// replaced frees what an entry replaces and returns the key to change; nil if
// its row, or what is in memory, contains the entry already.
func (p *partition) replaced(e *entry, seq uint64) *counter {
	if e.flags&flagWasFilter != 0 && seq > p.marks.filters {
		p.dropFilter(e.c)
		if seq <= p.marks.counters && e.c != nil {
			p.hot.forget(e.c) // what the key holds now is in its row
		}
	}
	if seq <= p.marks.counters || e.c == nil || e.c.seq > seq {
		return nil // never replace a higher sequence
	}
	return e.c
}

func (p *partition) setExpire(c *counter, at int64) {
	if c.expire == at {
		return
	}
	c.expire = at
	if at != 0 {
		p.fresh.add(c)
	}
}

// remember puts the opid of an applied operation into the table's filter and,
// in EXACT, the operation into the records: in the same step as its effect.
func (p *partition) remember(e *entry, seq uint64, at moment) {
	if seq > p.marks.filters && e.t != nil {
		if e.flags&flagHasTime != 0 {
			e.t.horizon.add(at.logged, e.time, e.t.def.keep(at.logged))
		}
		// A rebuilt filter has the ids of runs already.
		if inRun := e.flags&flagExact != 0 && seq <= p.marks.records; !inRun || !p.marks.rebuilt {
			e.t.filter.Insert(e.hash, at.logged)
		}
	}
	if e.flags&flagExact != 0 && seq > p.marks.records {
		if e.t != nil {
			e.t.recent++
		}
		p.recent.add(&record{
			table: e.table, hash: e.hash, seq: seq, logged: at.logged, key: e.key, id: e.id, packed: e.packed,
			seen: Seen{Delta: e.delta, Result: e.value, UnixMs: at.wall, Clip: e.clip},
		})
	}
}

// dropFilter frees the filter under a key.
func (p *partition) dropFilter(c *counter) {
	if c == nil || c.filter() == nil {
		return
	}
	f := c.filter()
	p.pool.used.Add(-int64(f.bytes()))
	p.retire(f.release)
	delete(p.filters, c.key())
	c.setFilter(nil)
	c.kind = TypeNone
	p.hot.track(c)
}

// redoTable redoes what changes a table's filter or the set of tables.
func (p *partition) redoTable(e *entry, seq uint64, at moment) error {
	if e.kind == entryCatalog {
		if seq <= p.marks.catalog {
			return nil
		}
		cat, err := decodeCatalog(e.id)
		if err != nil {
			return err
		}
		return p.setCatalog(cat, at)
	}
	if seq <= p.marks.filters || p.marks.rebuilt {
		return nil
	}
	if e.t == nil {
		return fmt.Errorf("%w: table %d is unknown", errCorruptEntry, e.table)
	}
	if e.kind == entryTighten {
		if e.value < 1 || e.value > math.MaxUint32 {
			return fmt.Errorf("%w: table %d is to be tested at ERROR/%d", errCorruptEntry, e.table, e.value)
		}
		e.t.tests = uint32(e.value)
		return p.alterFilter(e.t, at)
	}
	ev, err := decodeEvent(e.id)
	if err != nil {
		return err
	}
	return p.applyEvent(e.t.filter, ev)
}

// setCatalog makes the partition's tables those of the catalogue: the filters
// of new tables are made, of changed ones altered, of gone ones freed.
func (p *partition) setCatalog(cat *catalog, at moment) error {
	p.catalog = cat
	for _, d := range cat.Tables {
		t := p.tables[d.ID]
		if t == nil {
			f, err := p.newFilter(d, 1, at)
			if err != nil {
				return err
			}
			p.pool.used.Add(int64(f.Bytes()))
			p.tables[d.ID] = &tableState{def: d, filter: f, tests: 1}
			continue
		}
		old := t.def
		t.def = d
		if old.TableOptions != d.TableOptions {
			if err := p.alterFilter(t, at); err != nil {
				return err
			}
		}
	}
	for id, t := range p.tables {
		if cat.byID(id) == nil {
			p.pool.used.Add(-int64(t.filter.Bytes()))
			p.retire(t.filter.Release)
			p.deadRuns = append(p.deadRuns, t.runs...)
			delete(p.tables, id)
		}
	}
	return nil
}

// alterFilter brings a table's filter to the options in force. What is
// remembered stays.
func (p *partition) alterFilter(t *tableState, at moment) error {
	before := t.filter.Bytes()
	err := t.filter.Alter(t.def.filterOptions(t.tests, p.count), at.logged)
	p.pool.used.Add(int64(t.filter.Bytes()) - int64(before))
	return err
}

// redoFlush forgets everything. From now on the rows and runs that are on disk count
// for nothing: they go with the next commit of rows, or the next checkpoint.
//
// When recovery redoes it, there may be newer rows among them. But they are of
// operations that it redoes, too, so that their keys are in memory, changed, and
// their rows are written again.
func (p *partition) redoFlush(e *entry, seq uint64, at moment) error {
	if seq > p.marks.filters {
		for _, c := range p.filters {
			p.dropFilter(c)
			if seq <= p.marks.counters {
				p.hot.forget(c)
			}
		}
		for _, t := range p.tables {
			t.horizon.forget(e.value)
			if p.marks.rebuilt && seq <= p.marks.records {
				continue // the filter was made from runs, which are all younger
			}
			if err := p.emptyTable(t, at); err != nil {
				return err
			}
		}
	}
	if seq > p.state.floor {
		p.floor, p.flushDue = seq, true
	}
	if seq > p.marks.counters {
		p.hot.clear()
		p.size, p.fresh = 0, nil
		p.rows = newRowFilter(p.count)
		p.rows.whole = true // no row counts any more
	}
	if seq > p.marks.records {
		p.recent, p.before = recents{}, recentMark{}
		for _, t := range p.tables {
			p.deadRuns = append(p.deadRuns, t.runs...)
			t.runs, t.recent = nil, 0
		}
		p.runsVersion++
	}
	return nil
}

// newFilter returns an empty filter for a table.
func (p *partition) newFilter(d *tableDef, tests uint32, at moment) (*fbf.Filter, error) {
	f, err := fbf.New(d.filterOptions(tests, p.count), at.logged)
	if err == nil {
		f.SetPhase(p.phase())
	}
	return f, err
}

// phase is that of the partition's filters, which are filled as evenly as the others'.
func (p *partition) phase() float64 { return float64(p.id) / float64(p.count) }

// emptyTable gives a table an empty filter.
func (p *partition) emptyTable(t *tableState, at moment) error {
	f, err := p.newFilter(t.def, t.tests, at)
	if err != nil {
		return err
	}
	old := t.filter
	t.filter = f
	p.pool.used.Add(int64(f.Bytes()) - int64(old.Bytes()))
	p.retire(old.Release)
	return nil
}

// redoFilterKey redoes what happens to an FBF key.
func (p *partition) redoFilterKey(e *entry, seq uint64, at moment) error {
	if seq <= p.marks.filters {
		return nil
	}
	if e.kind == entryReserve {
		o, err := decodeFilterOptions(e.id)
		if err != nil {
			return err
		}
		return p.addFilter(e.c, o, seq, at)
	}
	c := e.c
	if c == nil || c.filter() == nil {
		if p.marks.rebuilt {
			return nil // the filter was lost with its snapshots
		}
		return fmt.Errorf("%w: %q is not a filter", errCorruptEntry, e.key)
	}
	f := c.filter()
	c.seq = max(c.seq, seq)
	switch e.kind {
	case entryAdd:
		f.insert(e.hash, at.logged)
	case entryExpire:
		p.setExpire(c, e.expire)
	case entryRefresh:
		before := f.bytes()
		if err := f.refresh(e.id, at.logged); err != nil {
			return err
		}
		p.pool.used.Add(int64(f.bytes()) - int64(before))
	}
	return nil
}

// addFilter puts a new, empty filter under a key.
func (p *partition) addFilter(c *counter, o FilterOptions, seq uint64, at moment) error {
	f, err := newFilterKey(o, at.logged)
	if err != nil {
		return err
	}
	p.pool.used.Add(int64(f.bytes()))
	p.putFilter(c, f)
	c.seq = seq
	return nil
}

// putFilter makes c a filter key.
func (p *partition) putFilter(c *counter, f *filterKey) {
	c.setFilter(f)
	c.kind, c.value, c.expire = TypeFilter, 0, 0
	p.filters[c.key()] = c
	p.hot.changed(c)
}
