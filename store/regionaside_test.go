package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestRegionObjectEnds: when an object goes, in whatever way, the key shows what other regions
// count under its name, and they are told nothing of it. A write that comes before the active cycle
// finds the counter.
func TestRegionObjectEnds(t *testing.T) {
	key := []byte("k")
	keys := [][]byte{key}
	for name, end := range map[string]struct {
		op    Op
		lives bool // it has not expired
		want  error
	}{
		"DEL":                  {op: Op{Kind: Del, Keys: keys}, lives: true},
		"EXPIRE in the past":   {op: Op{Kind: ExpireAt, Key: key, ExpireAt: 1}, lives: true},
		"the active cycle":     {op: Op{Kind: removeExpired, Keys: keys}},
		"an increment":         {op: Op{Kind: IncrBy, Key: key}},
		"an operation":         {op: Op{Kind: CIncrBy, Key: key, ID: []byte("id")}},
		"a bounded increment":  {op: Op{Kind: IncrEx, Key: key, Values: []int64{-100, 100}}},
		"what others do":       {op: Op{Kind: regionMerge, Key: key, Object: []Change{added(third, 11, 0)}}},
		"an expiry that goes":  {op: Op{Kind: Persist, Key: key}},
		"SET if there is none": {op: Op{Kind: Set, Key: key, Delta: 3, Flags: NX}},
		"another filter":       {op: Op{Kind: FBFAdd, Key: key, Keys: keys}, want: ErrWrongType},
		"another reservation":  {op: Op{Kind: BFAdd, Key: key, Keys: keys}, want: ErrWrongType},
		"a deletion too late":  {op: Op{Kind: Del}}, // of nothing: the next one is
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegionStore(t, false)
			r.must(Op{Kind: FBFAdd, Key: key, Keys: [][]byte{[]byte("x")}})
			if !end.lives {
				r.must(Op{Kind: ExpireAt, Key: key, ExpireAt: r.clock.wall + 1000})
			}
			r.merge("k", added(other, 9, 7))
			must(t, r.Snapshot())
			if !end.lives {
				r.clock.step(time.Minute)
			}
			from := r.LastOf(0)
			if op := do(r.Store, end.op); !errors.Is(op.Err, end.want) {
				t.Fatal(op.Err)
			}
			if len(end.op.Keys) > 0 || end.op.Key != nil {
				r.shows("k", 7, true)
				r.reopen("k")
				r.shows("k", 7, true)
				if n, _ := r.DBSize(); n != 1 {
					t.Errorf("DBSIZE %d", n)
				}
			}
			if r.told(from, entryDelete) {
				t.Error("others are told that it was deleted")
			}
			if op := do(r.Store, Op{Kind: Del, Keys: keys}); op.Err != nil || op.Value != 1 {
				t.Errorf("DEL of what is shown: %d %v", op.Value, op.Err)
			}
			r.shows("k", 0, false)
			r.reopen("k")
			if n, _ := r.DBSize(); n != 0 || !r.told(from, entryDelete) {
				t.Errorf("DBSIZE %d in the end", n)
			}
		})
	}
}

// TestRegionObjectShares: a key that holds an object here shows what other regions count under its name, and
// the changes that are kept aside are counted.
func TestRegionObjectShares(t *testing.T) {
	key := []byte("k")
	r := newRegionStore(t, false)
	r.must(Op{Kind: FBFAdd, Key: key, Keys: [][]byte{[]byte("x")}})
	shares := func() (shares []RegionShare) {
		t.Helper()
		op := do(r.Store, Op{Kind: ByRegion, Key: key})
		must(t, op.Err)
		shares, _ = op.Object.([]RegionShare)
		return shares
	}
	if op := do(r.Store, Op{Kind: ByRegion, Key: key}); !errors.Is(op.Err, ErrWrongType) {
		t.Errorf("of an object alone: %+v", op)
	}
	r.merge("k", added(other, 9, 7))
	if op := do(r.Store, Op{Kind: Get, Key: key}); !errors.Is(op.Err, ErrWrongType) {
		t.Errorf("the counter's value: %+v", op)
	}
	self, name := r.partitions[0].regions.name(r.partitions[0].self()), r.partitions[0].regions.name(other)
	for _, want := range [][]RegionShare{{{Region: self, Object: true}, {Region: name, Value: 7}},
		{{Region: name, Value: 7}}} {
		if got := shares(); !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		r.must(Op{Kind: Del, Keys: [][]byte{key}})
	}
	if n := r.RegionIDs(); n != (RegionIDs{Aside: 1}) {
		t.Errorf("%+v", n)
	}
}

// holdsObject checks that the key of these tests holds an object in a region.
func (w *testRegions) holdsObject(r *testRegion, when string) {
	w.t.Helper()
	if op := do(r.s, Op{Kind: TypeOf, Key: []byte("k")}); !op.Type.isObject() || r.size() != 1 {
		w.t.Fatalf("%s: region %d holds type %v in %d keys", when, r.n, op.Type, r.size())
	}
}

