package store

import (
	"hash/maphash"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"github.com/tidwall/btree"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/part"
)

// counter is a key in memory: a counter, an object, or the knowledge that the
// key does not exist. It is guarded by its partition's lock. What every
// operation needs of it, a short key included, is one cache line: Go's allocator
// aligns objects of 64 bytes. A longer key goes on behind that (newCounter), so counters are never copied
// but by clone.
type counter struct {
	value  int64
	seq    uint64 // of the log entry this state reflects; 0: loaded from its row
	expire int64  // unix ms; 0: never
	pos    uint64 // slot and key hash: the order of rows and of SCAN
	extra  *counterExtra
	kind   Type
	is     counterFlags
	size   uint8 // of the key, which begins in short; 0: the key is in extra, if that is there
	short  [shortKey]byte
}

// counterExtra is what few counters have.
type counterExtra struct {
	key    string // if it is longer than maxInline
	object object // nil: a counter
	// parts are what each region did to the counter, also if it does not exist any more. nil: only
	// this region ever counted, and nothing but increments. Redo changes them in place.
	parts part.Parts
	ended bool // the partition looks what of the parts can be dropped (ended)
}

// shortKey is the longest key with which a counter fits into a cache line, bytes, and maxInline the longest
// one that is in the memory of its counter.
const (
	shortKey  = 21
	maxInline = math.MaxUint8
)

// counterFlags are what else is known of a counter.
type counterFlags uint8

const (
	isUsed    counterFlags = 1 << iota // since the eviction hand last passed
	isListed                           // in hotCounters.dirty
	isInRow                            // a row of this key is known to exist
	isUnsaved                          // one of hotCounters.unsaved
	isChanged                          // since it was loaded from its row or written there
	isInRing                           // in hotCounters.ring
	isLeader                           // a member of hotCounters.leaders, which stays in memory
)

// set sets or clears flags.
func (f *counterFlags) set(flags counterFlags, on bool) {
	*f &^= flags
	if on {
		*f |= flags
	}
}

// roomy is a counter whose key goes on in more.
type roomy[T any] struct {
	counter
	more T
}

func newRoomy[T any]() *counter { return &new(roomy[T]).counter }

// keyRooms make counters with room for so many bytes more: those that Go's allocator has anyway.
var keyRooms = []struct {
	more int
	make func() *counter
}{
	{0, func() *counter { return new(counter) }},
	{16, newRoomy[[16]byte]}, {32, newRoomy[[32]byte]}, {48, newRoomy[[48]byte]}, {64, newRoomy[[64]byte]},
	{96, newRoomy[[96]byte]}, {128, newRoomy[[128]byte]},
	{maxInline - shortKey, newRoomy[[maxInline - shortKey]byte]},
}

// keyRoom is the place in keyRooms of the least one with room for a key.
func keyRoom(size int) int {
	i := 0
	for keyRooms[i].more+shortKey < size {
		i++
	}
	return i
}

func newCounter(key []byte, pos uint64) (c *counter) {
	if n := len(key); n > maxInline {
		c = &counter{extra: &counterExtra{key: string(key)}}
	} else {
		c = keyRooms[keyRoom(n)].make()
		c.size = uint8(n)
		copy(unsafe.Slice(&c.short[0], n), key)
	}
	c.pos = pos
	return c
}

// clone returns a copy. It shares what the counter has in extra, but for its key.
func (c *counter) clone() *counter {
	n := newCounter([]byte(c.key()), c.pos)
	n.value, n.seq, n.expire, n.kind, n.is = c.value, c.seq, c.expire, c.kind, c.is
	n.setParts(c.parts())
	if c.object() != nil {
		n.setObject(c.object())
	}
	return n
}

// key is the counter's key. It lives as long as the counter.
func (c *counter) key() string {
	if c.size == 0 && c.extra != nil {
		return c.extra.key
	}
	return unsafe.String(&c.short[0], int(c.size))
}

// clean reports whether the row holds this very state.
func (c *counter) clean() bool { return c.is&isChanged == 0 && !c.kind.isObject() }

