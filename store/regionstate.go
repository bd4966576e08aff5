package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// A region whose log does not reach back to what another one has taken tells its state instead: of
// a slot range its parts of all keys, also of those that ended and are not forgotten, and
// then the ids of operations that are remembered here. A region that has taken all pages has taken
// the log up to the sequence S at which the first one began, and goes on with the log from there.
//
// A page has the form of an answer of the log (pullwire.go), and tells entries:
//
//	cursor    on the first page: what the source had taken of others at S
//	levelled  on the first page: what it had said by then of regions that are gone
//	merge     a key and its parts
//	owed      what the source, and regions that are gone, owe of the key before
//	heard     an id
//
// Pages are answered one by one, and nothing is remembered here between them: a page says where
// the next one begins. So what they tell is not one instant. That does no harm:
//
//	keys  each part has its clock. What it contains of the log behind S changes nothing when the
//	      log is read. A key that is missing is dead, and everyone had taken its end (a source
//	      drops nothing that a member has not acknowledged)
//	ids   those applied behind S are left out, since their parts may not be in the pages: an id
//	      must not arrive before its part. The log brings them
//
// The first page is answered only once the log is kept from S on, and each when all that it tells is
// committed and durable, as in Pull.

// StateQuery is what a region asks another one that cannot tell it its log.
type StateQuery struct {
	Pull // but for After, Acked and Wait
	// whose operations the ids are: the source's own, or those of a region that is lost
	Of  part.Region
	Seq uint64 // S, as the first page said; 0: this is the first one
	At  []byte // where the page before said that this one begins; nil: the first one
}

const (
	// stateKeys is how many keys are read at a time, while the partition is not locked.
	stateKeys = 256
	// maxReady bounds the room that is made for the keys of a page before they are there, bytes.
	maxReady = 1 << 20
	// stateScan bounds the keys or records that one page looks at, about: a page may be empty.
	stateScan = 128 << 10
)

// State returns a page of the state of a slot range of this region, for Store.Take of the one that
// asks. Errors: as Pull, but for ErrGap. Safe for concurrent use.
func (s *Store) State(q StateQuery) ([]byte, error) {
	p, err := s.ownPartition(q.Partition)
	if err != nil {
		return nil, err
	}
	at, ok := decodePlace(q.At)
	if !ok || (len(q.At) == 0) != (q.Seq == 0) || len(at.key) > 0 && at.pos != s.hashes.position(at.key) {
		return nil, streamError("no place in a state")
	}
	t, err := s.beginPage(p, &q)
	if err != nil {
		return nil, err
	}
	here := point{}
	if at.ids {
		here, err = t.pageOfIDs(at, q.Most)
	} else {
		here, err = t.pageOfKeys(at.key, q.Most)
	}
	if err == nil {
		err = here.wait()
	}
	if err == nil && s.Fsync() != Always { // a sequence that others know must not be given again
		err = s.Sync()
	}
	if err != nil {
		return nil, err
	}
	return Pack(t.finish()), nil
}

// pageTeller makes a page of state.
type pageTeller struct {
	teller
	heirOf []part.Region // this region is the heir of these

	entry    pulledEntry
	regional regional
	parts    []byte
}

// next returns the next entry of the page, to be filled in and added.
func (t *pageTeller) next(kind entryKind, key []byte) *pulledEntry {
	t.regional = regional{}
	t.entry = pulledEntry{entry: entry{kind: kind, key: key, r: &t.regional}, seq: t.w.last + 1}
	return &t.entry
}

func (t *pageTeller) add(e *pulledEntry) {
	t.teller.add(e)
	t.w.nextEnd = e.seq
}