// TestHandOutUnderObject: the others delete a counter that one region has drained, whose name an object has
// there now. The object stays, and the counter is forgotten once that is gone.
func TestHandOutUnderObject(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1)
	w.drain()
	a := w.r[0]
	cincr(a.s, "k", "x", 100)
	w.drainedIn(a, "d", 100, true)
	must(t, do(a.s, Op{Kind: FBFAdd, Key: []byte("k"), Keys: [][]byte{[]byte("item")}}).Err)
	for range 4 {
		w.drain()
		for _, r := range w.r {
			r.s.dropEnded(r.s.partitions[0], new(Batch))
		}
	}
	w.holdsObject(a, "deleted elsewhere")
	must(t, a.s.Snapshot())
	must(t, a.s.CloseNow())
	w.open(a)
	w.holdsObject(a, "opened again")
	must(t, do(a.s, Op{Kind: Del, Keys: [][]byte{[]byte("k")}}).Err)
	w.show("without the object", 0)
	w.forgotten()
}

// TestTakeBackUnderObject: a region has drained a counter of which it has taken something back, and owes more
// than that when an object has its name.
func TestTakeBackUnderObject(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1)
	w.drain()
	a, b := w.r[0], w.r[1]
	a.clock.advance(time.Hour / 2)
	for _, r := range w.r {
		cincr(r.s, "k", "x", 100)
	}
	w.takeFrom(a, b)
	for _, r := range w.r {
		cincr(r.s, "k", "y", 50)
	}
	w.drainedIn(a, "d", 150, true)
	must(t, do(a.s, Op{Kind: FBFAdd, Key: []byte("k"), Keys: [][]byte{[]byte("item")}}).Err)
	w.drainLogs()
	a.s.dropEnded(a.s.partitions[0], new(Batch))
	w.holdsObject(a, "all know what was taken back")
	must(t, do(a.s, Op{Kind: Del, Keys: [][]byte{[]byte("k")}}).Err)
	w.drain()
	w.show("without the object", 0)
	w.forgotten()
}

// TestStateBesideObject: a state tells the ids of a counter whose name an object has now, and none of the
// object, also once that is gone.
func TestStateBesideObject(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1)
	w.drain()
	a, b, key := w.r[0], w.r[1], []byte("k")
	cincr(a.s, "k", "x", 100)
	w.drainedIn(a, "d", 100, true)
	must(t, do(a.s, Op{Kind: BFCAdd, Key: key, ID: []byte("items"), Keys: [][]byte{[]byte("item")}}).Err)
	for range 2 {
		all := w.pagesOf(b, a, 0, 1<<20, nil)
		if len(all.ids) != 2 {
			t.Errorf("ids are told: %v", all.ids)
		}
		for _, page := range all.raw {
			_, err := b.s.Take(page)
			must(t, err)
		}
		wantOp(t, cincr(b.s, "k", "x", 100), 100, false)
		w.drainedIn(b, "d", 100, false)
		must(t, do(a.s, Op{Kind: Del, Keys: [][]byte{key}}).Err)
	}
	w.drain()
	w.show("stated", 0)
}

// TestObjectOfForgotten: a key gets an object once its counter is forgotten. After a crash the parts that its
// row still has do not come back.
func TestObjectOfForgotten(t *testing.T) {
	t.Parallel()
	w := newTestRegions(t, 2, 1, 1)
	w.drain()
	for _, r := range w.r {
		cincr(r.s, "k", "of "+fmt.Sprint(r.n), 5)
	}
	w.drain()
	a, keys := w.r[0], [][]byte{[]byte("k")}
	must(t, a.s.Snapshot())
	must(t, do(a.s, Op{Kind: Del, Keys: keys}).Err)
	w.drain()
	w.forgotten()
	must(t, do(a.s, Op{Kind: FBFAdd, Key: keys[0], Keys: [][]byte{[]byte("item")}}).Err)
	must(t, a.s.CloseNow())
	w.open(a)
	w.holdsObject(a, "opened again")
	must(t, do(a.s, Op{Kind: Del, Keys: keys}).Err)
	w.show("without the object", 0)
}

// told reports whether others are told of an entry of a kind.
func (r *regionStore) told(after uint64, kind entryKind) (found bool) {
	r.t.Helper()
	b, err := r.Pull(Pull{By: other, Partition: 0, First: 0, Last: slots - 1, After: after})
	must(r.t, err)
	var m pulledMemory
	d, err := decodePulled(b, &m)
	must(r.t, err)
	must(r.t, d.each(func(e *pulledEntry) error {
		found = found || e.kind == kind
		return nil
	}))
	return found
}
