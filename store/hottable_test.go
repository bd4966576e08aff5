package store

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/part"
)

// TestHotTable plays random additions, removals and look-ups against a map, with
// hashes that collide often.
func TestHotTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table, model := newHotTable(), map[string]*counter{}
	hash := func(key string) uint64 {
		var n uint64
		fmt.Sscan(key, &n)
		return n % 700 * 0x9E3779B97F4A7C15 >> 54 // clusters that wrap around
	}
	const steps = 200_000 / raced.Slowdown
	for step := range steps {
		key := fmt.Sprint(rng.IntN(3000))
		c := model[key]
		if got := table.get(hash(key), []byte(key)); got != c {
			t.Fatalf("step %d: key %s: %p instead of %p", step, key, got, c)
		}
		grows := step/(steps/4)%2 == 0
		switch {
		case c == nil && (grows || rng.IntN(4) == 0):
			c = newCounter([]byte(key), 0)
			table.put(hash(key), c)
			model[key] = c
		case c != nil && (!grows || rng.IntN(4) == 0):
			table.remove(hash(key), c)
			table.remove(hash(key), c) // it is gone: nothing happens
			delete(model, key)
		}
		if table.count != len(model) {
			t.Fatalf("step %d: %d counters instead of %d", step, table.count, len(model))
		}
	}
	for key, c := range model {
		if table.get(hash(key), []byte(key)) != c {
			t.Fatal("lost", key)
		}
	}
}

// TestHotTableGuess: a guess is the counter that get finds, wherever in the
// table it is, unless two keys have the same hash.
func TestHotTableGuess(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	table := newHotTable()
	hashes := map[uint64]*counter{}
	for len(hashes) < 1000 {
		hash := rng.Uint64() &^ 0x7 // crowded places
		if hashes[hash] == nil {
			hashes[hash] = newCounter(fmt.Append(nil, hash), 0)
			table.put(hash, hashes[hash])
		}
	}
	for hash, c := range hashes {
		if got := table.guess(hash); got != c {
			t.Errorf("hash %x: %v instead of %v", hash, got, c)
		}
		if got := table.guess(hash + 1); got != nil {
			t.Errorf("hash %x: %v instead of none", hash+1, got)
		}
	}
}

// TestEvictionHand: the hand passes a changed key once and comes back to it when
// its row is written; until then no change is lost (G4).
func TestEvictionHand(t *testing.T) {
	h := newHotCounters(64)
	const keys = 1000
	var all []*counter
	for i := range keys {
		key := []byte(fmt.Sprint(i))
		c := h.install(hotHash(key), key, uint64(i))
		if c.is &^= isUsed; i%2 == 0 {
			h.changed(c)
		}
		all = append(all, c)
	}
	h.trim(0)
	if h.len() != keys/2 || len(h.ring) != 0 {
		t.Fatalf("%d keys in memory, %d in the ring", h.len(), len(h.ring))
	}
	for _, c := range all {
		if c.is&isChanged != 0 {
			c.is &^= isChanged | isListed
			h.evictable(c)
			h.evictable(c)
		}
	}
	if len(h.ring) != keys/2 {
		t.Fatalf("%d keys in the ring", len(h.ring))
	}
	h.trim(0)
	if h.len() != h.limit || len(h.ring) != h.limit {
		t.Fatalf("%d keys in memory, %d in the ring", h.len(), len(h.ring))
	}
}

// TestKeysInCounters: a counter has its key, whatever its length, and so has a copy; no key runs into what
// lies behind, which the race detector's build checks.
func TestKeysInCounters(t *testing.T) {
	for n := range 2 * maxInline {
		key := strings.Repeat("k", n)
		c := newCounter([]byte(key), 7)
		c.value, c.seq, c.expire, c.kind, c.is = 1, 2, 3, TypeCounter, isListed
		c.setParts(part.Parts{{Region: 1}})
		for _, c := range []*counter{c, c.clone()} {
			if c.key() != key || c.pos != 7 || c.value != 1 || c.seq != 2 || c.expire != 3 ||
				c.kind != TypeCounter || c.is != isListed || len(c.parts()) != 1 {
				t.Fatalf("%d bytes: %+v with key %q", n, c, c.key())
			}
		}
	}
	for i, room := range keyRooms {
		size := shortKey + room.more
		if i < len(keyRooms)-1 && (keyRoom(size) != i || keyRoom(size+1) != i+1) {
			t.Errorf("a key of %d bytes has room %d, one more %d", size, keyRoom(size), keyRoom(size+1))
		}
		key := make([]byte, size)
		if got := testing.AllocsPerRun(100, func() { kept = newCounter(key, 0) }); got > 1 {
			t.Errorf("a key of %d bytes takes %v allocations", size, got)
		}
	}
}

// kept keeps an allocation from being left out.
var kept *counter
