package store

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/part"
)

var escrowRuns = flag.Uint64("escrow.runs", uint64(max(2, 16/raced.Slowdown)), "how many runs TestEscrow makes, "+
	"each with another seed")
var escrowSeed = flag.Uint64("escrow.seed", 1, "the first seed")

// escrowWorld are regions with a few counters of a table that has bounds.
type escrowWorld struct {
	*testRemoval
	min, max int64
	table    TableOptions
	opids    []Op
	decided  [3]int // changes: made, refused as others have the rights, refused by the bounds
}

func newEscrowWorld(t *testing.T, seed uint64, regions ...int) *escrowWorld {
	w := &escrowWorld{testRemoval: newTestRemoval(t, seed, regions...)}
	w.min, w.max = -w.rnd.Int64N(3)*2, 4+w.rnd.Int64N(20)
	w.table = TableOptions{Name: "b", Prefix: "b:", Window: time.Hour, Min: boundAt(w.min), Max: boundAt(w.max)}
	for _, r := range w.r {
		must(t, r.s.CreateTable(w.table))
	}
	return w
}

// change changes a counter in a region, by a new operation, one that was tried before, or without an opid.
func (w *escrowWorld) change(r *testRegion) {
	op := Op{Kind: CIncrBy, Key: fmt.Append(nil, "b:", w.rnd.IntN(3)), Delta: w.rnd.Int64N(11) - 5}
	switch w.rnd.IntN(3) {
	case 0:
		if op.Kind = IncrBy; w.rnd.IntN(4) == 0 {
			op.Kind, op.Delta, op.ID = CGetDel, 0, fmt.Append(nil, "op-", len(w.opids))
			w.opids = append(w.opids, op)
		}
	case 1:
		op.ID = fmt.Append(nil, "op-", len(w.opids))
		w.opids = append(w.opids, op)
	default:
		if len(w.opids) == 0 {
			return
		}
		op = w.opids[w.rnd.IntN(len(w.opids))]
	}
	w.changeBy(r, op)
}

func (w *escrowWorld) changeBy(r *testRegion, op Op) {
	w.t.Helper()
	op = do(r.s, op)
	switch {
	case op.Err == nil:
		w.decided[0]++
	case errors.Is(op.Err, ErrNoRights):
		w.decided[1]++
	case errors.Is(op.Err, ErrBound):
		w.decided[2]++
	case !(r.joins && errors.Is(op.Err, ErrNotCaughtUp)):
		w.t.Fatal(op.Err)
	}
}

// within checks that no region shows a value beyond a bound.
func (w *escrowWorld) within(when string) {
	w.t.Helper()
	for _, r := range w.r {
		for i := range 3 {
			if v, _ := get(r.s, fmt.Sprint("b:", i)); v < w.min || v > w.max {
				w.t.Fatalf("%s: region %d shows %d, beyond %d to %d", when, r.n, v, w.min, w.max)
			}
		}
	}
}

// step does something by chance.
func (w *escrowWorld) step(removes bool) {
	r := w.r[w.rnd.IntN(len(w.r))]
	switch n := w.rnd.IntN(100); {
	case n < 40:
		w.change(r)
	case n < 42:
		r.clock.advance(time.Duration(w.rnd.IntN(3000)) * time.Millisecond)
	case n < 45:
		link := [2]int{w.r[w.rnd.IntN(len(w.r))].n, w.r[w.rnd.IntN(len(w.r))].n}
		w.cut[link] = !w.cut[link]
	case n < 46:
		w.reopen(r)
	case n < 52:
		for _, p := range r.s.partitions {
			r.s.dropEnded(p, new(Batch))
		}
	case n < 75:
		w.ask(r)
	case n < 97:
		w.take(r)
	case removes && len(w.r) > 2 && len(w.lost) == 0:
		w.lose()
	case removes:
		w.progress(r)
	}
}

// rightsOf returns the rights of a region of a counter.
func (w *escrowWorld) rightsOf(r *testRegion, key string) (has [part.Sides]int64, value int64) {
	value, _ = get(r.s, key) // into memory
	p := r.s.partitions[Slot([]byte(key))>>r.s.shift]
	p.lock()
	defer p.mu.Unlock()
	if c := p.hot.peek(key); c != nil {
		for s, n := range p.rightsOf([]byte(key), c, [part.Sides]int64{w.min, w.max}) {
			has[s] = n.Int64()
		}
	}
	return has, value
}

// settled lets regions take everything, and lets all rights count.
func (w *escrowWorld) settled() {
	clear(w.cut)
	for range 4 {
		w.drain()
		for _, r := range w.r {
			for _, p := range r.s.partitions {
				for range 3 {
					r.s.dropEnded(p, new(Batch))
				}
			}
		}
	}
	w.drain()
}

