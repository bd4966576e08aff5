package store

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/part"
)

var removalRuns = flag.Int("regions.removals", max(1, 9/raced.Slowdown), "how many runs TestRegionRemoved "+
	"makes, each with another seed")

// testRemoval is the removal of some of testRegions, one after the other, while others join.
type testRemoval struct {
	*testRegions
	now  RegionSet // what the arbiter knows
	lost []lostRegion
	dels []testDel
	from map[*testRegion]map[tookFrom]bool // whose state each has taken since it was opened
}

// lostRegion is a region that was removed.
type lostRegion struct{ region, heir part.Region }

// tookFrom says that the state of a region that is gone was taken, for one removal.
type tookFrom struct {
	gone  part.Region
	since uint64
	by    int
}

// testDel is a deletion, or a SET, and what it had seen.
type testDel struct {
	done
	of []int // of history
}

func newTestRemoval(t *testing.T, seed uint64, partitions ...int) *testRemoval {
	w := &testRemoval{testRegions: newTestRegions(t, seed, partitions...),
		from: make(map[*testRegion]map[tookFrom]bool)}
	w.now, w.unsure = w.set(0), make(map[string]bool)
	w.onReopen = func(r *testRegion) { w.from[r] = nil }
	w.onDelete = func(r *testRegion, key string, of []int) {
		if len(of) == 0 {
			return
		}
		p := r.s.partitions[Slot([]byte(key))>>r.s.shift]
		d := testDel{done{key: key, region: r.n, from: RegionSource{part.Region(r.n), p.id}, seq: p.last()},
			of}
		w.dels = append(w.dels, d)
	}
	w.reaches = func(r, from *testRegion) bool {
		if r.s.Newcomer() && slices.ContainsFunc(w.r, func(o *testRegion) bool { return !w.knows(o, r) }) {
			return false
		}
		return w.knows(r, from) && w.knows(from, r)
	}
	return w
}

// knows reports whether a region knows that another one is a member.
func (w *testRemoval) knows(r, o *testRegion) bool {
	set, _ := r.s.Regions()
	return set.living(part.Region(o.n))
}

// lose loses a region: from now on nobody reads it, but what it has answered may still arrive.
func (w *testRemoval) lose() {
	i := w.rnd.IntN(len(w.r))
	others := slices.Delete(slices.Clone(w.r), i, i+1)
	w.loseOne(i, part.Region(others[w.rnd.IntN(len(others))].n))
}

// loseOne loses a region, to an heir.
func (w *testRemoval) loseOne(i int, heir part.Region) {
	lost := w.r[i]
	w.r = slices.Delete(w.r, i, i+1)
	w.lost = append(w.lost, lostRegion{part.Region(lost.n), heir})
	w.now.Self = heir
	now, err := w.now.Remove(heir, part.Region(lost.n))
	must(w.t, err)
	w.now = now
	must(w.t, lost.s.CloseNow())
}

// join lets an empty region join.
func (w *testRemoval) join(partitions int) {
	r := &testRegion{n: len(w.now.Members), fs: vfs.NewMem(), clock: newFakeClock(), parts: partitions,
		joins: true}
	r.clock.step(time.Duration(w.rnd.Int64N(int64(10*time.Minute))) - 5*time.Minute)
	w.open(r)
	mode, window := Exact, time.Hour
	must(w.t, r.s.AlterTable(DefaultTable, TableChange{Mode: &mode, Window: &window}))
	w.r = append(w.r, r)
	w.now.Version++
	w.now.Members = append(slices.Clone(w.now.Members), RegionMember{
		Region: part.Region(r.n), Name: fmt.Sprint("region", r.n), Partitions: r.parts,
		Incarnation: r.s.Meta().Incarnation,
		Joined:      w.now.Version,
	})
	w.learn(r)
}

// learn makes a region know the members.
func (w *testRemoval) learn(r *testRegion) {
	set := w.now
	set.Self = part.Region(r.n)
	must(w.t, r.s.SetRegions(set))
}

// progress lets a region do what it can for removals, by one step.
func (w *testRemoval) progress(r *testRegion) {
	if set, _ := r.s.Regions(); set.Version != w.now.Version {
		w.learn(r)
		return
	}
	if w.from[r] == nil {
		w.from[r] = make(map[tookFrom]bool)
	}
	for _, m := range r.s.Removals() {
		if m.Levelled {
			continue
		}
		for _, o := range w.r {
			if k := (tookFrom{m.Gone, m.Since, o.n}); o != r && !w.from[r][k] {
				w.from[r][k] = w.level(r, o, m.Gone)
				return
			}
		}
		must(w.t, r.s.Levelled(m.Gone, m.Since))
	}
}

