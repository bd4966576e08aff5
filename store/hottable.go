package store

import "hash/maphash"

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

func newHotTable() hotTable { return hotTable{slots: make([]hotSlot, minHotSlots)} }

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
		old := t.slots
		t.slots = make([]hotSlot, 2*len(old))
		// Slots are read before they are written. The kernel would map a page of zeros
		// for the one and replace it for the other, and stop all processors for that.
		clear(t.slots)
		for _, s := range old {
			if s.c != nil {
				t.place(s)
			}
		}
	}
	t.place(hotSlot{hash: hash, c: c})
}

func (t *hotTable) place(s hotSlot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].c != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
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
