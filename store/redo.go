package store

import (
	"fmt"
	"math"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/seen"
)

// redoGroup is entries of one partition that were read from the log and are redone
// together: what they need is asked for first, so that the cache misses of all overlap.
type redoGroup struct {
	p       *machine
	bytes   []byte // of their sections, and of others
	entries []loggedEntry
	lines   int64 // keeps the compiler from dropping loads made ahead
	settles bool  // the rows of an adoption must be ingested

	reader, rest sectionReader // of the section at hand
	next         entry         // of rest
}

// newRedoGroup returns a group for so many entries at most.
func newRedoGroup(p *machine, most int) *redoGroup {
	return &redoGroup{p: p, entries: make([]loggedEntry, 0, most)}
}

// redoBytes is the memory for sections behind which a group ends.
const redoBytes = 16 << 10

type loggedEntry struct {
	entry
	at moment
	id [seen.UUIDText]byte // memory for entry.id
}

// add takes the log's next section, of which seq is the first sequence, and returns how many
// entries it has. Nobody sees what add redoes before finish.
func (g *redoGroup) add(seq uint64, content []byte) (entries uint64, err error) {
	p := g.p
	p.searched = nil // another node decides now, which searches for itself
	if next := p.seq + uint64(len(g.entries)) + 1; seq != next {
		return 0, missingEntries(next, seq-1)
	}
	if len(g.bytes) > redoBytes {
		if err := g.finish(); err != nil {
			return 0, err
		}
		g.bytes = g.bytes[:0]
	}
	from := len(g.bytes)
	g.bytes = append(g.bytes, content...)
	if g.reader, err = newSectionReader(g.bytes[from:]); err != nil {
		return 0, err
	}
	p.logBytes += uint64(len(content))
	for more := true; more; {
		before := len(g.entries)
		more = g.fill(&g.reader)
		entries += uint64(len(g.entries) - before)
		if more {
			if err := g.finish(); err != nil {
				return entries, err
			}
		}
	}
	return entries, g.reader.err()
}

func missingEntries(from, to uint64) error {
	return fmt.Errorf("%w: entries %d to %d are missing", ErrLogDamaged, from, to)
}

// fill decodes entries of a section until the group is full or must be finished before the
// next one can be redone; false: the section has no more, or is damaged.
func (g *redoGroup) fill(rd *sectionReader) (more bool) {
	for len(g.entries) < cap(g.entries) {
		g.entries = g.entries[:len(g.entries)+1]
		e := &g.entries[len(g.entries)-1]
		e.at, rd.id = rd.at, &e.id
		if !rd.next(&e.entry) {
			g.entries = g.entries[:len(g.entries)-1]
			return false
		}
		g.p.hashEntry(&e.entry)
		if !e.kind.is(isPlain) { // resolving the next ones rests on its redo
			return true
		}
	}
	return true
}

// addAll is add and finish.
func (g *redoGroup) addAll(seq uint64, content []byte) (entries uint64, err error) {
	if entries, err = g.add(seq, content); err == nil {
		err = g.finish()
	}
	return entries, err
}

// finish redoes what was added.
func (g *redoGroup) finish() error {
	for from := 0; from < len(g.entries); from += group {
		if err := g.redo(g.entries[from:min(from+group, len(g.entries))]); err != nil {
			return err
		}
	}
	g.entries = g.entries[:0]
	return nil
}

// redo redoes entries. As request does, it asks for the cache lines that they need in loops so
// short that many misses are under way at once.
func (g *redoGroup) redo(entries []loggedEntry) error {
	p := g.p
	for i := range entries {
		entries[i].c = p.hot.table.guess(entries[i].keyHash)
	}
	for i := range entries {
		if c := entries[i].c; c != nil {
			g.lines += c.value
		}
	}
	for i := range entries {
		e := &entries[i]
		if t := p.tables[e.table]; e.kind == entryApply && t != nil && t.filter != nil {
			t.filter.Touch(e.hash)
		}
	}
	for i := range entries {
		e := &entries[i]
		p.seq++
		if err := p.resolve(&e.entry, p.seq); err != nil {
			return fmt.Errorf("entry %d: %w", p.seq, err)
		}
		if p.onEntry != nil {
			p.onEntry(&e.entry, 0)
		}
		if err := p.redo(&e.entry, p.seq, e.at); err != nil {
			if err = p.redoSpoiled(&e.entry, p.seq, err); err != nil {
				return fmt.Errorf("entry %d: %w", p.seq, err)
			}
		}
		p.at = p.at.after(e.at)
	}
	return nil
}

// hashEntry hashes what an entry that was read from the log is found by.
func (p *machine) hashEntry(e *entry) {
	e.keyHash = hotHash(e.key)
	if e.kind.is(hasOpid) {
		e.hash = p.hashes.ids.Hash(e.key, e.id)
	}
}

