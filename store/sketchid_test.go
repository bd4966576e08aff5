package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sketchIDStore opens a store with a table for each mode.
func sketchIDStore(t *testing.T, fs vfs.FS, clock *fakeClock) *Store {
	s := testStore(t, func(o *Options) { o.FS, o.Partitions, o.Clock = fs, 2, clock.now })
	err := s.CreateTable(TableOptions{Name: "approx", Prefix: "a:", Mode: Approx, Window: time.Minute,
		Skew: time.Second})
	if err != nil && !errors.Is(err, ErrTableExists) {
		t.Fatal(err)
	}
	return s
}

func cAdd(key, id string, items ...string) Op {
	return Op{Kind: BFCAdd, Key: []byte(key), ID: []byte(id), Keys: keysOf(items...),
		Object: &BloomOptions{Error: 0.01, Capacity: 4, Expansion: 1}}
}

func cmsCIncr(key, id string, pairs ...any) Op {
	op := Op{Kind: CMSCIncrBy, Key: []byte(key), ID: []byte(id)}
	for i := 0; i < len(pairs); i += 2 {
		op.Keys, op.Deltas = append(op.Keys, []byte(pairs[i].(string))),
			append(op.Deltas, int64(pairs[i+1].(int)))
	}
	return op
}

// TestCAdd: a retry gets the first answers, whatever has happened since, and adds nothing.
func TestCAdd(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	s := sketchIDStore(t, fs, clock)
	expect := func(op Op, applied bool, founds ...bool) {
		t.Helper()
		if op = do(s, op); op.Err != nil || op.Applied != applied || !slices.Equal(op.Founds, founds) {
			t.Errorf("applied %v, %v, %v", op.Applied, op.Founds, op.Err)
		}
	}
	card := func(want int64) {
		t.Helper()
		if op := do(s, Op{Kind: BFCard, Key: []byte("f")}); op.Err != nil || op.Value != want {
			t.Errorf("%d items instead of %d (%v)", op.Value, want, op.Err)
		}
	}
	first := cAdd("f", "1", "x", "y", "x")
	expect(first, true, false, false, true)
	expect(first, false, false, false, true)
	expect(cAdd("f", "2", "x", "z"), true, true, false)
	expect(cAdd("f", "2", "x", "z"), false, true, false)
	many := []string{"x"} // grows three times
	answers := []bool{true}
	for i := range MaxCAdd - 1 {
		many, answers = append(many, fmt.Sprint("item", i)), append(answers, false)
	}
	expect(cAdd("f", "many", many...), true, answers...)
	card(3 + MaxCAdd - 1)
	refused := []struct {
		op   Op
		want error
	}{
		{cAdd("f", "1", "x", "y"), ErrOtherItems},
		{cAdd("f", "1", "y", "x", "x"), ErrOtherItems},
		{cAdd("f", "1", "xy", "", "x"), ErrOtherItems},
		{cAdd("f", "new", append(many, "one more")...), ErrManyCAdd},
		{cAdd("a:f", "new", "x"), ErrNeedsExact},
	}
	for i := range 3 {
		switch i {
		case 1: // from the log
			must(t, s.CloseNow())
			s = sketchIDStore(t, fs, clock)
		case 2: // from a run, and the filter is gone
			must(t, s.Snapshot())
			must(t, s.CloseNow())
			checkSound(t, fs, "data")
			s = sketchIDStore(t, fs, clock)
			must(t, do(s, Op{Kind: Del, Keys: keysOf("f")}).Err)
		}
		expect(first, false, false, false, true)
		expect(cAdd("f", "many", many...), false, answers...)
		for n, c := range refused {
			if op := do(s, c.op); !errors.Is(op.Err, c.want) {
				t.Errorf("%d: %v instead of %v", n, op.Err, c.want)
			}
		}
		if i < 2 {
			card(3 + MaxCAdd - 1)
		} else {
			card(0)
		}
	}
	expect(cAdd("f", "after", "x"), true, false)
	must(t, do(s, Op{Kind: Set, Key: []byte("c")}).Err)
	if op := do(s, cAdd("c", "1", "x")); !errors.Is(op.Err, ErrWrongType) {
		t.Error(op.Err)
	}
	if op := do(s, Op{Kind: CSeen, Key: []byte("c"), ID: []byte("1")}); op.Found {
		t.Error("a refused operation has used up its opid")
	}
}

