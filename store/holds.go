package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/seen"
)

// Holds. A hold sets an amount of a counter aside until it is settled, cancelled or expires. Open holds are
// in memory, all of them, and are saved with the state row, exactly as of its sequence. How a hold ended is a
// record of its opid, which is kept for the table's window from then on (seen.HoldEnd). So an opid is either
// open here, or in the records, and a hold ends once.

// holdings are the open holds of a partition.
type holdings struct {
	keys  map[string]*keyHolds
	last  *keyHolds // the key asked for last, as a phase of a hold asks several times; nil: none
	due   dueHolds  // the next to expire is the first
	bytes int64     // of memory
	// counted is the catalogue by whose tables the holds are counted (countHolds).
	counted *catalog
	ages    ages // when they were opened
	// sum and len(due) tell whether the rows on disk are complete.
	sum uint64
	// opened and ended have changed since the last checkpoint; whole: the next one replaces all rows.
	opened, ended []*hold
	whole         bool
	// For WATCH: nothing is known of changes up to the sequence loaded; ends has the sequence at which the
	// last hold of a key ended, by the key's position.
	loaded uint64
	ends   [256]uint64
}

// keyHolds are the open holds of one counter, which need not exist.
type keyHolds struct {
	key      string
	up, down int64 // sums of the positive and of the negative amounts
	count    int
	bytes    int64   // of memory
	changed  uint64  // sequence of the last hold that was opened or ended, if it is known
	slots    []*hold // open addressing, linear probing; a power of two, of which 1/8 to 3/4 are in use
}

// hold is an open hold: 64 bytes and the opid.
type hold struct {
	of      *keyHolds // nil: it has ended
	id      string
	amount  int64
	reply   int64  // what the client was told
	expires int64  // unix ms
	opened  int64  // unix ms
	tag     uint32 // its hash in slots, with isSaved in the lowest bit
	place   int32  // in holdings.due
}

// isSaved: the hold has a row on disk, or is about to get one.
const isSaved uint32 = 1

// The memory that an open hold takes beside its opid, with its slots and its place in the heap, and the
// memory that a key with holds takes beside its bytes.
const (
	holdBytes     = 96
	keyHoldsBytes = 160
	minHoldSlots  = 4
)

// bytes is the memory that the hold takes.
func (o *hold) bytes() int64 { return holdBytes + int64(len(o.id)) }

// Limits of holds. MaxHolds bounds the open ones of one key.
const MaxHolds = 1_000_000

// tagOf is the tag of a hold whose (key, opid) has a hash.
func tagOf(hash uint64) uint32 { return uint32(hash>>32) &^ isSaved }

// ofKey returns the open holds of a key; nil if there are none.
func (h *holdings) ofKey(key []byte) *keyHolds {
	switch {
	case len(h.due) == 0:
		return nil
	case h.last == nil || h.last.key != string(key):
		h.last = h.keys[string(key)]
	}
	return h.last
}

// find returns the open hold of (key, opid), whose hash is given; nil if there is none.
func (h *holdings) find(hash uint64, key, id []byte) *hold {
	k := h.ofKey(key)
	if k == nil {
		return nil
	}
	tag := tagOf(hash)
	mask := uint32(len(k.slots) - 1)
	for i := tag >> 1 & mask; k.slots[i] != nil; i = (i + 1) & mask {
		if o := k.slots[i]; o.tag&^isSaved == tag && o.id == string(id) {
			return o
		}
	}
	return nil
}

// of returns the sums of a key's positive and negative open holds.
func (h *holdings) of(key []byte) (up, down int64) {
	if k := h.ofKey(key); k != nil {
		up, down = k.up, k.down
	}
	return up, down
}