// redoApply redoes an idempotent operation: its effect and its opid.
func (p *machine) redoApply(e *entry, seq uint64, at moment) error {
	_ = p.redoSet(e, seq, at)
	p.remember(e, seq, at, seen.Increment)
	return nil
}

// redoDrain deletes the counter that an idempotent operation has read, or in regions subtracts what that has
// answered, and remembers its opid.
func (p *machine) redoDrain(e *entry, seq uint64, at moment) error {
	switch {
	case e.use != seen.DrainSome:
	case e.flags&flagRegional == 0:
		_ = p.redoDelete(e, seq, at)
	default:
		_ = p.redoOwnParts(e, seq, at)
	}
	p.remember(e, seq, at, e.use)
	return nil
}

// redoThrottle redoes an idempotent throttle that let a request in.
func (p *machine) redoThrottle(e *entry, seq uint64, at moment) error {
	_ = p.redoSet(e, seq, at)
	p.remember(e, seq, at, seen.Throttle)
	return nil
}

// redoRemember remembers an idempotent operation on an object, which the entry before has changed.
func (p *machine) redoRemember(e *entry, seq uint64, at moment) error {
	if e.c != nil && e.c.kind.isObject() {
		e.c.seq = max(e.c.seq, seq) // a duplicate's reply rests on it
	}
	p.remember(e, seq, at, seen.Items)
	return nil
}

// redoExpire gives a key another expiry.
func (p *machine) redoExpire(e *entry, seq uint64, at moment) error {
	if !e.typ.isObject() {
		return p.redoSet(e, seq, at)
	}
	c, err := p.changed(e, seq)
	if c != nil {
		p.setExpire(c, e.expire)
	}
	return err
}

// redoSet gives a counter its post-image.
func (p *machine) redoSet(e *entry, seq uint64, at moment) error {
	if e.r != nil && e.ends() {
		return p.redoOwnParts(e, seq, at)
	}
	if c := p.replaced(e, seq); c != nil {
		if e.r != nil || c.extra != nil {
			p.redoParts(c, e, seq)
		}
		c.kind, c.value, c.seq = TypeCounter, e.value, seq
		p.setExpire(c, e.expire)
		p.hot.changed(c)
	}
	return nil
}

// redoDelete leaves a tombstone in memory until the row is gone.
func (p *machine) redoDelete(e *entry, seq uint64, _ moment) error {
	if seq > p.marks.counters && (e.r == nil || !e.r.note.Absent) {
		p.size--
	}
	if c := p.replaced(e, seq); c != nil {
		if e.flags&flagWasObject != 0 && c.parts() != nil {
			p.showParts(c, seq, e.value)
			return nil
		}
		if e.r != nil || c.extra != nil {
			p.redoParts(c, e, seq)
		}
		c.kind, c.value, c.expire, c.seq = TypeNone, 0, 0, seq
		if p.hot.changed(c); c.parts() != nil {
			p.endedKey(c)
		}
	}
	return nil
}

// replaced frees what an entry replaces and returns the key to change; nil if
// its row, or what is in memory, contains the entry already.
func (p *machine) replaced(e *entry, seq uint64) *counter {
	if e.flags&flagWasObject != 0 && seq > p.marks.filters {
		p.dropObject(e.c)
		if seq <= p.marks.counters && e.c != nil {
			p.hot.forget(e.c) // what the key holds now is in its row
		}
	}
	if seq <= p.marks.counters || e.c == nil || e.c.seq > seq {
		return nil // never replace a higher sequence
	}
	return e.c
}

func (p *machine) setExpire(c *counter, at int64) {
	if c.expire == at {
		return
	}
	c.expire = at
	if at != 0 && p.sets(c) {
		p.newExpiries.add(c)
	}
}

// remember puts the opid of an applied operation into the table's filter and,
// in EXACT, the operation into the records: in the same step as its effect.
func (p *machine) remember(e *entry, seq uint64, at moment, use seen.Use) {
	p.rememberAs(e, seq, at, Seen{Delta: e.delta, Result: e.value, UnixMs: at.wall, Clip: e.clip, Use: use})
}

// rememberAs is remember of an operation of any region. The record supersedes earlier ones of
// the same opid, which the filter takes again: so a match covers the newest one's time.
func (p *machine) rememberAs(e *entry, seq uint64, at moment, original Seen) {
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
		p.seen.Add(&seen.Record{
			Table: e.table, Hash: e.hash, Seq: seq, Logged: at.logged, Key: e.key, ID: e.id, Packed: e.packed,
			Original: original,
		})
	}
}