// ends checks that all regions show the same, and that no right was lost, or made of nothing.
func (w *escrowWorld) ends() {
	w.t.Helper()
	w.settled()
	w.within("in the end")
	for i := range 3 {
		key := fmt.Sprint("b:", i)
		sum, first := [part.Sides]int64{}, int64(0)
		for n, r := range w.r {
			has, value := w.rightsOf(r, key)
			if n == 0 {
				first = value
			}
			if value != first || has[part.Lower] < 0 || has[part.Upper] < 0 {
				w.t.Errorf("%s: region %d shows %d, and not %d, and has rights of %d", key, r.n, value, first, has)
			}
			for s := range sum {
				sum[s] += has[s]
			}
		}
		want := [part.Sides]int64{first - w.min, w.max - first}
		if sum != want && sum != [part.Sides]int64{} {
			w.t.Errorf("%s: at %d all have rights of %d, and there are %d", key, first, sum, want)
		}
	}
}

// TestEscrow makes runs by chance: links are cut, logs come late, regions are opened again, and one may be
// removed. No region ever shows a value beyond a bound, and no right is lost.
func TestEscrow(t *testing.T) {
	t.Parallel()
	var decided [3]int
	for seed := *escrowSeed; seed < *escrowSeed+*escrowRuns; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newEscrowWorld(t, seed, 1, 2, 1)
			removes := seed%4 == 0
			for range 400 {
				if w.step(removes); len(w.lost) == 0 {
					w.within("underway")
				}
			}
			if len(w.lost) > 0 {
				w.finish()
			}
			w.ends()
			for i := range decided {
				decided[i] += w.decided[i]
			}
		})
	}
	if t.Logf("%d changes were made, %d lacked rights, %d were out of bounds", decided[0], decided[1],
		decided[2]); decided[0] == 0 || decided[1] == 0 || decided[2] == 0 {
		t.Error("something was never tried")
	}
}

// TestRightsOfRegions: what a region may do, what others must do first, and what nobody may.
func TestRightsOfRegions(t *testing.T) {
	t.Parallel()
	w := newEscrowWorld(t, 1, 1, 1)
	for _, r := range w.r { // the same bounds in all runs
		must(t, r.s.DropTable("b"))
		must(t, r.s.CreateTable(TableOptions{Name: "b", Prefix: "b:", Min: boundAt(0), Max: boundAt(10)}))
	}
	w.min, w.max = 0, 10
	w.drainLogs() // from here on the logs tell all
	a, b := w.r[0], w.r[1]
	ids := 0
	change := func(r *testRegion, delta int64) error {
		ids++
		return do(r.s, Op{Kind: CIncrBy, Key: []byte("b:0"), ID: fmt.Append(nil, "id-", ids), Delta: delta}).Err
	}
	lacks := func(err error, here, elsewhere int64) {
		t.Helper()
		var e *RightsError
		if !errors.As(err, &e) || e.Here != here || e.Elsewhere != elsewhere {
			t.Fatalf("%v, not %d here and %d elsewhere", err, here, elsewhere)
		}
	}
	must(t, change(a, 4))
	lacks(change(b, 1), 0, 10)
	asked := b.seq(0)
	for range 50 {
		lacks(change(b, 1), 0, 10)
	}
	if b.seq(0) != asked {
		t.Errorf("it asked again: %d entries", b.seq(0)-asked)
	}
	w.takeFrom(a, b)
	w.takeFrom(b, a) // 3 of 6
	must(t, change(b, 1))
	lacks(change(b, 3), 2, 3)
	if err := change(b, 7); !errors.Is(err, ErrBound) {
		t.Error(err)
	}
	// The rights that a change makes count once all know of it.
	lacks(change(a, -3), 0, 4)
	w.settled()
	must(t, change(a, -3))
	w.settled()
	has, _ := w.rightsOf(a, "b:0")
	both, value := w.rightsOf(b, "b:0")
	if both[part.Lower]+has[part.Lower] != value || both[part.Upper]+has[part.Upper] != 10-value {
		t.Errorf("at %d they have %d and %d", value, has, both)
	}
	// A counter that nobody has counted keeps its rights, though it does not exist.
	for range 2 {
		b.clock.advance(time.Second)
		if err := do(b.s, Op{Kind: IncrBy, Key: []byte("b:1"), Delta: 6}).Err; !errors.Is(err, ErrNoRights) {
			t.Error(err)
		}
		w.takeFrom(a, b)
	}
	if has, _ := w.rightsOf(a, "b:1"); has != [part.Sides]int64{0, 2} {
		t.Errorf("of 10, half of which was given twice, %d are left", has)
	}
	drain := Op{Kind: CGetDel, Key: []byte("b:0"), ID: []byte("drain")}
	if err := do(a.s, drain).Err; !errors.Is(err, ErrNoRights) {
		t.Errorf("it hands out what others may: %v", err)
	}
	for name, op := range map[string]Op{
		"SET":          {Kind: Set, Key: []byte("b:0"), Delta: 5},
		"SET of a new": {Kind: Set, Key: []byte("b:9"), Delta: 5},
		"MSET":         {Kind: MSet, Keys: [][]byte{[]byte("x"), []byte("b:0")}, Deltas: []int64{1, 5}},
		"DEL":          {Kind: Del, Keys: [][]byte{[]byte("x"), []byte("b:0")}},
		"GETDEL":       {Kind: GetDel, Key: []byte("b:0")},
		"EXPIRE":       {Kind: ExpireAt, Key: []byte("b:0"), ExpireAt: 1 << 50},
		"GETEX":        {Kind: GetEx, Key: []byte("b:0"), ExpireAt: 1 << 50, Flags: HasExpire},
		"CINCRBY EX": {Kind: CIncrEx, Key: []byte("b:0"), ID: []byte("ex"), Delta: 1, ExpireAt: 1 << 50,
			Flags: HasExpire},
		"INCREX EX": {Kind: IncrEx, Key: []byte("b:0"), Delta: 1, ExpireAt: 1 << 50, Flags: HasExpire},
	} {
		before := a.seq(0)
		if op = do(a.s, op); !errors.Is(op.Err, ErrEscrow) || a.seq(0) != before {
			t.Errorf("%s: %v, %d entries", name, op.Err, a.seq(0)-before)
		}
	}
	for _, narrow := range []TableChange{{Min: ptr(boundAt(-1)), Max: ptr(boundAt(9))}, {Min: ptr(boundAt(0)),
		Max: ptr(boundAt(4))}} {
		if err := a.s.AlterTable("b", narrow); !errors.Is(err, ErrTableBounds) {
			t.Error(err)
		}
	}
	must(t, a.s.AlterTable("b", TableChange{Max: ptr(boundAt(20))}))
	if wider, _ := w.rightsOf(a, "b:0"); wider != has {
		t.Errorf("%d became %d by the old bounds", has, wider)
	}
	must(t, change(a, 12)) // it has the rights of the wider bound, as the rights of the counter began here
}

