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
	By part.Region // who asks
	// whose operations the ids are: the source's own, or those of a region that is lost
	Of          part.Region
	Group       uint64
	Incarnation uint64 // of the source, as the asking region knows it
	Partition   uint16 // of the source
	First, Last uint16 // slots, as in Pull
	Seq         uint64 // S, as the first page said; 0: this is the first one
	At          []byte // where the page before said that this one begins; nil: the first one
	Most        int    // bytes, about; at most MaxStatePage
}

const (
	// stateKeys is how many keys are read at a time, while the partition is not locked.
	stateKeys = 256
	// stateScan bounds the keys or records that one page looks at, about: a page may be empty.
	stateScan = 128 << 10
)

// State returns a page of the state of a slot range of this region, for Store.TakeState of the one
// that asks. Errors: as Pull, but for ErrGap. Safe for concurrent use.
func (s *Store) State(q StateQuery) ([]byte, error) {
	p, err := s.ownPartition(q.Partition)
	if err != nil {
		return nil, err
	}
	at, ok := decodePlace(q.At)
	if !ok || (len(q.At) == 0) != (q.Seq == 0) || len(at.key) > 0 && at.pos != s.hashes.position(at.key) {
		return nil, streamError("no place in a state")
	}
	d, err := s.beginPage(p, &q)
	if err != nil {
		return nil, err
	}
	here := point{}
	if at.ids {
		here, err = s.pageOfIDs(p, d, at, q.Most)
	} else {
		here, err = s.pageOfKeys(p, d, at.key, q.Most)
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
	return d.appendTo(nil), nil
}

// beginPage checks who asks, and returns the head of a page. The first one fixes the sequence, from
// which on the log is kept.
func (s *Store) beginPage(p *partition, q *StateQuery) (*statePage, error) {
	pull := Pull{By: q.By, Group: q.Group, Incarnation: q.Incarnation, Partition: q.Partition, First: q.First,
		Last: q.Last}
	p.lock()
	ranges, err := pull.check(p)
	// else it reads that one's log itself, and here more may come
	if err == nil && q.Of != p.regions.Self && !p.regions.gone(q.Of) {
		err = streamError("region %d was not removed, as far as is known here", q.Of)
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if q.Seq == 0 {
		s.acknowledge(&pull, 0, ranges) // a hold that was lost is taken anew, before the sequence is fixed
	}
	p.lock()
	g := p.regions
	d := &statePage{
		RegionSource: RegionSource{g.Self, p.id}, group: g.Group, incarnation: p.logIncarnation(), era: g.Era,
		version: g.Version,
		first:   q.First, last: q.Last, of: q.Of, seq: q.Seq, wall: p.at.wall, at: q.At,
	}
	if q.Seq == 0 {
		d.seq, d.vector, d.levelled = p.seq, sortTaken(g.cursors), g.levelledBy(d.RegionSource)
		if p.end.seq == d.seq {
			d.proof = s.prove(d.RegionSource, d.incarnation, p.end)
		}
	}
	for _, m := range g.Members {
		if g.heirOf(m.Region) {
			d.heirOf = append(d.heirOf, m.Region)
		}
	}
	here := p.here()
	p.mu.Unlock()
	if q.Seq > 0 {
		if committed := p.committed.upTo(); q.Seq > committed {
			return nil, streamError("a state at %d, and the last entry is %d", q.Seq, committed)
		}
		return d, nil
	}
	if err := here.wait(); err != nil {
		return nil, err
	}
	if q.Of == d.Region { // else who asks goes on with the log where it was
		s.acknowledge(&pull, d.seq, ranges)
	}
	return d, nil
}

// pageOfKeys adds keys behind one to a page.
func (s *Store) pageOfKeys(p *partition, d *statePage, after []byte, most int) (here point, err error) {
	for looked := 0; ; looked += stateKeys {
		keys, more, at, err := s.partsBehind(p, after, d.last,
			max(s.positionOfNext(after), position(d.first, 0)), stateKeys)
		if err != nil {
			return point{}, err
		}
		here = at
		for i := range keys {
			k := &keys[i]
			if after = k.key; k.told && d.tells(k) {
				d.items = k.appendTo(d.items)
			}
			if (len(d.items) >= most || looked >= stateScan) && (more || i < len(keys)-1) {
				d.next = statePlace{key: after, pos: k.pos}.appendTo(nil)
				return here, nil
			}
		}
		if !more {
			d.next = statePlace{ids: true}.appendTo(nil)
			return here, nil
		}
	}
}

// tells reports whether a page tells of a key: the part of the region whose ids it tells, and what
// deletions have removed of others. Other regions' parts must not arrive before their ids. Parts
// that the source has inherited are told all the same, since no other region tells them.
func (d *statePage) tells(k *foundKey) bool {
	of := func(r part.Region) bool { return r == d.of || d.of == d.Region && slices.Contains(d.heirOf, r) }
	if !slices.ContainsFunc(k.parts, func(q part.Part) bool { return of(q.Region) }) {
		return false
	}
	k.parts = k.parts.Only(of)
	return true
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
	stateKey
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
			keys = append(keys, foundKey{stateKey: stateKey{key: []byte(f.key)}, pos: f.pos, row: f.row})
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

// pageOfIDs adds ids from a place on to a page.
func (s *Store) pageOfIDs(p *partition, d *statePage, at statePlace, most int) (here point, err error) {
	tables, here, err := s.recordsInRuns(p, d.seq)
	if err != nil {
		return here, err
	}
	var ids []stateID
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
			o, ok, err := d.operation(seq, value)
			// A later record takes the place of one before: what was taken back must not be told as
			// if it counted.
			if seq <= d.seq && err == nil {
				same := func(b stateID) bool { return bytes.Equal(b.key, o.key) && bytes.Equal(b.id, o.id) }
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
	for i := range ids {
		// Ids of operations on objects stay here.
		if p.objects[string(ids[i].key)] == nil && p.catalog.find(ids[i].key).Told() {
			d.items = ids[i].appendTo(d.items)
		}
	}
	p.mu.Unlock()
	d.next = next.appendTo(nil)
	return here, nil
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
func (d *statePage) operation(seq uint64, value []byte) (o stateID, ok bool, err error) {
	if seq > d.seq {
		return o, false, nil
	}
	r, err := seen.ReadRecord(value)
	if err != nil {
		return o, false, err
	}
	if slot := Slot(r.Key); slot < d.first || slot > d.last {
		return o, false, nil
	}
	o = stateID{bytes.Clone(r.Key), bytes.Clone(r.ID), r.Original}
	if d.of == d.Region && o.Own() {
		o.Dot = seq
		return o, true, nil
	}
	return o, d.of != d.Region && !o.Own() && o.Region == d.of, nil
}