// level gives a region what another one knows of one that is lost; false if that does not know of it.
func (w *testRemoval) level(to, from *testRegion, gone part.Region) (ok bool) {
	ok = true
	w.ranges(to, from, func(n, first uint16) {
		last, _, _ := pullRange(int(n), from.parts, to.parts, first)
		q := StateQuery{Pull: Pull{
			By: part.Region(to.n), Group: 77, Incarnation: from.s.Meta().Incarnation, Partition: n,
			First: first, Last: last, Most: 1 + w.rnd.IntN(2000),
		}, Of: gone}
		for done := false; ok && !done; {
			page, err := from.s.State(q)
			if errors.Is(err, ErrStream) {
				ok = false
				return
			}
			must(w.t, err)
			taken, err := to.s.Take(page)
			if errors.Is(err, ErrStream) {
				ok = false
				return
			}
			must(w.t, err)
			q.Seq, q.At, done = taken.State.Seq, taken.State.Next, taken.State.Next == nil
		}
	})
	return ok
}

// forget marks as lost the operations of lost regions that no other region knows. Decided ones stay.
func (w *testRemoval) forget() {
	for i := range w.history {
		h := &w.history[i]
		h.lost, h.gone = h.lost || !h.known && !w.heard(h), false
	}
	for i := range w.dels {
		d := &w.dels[i]
		if d.lost = d.lost || !d.known && !w.heard(&d.done); d.lost {
			w.unsure[d.key] = true
			continue
		}
		for _, i := range d.of {
			w.history[i].gone = true
		}
	}
	decided := func(region int) bool {
		return slices.ContainsFunc(w.lost, func(l lostRegion) bool { return int(l.region) == region })
	}
	for i := range w.history {
		h := &w.history[i]
		h.known = decided(h.region)
		if h.lost && h.gone && h.opid != "" { // others may know from its take-back that it is gone
			w.unsure[h.key] = true
		}
	}
	for i := range w.dels {
		w.dels[i].known = decided(w.dels[i].region)
	}
}

// heard reports whether any region knows of something: it has done it or taken it with the log, or
// a state has told it. Of an operation with an opid it must have the record: its region may have
// taken it back, for one of another region that is also lost.
func (w *testRemoval) heard(d *done) bool {
	return slices.ContainsFunc(w.r, func(r *testRegion) bool {
		p := r.s.partitions[Slot([]byte(d.key))>>r.s.shift]
		if r.n == d.region {
			return true
		}
		if d.opid != "" {
			op := do(r.s, Op{Kind: CSeen, Key: []byte(d.key), ID: []byte(d.opid)})
			return isRegion(op.Object, d.region) && op.Seen.UnixMs == d.wall
		}
		if taken, _, err := r.s.TakenOf(p.id, d.from); err != nil || taken >= d.seq {
			must(w.t, err)
			return true
		}
		get(r.s, d.key) // into memory
		if slices.ContainsFunc(p.partsOf(d.key), func(q part.Part) bool {
			return int(q.Region) == d.region && q.Clock >= d.seq
		}) {
			w.unsure[d.key] = true // the clock may be of an heir
			return true
		}
		return false
	})
}

// removed reports whether heirs inherit all that is lost.
func (w *testRemoval) removed() bool {
	for _, r := range w.r {
		for _, m := range r.s.Removals() {
			if int(m.Heir) == r.n && !m.Done {
				return false
			}
		}
	}
	return true
}

// finish completes the removals.
func (w *testRemoval) finish() {
	for _, r := range w.r {
		w.learn(r)
		r.underway = nil
	}
	w.forget()
	for rounds := 0; !w.removed() || rounds < 3; rounds++ {
		if rounds > 10 {
			w.t.Fatalf("the removals do not end: %+v, %+v", w.r[0].s.Removals(), w.r[1].s.Removals())
		}
		for _, r := range w.r {
			for range 3 * len(w.lost) {
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
			if parts := p.partsOf(key); parts != nil {
				left = append(left, fmt.Sprintf("region %d: %s %+v", r.n, key, parts))
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

// TestRegionRemoved: regions that are lost at any moment, one, two or three in a row, with
// operations that others applied too, and are removed with an heir while the others go on and
// crash, and empty ones join, leave what anybody has heard of them, each opid once; and all keys
// can be forgotten afterwards.
func TestRegionRemoved(t *testing.T) {
	for seed := *regionSeed; seed < *regionSeed+uint64(*removalRuns); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newTestRemoval(t, seed, 4, 1<<(seed%4), 2)
			for range 200 + w.rnd.IntN(200) {
				w.step()
			}
			for losses := 1 + seed%3; losses > 0; losses-- {
				w.lose()
				w.life(200)
				if w.rnd.IntN(2) == 0 {
					w.finish()
				}
				if losses > 1 {
					w.join(1 << w.rnd.IntN(4))
					w.life(100 + w.rnd.IntN(200))
				}
			}
			w.finish()
			w.check()
			w.life(100)
			w.finish()
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

// life goes on for some steps, and so do removals.
func (w *testRemoval) life(steps int) {
	for range steps {
		if w.step(); w.rnd.IntN(20) == 0 {
			w.progress(w.r[w.rnd.IntN(len(w.r))])
		}
	}
}

// isRegion reports whether a shown name belongs to a region of these tests, removed or not.
func isRegion(shown any, n int) bool {
	return shown == fmt.Sprint("region", n) || shown == fmt.Sprintf("region%d#%[1]d", n)
}