// TestCAddAllOrNone: where not all new items find room nothing is added, and the opid is
// free (G6).
func TestCAddAllOrNone(t *testing.T) {
	s := sketchIDStore(t, vfs.NewMem(), newFakeClock())
	fixed := &BloomOptions{Error: 0.01, Capacity: 3, NonScaling: true}
	must(t, do(s, Op{Kind: BFReserve, Key: []byte("f"), Object: fixed}).Err)
	must(t, do(s, cAdd("f", "1", "a", "b")).Err)
	check := func(key, id string, want error, items ...string) {
		t.Helper()
		header, bits := []byte(nil), []byte(nil)
		exists := do(s, Op{Kind: BFInfo, Key: []byte(key)}).Err == nil
		if exists {
			header, bits = dumpBloom(t, s, key)
		}
		used := s.Stats().FilterBytes
		op := cAdd(key, id, items...)
		op.Object = fixed
		if op = do(s, op); !errors.Is(op.Err, want) {
			t.Errorf("%v instead of %v", op.Err, want)
		}
		if exists {
			if h, b := dumpBloom(t, s, key); string(h) != string(header) || string(b) != string(bits) {
				t.Error("the filter has changed")
			}
		} else if do(s, Op{Kind: BFInfo, Key: []byte(key)}).Err == nil {
			t.Error("the filter was created")
		}
		if now := s.Stats().FilterBytes; now != used ||
			do(s, Op{Kind: CSeen, Key: []byte(key), ID: []byte(id)}).Found {
			t.Errorf("%d bytes instead of %d, or the opid is used up", now, used)
		}
	}
	check("f", "2", ErrBloomFull, "a", "c", "d")
	check("new", "2", ErrBloomFull, "a", "b", "c", "d")
	must(t, do(s, Op{Kind: BFReserve, Key: []byte("g"),
		Object: &BloomOptions{Error: 0.01, Capacity: 2, Expansion: 1}}).Err)
	s.SetFilterMaxMemory(s.Stats().FilterBytes + 100) // one more sub-filter
	check("g", "3", ErrBloomGrowth, "a", "b", "c", "d", "e")
	s.SetFilterMaxMemory(s.Stats().FilterBytes + 10)
	check("new", "3", ErrBloomMemory, "a")
	s.SetFilterMaxMemory(0)
	if op := do(s, cAdd("f", "2", "a", "b", "c")); op.Err != nil || !op.Applied ||
		!slices.Equal(op.Founds, []bool{true, true, false}) {
		t.Error(op.Founds, op.Err)
	}
}

// TestCMSCIncr: all pairs or none, once per opid.
func TestCMSCIncr(t *testing.T) {
	for _, prefix := range []string{"", "a:"} {
		fs, clock := vfs.NewMem(), newFakeClock()
		s := sketchIDStore(t, fs, clock)
		exact := prefix == ""
		key := prefix + "s"
		must(t, newSketch(s, key, SketchOptions{Width: 100, Depth: 3, Cell: 1}))
		expect := func(op Op, applied bool, want ...int64) {
			t.Helper()
			if op = do(s, op); op.Err != nil || op.Applied != applied || !slices.Equal(op.Values, want) {
				t.Errorf("%q: applied %v, %v, %v", prefix, op.Applied, op.Values, op.Err)
			}
		}
		count := func(want int64) {
			t.Helper()
			if info := do(s, Op{Kind: CMSInfo, Key: []byte(key)}).Object.(*SketchInfo); info.Count != want {
				t.Errorf("%q: count %d instead of %d", prefix, info.Count, want)
			}
		}
		refuse := func(op Op, want error) {
			t.Helper()
			if op = do(s, op); !errors.Is(op.Err, want) || op.Applied {
				t.Errorf("%q: %v instead of %v", prefix, op.Err, want)
			}
		}
		first := cmsCIncr(key, "1", "x", 1, "y", 2, "x", 3)
		expect(first, true, 1, 2, 4)
		expect(first, false, 4, 2, 4)
		must(t, addItems(s, key, "x", 1).Err)
		refuse(cmsCIncr(key, "2", "y", 1, "x", 200, "z", 1, "x", 55), ErrSketchOver)
		refuse(cmsCIncr(key, "2", "y", 1, "x", -6), ErrSketchUnder)
		count(7)
		expect(cmsCIncr(key, "2", "y", 1, "x", -2), true, 3, 3)
		for i := range 3 {
			expect(first, false, 3, 3, 3)
			expect(cmsCIncr(key, "2", "y", 1, "x", -2), false, 3, 3)
			count(6)
			if exact {
				refuse(cmsCIncr(key, "1", "x", 1, "y", 2), ErrOtherItems)
				refuse(cmsCIncr(key, "1", "x", 1, "y", 2, "x", 4), ErrOtherItems)
			}
			if i == 1 {
				must(t, s.Snapshot())
			}
			must(t, s.CloseNow())
			checkSound(t, fs, "data")
			s = sketchIDStore(t, fs, clock)
		}
		old := first
		old.ID, old.At, old.Flags = []byte("late"), clock.wall-time.Hour.Milliseconds(), HasAt
		refuse(old, ErrStale)
		old.At = clock.wall + time.Hour.Milliseconds()
		refuse(old, ErrFuture)
		must(t, do(s, Op{Kind: Del, Keys: keysOf(key)}).Err)
		refuse(first, ErrNoSketch)
		must(t, newSketch(s, key, SketchOptions{Width: 100, Depth: 3}))
		expect(first, false, 0, 0, 0)
		refuse(cmsCIncr(prefix+"none", "1", "x", 1), ErrNoSketch)
		if do(s, Op{Kind: CSeen, Key: []byte(prefix + "none"), ID: []byte("1")}).Found {
			t.Error("a refused operation has used up its opid")
		}
	}
}