func (c *counter) rowKey() persistence.RowKey {
	return rowKey(c.pos, []byte(c.key()))
}

// hotCounters holds the keys of a partition that are in memory: every key
// changed since its row was written, and as many others as limit allows.
type hotCounters struct {
	table hotTable
	// ring is what the eviction hand goes round: all of table but leaders and changed keys
	// that it met. They come back once their rows are written, so that the hand
	// does not pass them again and again while most counters in memory are
	// changed.
	ring    []*counter
	hand    int
	limit   int
	warm    bool       // rows were read ahead of their use (warm.go)
	dirty   []*counter // changed since the last checkpoint captured them
	unsaved unsavedKeys
	// evicted counts evictions by key position. A cold load that began at one
	// count installs only at the same: otherwise its key may have been loaded,
	// changed, written back and evicted since.
	evicted [256]uint32
	// made counts the keys that came into being, by position, for WATCH.
	made    [256]uint32
	leaders []*leaders // of tables with TOP, each of another
}

func newHotCounters(limit int) *hotCounters {
	h := &hotCounters{limit: max(limit, 64)}
	h.clear()
	return h
}

// clear forgets everything, as FLUSHALL does.
func (h *hotCounters) clear() {
	h.table = newHotTable()
	h.ring, h.hand, h.dirty, h.leaders = nil, 0, nil, nil
	h.unsaved = newUnsavedKeys()
	for i := range h.evicted {
		h.evicted[i]++
	}
}

// get returns a key that is in memory, or nil, and notes its use.
func (h *hotCounters) get(hash uint64, key []byte) *counter {
	c := h.table.get(hash, key)
	if c != nil {
		c.is |= isUsed
	}
	return c
}

// peek is get by the key alone, without noting a use.
func (h *hotCounters) peek(key string) *counter {
	return h.table.get(hotHash([]byte(key)), []byte(key))
}

// len is how many keys are in memory.
func (h *hotCounters) len() int { return h.table.count }

// stamp is what a cold load of the key at pos must find unchanged.
func (h *hotCounters) stamp(pos uint64) *uint32 { return &h.evicted[byte(pos)] }

// install adds a key that is not in memory. Room is made by trim, once no
// operation holds a pointer into the map any more.
func (h *hotCounters) install(hash uint64, key []byte, pos uint64) *counter {
	c := newCounter(key, pos)
	c.is |= isUsed
	h.table.put(hash, c)
	h.evictable(c)
	return c
}

// evictable lets the eviction hand see c, which is clean or soon will be.
func (h *hotCounters) evictable(c *counter) {
	if c.is&isInRing == 0 {
		c.is |= isInRing
		h.ring = append(h.ring, c)
	}
}

// maxTrim bounds the keys that one trim looks at, so that no pipeline pays for a
// sweep.
const maxTrim = 2048

// trim evicts clean keys that were not used since the hand last passed, until
// the limit holds or it has looked at enough. When too much is changed the limit
// is exceeded until the next write-back. A key whose last change is not committed
// stays, for a reply that shows it must wait (G3). The caller must hold no
// *counter of this partition.
func (h *hotCounters) trim(committed uint64) {
	for steps := maxTrim; h.len() > h.limit && len(h.ring) > 0 && steps > 0; steps-- {
		if h.hand >= len(h.ring) {
			h.hand = 0
		}
		switch c := h.ring[h.hand]; {
		case !c.clean() || c.is&isLeader != 0:
			h.leaveRing(h.hand)
		case c.is&(isUsed|isListed) != 0 || c.seq > committed:
			c.is &^= isUsed
			h.hand++
		default:
			h.leaveRing(h.hand)
			h.drop(c)
		}
	}
}

// leaveRing takes the i-th key of the ring out of it.
func (h *hotCounters) leaveRing(i int) {
	last := len(h.ring) - 1
	h.ring[i].is &^= isInRing
	h.ring[i], h.ring[last] = h.ring[last], nil
	h.ring = h.ring[:last]
}