// TestBoundedKeysJoin: a region with keys joins no others while a table that they share has bounds.
func TestBoundedKeysJoin(t *testing.T) {
	t.Parallel()
	for keys := range 2 {
		w := newTestRegionsWith(t, 1, false, 1, 1)
		s := w.r[1].s
		must(t, s.CreateTable(TableOptions{Name: "b", Prefix: "b:", Max: boundAt(9)}))
		for range keys {
			must(t, do(s, Op{Kind: IncrBy, Key: []byte("b:0"), Delta: 1}).Err)
		}
		err := s.SetRegions(w.set(1))
		if keys == 0 && err != nil || keys > 0 && !errors.Is(err, ErrBoundedKeys) {
			t.Errorf("%d keys: %v", keys, err)
		}
	}
}

// TestRightsBeginAnew: a region that is alone has none. They begin anew, with its value then.
func TestRightsBeginAnew(t *testing.T) {
	t.Parallel()
	w := newEscrowWorld(t, 3, 1, 1)
	a := w.r[0]
	key := "b:0"
	must(t, do(a.s, Op{Kind: IncrBy, Key: []byte(key), Delta: 2}).Err)
	w.takeFrom(w.r[1], a)
	w.loseOne(1, 0)
	w.finish()
	must(t, do(a.s, Op{Kind: Set, Key: []byte(key), Delta: 4}).Err)
	if has, _ := w.rightsOf(a, key); has != [part.Sides]int64{} {
		t.Errorf("alone it has rights of %d", has)
	}
	w.join(1)
	must(t, w.r[1].s.CreateTable(w.table))
	w.finish()
	w.changeBy(a, Op{Kind: IncrBy, Key: []byte(key), Delta: -1})
	if has, v := w.rightsOf(a, key); v != 3 || has != [part.Sides]int64{4 - w.min - 1, w.max - 4} {
		t.Errorf("at %d it has rights of %d, in %d to %d", v, has, w.min, w.max)
	}
	w.ends()
}

// TestWaitingRow: a row whose rights wait is looked at after a start, until they count.
func TestWaitingRow(t *testing.T) {
	t.Parallel()
	w := newEscrowWorld(t, 3, 1, 1)
	w.drainLogs()
	a := w.r[0]
	must(t, do(a.s, Op{Kind: IncrBy, Key: []byte("b:0"), Delta: 2}).Err)
	must(t, a.s.Snapshot())
	must(t, a.s.CloseNow())
	w.open(a)
	w.ends()
	if has, _ := w.rightsOf(a, "b:0"); has != [part.Sides]int64{2 - w.min, w.max - 2} {
		t.Errorf("it has rights of %d", has)
	}
}