// open adds a hold, whose (key, opid) is not open. It returns how many bytes of memory it takes.
func (h *holdings) open(hash uint64, key []byte, o *hold) (bytes int64) {
	before := h.bytes
	if h.keys == nil {
		h.keys = make(map[string]*keyHolds)
	}
	k := h.ofKey(key)
	if k == nil {
		k = &keyHolds{key: string(key), slots: make([]*hold, minHoldSlots)}
		h.keys[k.key] = k
		k.bytes = keyHoldsBytes + int64(len(key))
		h.bytes += k.bytes
	}
	o.of, o.tag = k, tagOf(hash)
	if k.count++; k.count*4 > len(k.slots)*3 {
		k.resize(2 * len(k.slots))
	}
	k.put(o)
	k.add(o.amount)
	h.due.push(o)
	k.bytes += o.bytes()
	h.bytes += o.bytes()
	h.ages.add(o.opened)
	h.sum += o.print()
	h.noteOpened(o)
	return h.bytes - before
}

// noteOpened notes that a hold has no row yet. Those that have ended meanwhile make room first: most holds
// end before a checkpoint.
func (h *holdings) noteOpened(o *hold) {
	if len(h.opened) == cap(h.opened) {
		h.opened = slices.DeleteFunc(h.opened, func(o *hold) bool { return o.of == nil })
		h.opened = slices.Grow(h.opened, len(h.opened)+1) // not again soon
	}
	h.opened = append(h.opened, o)
}

// resize gives the key so many slots.
func (k *keyHolds) resize(n int) {
	old := k.slots
	k.slots = make([]*hold, n)
	for _, o := range old {
		if o != nil {
			k.put(o)
		}
	}
}

func (k *keyHolds) put(o *hold) {
	mask := uint32(len(k.slots) - 1)
	i := o.tag >> 1 & mask
	for k.slots[i] != nil {
		i = (i + 1) & mask
	}
	k.slots[i] = o
}

func (k *keyHolds) add(amount int64) {
	if amount > 0 {
		k.up += amount
	} else {
		k.down += amount
	}
}

// end removes an open hold. It returns how many bytes of memory that frees.
func (h *holdings) end(o *hold) (bytes int64) {
	before, k := h.bytes, o.of
	h.sum -= o.print()
	k.remove(o)
	if k.count--; len(k.slots) > minHoldSlots && k.count*8 < len(k.slots) {
		k.resize(len(k.slots) / 2) // else CHOLDS would look at slots that have been empty for long
	}
	if o.amount > 0 {
		k.up -= o.amount
	} else {
		k.down -= o.amount
	}
	h.due.remove(o)
	k.bytes -= o.bytes()
	h.bytes -= o.bytes()
	h.ages.remove(o.opened)
	if k.count == 0 {
		delete(h.keys, k.key)
		h.last = nil
		h.bytes -= k.bytes
	}
	if o.tag&isSaved != 0 {
		h.ended = append(h.ended, o)
	} else {
		o.of = nil // in opened, it is passed over
	}
	return before - h.bytes
}