// forget drops a key from memory, so that its row is looked up next time.
func (h *hotCounters) forget(c *counter) {
	if c.is&isInRing != 0 {
		h.leaveRing(slices.Index(h.ring, c))
	}
	if h.peek(c.key()) == c {
		h.drop(c)
	}
}

// drop takes a key that is in no ring out of memory.
func (h *hotCounters) drop(c *counter) {
	h.table.remove(hotHash([]byte(c.key())), c)
	*h.stamp(c.pos)++
}

// changed is called after every change of c: it queues c for the next
// checkpoint and keeps unsaved and leaders right.
func (h *hotCounters) changed(c *counter) {
	c.is |= isChanged
	if c.is&isListed == 0 {
		c.is |= isListed
		h.dirty = append(h.dirty, c)
	}
	h.track(c)
	if c.is&isLeader == 0 {
		h.join(c)
	}
}

// track keeps unsaved right after c's kind or inRow changed.
func (h *hotCounters) track(c *counter) {
	want := c.kind.isObject() || c.hasRow() && c.is&isInRow == 0
	if want == (c.is&isUnsaved != 0) {
		return
	}
	c.is.set(isUnsaved, want)
	if want {
		h.unsaved.add(c)
	} else {
		h.unsaved.remove(c)
	}
}

// hotTable finds counters by their keys: open addressing with linear probing.
// Beside Go's map it saves the second hash of a batch, whose keys are hashed
// before any lock is taken, and a cache miss of each look-up. The hash is keyed
// anew in every process, so that no client can choose keys that collide.
type hotTable struct {
	slots []hotSlot // a power of two of them, at most three quarters in use
	count int
}

type hotSlot struct {
	hash uint64
	c    *counter // nil: empty
}

// hotSeed keys the hashes of all hotTables.
var hotSeed = maphash.MakeSeed()

// hotHash is the hash by which a hotTable knows a key.
func hotHash(key []byte) uint64 { return maphash.Bytes(hotSeed, key) }

// minHotSlots is the size of an empty table.
const minHotSlots = 64

func newHotTable() hotTable { return hotTable{slots: makeHotSlots(0)} }

// get returns the counter with a key, whose hash is given; nil if there is none.
func (t *hotTable) get(hash uint64, key []byte) *counter {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.c == nil || s.hash == hash && s.c.key() == string(key) {
			return s.c
		}
	}
}

// guess returns the first counter with a hash, almost surely that of its key,
// without a look at it; nil if there is none.
func (t *hotTable) guess(hash uint64) *counter {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.hash == hash || s.c == nil {
			return s.c
		}
	}
}

// put adds a counter whose key is not there yet.
func (t *hotTable) put(hash uint64, c *counter) {
	if t.count++; t.count*4 > len(t.slots)*3 {
		t.resize(makeHotSlots(t.count))
	}
	t.place(hotSlot{hash: hash, c: c})
}

// makeHotSlots returns the empty slots of a table that has room for so many counters.
func makeHotSlots(counters int) []hotSlot {
	n := minHotSlots
	for counters*4 > n*3 {
		n *= 2
	}
	slots := make([]hotSlot, n)
	// Slots are read before they are written. The kernel would map a page of zeros
	// for the one and replace it for the other, and stop all processors for that.
	clear(slots)
	return slots
}

// resize moves the counters to other slots.
func (t *hotTable) resize(slots []hotSlot) {
	old := t.slots
	t.slots = slots
	for _, s := range old {
		if s.c != nil {
			t.place(s)
		}
	}
}

func (t *hotTable) place(s hotSlot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].c != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// all yields every counter.
func (t *hotTable) all(yield func(*counter) bool) {
	for _, s := range t.slots {
		if s.c != nil && !yield(s.c) {
			return
		}
	}
}

