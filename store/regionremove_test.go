package store

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

var removalRuns = flag.Int("regions.removals", max(1, 9/slowdown), "how many runs TestRegionRemoved makes, each with another seed")

// testRemoval is the removal of one of testRegions.
type testRemoval struct {
	*testRegions
	lost, heir part.Region
	dels       []testDel
	from       map[*testRegion]map[int]bool // whose state each has taken since it was opened
}

// testDel is a deletion, or a SET, and what it had seen.
type testDel struct {
	region int
	from   RegionSource
	seq    uint64
	of     []int // of history
}

// lose loses a region: from now on nobody reads it, but what it has answered may still arrive.
func (w *testRemoval) lose() {
	i := w.rnd.IntN(len(w.r))
	w.lost = part.Region(w.r[i].n)
	w.r = slices.Delete(w.r, i, i+1)
	w.heir = part.Region(w.r[w.rnd.IntN(len(w.r))].n)
}

// adopted reports whether a region knows of the removal.
func (w *testRemoval) adopted(r *testRegion) bool {
	set, _ := r.s.Regions()
	return set.gone(w.lost)
}

// progress lets a region do what it can for the removal, by one step.
func (w *testRemoval) progress(r *testRegion) {
	if !w.adopted(r) {
		set, _ := r.s.Regions()
		set, err := set.Remove(w.heir, w.lost)
		must(w.t, err)
		must(w.t, r.s.SetRegions(set))
		return
	}
	if w.from[r] == nil {
		w.from[r] = make(map[int]bool)
	}
	for _, o := range w.r {
		if o != r && !w.from[r][o.n] {
			if w.adopted(o) {
				w.level(r, o)
				w.from[r][o.n] = true
			}
			return
		}
	}
	m := w.removal(r)
	must(w.t, r.s.Levelled(m.Gone, m.Since))
}

func (w *testRemoval) removal(r *testRegion) Removal {
	all := r.s.Removals()
	if len(all) != 1 || all[0].Gone != w.lost || all[0].Heir != w.heir {
		w.t.Fatalf("removals %+v", all)
	}
	return all[0]
}

// level gives a region what another one knows of the one that is lost.
func (w *testRemoval) level(to, from *testRegion) {
	w.ranges(to, from, func(n, first uint16) {
		last, _, _ := pullRange(int(n), from.parts, to.parts, first)
		q := StateQuery{
			By: part.Region(to.n), Of: w.lost, Group: 77, Incarnation: from.s.Meta().Incarnation, Partition: n,
			First: first, Last: last, Most: 1 + w.rnd.IntN(2000),
		}
		for done := false; !done; {
			page, err := from.s.State(q)
			must(w.t, err)
			taken, err := to.s.TakeState(page)
			must(w.t, err)
			q.Seq, q.At, done = taken.Seq, taken.Next, taken.Next == nil
		}
	})
}

// forget drops from history what nobody has heard of.
func (w *testRemoval) forget() {
	heard := func(from RegionSource, key string, seq uint64) bool {
		return from.Region != w.lost || slices.ContainsFunc(w.r, func(r *testRegion) bool {
			taken, _, err := r.s.TakenOf(Slot([]byte(key))>>r.s.shift, from)
			must(w.t, err)
			return taken >= seq
		})
	}
	for i := range w.history {
		w.history[i].gone = false
	}
	for _, d := range w.dels {
		for _, i := range d.of {
			if h := &w.history[i]; heard(d.from, h.key, d.seq) {
				h.gone = true
			}
		}
	}
	w.history = slices.DeleteFunc(w.history, func(d done) bool { return !heard(d.from, d.key, d.seq) })
}

// finish completes the removal.
func (w *testRemoval) finish() {
	for range 2 {
		for _, r := range w.r {
			if !w.adopted(r) {
				w.progress(r)
			}
		}
		for _, r := range w.r {
			r.underway = nil
		}
	}
	w.forget()
	for rounds := 0; !slices.ContainsFunc(w.r, func(r *testRegion) bool { return w.removal(r).Done }) || rounds < 3; rounds++ {
		if rounds > 10 {
			w.t.Fatalf("the removal does not end: %+v, %+v", w.r[0].s.Removals(), w.r[1].s.Removals())
		}
		for _, r := range w.r {
			for range 3 {
				w.progress(r)
			}
		}
		w.drain()
		w.drop()
	}
	w.drain()
}

// drop lets all regions drop what they can.
func (w *testRemoval) drop() {
	for _, r := range w.r {
		for _, p := range r.s.partitions {
			for range 3 {
				r.s.dropEnded(p, new(Batch))
			}
		}
	}
}

// left are the keys of which something is known although they do not exist, and what is owed.
func (w *testRemoval) left() (left []string) {
	for _, r := range w.r {
		for n := range 12 {
			key := fmt.Sprint("k", n)
			get(r.s, key)
			p := r.s.partitions[Slot([]byte(key))>>r.s.shift]
			if c := p.hot.peek(key); c != nil && c.parts() != nil {
				left = append(left, fmt.Sprintf("region %d: %s %+v", r.n, key, c.parts()))
			}
		}
		for _, p := range r.s.partitions {
			for key, o := range p.regions.owed.byKey {
				left = append(left, fmt.Sprintf("region %d: of %s %+v", r.n, key, o))
			}
		}
	}
	return left
}

// TestRegionRemoved: a region that is lost at any moment, with operations that others applied
// too, and is removed with an heir while the others go on and crash, leaves what anybody has heard
// of it, each opid once; and all keys can be forgotten afterwards.
func TestRegionRemoved(t *testing.T) {
	for seed := *regionSeed; seed < *regionSeed+uint64(*removalRuns); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &testRemoval{testRegions: newTestRegions(t, seed, 4, 1<<(seed%4), 2), from: make(map[*testRegion]map[int]bool)}
			w.onReopen = func(r *testRegion) { w.from[r] = nil }
			w.onDelete = func(r *testRegion, key string, of []int) {
				d := testDel{region: r.n, of: of}
				p := r.s.partitions[Slot([]byte(key))>>r.s.shift]
				d.from, d.seq = RegionSource{part.Region(r.n), p.id}, p.seq
				w.dels = append(w.dels, d)
			}
			for range 200 + w.rnd.IntN(200) {
				w.step()
			}
			w.lose()
			for range 200 {
				if w.step(); w.rnd.IntN(20) == 0 {
					w.progress(w.r[w.rnd.IntN(len(w.r))])
				}
			}
			w.finish()
			w.check()
			for range 100 { // life goes on
				w.step()
			}
			w.drain()
			w.check()
			for n := range 12 {
				w.do(w.r[0], Op{Kind: Del, Keys: [][]byte{[]byte(fmt.Sprint("k", n))}})
			}
			for range 8 {
				w.drain()
				w.drop()
			}
			if left := w.left(); len(left) > 0 {
				t.Errorf("%d are left: %v", len(left), left[0])
			}
			for _, r := range w.r {
				must(t, r.s.Close())
			}
		})
		if !ok {
			return
		}
	}
}
