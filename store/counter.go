package store

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/tidwall/btree"

	"github.com/fbfkv/fbfkv/persistence"
)

// counter is a key in memory: a counter, a filter, or the knowledge that the
// key does not exist. It is guarded by its partition's lock.
type counter struct {
	// What every operation reads comes first, in one cache line or two.
	key    string
	short  [shortKey]byte // where key's bytes are if they fit: one cache miss less
	kind   Type
	used   bool // since the eviction hand last passed
	listed bool // in hotCounters.dirty
	value  int64
	seq    uint64 // of the log entry this state reflects; 0: loaded from its row
	expire int64  // unix ms; 0: never

	pos     uint64 // slot and key hash: the order of rows and of SCAN
	saved   uint64 // seq of the state that the row reflects
	filter  *filterKey
	inRow   bool // a row of this key is known to exist
	unsaved bool // in hotCounters.unsaved
}

// shortKey is the longest key kept inside its counter, bytes.
const shortKey = 21

func newCounter(key []byte, pos uint64) *counter {
	c := &counter{pos: pos}
	if n := len(key); n > 0 && n <= shortKey {
		copy(c.short[:], key)
		c.key = unsafe.String(&c.short[0], n)
	} else {
		c.key = string(key)
	}
	return c
}

// alive reports whether the key exists at a wall time.
func (c *counter) alive(wall int64) bool {
	return c.kind != TypeNone && (c.expire == 0 || wall < c.expire)
}

// clean reports whether the row holds this very state.
func (c *counter) clean() bool { return c.seq == c.saved && c.kind != TypeFilter }

func (c *counter) rowKey() persistence.RowKey {
	return persistence.RowKey{Slot: uint16(c.pos >> 48), Hash: c.pos & (1<<48 - 1), Key: []byte(c.key)}
}

// hotCounters holds the keys of a partition that are in memory: every key
// changed since its row was written, and as many others as limit allows.
type hotCounters struct {
	table hotTable
	ring  []*counter // all of table, for the eviction hand
	hand  int
	limit int
	dirty []*counter // changed since the last checkpoint captured them
	// unsaved orders the existing keys that rows do not show: counters that
	// are not known to have one, and filters. SCAN finds them here.
	unsaved *btree.BTreeG[*counter]
	// evicted counts evictions by key position. A cold load that began at one
	// count installs only at the same: otherwise its key may have been loaded,
	// changed, written back and evicted since.
	evicted [256]uint32
}

func newHotCounters(limit int) *hotCounters {
	h := &hotCounters{limit: max(limit, 64)}
	h.clear()
	return h
}

// clear forgets everything, as FLUSHALL does.
func (h *hotCounters) clear() {
	h.table = newHotTable()
	h.ring, h.hand, h.dirty = nil, 0, nil
	h.unsaved = btree.NewBTreeGOptions(func(a, b *counter) bool {
		if a.pos != b.pos {
			return a.pos < b.pos
		}
		return a.key < b.key
	}, btree.Options{NoLocks: true})
	for i := range h.evicted {
		h.evicted[i]++
	}
}

// get returns a key that is in memory, or nil, and notes its use.
func (h *hotCounters) get(hash uint64, key []byte) *counter {
	c := h.table.get(hash, key)
	if c != nil {
		c.used = true
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
	c.used = true
	h.table.put(hash, c)
	h.ring = append(h.ring, c)
	return c
}

// trim evicts clean keys that were not used since the hand last passed, until
// the limit holds. It looks at a bounded number, so that one pipeline never
// pays for a sweep; when too much is dirty the limit is exceeded until the
// next checkpoint. A key whose last change is not durable stays, for a reply
// that shows it must wait (G3). The caller must hold no *counter of this
// partition.
func (h *hotCounters) trim(durable uint64) {
	for steps := 4*(h.len()-h.limit) + 16; h.len() > h.limit && steps > 0; steps-- {
		if h.hand >= len(h.ring) {
			h.hand = 0
		}
		c := h.ring[h.hand]
		if c.used || c.listed || !c.clean() || c.seq > durable {
			c.used = false
			h.hand++
			continue
		}
		h.forgetAt(h.hand)
	}
}

// forget drops a key from memory, so that its row is looked up next time.
func (h *hotCounters) forget(c *counter) {
	for i := range h.ring {
		if h.ring[i] == c {
			h.forgetAt(i)
			return
		}
	}
}

func (h *hotCounters) forgetAt(i int) {
	c, last := h.ring[i], len(h.ring)-1
	h.ring[i] = h.ring[last]
	h.ring[last] = nil
	h.ring = h.ring[:last]
	h.table.remove(hotHash([]byte(c.key)), c)
	*h.stamp(c.pos)++
}

// changed is called after every change of c: it queues c for the next
// checkpoint and keeps unsaved right.
func (h *hotCounters) changed(c *counter) {
	if !c.listed {
		c.listed = true
		h.dirty = append(h.dirty, c)
	}
	h.track(c)
}

// track keeps unsaved right after c's kind or inRow changed.
func (h *hotCounters) track(c *counter) {
	want := c.kind == TypeFilter || c.kind == TypeCounter && !c.inRow
	if want == c.unsaved {
		return
	}
	c.unsaved = want
	if want {
		h.unsaved.Set(c)
	} else {
		h.unsaved.Delete(c)
	}
}

// Rows. A row's value is: version, sequence, value, expiry.

const rowVersion = 1

// row is the decoded value of a counter's row.
type row struct {
	seq    uint64
	value  int64
	expire int64
}

func (c *counter) appendRow(dst []byte) []byte {
	dst = append(dst, rowVersion)
	dst = binary.AppendUvarint(dst, c.seq)
	dst = binary.AppendVarint(dst, c.value)
	return binary.AppendVarint(dst, c.expire)
}

func decodeRow(b []byte) (row, error) {
	r := reader{rest: b}
	if v := r.byte(); r.err == nil && v != rowVersion {
		return row{}, fmt.Errorf("%w: row version %d", errCorruptEntry, v)
	}
	out := row{seq: r.uvarint(), value: r.varint(), expire: r.varint()}
	if r.err == nil && len(r.rest) != 0 {
		r.fail()
	}
	return out, r.err
}