// remove takes a counter out, if it is there, and closes the gap: what follows
// moves up as long as that brings it nearer to its place.
func (t *hotTable) remove(hash uint64, c *counter) {
	mask := uint64(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i].c != c {
		if t.slots[i].c == nil {
			return
		}
		i = (i + 1) & mask
	}
	t.count--
	for j := (i + 1) & mask; t.slots[j].c != nil; j = (j + 1) & mask {
		if home := t.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = hotSlot{}
}

// unsavedKeys are the keys that rows do not show: counters that are not known to have
// one, in a member of regions also those that ended, and objects. SCAN finds them here, in order of position.
//
// Most new keys get their row before anyone scans. So they wait in a heap until
// someone does, and only then are put in order.
type unsavedKeys struct {
	ordered *btree.BTreeG[unsavedKey]
	// waiting are those not in order yet, and others that are unsaved no longer
	// (without isUnsaved); a key may be there twice.
	waiting []unsavedKey
	count   int
}

// unsavedKey is a key's place. The position stands beside the pointer, so that
// finding a place seldom touches another counter's memory.
type unsavedKey struct {
	pos uint64
	c   *counter
}

func newUnsavedKeys() unsavedKeys {
	return unsavedKeys{ordered: btree.NewBTreeGOptions(func(a, b unsavedKey) bool {
		if a.pos != b.pos {
			return a.pos < b.pos
		}
		return a.c.key() < b.c.key()
	}, btree.Options{NoLocks: true})}
}

// add takes in a key that has just got isUnsaved.
func (u *unsavedKeys) add(c *counter) {
	u.waiting = append(u.waiting, unsavedKey{c.pos, c})
	u.count++
}

// minSweep is how many keys that are unsaved no longer may always wait.
const minSweep = 1024

// remove lets go of a key that has just lost isUnsaved.
func (u *unsavedKeys) remove(c *counter) {
	u.ordered.Delete(unsavedKey{c.pos, c})
	if u.count--; len(u.waiting) > 2*u.count+minSweep {
		u.sweep()
	}
}

// sweep drops from those that wait what is unsaved no longer.
func (u *unsavedKeys) sweep() {
	kept := u.waiting[:0]
	for _, k := range u.waiting {
		if k.c.is&isUnsaved != 0 {
			kept = append(kept, k)
		}
	}
	clear(u.waiting[len(kept):])
	u.waiting = kept
}

// order puts up to n of those that wait in order, and reports whether that were
// all of them.
func (u *unsavedKeys) order(n int) (done bool) {
	for ; n > 0 && len(u.waiting) > 0; n-- {
		last := len(u.waiting) - 1
		if k := u.waiting[last]; k.c.is&isUnsaved != 0 {
			u.ordered.Set(k)
		}
		u.waiting[last] = unsavedKey{}
		u.waiting = u.waiting[:last]
	}
	return len(u.waiting) == 0
}

// each calls fn for all of them, in any order.
func (u *unsavedKeys) each(fn func(c *counter)) {
	u.sweep()
	for _, k := range u.waiting {
		fn(k.c)
	}
	u.ordered.Scan(func(k unsavedKey) bool {
		fn(k.c)
		return true
	})
}

// orderPiece is how many keys are put in order under one acquisition of the
// partition's lock.
const orderPiece = 1024

// What a key costs in memory beside its counter: its places in the table of hot
// counters, which is between three and six eighths full, and in the ring.
const (
	hotEntryBytes  = int64(unsafe.Sizeof(hotSlot{})) * 2
	ringEntryBytes = 8
)

// usage estimates the bytes that a key and its value hold in memory. The
// opids that were applied to a counter belong to its table, not to it.
func (c *counter) usage() int64 {
	more := keyRooms[keyRoom(int(c.size))].more
	n := sizeClassOf(unsafe.Sizeof(*c)+uintptr(more)) + hotEntryBytes + ringEntryBytes
	if c.expire != 0 {
		n += int64(unsafe.Sizeof(expiry{}))
	}
	if x := c.extra; x != nil {
		n += sizeClassOf(unsafe.Sizeof(*x)) + sizeClassOf(uintptr(len(x.key))) + partsBytes(x.parts)
	}
	if o := c.object(); o != nil {
		n += sizeClassOf(reflect.TypeOf(o).Elem().Size()) + int64(o.bytes())
	}
	return n
}

// sizeClassOf rounds up to about what Go's allocator gives: multiples of 16.
func sizeClassOf(n uintptr) int64 { return int64(n+15) &^ 15 }
