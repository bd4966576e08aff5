package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

// stateRead is a state that a region takes of another one.
type stateRead struct {
	from     *testRegion
	n, first uint16
	seq      uint64
	at       []byte
}

// gap begins to take a state, unless that is under way.
func (w *testRegions) gap(r, from *testRegion, n, first uint16) {
	for _, x := range r.states {
		if x.from == from && x.first == first {
			return
		}
	}
	r.states = append(r.states, &stateRead{from: from, n: n, first: first})
	w.steps["gap"]++
}

// state asks for a page.
func (w *testRegions) state(r *testRegion, x *stateRead, most int) ([]byte, error) {
	w.stated = true
	last, _, _ := pullRange(int(x.n), x.from.parts, r.parts, x.first)
	return x.from.s.State(StateQuery{Pull: Pull{
		By: part.Region(r.n), Group: 77, Incarnation: x.from.s.Meta().Incarnation, Partition: x.n,
		First: x.first, Last: last, Most: most,
	}, Of: part.Region(x.from.n), Seq: x.seq, At: x.at})
}

// exchange takes a whole state.
func (w *testRegions) exchange(r *testRegion, x *stateRead) {
	for {
		b, err := w.state(r, x, 1000)
		must(w.t, err)
		taken, err := r.s.Take(b)
		must(w.t, err)
		if x.seq, x.at = taken.State.Seq, taken.State.Next; x.at == nil {
			return
		}
	}
}

// page takes a page, and sometimes another one before that must not be taken.
func (w *testRegions) page(r *testRegion, x *stateRead, most int) string {
	if w.cut[[2]int{r.n, x.from.n}] && w.rnd.IntN(4) > 0 {
		return "unreachable"
	}
	b, err := w.state(r, x, most)
	must(w.t, err)
	taken, err := r.s.Take(b)
	switch {
	case errors.Is(err, ErrEra):
		x.seq, x.at = 0, nil
		return "another era"
	case errors.Is(err, ErrStream): // the region has crashed since it took the page before
		x.seq, x.at = 0, nil
		return "state again"
	case err != nil:
		w.t.Fatalf("region %d takes the state of %d: %v", r.n, x.from.n, err)
	}
	if x.seq, x.at = taken.State.Seq, taken.State.Next; taken.State.Next == nil {
		for i := range r.states {
			if r.states[i] == x {
				r.states = append(r.states[:i], r.states[i+1:]...)
				return "state"
			}
		}
	}
	if w.rnd.IntN(4) == 0 { // it comes once more
		if _, err := r.s.Take(b); err == nil && len(x.at) > 0 {
			d, _ := decodePulled(b, new(pulledMemory))
			x.at = d.page.next
		} else if err != nil {
			x.seq, x.at = 0, nil
		}
	}
	return "page"
}

// lateKeys are keys that a region has when it joins, beside the 12 that others have.
const lateKeys = 4

// alone lets a region that is not yet a member count a key that no other region has.
func (w *testRegions) alone(r *testRegion) {
	key := fmt.Sprint("k", 12+w.rnd.IntN(lateKeys))
	switch n := w.rnd.IntN(10); {
	case n < 6:
		id := fmt.Sprint(key, "late", w.rnd.IntN(1000))
		if op := w.do(r, Op{Kind: CIncrBy, Key: []byte(key), ID: []byte(id), Delta: 3}); op.Applied {
			w.note(r, done{key: key, opid: id, delta: 3, result: op.Value})
		}
	case n < 8:
		op := w.do(r, Op{Kind: IncrBy, Key: []byte(key), Delta: 2})
		w.note(r, done{key: key, delta: 2, result: op.Value})
	default:
		for i := range w.history {
			if d := &w.history[i]; d.key == key && d.region == r.n {
				d.gone = true
			}
		}
		w.do(r, Op{Kind: Del, Keys: [][]byte{[]byte(key)}})
		if n == 8 { // what was set before others came into play is as if it had been counted
			w.do(r, Op{Kind: Set, Key: []byte(key), Delta: 5})
			w.note(r, done{key: key, delta: 5, result: 5})
		}
	}
}

// join makes another region a member; it has counted before that.
func (w *testRegions) join(r *testRegion) {
	w.r = append(w.r, r)
	for i, r := range w.r {
		must(w.t, r.s.SetRegions(w.set(i)))
	}
}

// TestRegionGaps: regions whose logs do not reach back to what others have taken exchange their
// states, page by page, while everything that TestRegions does goes on; and a region that has
// counted by itself joins them late.
func TestRegionGaps(t *testing.T) {
	total := make(map[string]int)
	for seed := *regionSeed; seed < *regionSeed+uint64(*regionRuns); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newTestRegionsWith(t, seed, true, 4, 1<<(seed%4), 2)
			late := w.r[2]
			w.r = w.r[:2]
			for i, r := range w.r {
				must(t, r.s.SetRegions(w.set(i)))
			}
			for range 200 {
				w.step()
				if w.rnd.IntN(4) == 0 {
					w.alone(late)
				}
			}
			w.join(late)
			w.keys += lateKeys
			for range 500 {
				w.step()
			}
			w.agree()
			w.check()
			for _, r := range w.r {
				must(t, r.s.Close())
			}
			for kind, n := range w.steps {
				total[kind] += n
			}
		})
		if !ok {
			return
		}
	}
	if *regionRuns < 8 {
		return
	}
	for _, kind := range []string{"gap", "page", "state", "state again", "retry", "del", "set", "reopen",
		"take"} {
		if total[kind] == 0 {
			t.Errorf("there was no %q: %v", kind, total)
		}
	}
	t.Log(total)
}

// TestStateTellsWhatCounts: of an operation that two regions have applied only the state of the one
// tells whose application counts. Else who takes the other's state would have it taken back once
// more.
func TestStateTellsWhatCounts(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	w.drain()
	for _, r := range w.r {
		w.do(r, Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("x"), Delta: 1})
	}
	w.drain()
	told := 0
	for i, from := range w.r {
		to := w.r[1-i]
		for x := (&stateRead{from: from}); ; {
			b, err := w.state(to, x, 1000)
			must(t, err)
			d, err := decodePulled(b, new(pulledMemory))
			must(t, err)
			must(t, d.each(func(e *pulledEntry) error {
				if e.kind == entryHeard {
					told++
				}
				return nil
			}))
			if x.seq, x.at = d.upTo, d.page.next; len(x.at) == 0 {
				break
			}
		}
	}
	if told != 1 {
		t.Errorf("%d regions tell that they have applied it", told)
	}
}
