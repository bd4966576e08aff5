package store

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// agree compares the digests of regions once they have taken everything. The store drops keys by itself
// meanwhile, which others are then told.
func (w *testRegions) agree() {
	for _, r := range w.r { // what was to expire soon has
		r.clock.advance(30 * time.Minute)
	}
	for range 20 {
		w.drain()
		if w.compare() {
			w.samePassing()
			return
		}
	}
	w.t.Error("the regions cannot be compared")
}

// compare compares all digests, and reports whether that could be done.
func (w *testRegions) compare() (ok bool) {
	ok = true
	for _, a := range w.r {
		for _, b := range w.r[:a.n] {
			w.ranges(a, b, func(n, first uint16) {
				last, _, _ := pullRange(int(n), b.parts, a.parts, first)
				da, err := a.s.RegionDigest(first, last)
				must(w.t, err)
				db, err := b.s.RegionDigest(first, last)
				must(w.t, err)
				set := w.set(a.n)
				differ, can := da.Compare(&db, &set)
				if ok = ok && can; len(differ) > 0 {
					w.t.Errorf("regions %d and %d differ in the slots %v", a.n, b.n, differ)
				}
			})
		}
	}
	return ok
}

// passing does something to a counter that may expire: each region deletes it by its own clock, and then
// forgets it when it has heard that all know. The model knows nothing of these: regions are compared with each other.
func (w *testRegions) passing(r *testRegion) {
	n := w.rnd.IntN(w.opids/2 + 12)
	key, id, delta := fmt.Append(nil, "e", n%passingKeys), fmt.Append(nil, "p", n), int64(n%3+1)
	at, _ := r.clock.now()
	if at += w.rnd.Int64N(4000); w.rnd.IntN(4) == 0 {
		at += (24 * time.Hour).Milliseconds()
	}
	w.do(r, []Op{
		{Kind: CIncrEx, Key: key, ID: id, Delta: delta, Flags: HasExpire, ExpireAt: at},
		{Kind: CIncrBy, Key: key, ID: id, Delta: delta},
		{Kind: IncrBy, Key: key, Delta: w.rnd.Int64N(5) - 2},
		{Kind: ExpireAt, Key: key, ExpireAt: at},
		{Kind: Persist, Key: key},
		{Kind: Set, Key: key, Delta: 5},
		{Kind: Set, Key: key, Delta: 6, Flags: HasExpire, ExpireAt: at},
		{Kind: Del, Keys: [][]byte{key}},
	}[w.rnd.IntN(8)])
	w.steps["passing"]++
}

const passingKeys = 3

// samePassing compares the counters that may expire.
func (w *testRegions) samePassing() {
	for n := range passingKeys {
		key, first := fmt.Sprint("e", n), ""
		for _, r := range w.r {
			v, ok := get(r.s, key)
			at := do(r.s, Op{Kind: ExpireTime, Key: []byte(key)})
			got := fmt.Sprint(v, ok, at.Value, at.Found)
			if r.n == 0 {
				first = got
			}
			if got != first {
				w.t.Errorf("%s is %s in region %d, and %s in region 0", key, got, r.n, first)
			}
		}
	}
}

// TestRegionDigest: a digest tells one part of one key, and does not tell what one region has forgotten.
func TestRegionDigest(t *testing.T) {
	w := newTestRegions(t, 1, 2, 1)
	a, b := w.r[0], w.r[1]
	for i := range 50 {
		cincr(w.r[i%2].s, fmt.Sprint("k", i), "op", 3)
	}
	w.agree()
	set := w.set(0)
	compare := func() ([]SlotRange, bool) {
		var all []SlotRange
		every := true
		for _, first := range []uint16{0, slots / 2} {
			da, err := a.s.RegionDigest(first, first+slots/2-1)
			must(t, err)
			db, err := b.s.RegionDigest(first, first+slots/2-1)
			must(t, err)
			raw := db.appendTo(nil)
			if again, err := DecodeDigest(raw); err != nil || !reflect.DeepEqual(again, db) {
				t.Fatalf("%+v became %+v, %v", db, again, err)
			}
			differ, ok := da.Compare(&db, &set)
			all, every = append(all, differ...), every && ok
		}
		return all, every
	}
	slot := Slot([]byte("k2"))
	get(b.s, "k2")
	parts := b.s.partitions[0].hot.peek("k2").parts()
	parts[0].Cum++
	if differ, ok := compare(); !ok || len(differ) != 1 || differ[0].First > slot || differ[0].Last < slot || differ[0].Last-differ[0].First != digestSlots-1 {
		t.Errorf("%v differ, %v; the slot is %d", differ, ok, slot)
	}
	parts[0].Cum--
	if differ, ok := compare(); !ok || len(differ) > 0 {
		t.Errorf("%v differ, %v", differ, ok)
	}
	w.do(a, Op{Kind: IncrBy, Key: []byte("k2"), Delta: 1})
	if _, ok := compare(); ok {
		t.Error("compared although the other one has not taken all")
	}
}

// TestForgottenTwin: a region that has forgotten a counter tells the same of it as one that has not. What
// was taken back must not be in the one's part for ever, and not in the other's: so the region that took
// it back closes its part before anybody forgets, although a deletion left nothing of the sum.
func TestForgottenTwin(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	b.clock.advance(20 * time.Minute)
	w.drain()
	cincr(a.s, "k", "x", 5)
	cincr(b.s, "k", "x", 5)
	w.drain()
	w.do(a, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
	w.drain()
	parts := func(r *testRegion) part.Parts {
		get(r.s, "k") // into memory
		p := r.s.partitions[0]
		p.lock()
		defer p.mu.Unlock()
		return p.hot.peek("k").parts()
	}
	for range 3 {
		a.s.dropEnded(a.s.partitions[0], new(Batch))
	}
	if left := parts(a); left != nil {
		t.Fatalf("not forgotten: %+v", left)
	}
	cincr(a.s, "k", "y", 1)
	w.drain()
	cincr(b.s, "k", "z", 2)
	at, _ := b.clock.now()
	w.do(b, Op{Kind: ExpireAt, Key: []byte("k"), ExpireAt: at + (24 * time.Hour).Milliseconds()})
	w.agree()
	for _, r := range w.r {
		if undo := parts(r)[1].Undo; len(undo) > 0 {
			t.Errorf("region %d remembers %+v", r.n, undo)
		}
	}
}