// TestSketchTwins: the same operation twice in one batch is applied once, also if it is so
// large that it is logged in fragments.
func TestSketchTwins(t *testing.T) {
	fs := vfs.NewMem()
	s := sketchIDStore(t, fs, newFakeClock())
	for _, key := range []string{"s", "a:s"} {
		must(t, newSketch(s, key, SketchOptions{Width: 1000, Depth: 3}))
		large := cmsCIncr(key, "1")
		for i := range 2000 {
			large.Keys, large.Deltas = append(large.Keys, fmt.Append(nil, "item", i)), append(large.Deltas, 1)
		}
		b := Batch{Ops: []Op{large, large}}
		s.Execute(&b)
		if one, two := b.Ops[0], b.Ops[1]; one.Err != nil || two.Err != nil || !one.Applied || two.Applied {
			t.Error(one.Err, two.Err, one.Applied, two.Applied)
		}
		if info := do(s, Op{Kind: CMSInfo, Key: []byte(key)}).Object.(*SketchInfo); info.Count != 2000 {
			t.Error(info.Count)
		}
	}
	b := Batch{Ops: []Op{cAdd("f", "1", "x"), cAdd("f", "1", "x")}}
	s.Execute(&b)
	if one, two := b.Ops[0], b.Ops[1]; !one.Applied || two.Applied || one.Founds[0] || two.Founds[0] {
		t.Error(one.Err, two.Err, one.Applied, two.Applied)
	}
	must(t, s.CloseNow())
	checkSound(t, fs, "data")
}

// TestDuplicateOfASketchWaits: a duplicate is not answered before its original is durable, even
// if that has changed nothing but the memory of its opid (G3).
func TestDuplicateOfASketchWaits(t *testing.T) {
	inBubble(func(t *testing.T) {
		g := newGate()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = g.fs(), 1 })
		must(t, do(s, cAdd("f", "0", "x")).Err)
		g.set(true, nil)
		defer g.set(false, nil)
		first, second := make(chan Op, 1), make(chan Op, 1)
		seq := s.partitions[0].seq
		go func() { first <- do(s, cAdd("f", "1", "x")) }()
		waitSeq(t, s, seq+1)
		go func() { second <- do(s, cAdd("f", "1", "x")) }()
		if op := do(s, Op{Kind: BFExists, Key: []byte("none"), Keys: keysOf("x")}); op.Err != nil {
			t.Fatal(op.Err)
		}
		synctest.Wait()
		if len(first) > 0 || len(second) > 0 {
			t.Error("answered from the future")
		}
		g.set(false, nil)
		if a, b := <-first, <-second; !a.Applied || b.Applied || !a.Founds[0] || !b.Founds[0] {
			t.Error(a, b)
		}
	})(t)
}

// TestInnerProduct: the answer is the least of the rows' sums (sketch-vectors.txt, section 4).
func TestInnerProduct(t *testing.T) {
	s := testStore(t, nil)
	o := SketchOptions{Width: 7, Depth: 3}
	for key, opts := range map[string]SketchOptions{"s": o,
		"t": {Width: 7, Depth: 3, Cell: 8}, "wide": {Width: 8, Depth: 3},
		"huge": {Width: 7, Depth: 3, Cell: 8}} {
		must(t, newSketch(s, key, opts))
	}
	must(t, addItems(s, "s", "a", 11, "b", 2, "c", 3, "d", 4, "e", 5, "f", 6, "g", 7, "h", 8, "i", 9, "j",
		10).Err)
	must(t, addItems(s, "t", "a", 2, "c", 1, "k", 5).Err)
	must(t, addItems(s, "huge", "a", 1<<40).Err)
	for _, c := range []struct {
		a, b string
		want int64
		err  error
	}{
		{"s", "t", 50, nil}, {"t", "s", 50, nil}, {"s", "s", 939, nil}, {"s", "wide", 0, ErrSketchSize},
		{"s", "none", 0, ErrNoSketch},
		{"huge", "huge", 0, ErrInnerProduct}, {"huge", "t", 2 << 40, nil},
	} {
		if op := do(s, Op{Kind: CMSInner, Keys: keysOf(c.a, c.b)}); op.Value != c.want ||
			!errors.Is(op.Err, c.err) {
			t.Errorf("%s %s: %d %v", c.a, c.b, op.Value, op.Err)
		}
	}
}
