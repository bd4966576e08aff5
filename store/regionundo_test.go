package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// manyTwins are regions of which the first two have applied the same 2000 opids to one counter.
// Then the second one, whose operations are the later ones, has taken the log of the first.
type manyTwins struct {
	*testRemoval
	loser *testRegion
}

const twinsOfOne = 2000

func newManyTwins(t *testing.T, regions int) *manyTwins {
	w := &manyTwins{testRemoval: newTestRemoval(t, 2, slices.Repeat([]int{1}, regions)...)}
	w.loser = w.r[1]
	w.drainLogs() // from here on the logs tell all
	w.loser.clock.step(20 * time.Minute)
	for _, r := range w.r[:2] {
		var b Batch
		for i := range twinsOfOne {
			*b.Add(CIncrBy) = Op{Kind: CIncrBy, Key: []byte("hot"), ID: fmt.Append(nil, "id-", i), Delta: 1}
		}
		r.s.Execute(&b)
		for i := range b.Ops {
			must(t, b.Ops[i].Err)
		}
	}
	w.takeFrom(w.loser, w.r[0])
	w.owes("the loser has heard", w.loser, twinsOfOne-part.MaxUndo)
	if n := w.loser.s.RegionIDs(); n.Owed != twinsOfOne-part.MaxUndo || n.TakenBack != twinsOfOne {
		t.Errorf("%+v", n)
	}
	return w
}

// openAgain opens a region again, from its log or from its rows.
func (w *manyTwins) openAgain(r *testRegion, save bool) {
	w.t.Helper()
	if save {
		must(w.t, r.s.Snapshot())
	}
	must(w.t, r.s.CloseNow())
	w.open(r)
}

// owes checks how much the loser owes, as far as a region knows, and that its sum has it.
func (w *manyTwins) owes(when string, r *testRegion, owed int) {
	w.t.Helper()
	p := r.s.partitions[0]
	p.lock()
	got := len(p.regions.owed.of([]byte("hot"), part.Region(w.loser.n)))
	p.mu.Unlock()
	if v, _ := get(r.s, "hot"); got != owed || v != int64(twinsOfOne+owed) {
		w.t.Errorf("%s: region %d shows %d, and knows %d to be owed, not %d", when, r.n, v, got, owed)
	}
}

// isLate checks that the sum of a region has all that the loser owes, and returns how much that is.
func (w *manyTwins) isLate(when string, r *testRegion) (owed int) {
	w.t.Helper()
	get(r.s, "hot") // puts it into memory
	p := r.s.partitions[0]
	p.lock()
	defer p.mu.Unlock()
	owed = len(p.regions.owed.of([]byte("hot"), part.Region(w.loser.n)))
	if v := p.hot.peek("hot").value; v != int64(twinsOfOne+owed) {
		w.t.Errorf("%s: region %d shows %d, and owes %d", when, r.n, v, owed)
	}
	return owed
}

// paysInTurns checks that each batch of the loser took back no more of its debt than it may.
func (w *manyTwins) paysInTurns() {
	w.t.Helper()
	all := 0
	must(w.t, w.loser.s.db.Log().Tail(0, 1, func(_ uint64, content []byte) error {
		rd, err := newSectionReader(content)
		must(w.t, err)
		paid := 0
		for e := (entry{}); rd.next(&e); {
			if e.kind == entryPaid {
				paid++
			}
		}
		if all += paid; paid > payBatch {
			w.t.Errorf("%d operations are taken back at once", paid)
		}
		return rd.err()
	}))
	if all != twinsOfOne-part.MaxUndo {
		w.t.Errorf("%d operations are taken back late", all)
	}
}

// ends checks that all regions show the same in the end, and that nothing is owed or may count twice.
func (w *manyTwins) ends(want int64) {
	w.t.Helper()
	w.drain()
	for _, r := range w.r {
		p := r.s.partitions[0]
		p.lock()
		owed := p.regions.owed
		p.mu.Unlock()
		if v, _ := get(r.s, "hot"); v != want || len(owed.byKey) > 0 ||
			owed.count != [part.MaxRegions]int{} || r.s.RegionIDs().Unchecked != 0 {
			w.t.Errorf("region %d shows %d, not %d; owed %v; %+v", r.n, v, want, owed.count, r.s.RegionIDs())
		}
	}
}