// remove takes a hold out of the slots and closes the gap, as hotTable.remove does.
func (k *keyHolds) remove(o *hold) {
	mask := uint32(len(k.slots) - 1)
	i := o.tag >> 1 & mask
	for k.slots[i] != o {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; k.slots[j] != nil; j = (j + 1) & mask {
		if home := k.slots[j].tag >> 1 & mask; (j-home)&mask >= (j-i)&mask {
			k.slots[i] = k.slots[j]
			i = j
		}
	}
	k.slots[i] = nil
}

// dueHolds is a heap of holds by when they expire. Each knows its place. It is no heap of package heap, which
// looks at more holds on the way down, each of them out of the processor's cache.
type dueHolds []*hold

func (d *dueHolds) push(o *hold) {
	*d = append(*d, nil)
	d.put(len(*d)-1, o)
}

func (d *dueHolds) remove(o *hold) {
	end := len(*d) - 1
	last := (*d)[end]
	(*d)[end] = nil
	if *d = (*d)[:end]; last != o {
		d.put(int(o.place), last)
	}
}

// put puts a hold at a free place, or above or below it.
func (d dueHolds) put(i int, o *hold) {
	for i > 0 && o.expires < d[(i-1)/2].expires {
		i = d.free((i-1)/2, i)
	}
	for j := 2*i + 1; j < len(d); j = 2*i + 1 {
		if j+1 < len(d) && d[j+1].expires < d[j].expires {
			j++
		}
		if o.expires <= d[j].expires {
			break
		}
		i = d.free(j, i)
	}
	d[i], o.place = o, int32(i)
}

// free moves a hold to a free place, and returns its former one.
func (d dueHolds) free(from, to int) int {
	d[to] = d[from]
	d[to].place = int32(to)
	return from
}

// next returns the hold that expires next, if its time has come by a wall time; else nil.
func (h *holdings) next(wall int64) *hold {
	if len(h.due) == 0 || h.due[0].expires > wall {
		return nil
	}
	return h.due[0]
}

// expired returns up to n of the holds whose time has come by a wall time.
func (h *holdings) expired(wall int64, n int) (all []*hold) {
	// In a heap what lies below one whose time has not come needs no look.
	for next := []int{0}; len(next) > 0 && len(all) < n; {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		if i < len(h.due) && h.due[i].expires <= wall {
			all = append(all, h.due[i])
			next = append(next, 2*i+1, 2*i+2)
		}
	}
	return all
}

// clear forgets all holds. It returns how many bytes of memory that frees.
func (h *holdings) clear() (bytes int64) {
	bytes = h.bytes
	*h = holdings{whole: true}
	return bytes
}

// print is what the hold adds to holdings.sum.
func (o *hold) print() uint64 {
	x := uint64(o.tag&^isSaved)<<32 ^ uint64(o.amount)*0x9e3779b97f4a7c15
	x ^= uint64(o.expires)<<1 ^ uint64(o.reply)
	x = (x ^ x>>31) * 0xbf58476d1ce4e5b9
	return x ^ x>>29
}

// scan calls fn for open holds of the key whose place in the order of a scan is at least cursor, and returns
// where the next scan goes on; 0: it is complete. Each call looks at the holds of n or more homes. A hold
// that is open during a whole scan is found once or more, also if the slots grow meanwhile: the order is that
// of the reversed bits of homes, as in Redis' SCAN.
func (k *keyHolds) scan(cursor uint32, n int, fn func(*hold)) (next uint32) {
	mask := uint32(len(k.slots) - 1)
	for found := 0; ; {
		home := cursor & mask
		for i := home; k.slots[i] != nil; i = (i + 1) & mask {
			if o := k.slots[i]; o.tag>>1&mask == home {
				fn(o)
				found++
			}
		}
		cursor = nextHome(cursor, mask)
		if cursor == 0 || found >= n {
			return cursor
		}
	}
}

// Holds on disk. A row has: version, amount, reply, expiry, when it was opened.

const holdVersion = 1

func (o *hold) encode(dst []byte) []byte {
	dst = append(dst, holdVersion)
	for _, n := range [...]int64{o.amount, o.reply, o.expires, o.opened} {
		dst = binary.AppendVarint(dst, n)
	}
	return dst
}

func decodeHold(id, b []byte) (*hold, error) {
	r := reader{coding.Reader{Rest: b}}
	v := r.Byte()
	o := &hold{id: string(id), amount: r.Varint(), reply: r.Varint(), expires: r.Varint(), opened: r.Varint()}
	if r.End(); r.err() != nil || v != holdVersion || o.amount == 0 || len(id) > MaxOpID {
		return nil, fmt.Errorf("%w: the hold %q", errCorruptEntry, id)
	}
	return o, nil
}

// savedHolds are the changes of holds that a checkpoint writes.
type savedHolds struct {
	drop      bool // all rows that there are
	put, gone []savedHold
}

// savedHold is a hold with its key, which it forgets once it has ended. Nothing of it that is saved changes.
type savedHold struct {
	*hold
	of *keyHolds
}

// takeChanged returns what has changed since the last checkpoint, which the caller writes, together with
// the state of now. If that fails, the caller sets whole. There may be many, so nothing is encoded yet.
func (h *holdings) takeChanged() (s savedHolds) {
	if s.drop = h.whole; s.drop {
		h.opened, h.ended = h.due, nil
	}
	s.put, s.gone = make([]savedHold, 0, len(h.opened)), make([]savedHold, 0, len(h.ended))
	for _, o := range h.opened {
		if o.of == nil {
			continue
		}
		o.tag |= isSaved
		s.put = append(s.put, savedHold{o, o.of})
	}
	for _, o := range h.ended {
		s.gone = append(s.gone, savedHold{o, o.of})
		o.of = nil
	}
	h.opened, h.ended, h.whole = nil, nil, false
	return s
}

func (s savedHold) name() persistence.HoldKey {
	return persistence.HoldKey{Key: []byte(s.of.key), ID: []byte(s.id)}
}

// putHold takes a hold that was saved.
func (p *machine) putHold(k persistence.HoldKey, value []byte) error {
	o, err := decodeHold(k.ID, value)
	hash := p.hashes.ids.Hash(k.Key, k.ID)
	if err == nil && (p.holds.find(hash, k.Key, k.ID) != nil || len(k.Key) > MaxKey) {
		err = fmt.Errorf("%w: the hold %q is there twice", errCorruptEntry, k.ID)
	}
	if err != nil {
		return err
	}
	p.memory.add(p.holds.open(hash, k.Key, o))
	o.tag |= isSaved
	return nil
}

// checkHolds reports whether the holds that were loaded are those that the state row tells of.
func (p *machine) checkHolds(state *partitionState) error {
	if len(p.holds.due) != int(state.holds) || p.holds.sum != state.holdSum {
		return fmt.Errorf("%w: %d holds are there, and the last checkpoint saved %d others", errCorruptEntry,
			len(p.holds.due), state.holds)
	}
	p.holds.opened = nil // they have rows
	p.holds.loaded = state.seq
	return nil
}

// redoHold opens a hold.
func (p *machine) redoHold(e *entry, seq uint64, at moment) error {
	if seq > p.marks.filters && e.t != nil && e.flags&flagHasTime != 0 {
		e.t.horizon.add(at.logged, e.time, e.t.def.keep(at.logged))
	}
	if seq <= p.marks.counters || p.holds.find(e.hash, e.key, e.id) != nil {
		return nil
	}
	o := &hold{id: string(e.id), amount: e.delta, reply: e.value, expires: e.expire, opened: at.wall}
	p.countHold(e.t, 1, p.holds.open(e.hash, e.key, o))
	o.of.changed = seq
	return nil
}

// redoHoldEnd ends a hold: what was settled is added to the counter, and the opid is remembered, in the
// same step.
func (p *machine) redoHoldEnd(e *entry, seq uint64, at moment) error {
	if e.end.How == seen.Settled {
		reply := e.value
		e.value = e.end.Result
		_ = p.redoSet(e, seq, at)
		e.value = reply
	}
	if seq > p.marks.counters {
		if o := p.holds.find(e.hash, e.key, e.id); o != nil {
			k := o.of
			p.countHold(e.t, -1, -p.holds.end(o))
			p.holdEnded(k, seq)
		}
	}
	p.rememberAs(e, seq, at, Seen{Delta: e.delta, Result: e.value, UnixMs: at.wall, Hold: e.end})
	return nil
}

// The room of holds. A table's holds count with its filters, in all partitions together, against MAXMEMORY:
// most holds may be of one key, and so of one partition.

// heldFigures are the open holds of a table in one partition.
type heldFigures struct {
	Holds     uint64 // that are open
	HoldBytes uint64 // of memory
}

func (f *heldFigures) add(o heldFigures) {
	f.Holds += o.Holds
	f.HoldBytes += o.HoldBytes
}

// countHolds makes sure that the tables know their holds. They did with an earlier catalogue.
func (p *machine) countHolds() {
	h := &p.holds
	if h.counted == p.catalog {
		return
	}
	for _, t := range p.tables {
		t.held = heldFigures{}
	}
	for key, k := range h.keys {
		p.tableOf([]byte(key)).held.add(heldFigures{uint64(k.count), uint64(k.bytes)})
	}
	h.counted = p.catalog
}

// countHold counts a hold that was opened or, if n is -1, has ended, and what it took.
func (p *machine) countHold(t *tableState, n, bytes int64) {
	if p.memory.add(bytes); t == nil {
		p.holds.counted = nil
	} else if p.holds.counted == p.catalog {
		t.held.add(heldFigures{uint64(n), uint64(bytes)})
	}
}

// usedBy is what a table takes here.
func (p *machine) usedBy(t *tableState) int64 {
	if t == nil {
		return 0
	}
	p.countHolds()
	return int64(t.filter.Bytes() + t.held.HoldBytes)
}

// isFull reports whether a table has no room for so many bytes more.
func (p *machine) isFull(t *tableState, bytes uint64) bool {
	if t.def.MaxMemory == 0 {
		return false
	}
	used := p.memory.noteUse(t.def.Name, p.id, p.count, p.usedBy(t))
	return used+bytes > t.def.MaxMemory
}

// roomForHold refuses a hold for which there is no memory, or no room for the record of its end.
func (x *turn) roomForHold(op *Op, r *ref) error {
	bytes := uint64(holdBytes + len(op.ID))
	t, k := r.t, r.p.holds.ofKey(r.key)
	switch {
	case k == nil:
		bytes += uint64(keyHoldsBytes + len(r.key))
	case k.count >= MaxHolds:
		return ErrManyHolds
	}
	if r.others >= seen.MaxOthers {
		return ErrSameHash
	}
	pl := planner{memory: r.p.memory}
	switch {
	case r.p.isFull(t, bytes):
		t.figures.Refused++
		return errTableMemory
	case !pl.grant(bytes):
		t.figures.Refused++
		return ErrOutOfMemory
	}
	pl.settle()
	if r.p.diskFull(t) {
		t.figures.Refused++
		return errTableDisk
	}
	return nil
}

// ages counts open holds by when they were opened, so that the oldest is found without a look at each of a
// million: in at most maxAges spans of 2^shift milliseconds.
type ages struct {
	shift uint8
	spans []age // by time; each has a hold
}

type age struct {
	span  int64
	holds int
}

const maxAges = 512

// first returns about when the oldest hold was opened, the begin of its span; 0: none is open.
func (a *ages) first() int64 {
	if len(a.spans) == 0 {
		return 0
	}
	return a.spans[0].span << a.shift
}

// at returns where the span of a time is, or would be.
func (a *ages) at(opened int64) (i int, found bool) {
	span, last := opened>>a.shift, len(a.spans)-1
	if last >= 0 && a.spans[last].span == span { // most often
		return last, true
	}
	return slices.BinarySearchFunc(a.spans, span, func(a age, span int64) int {
		return cmp.Compare(a.span, span)
	})
}

// add counts a hold that was opened then.
func (a *ages) add(opened int64) {
	i, found := a.at(opened)
	if !found && len(a.spans) == maxAges {
		a.widen()
		i, found = a.at(opened)
	}
	if !found {
		a.spans = slices.Insert(a.spans, i, age{span: opened >> a.shift})
	}
	a.spans[i].holds++
}

// remove discounts a hold.
func (a *ages) remove(opened int64) {
	i, _ := a.at(opened)
	if a.spans[i].holds--; a.spans[i].holds == 0 {
		a.spans = slices.Delete(a.spans, i, i+1)
	}
	if len(a.spans) == 0 {
		a.shift = 0
	}
}

// widen doubles spans until there is room for a new one.
func (a *ages) widen() {
	for len(a.spans) == maxAges {
		a.shift++
		n := 0
		for _, o := range a.spans {
			if o.span >>= 1; n > 0 && a.spans[n-1].span == o.span {
				a.spans[n-1].holds += o.holds
				continue
			}
			a.spans[n] = o
			n++
		}
		a.spans = a.spans[:n]
	}
}