// redoCatalog redoes a change of the tables.
func (p *machine) redoCatalog(e *entry, seq uint64, at moment) error {
	if seq <= p.marks.catalog {
		return nil
	}
	cat, err := decodeCatalog(e.id)
	if err != nil {
		return err
	}
	if p.marks.filters == math.MaxUint64 { // they are left out
		p.catalog = cat
		return nil
	}
	return p.setCatalog(cat, at)
}

// hasFilter reports whether the filter of an entry's table has the entry already. It returns an
// error if there is no such table.
func (p *machine) hasFilter(e *entry, seq uint64) (bool, error) {
	switch {
	case seq <= p.marks.filters || p.marks.rebuilt:
		return true, nil
	case e.t == nil:
		return false, fmt.Errorf("%w: table %d is unknown", errCorruptEntry, e.table)
	}
	return false, nil
}

// redoTighten redoes that a table's filter is to test at another error.
func (p *machine) redoTighten(e *entry, seq uint64, at moment) error {
	if has, err := p.hasFilter(e, seq); has || err != nil {
		return err
	}
	if e.value < 1 || e.value > math.MaxUint32 {
		return fmt.Errorf("%w: table %d is to be tested at ERROR/%d", errCorruptEntry, e.table, e.value)
	}
	e.t.tests = uint32(e.value)
	return p.alterFilter(e.t, at)
}

// redoControl redoes what a table's filter did.
func (p *machine) redoControl(e *entry, seq uint64, _ moment) error {
	if has, err := p.hasFilter(e, seq); has || err != nil {
		return err
	}
	ev, err := decodeEvent(e.id)
	if err != nil {
		return err
	}
	return p.applyEvent(e.t.filter, ev)
}

// setCatalog makes the partition's tables those of the catalogue: the filters
// of new tables are made, of changed ones altered, of gone ones freed.
func (p *machine) setCatalog(cat *catalog, at moment) error {
	p.hot.unlead()
	p.catalog = cat
	for _, d := range cat.Tables {
		t := p.tables[d.ID]
		if t == nil {
			f, err := p.newFilter(d, 1, at)
			if err != nil {
				return err
			}
			p.memory.add(int64(f.Bytes()))
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
			p.memory.add(-int64(t.filter.Bytes()))
			p.retire(t.filter.Release)
			p.seen.Drop(id)
			delete(p.tables, id)
		}
	}
	p.endedBounds()
	return nil
}

// alterFilter brings a table's filter to the options in force. The remembered
// ids stay.
func (p *machine) alterFilter(t *tableState, at moment) error {
	before := t.filter.Bytes()
	err := t.filter.Alter(t.def.filterOptions(t.tests, p.count), at.logged)
	p.memory.add(int64(t.filter.Bytes()) - int64(before))
	return err
}

// redoFlush forgets everything. From now on the rows and runs that are on disk count
// for nothing: they go with the next commit of rows, or the next checkpoint.
//
// When recovery redoes it, there may be newer rows among them. But they are of
// operations that it redoes, too, so that their keys are in memory, changed, and
// their rows are written again.
func (p *machine) redoFlush(e *entry, seq uint64, at moment) error {
	if seq > p.marks.filters {
		for _, c := range p.objects {
			p.dropObject(c)
			if seq <= p.marks.counters {
				p.hot.forget(c)
			}
		}
		p.deadObjects = nil // up to the floor all pages go
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
	if seq > p.marks.floor {
		p.floor, p.flushDue = seq, true
	}
	if seq > p.marks.counters {
		p.hot.clear()
		p.size, p.newExpiries, p.ended = 0, nil, ended{}
		p.flushHolds(seq)
		if p.regions != nil {
			p.regions.owed = owedOps{} // what was applied in the old era is nowhere any more
		}
		p.rows = newRowFilter(p.count)
		p.rows.whole = true // no row counts any more
	}
	if seq > p.marks.records {
		p.seen.Forget()
	}
	return nil
}

// newFilter returns an empty filter for a table.
func (p *machine) newFilter(d *tableDef, tests uint32, at moment) (*fbf.Filter, error) {
	f, err := fbf.New(d.filterOptions(tests, p.count), at.logged)
	if err == nil {
		f.SetPhase(p.phase())
	}
	return f, err
}

// phase is the phase of the partition's filters, from 0 to below 1. Phases are spread evenly, as
// all partitions' filters fill equally fast.
func (p *machine) phase() float64 { return float64(p.id) / float64(p.count) }

// emptyTable gives a table an empty filter.
func (p *machine) emptyTable(t *tableState, at moment) error {
	f, err := p.newFilter(t.def, t.tests, at)
	if err != nil {
		return err
	}
	old := t.filter
	t.filter = f
	p.memory.add(int64(f.Bytes()) - int64(old.Bytes()))
	p.retire(old.Release)
	return nil
}

// group is how many refs are prepared together: enough to keep the memory
// system busy, few enough that what they asked for is still in the first-level
// cache when they need it.
const group = 64