// TestManyTwins: of more twins of one counter than it has room to take back each counts once in the
// end, whatever happens meanwhile.
func TestManyTwins(t *testing.T) {
	t.Parallel()
	t.Run("heal", func(t *testing.T) {
		w := newManyTwins(t, 2)
		w.takeFrom(w.r[0], w.loser)
		w.owes("the winner has heard", w.r[0], twinsOfOne-part.MaxUndo)
		w.ends(twinsOfOne)
	})
	t.Run("a third region hears the loser first", func(t *testing.T) {
		w := newManyTwins(t, 3)
		w.takeFrom(w.r[2], w.loser)
		w.owes("the third has heard", w.r[2], twinsOfOne-part.MaxUndo)
		w.ends(twinsOfOne)
	})
	for _, save := range []bool{false, true} {
		t.Run(fmt.Sprint("restart, saved ", save), func(t *testing.T) {
			w := newManyTwins(t, 2)
			for _, r := range w.r {
				w.openAgain(r, save)
			}
			w.owes("opened again", w.loser, twinsOfOne-part.MaxUndo)
			w.takeFrom(w.r[0], w.loser)
			w.takeFrom(w.loser, w.r[0]) // it has room again
			eventually(t, "something is paid", func() bool {
				w.loser.s.dropEnded(w.loser.s.partitions[0], new(Batch))
				return w.isLate("paid in part", w.loser) < twinsOfOne-part.MaxUndo
			})
			w.openAgain(w.loser, save)
			w.isLate("opened once more", w.loser)
			w.ends(twinsOfOne)
			w.paysInTurns()
		})
	}
	t.Run("deleted by the loser", func(t *testing.T) {
		w := newManyTwins(t, 2)
		must(t, do(w.loser.s, Op{Kind: Del, Keys: [][]byte{[]byte("hot")}}).Err)
		must(t, do(w.loser.s, Op{Kind: IncrBy, Key: []byte("hot"), Delta: 7}).Err)
		w.ends(7)
	})
	t.Run("deleted by another", func(t *testing.T) {
		w := newManyTwins(t, 3)
		w.takeFrom(w.r[2], w.r[0])
		w.takeFrom(w.r[2], w.loser)
		must(t, do(w.r[2].s, Op{Kind: Del, Keys: [][]byte{[]byte("hot")}}).Err)
		must(t, do(w.loser.s, Op{Kind: IncrBy, Key: []byte("hot"), Delta: 7}).Err)
		w.ends(7)
	})
	t.Run("deleted by one that has seen no take-back", func(t *testing.T) {
		w := newManyTwins(t, 3)
		// The third has all operations of the loser, and pins all take-backs.
		b, err := w.pull(w.r[2], w.loser, 0, 0, 1)
		must(t, err)
		_, err = w.r[2].s.Take(b)
		must(t, err)
		v, _ := get(w.r[2].s, "hot")
		if v != twinsOfOne {
			t.Fatalf("the third has %d", v)
		}
		must(t, do(w.r[2].s, Op{Kind: Del, Keys: [][]byte{[]byte("hot")}}).Err)
		w.ends(0)
	})
	for _, heard := range []string{"all", "the heir alone", "the winner alone"} {
		t.Run("the loser is lost, heard by "+heard, func(t *testing.T) {
			w := newManyTwins(t, 3)
			if heard != "the heir alone" {
				w.takeFrom(w.r[0], w.loser)
			}
			if heard != "the winner alone" {
				w.takeFrom(w.r[2], w.loser)
			}
			w.loseOne(1, 2)
			w.finish()
			w.ends(twinsOfOne)
			for _, r := range w.r {
				p := r.s.partitions[0]
				p.lock()
				undo := p.hot.peek("hot").parts().Of(1).Undo
				p.mu.Unlock()
				if len(undo) < twinsOfOne-part.MaxUndo { // what the heir took back
					t.Errorf("region %d remembers %d take-backs", r.n, len(undo))
				}
			}
		})
	}
}

// TestStateTellsOwed: the state of a region tells what it owes, be the key in memory or in a row,
// so that its heir can take it back.
func TestStateTellsOwed(t *testing.T) {
	t.Parallel()
	for _, save := range []bool{false, true} {
		w := newManyTwins(t, 3)
		w.openAgain(w.loser, save)
		third := w.r[2]
		w.takeFrom(third, w.r[0])
		for _, page := range w.pagesOf(third, w.loser, part.Region(w.loser.n), 1<<20, nil).raw {
			_, err := third.s.Take(page)
			must(t, err)
		}
		w.owes(fmt.Sprint("the third has the state, saved ", save), third, twinsOfOne-part.MaxUndo)
		w.loseOne(w.loser.n, 2)
		w.finish()
		w.ends(twinsOfOne)
	}
}