// beginPage checks who asks, and begins a page. The first one fixes the sequence, from which on the log
// is kept.
func (s *Store) beginPage(p *partition, q *StateQuery) (*pageTeller, error) {
	p.lock()
	ranges, err := q.check(p)
	// else it reads that one's log itself, and here more may come
	if err == nil && q.Of != p.regions.Self && !p.regions.gone(q.Of) {
		err = streamError("region %d was not removed, as far as is known here", q.Of)
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p.lock()
	g := p.regions
	t := &pageTeller{teller: teller{s: s, p: p, catalog: p.catalog, pulled: q.head(p)}}
	t.era, t.upTo = g.Era, q.Seq
	t.page = &statePage{of: q.Of, version: g.Version, at: q.At}
	for _, m := range g.Members {
		if g.heirOf(m.Region) {
			t.heirOf = append(t.heirOf, m.Region)
		}
	}
	if q.Seq == 0 {
		t.upTo, t.end = p.seq, p.end
		for _, taken := range sortTaken(g.cursors) {
			e := t.next(entryCursor, nil)
			e.r.cursor.RegionTaken = taken
			t.add(e)
		}
		for _, l := range g.levelledBy(t.RegionSource) {
			e := t.next(entryLevelled, nil)
			e.r.levelled = l
			t.add(e)
		}
	}
	here := p.here()
	p.mu.Unlock()
	if q.Seq > 0 {
		if committed := p.committed.upTo(); q.Seq > committed {
			return nil, streamError("a state at %d, and the last entry is %d", q.Seq, committed)
		}
		return t, nil
	}
	if err := here.wait(); err != nil {
		return nil, err
	}
	// Else who asks goes on with the log where it was. If a checkpoint has cut the log in between, who asks
	// gets ErrGap, and a state again.
	if q.Of == t.Region {
		s.acknowledge(&q.Pull, t.upTo, ranges)
	}
	return t, nil
}

// pageOfKeys adds keys behind one to a page.
func (t *pageTeller) pageOfKeys(after []byte, most int) (here point, err error) {
	s := t.s
	for looked := 0; ; looked += stateKeys {
		keys, more, at, err := s.partsBehind(t.p, after, t.last,
			max(s.positionOfNext(after), position(t.first, 0)), stateKeys)
		if err != nil {
			return point{}, err
		}
		here = at
		if more {
			t.w.entries = slices.Grow(t.w.entries, max(0, min(most, maxReady)-t.size()))
		}
		for i := range keys {
			k := &keys[i]
			if after = k.key; k.told {
				t.key(k)
			}
			if (t.size() >= most || looked >= stateScan) && (more || i < len(keys)-1) {
				t.page.next = statePlace{key: after, pos: k.pos}.appendTo(nil)
				return here, nil
			}
		}
		if !more {
			t.page.next = statePlace{ids: true}.appendTo(nil)
			return here, nil
		}
	}
}

// key tells of a key: the part of the region whose ids are told, and what deletions have removed of others.
// Other regions' parts must not arrive before their ids. Parts that the source has inherited are told all the
// same, since no other region tells them.
func (t *pageTeller) key(k *foundKey) {
	of := func(r part.Region) bool {
		return r == t.page.of || t.page.of == t.Region && slices.Contains(t.heirOf, r)
	}
	if !slices.ContainsFunc(k.parts, func(q part.Part) bool { return of(q.Region) }) {
		return
	}
	e := t.next(entryMerge, k.key)
	t.parts = k.parts.Only(of).AppendTo(t.parts[:0])
	e.packed = t.parts
	t.add(e)
	for owed := range slices.Chunk(k.owed, takeOps) { // behind the parts
		e := t.next(entryOwed, k.key)
		e.r.owed, e.r.what = owed, owedTold
		t.add(e)
	}
}

// positionOfNext is a position before which nothing is behind a key.
func (s *Store) positionOfNext(after []byte) uint64 {
	if len(after) == 0 {
		return 0
	}
	return s.hashes.position(after)
}

// foundKey is a key that partsBehind has found.
type foundKey struct {
	key   []byte
	parts part.Parts
	owed  []part.Owed // by the source, and by regions that are gone
	pos   uint64
	row   *row
	known bool // its parts are
	told  bool // its table says so
}

// partsBehind returns up to count keys behind one, of slots up to last and positions not before
// from, in the order of rows, with the parts that they have (asParts), which may be none; whether
// there are more of them; and what it rests on.
//
// A key that was evicted since its row was read is read again, as it may have been changed and
// written back meanwhile.
func (s *Store) partsBehind(p *partition, after []byte, last uint16, from uint64, count int) (keys []foundKey,
	more bool, here point, err error) {
	w := walk{p: p, lock: p.lock, from: from, to: position(last+1, 0), after: after,
		more: func(n int, _, _ uint64) bool { return n <= count }}
	for {
		found, at, err := w.keys()
		if err != nil {
			return nil, false, point{}, err
		}
		if more = len(found) > count; more {
			found = found[:count]
		}
		keys = keys[:0]
		for _, f := range found {
			keys = append(keys, foundKey{key: []byte(f.key), pos: f.pos, row: f.row})
		}
		here, err = s.showKeys(p, keys, &at.evicted)
		if err != nil || here.life == at.life {
			return keys, more, here, err
		}
	}
}

// showKeys fills in the parts of keys: what memory has, else those of the row, if it was read when
// nothing of its position had been evicted since stamps.
func (s *Store) showKeys(p *partition, keys []foundKey, stamps *[256]uint32) (here point, err error) {
	for {
		var again []*foundKey
		p.lock()
		self := p.self()
		for i := range keys {
			k := &keys[i]
			k.told = p.catalog.find(k.key).Told()
			c := p.hot.peek(string(k.key))
			switch {
			case c != nil:
				k.parts, k.known = slices.Clone(c.asParts(self)), true
				k.owed = p.regions.owedToTell(k.key)
			case k.known:
			case k.row == nil || stamps[byte(k.pos)] != *p.hot.stamp(k.pos):
				again = append(again, k)
			default:
				k.parts, k.known = nil, true
				if k.row.seq > p.floor {
					k.parts = k.row.asParts(self)
				}
				k.owed = p.regions.owedToTell(k.key)
			}
		}
		here = p.here()
		*stamps = p.hot.evicted
		p.mu.Unlock()
		if len(again) == 0 {
			return here, nil
		}
		for _, k := range again {
			value, ok, err := s.db.Row(nil, rowKey(k.pos, k.key))
			if err != nil {
				return here, err
			}
			k.row = &row{} // of before all: there is none
			if !ok {
				continue
			}
			if *k.row, err = decodeRow(value); err != nil {
				return here, err
			}
		}
	}
}

// asParts returns the parts of a row's counter as if it had always had them.
func (w *row) asParts(self part.Region) part.Parts {
	var c counter
	c.showRow(w)
	return c.asParts(self)
}

// foundID is an operation that was found in the records of a table.
type foundID struct {
	key, id []byte
	table   uint32
	seen.Original
}

// pageOfIDs adds ids from a place on to a page.
func (t *pageTeller) pageOfIDs(at statePlace, most int) (here point, err error) {
	p := t.p
	tables, here, err := t.s.recordsInRuns(p, t.upTo)
	if err != nil {
		return here, err
	}
	var ids []foundID
	size, looked, group := 0, 0, 0
	most = max(most, 1)
	next := statePlace{}
	for _, table := range tables {
		if table < at.table {
			continue
		}
		from, last := uint64(0), uint64(0)
		if table == at.table {
			from = at.hash
		}
		err := p.seen.ScanRuns(table, from, func(hash, seq uint64, value []byte) error {
			if looked++; hash != last && (size >= most || looked > stateScan) {
				next = statePlace{ids: true, table: table, hash: hash}
				return errEnough
			}
			if hash != last {
				last, group = hash, len(ids)
			}
			o, ok, err := t.operation(table, seq, value)
			// A later record takes the place of one before: what was taken back must not be told as
			// if it counted.
			if seq <= t.upTo && err == nil {
				same := func(b foundID) bool { return bytes.Equal(b.key, o.key) && bytes.Equal(b.id, o.id) }
				ids = append(ids[:group], slices.DeleteFunc(ids[group:], same)...)
			}
			if ok {
				size += len(o.key) + len(o.id) + 16
				ids = append(ids, o)
			}
			return err
		})
		if next.ids {
			break
		}
		if errors.Is(err, fs.ErrNotExist) { // merged meanwhile
			return here, errStateBusy
		}
		if err != nil {
			return here, err
		}
	}
	p.lock()
	here = p.here()
	t.w.entries = slices.Grow(t.w.entries, size)
	for i := range ids {
		// Ids of operations on objects stay here, but not those of counters whose names objects have now.
		if ids[i].Use != seen.Items && p.catalog.find(ids[i].key).Told() {
			t.id(&ids[i])
		}
	}
	p.mu.Unlock()
	t.page.next = next.appendTo(nil)
	return here, nil
}

// id tells of an id.
func (t *pageTeller) id(o *foundID) {
	e := t.next(entryHeard, o.key)
	e.table, e.id, e.delta, e.value, e.clip = o.table, o.id, o.Delta, o.Result, o.Clip
	if o.Clip != 0 {
		e.flags = flagClipped
	}
	e.r.heard = Heard{Origin: t.page.of, Dot: o.Dot, Wall: o.UnixMs}
	if o.IsDrain() {
		e.r.heard.Use = o.Use
	}
	t.add(e)
}

// recordsInRuns makes sure that all records up to a sequence are in runs, and returns the tables of these.
func (s *Store) recordsInRuns(p *partition, seq uint64) (tables []uint32, here point, err error) {
	for range 3 {
		p.lock()
		done := p.seen.InRuns(seq)
		tables, here = p.seen.RunTables(), p.here()
		p.mu.Unlock()
		if done {
			return tables, here, nil
		}
		if err := s.flushRecords(p, true); err != nil && !errors.Is(err, errPostponed) {
			return nil, here, fmt.Errorf("making runs of what is remembered: %w", err)
		}
	}
	return nil, here, errStateBusy
}

// operation returns what a record says, and whether the page tells it: it does if the operation is of
// the region whose operations it tells.
func (t *pageTeller) operation(table uint32, seq uint64, value []byte) (o foundID, ok bool, err error) {
	if seq > t.upTo {
		return o, false, nil
	}
	r, err := seen.ReadRecord(value)
	if err != nil {
		return o, false, err
	}
	if slot := Slot(r.Key); slot < t.first || slot > t.last {
		return o, false, nil
	}
	o = foundID{bytes.Clone(r.Key), bytes.Clone(r.ID), table, r.Original}
	of := t.page.of
	if of == t.Region && o.Own() {
		o.Dot = seq
		return o, true, nil
	}
	return o, of != t.Region && !o.Own() && o.Region == of, nil
}
