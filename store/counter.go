package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/fbfkv/fbfkv/persistence"
)

// counter is a key in memory: a counter, an object, or the knowledge that the
// key does not exist. It is guarded by its partition's lock. What every
// operation needs of it, its key included, is one cache line: Go's allocator
// aligns objects of 64 bytes.
type counter struct {
	value  int64
	seq    uint64 // of the log entry this state reflects; 0: loaded from its row
	expire int64  // unix ms; 0: never
	pos    uint64 // slot and key hash: the order of rows and of SCAN
	extra  *counterExtra
	kind   Type
	is     counterFlags
	size   uint8 // bytes of short in use; 0: the key is in extra
	short  [shortKey]byte
}

// counterExtra is what few counters have.
type counterExtra struct {
	key    string // if it is longer than shortKey
	object object // nil: a counter
}

// shortKey is the longest key kept inside its counter, bytes.
const shortKey = 21

// counterFlags are what else is known of a counter.
type counterFlags uint8

const (
	isUsed    counterFlags = 1 << iota // since the eviction hand last passed
	isListed                           // in hotCounters.dirty
	isInRow                            // a row of this key is known to exist
	isUnsaved                          // one of hotCounters.unsaved
	isChanged                          // since it was loaded from its row or written there
	isInRing                           // in hotCounters.ring
)

// set sets or clears flags.
func (f *counterFlags) set(flags counterFlags, on bool) {
	*f &^= flags
	if on {
		*f |= flags
	}
}

func newCounter(key []byte, pos uint64) *counter {
	c := &counter{pos: pos}
	if n := len(key); n <= shortKey {
		c.size = uint8(copy(c.short[:], key))
	} else {
		c.extra = &counterExtra{key: string(key)}
	}
	return c
}

// key is the counter's key. It lives as long as the counter.
func (c *counter) key() string {
	if c.size == 0 && c.extra != nil {
		return c.extra.key
	}
	return unsafe.String(&c.short[0], int(c.size))
}

// alive reports whether the key exists at a wall time.
func (c *counter) alive(wall int64) bool {
	return c.kind != TypeNone && (c.expire == 0 || wall < c.expire)
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
	// ring is what the eviction hand goes round: all of table but changed keys
	// that it met. They come back once their rows are written, so that the hand
	// does not pass them again and again while most of what is in memory is
	// changed.
	ring    []*counter
	hand    int
	limit   int
	dirty   []*counter // changed since the last checkpoint captured them
	unsaved unsavedKeys
	// evicted counts evictions by key position. A cold load that began at one
	// count installs only at the same: otherwise its key may have been loaded,
	// changed, written back and evicted since.
	evicted [256]uint32
	// made counts the keys that came into being, by position, for WATCH.
	made [256]uint32
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
// is exceeded until the next write-back. A key whose last change is not durable
// stays, for a reply that shows it must wait (G3). The caller must hold no
// *counter of this partition.
func (h *hotCounters) trim(durable uint64) {
	for steps := maxTrim; h.len() > h.limit && len(h.ring) > 0 && steps > 0; steps-- {
		if h.hand >= len(h.ring) {
			h.hand = 0
		}
		switch c := h.ring[h.hand]; {
		case !c.clean():
			h.leaveRing(h.hand)
		case c.is&(isUsed|isListed) != 0 || c.seq > durable:
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
// checkpoint and keeps unsaved right.
func (h *hotCounters) changed(c *counter) {
	c.is |= isChanged
	if c.is&isListed == 0 {
		c.is |= isListed
		h.dirty = append(h.dirty, c)
	}
	h.track(c)
}

// track keeps unsaved right after c's kind or inRow changed.
func (h *hotCounters) track(c *counter) {
	want := c.kind.isObject() || c.kind == TypeCounter && c.is&isInRow == 0
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
	r.end()
	return out, r.err
}