// TestHotTwins: what a key's merge logs does not grow with its take-backs.
func TestHotTwins(t *testing.T) {
	t.Parallel()
	w := newManyTwins(t, 2)
	w.takeFrom(w.r[0], w.loser)
	r := w.r[0]
	if undo := r.s.partitions[0].hot.peek("hot").parts().Of(1).Undo; len(undo) != part.MaxUndo {
		t.Fatalf("%d take-backs are remembered", len(undo))
	}
	logged := func() uint64 {
		p := r.s.partitions[0]
		p.lock()
		defer p.mu.Unlock()
		return p.logBytes
	}
	must(t, do(w.loser.s, Op{Kind: IncrBy, Key: []byte("hot"), Delta: 1}).Err)
	must(t, r.s.Snapshot()) // from here on the row has the rest
	before := logged()
	w.takeFrom(r, w.loser)
	if n := logged() - before; n > 100 {
		t.Errorf("an increment of another region logs %d bytes", n)
	}
	w.openAgain(r, false)
	if v, _ := get(r.s, "hot"); v != 2*twinsOfOne-part.MaxUndo+1 {
		t.Errorf("opened again: %d", v)
	}
	if undo := r.s.partitions[0].hot.peek("hot").parts().Of(1).Undo; len(undo) != part.MaxUndo {
		t.Errorf("opened again: %d take-backs", len(undo))
	}
	w.ends(twinsOfOne + 1)
}

// TestTakeBackBeyond: a take-back that leads the sum of its part out of int64 is carried exactly, over
// restarts, and so is the base of a deletion that has seen it.
func TestTakeBackBeyond(t *testing.T) {
	w := &manyTwins{testRemoval: newTestRemoval(t, 3, 1, 1)}
	w.drainLogs()
	w.r[1].clock.step(time.Minute)
	once := func(r *testRegion, id string, delta int64) error {
		var b Batch
		op := b.Add(CIncrBy)
		op.Key, op.ID, op.Delta = []byte("k"), []byte(id), delta
		r.s.Execute(&b)
		return op.Err
	}
	all := func(when string, want int64) {
		t.Helper()
		for _, save := range []bool{false, true} {
			w.drainLogs()
			for _, r := range w.r {
				if v, _ := get(r.s, "k"); v != want {
					t.Errorf("%s: region %d shows %d, not %d", when, r.n, v, want)
				}
				w.openAgain(r, save)
			}
		}
	}
	must(t, once(w.r[0], "twin", -1000))
	must(t, once(w.r[1], "twin", -1000))
	must(t, once(w.r[1], "most", math.MaxInt64))
	must(t, once(w.r[1], "more", 1000))
	w.takeFrom(w.r[1], w.r[0])
	all("taken back", math.MaxInt64)
	if err := once(w.r[1], "beyond", 1); !errors.Is(err, ErrOverflow) {
		t.Errorf("beyond: %v", err)
	}
	must(t, once(w.r[1], "back", -5))
	all("counted back", math.MaxInt64-5)
	var b Batch
	b.Add(Del).Keys = [][]byte{[]byte("k")}
	w.r[0].s.Execute(&b)
	must(t, b.Ops[0].Err)
	must(t, once(w.r[1], "meanwhile", -7))
	all("deleted", -7)
}

// drain heals all links until everybody has taken everything, and nobody owes anything.
func (w *testRegions) drain() {
	for rounds := 0; ; rounds++ {
		w.drainLogs()
		if !w.pay() {
			w.drainLogs() // the cycle may have paid the last of it
			return
		}
		if rounds > 200 {
			w.t.Fatal("a region owes something for ever")
		}
	}
}

// pay lets regions take back what they owe, if there is anything.
func (w *testRegions) pay() (owed bool) {
	for _, r := range w.r {
		for _, p := range r.s.partitions {
			p.lock()
			owes, flushDue := p.regions.owed.count[r.n] > 0, p.flushDue
			p.mu.Unlock()
			if owes && flushDue { // the cycle waits until the rows of the era before are deleted
				must(w.t, r.s.Snapshot())
			}
			if owed = owed || owes; owes {
				w.steps["owed"]++
				r.s.dropEnded(p, new(Batch))
			}
		}
	}
	return owed
}
