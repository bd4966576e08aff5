package part

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// TestValue adds parts up in 128 bits, and clamps what is no int64.
func TestValue(t *testing.T) {
	t.Parallel()
	const most, least = math.MaxInt64, math.MinInt64
	for _, c := range []struct {
		name    string
		cums    []int64
		want    int64
		clamped bool
	}{
		{"none", nil, 0, false},
		{"negative", []int64{-3, 1, -5}, -7, false},
		{"at the upper bound", []int64{most - 1, 1}, most, false},
		{"above it", []int64{most, 1}, most, true},
		{"at the lower bound", []int64{least + 1, -1}, least, false},
		{"below it", []int64{least, -1}, least, true},
		{"above and back", []int64{most, most, least, least, 9}, 7, false},
		{"sixteen", slices.Repeat([]int64{most}, MaxRegions), most, true},
		{"sixteen below", slices.Repeat([]int64{least}, MaxRegions), least, true},
		{"sixteen that cancel", slices.Repeat([]int64{most, -most}, MaxRegions/2), 0, false},
	} {
		var p Parts
		for r, cum := range c.cums {
			p.Increment(Region(r), 1, cum, Expiry{})
		}
		if got, clamped := p.Value(); got != c.want || clamped != c.clamped {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, got, clamped, c.want, c.clamped)
		}
	}
}

// TestRoom: an increment may not take the own part, nor the value, out of int64. If others
// have taken the value out of it, what leads back has room.
func TestRoom(t *testing.T) {
	t.Parallel()
	const most, least = math.MaxInt64, math.MinInt64
	for _, c := range []struct {
		own, other, delta int64
		want              bool
	}{
		{0, 0, most, true},
		{1, 0, most, false},
		{-1, 0, least, false},
		{0, 0, least, true},
		{0, most, 1, false},
		{0, most, -1, true},
		{most, -5, 5, false}, // the own part
		{most, 5, -5, true},
		{most, 5, -4, true}, // still above, but less
		{most, 5, 1, false},
		{5, most, 1, false},
		{5, most, -1, true},
		{-5, least, -1, false},
		{-5, least, 1, true},
		{-5, least, most, true},
	} {
		var p Parts
		p.Increment(3, 1, c.own, Expiry{})
		p.Increment(7, 1, c.other, Expiry{})
		v, _ := p.Value()
		if got := p.Room(3, v, c.delta); got != c.want {
			t.Errorf("Room of %+v: %v", c, got)
		}
	}
}

// TestWraps: what remains of a part is right although its sum leaves int64.
func TestWraps(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Increment(0, 1, math.MaxInt64, Expiry{})
	p.Delete(1, 1, p.Seen(1))
	p.Increment(0, 2, 10, Expiry{})
	p.Increment(0, 3, -30, Expiry{})
	if v, clamped := p.Value(); v != -20 || clamped || p.Share(0) != -20 {
		t.Errorf("%d, %v", v, clamped)
	}
	p.Increment(0, 4, -7, Expiry{})
	p.TakeBack(5, lost(0, 4, -7))
	if v, _ := p.Value(); v != -20 {
		t.Errorf("%d after a take-back of a negative delta", v)
	}
}

// TestBeyond: take-backs that lead the sum of a part out of int64, and back, are exact: in the value, in a
// base, in an encoding and for a drain. Increments have room again only if they lead back.
func TestBeyond(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	var p Parts
	p.Increment(0, 1, -1000, Expiry{})
	p.Increment(1, 1, -1000, Expiry{}) // the same operation
	p.Increment(1, 2, most, Expiry{})
	p.Increment(1, 3, 1000, Expiry{})
	owed := Owed{Applied{1, 1, -1000}, Applied{0, 1, -1000}}
	show := func(what string, p Parts, want int64, beyond bool) {
		t.Helper()
		if v, clamped := p.Value(); v != want || clamped != beyond {
			t.Errorf("%s: %d, %v", what, v, clamped)
		}
	}
	show("as paid", p.AsPaid([]Owed{owed}), most, false)
	p.TakeBack(4, owed)
	show("taken back", p, most, false)
	again, err := Decode(p.AppendTo(nil))
	if err != nil || p[1].High != 1 || p.Share(1) != most {
		t.Fatalf("%v, %+v", err, p)
	}
	if show("decoded", again, most, false); p.Room(1, most, 1) || !p.Room(1, most, -1) {
		t.Error("no room but back")
	}
	p.Increment(0, 5, 1000, Expiry{})
	show("beyond", p, most, true)
	bases := p.Seen(0)
	q := p.Clone()
	q.Delete(0, 6, bases)
	if q.Alive() || q[1].Base.High != 1 {
		t.Errorf("deleted: %+v", q)
	}
	q.Increment(1, 7, -1, Expiry{})
	show("deleted, and counted on", q, -1, false)
	p.Increment(1, 5, -most, Expiry{})
	show("back", p, 1000, false)
}

// lost is an application of which nothing is known that counts in its place.
func lost(r Region, dot uint64, made int64) Owed { return Owed{Applied: Applied{r, dot, made}} }

// TestUndo: a deletion that saw what was taken back, but not that it was, removes nothing twice.
func TestUndo(t *testing.T) {
	t.Parallel()
	for seen, want := range []int64{3, 3, 3, 0, 0} { // by what the deletion saw
		var p, copyOf Parts
		steps := []func(p *Parts){
			func(p *Parts) {},
			func(p *Parts) { p.Increment(0, 1, -4, Expiry{}) },
			func(p *Parts) { p.TakeBack(2, lost(0, 1, -4)) },
			func(p *Parts) { p.Increment(0, 3, 3, Expiry{}) },
		}
		for i, step := range steps {
			step(&p)
			if i <= seen {
				step(&copyOf)
			}
		}
		p.Delete(1, 1, copyOf.Seen(1))
		if v, _ := p.Value(); v != want {
			t.Errorf("deleted after %d steps: %d, want %d", seen, v, want)
		}
	}
}

// TestTakeBackOfWhatIsGone: what a deletion removed, or what was never applied, is not held.
func TestTakeBackOfWhatIsGone(t *testing.T) {
	t.Parallel()
	var p Parts
	held := func(dot uint64) bool { h, _ := p.CanTakeBack(lost(0, dot, 0), MaxUndo); return h }
	p.Increment(0, 5, 1, Expiry{})
	if !held(5) || held(6) {
		t.Error("not what was applied")
	}
	p.Delete(1, 1, p.Seen(1))
	p.Increment(0, 7, 1, Expiry{})
	if held(5) || !held(7) {
		t.Error("a deletion by another region removed what was applied at 5")
	}
	p.Delete(0, 8, nil)
	if held(7) || (Parts)(nil).Share(0) != 0 {
		t.Error("the own deletion removed it")
	}
	p = nil
	if held(5) {
		t.Error("it is forgotten")
	}
}

// TestRoomForUndo: without room a part takes nothing back of its own accord, and others do what its region
// did. Take-backs that all regions have acknowledged take no room.
func TestRoomForUndo(t *testing.T) {
	t.Parallel()
	var p Parts
	full := func(room int) bool {
		_, full := p.CanTakeBack(lost(0, p[0].Clock, 0), room)
		return full
	}
	var seen []RegionBase
	for seq := uint64(1); seq <= 20; seq += 2 {
		p.Increment(0, seq, 1, Expiry{})
		if seq == 7 {
			seen = p.Seen(1)
		}
	}
	for dot := uint64(1); dot <= 7; dot += 2 {
		if want := dot > 5; full(3) != want {
			t.Errorf("room for 3 is full: %v, with %d", !want, len(p[0].Undo))
		}
		p.TakeBack(20+dot, lost(0, dot, 1))
	}
	if len(p[0].Undo) != 4 || full(5) || !full(4) {
		t.Errorf("not what was taken back: %+v", p)
	}
	p.Delete(1, 1, seen)
	if v, _ := p.Value(); !full(1) || v != 6 {
		t.Errorf("a base is in the middle of all: value %d, %+v", v, p)
	}
	p.Settle(0, 30, Settlement{Settled: Settled{Upto: 27}})
	p.TakeBack(40, lost(0, 9, 1))
	if !full(1) || full(2) {
		t.Errorf("one more takes room: %+v", p)
	}
	if q, err := Decode(p.AppendTo(nil)); err != nil || len(q[0].Undo) != 5 {
		t.Error(err)
	}
}

// TestSettle drops take-backs of many.
func TestSettle(t *testing.T) {
	t.Parallel()
	var p Parts
	for seq := uint64(1); seq < 200; seq += 2 {
		p.Increment(0, seq, 1, Expiry{})
		p.TakeBack(seq+1, lost(0, seq, 1))
	}
	before := slices.Clone(p)
	spent, _ := p.Spent(0, func(_, _ Region) uint64 { return 10 }, everyone, nil)
	spent.Clocks = append([]uint64{1}, spent.Clocks...)
	p.Settle(0, 300, spent)
	if p[0].Clock != 300 { // else others would keep their copies
		t.Errorf("the part is as of %d", p[0].Clock)
	}
	if len(spent.Clocks) != 6 || len(p[0].Undo) != 95 || p[0].Undo[0].Clock != 12 ||
		len(before[0].Undo) != 100 {
		t.Errorf("%d were acknowledged: %+v", len(spent.Clocks), p[0].Undo)
	}
}

// TestKnownChanges: what a part has already changes nothing, but the bases of others count.
func TestKnownChanges(t *testing.T) {
	t.Parallel()
	p := Parts{{Region: 1, Clock: 9, Live: 9, Cum: 4}, {Region: 2, Clock: 3, Live: 3, Cum: 2}}
	q := slices.Clone(p)
	q.Increment(1, 9, 1, Expiry{HLC: 1})
	q.SetExpiry(1, 8, 1, 1)
	q.TakeBack(9, lost(1, 2, 1))
	q.Settle(1, 2, Settlement{Yields: true})
	q.Increment(1, 0, 1, Expiry{})
	q.Increment(MaxRegions, 1, 1, Expiry{})
	q.MergePart(Part{Region: MaxRegions, Clock: 1})
	q.MergePart(Part{Region: 3})
	q.Delete(5, 0, []RegionBase{{MaxRegions, Base{1, 1, 0}}, {6, Base{}}})
	if !bytes.Equal(q.AppendTo(nil), p.AppendTo(nil)) {
		t.Errorf("%+v", q)
	}
	q.Delete(1, 5, []RegionBase{{2, Base{3, 2, 0}}})
	if v, _ := q.Value(); v != 4 {
		t.Errorf("%d: the base of another part counts, also if the own part is newer", v)
	}
	q.Assign(1, 6, 1, 99, []RegionBase{{3, Base{3, 2, 0}}}, Expiry{})
	if q.get(3).Base.Clock != 3 || q.get(1).Set.Clock != 0 {
		t.Errorf("%+v", q)
	}
}

// TestTies: of two SETs at one time that of the higher region counts, of two expiries the later.
func TestTies(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Assign(2, 1, 7, 20, nil, Expiry{HLC: 7, At: 200})
	p.Assign(1, 1, 7, 10, nil, Expiry{HLC: 7, At: 100})
	if v, _ := p.Value(); v != 20 || p.Expiry().At != 200 {
		t.Errorf("%d, %+v", v, p.Expiry())
	}
	p.SetExpiry(1, 2, 8, 0)
	if e := p.Expiry(); e.HLC != 8 || e.At != 0 {
		t.Errorf("PERSIST was last: %+v", e)
	}
	p.SetExpiry(2, 3, 8, 0)
	if e := p.Expiry(); e.By != 2 {
		t.Errorf("of two that are the same that of the higher region counts: %+v", e)
	}
	p.Assign(1, 3, 9, 5, p.Seen(1), Expiry{})
	if v, _ := p.Value(); v != 5 || p.Expiry().HLC != 0 {
		t.Errorf("a SET removes the expiry, and the other's value: %d, %+v", v, p.Expiry())
	}
}

// TestSetKeepsWhatItDidNotSee: never the sum of two SETs, but what neither has seen.
func TestSetKeepsWhatItDidNotSee(t *testing.T) {
	t.Parallel()
	var p, other Parts
	p.Increment(0, 1, 3, Expiry{})
	other.Increment(1, 1, 100, Expiry{})
	seen := p.Seen(2)
	p.Merge(other)
	p.Assign(2, 1, 5, 9, seen, Expiry{})
	p.Increment(2, 2, 1, Expiry{})
	if v, _ := p.Value(); v != 110 || p.Share(2) != 10 {
		t.Errorf("%d", v)
	}
}

// TestClosed: a counter is dropped when its regions have closed their parts, and all have said
// that they took it.
func TestClosed(t *testing.T) {
	t.Parallel()
	took := map[[2]Region]uint64{{0, 1}: 3, {1, 0}: 2, {2, 0}: 2, {2, 1}: 3}
	acked := func(by, of Region) uint64 { return took[[2]Region{by, of}] }
	var p Parts
	p.Increment(1, 1, 3, Expiry{})
	p.Delete(0, 2, p.Seen(0))
	if p.Alive() || p.Droppable(acked, everyone) || p.Unclosed(0) || !p.Unclosed(1) || p.Unclosed(2) {
		t.Errorf("its own region has not closed part 1: %+v", p)
	}
	p.Delete(1, 3, p.Seen(1))
	if !p.Droppable(acked, everyone) || p.Unclosed(1) {
		t.Errorf("%+v", p)
	}
	for who := range took {
		took[who]--
		if p.Droppable(acked, everyone) {
			t.Errorf("dropped before %d had taken all of %d", who[0], who[1])
		}
		took[who]++
	}
	if p.Increment(2, 9, 0, Expiry{}); p.Droppable(acked, everyone) || !p.Alive() {
		t.Error("it exists, with value 0")
	}
}

// TestClosedByAnother: what another region has deleted is closed by its own region all the same if
// anything is left of it that a region that forgets it would not have.
func TestClosedByAnother(t *testing.T) {
	t.Parallel()
	all := func(by, of Region) uint64 { return 100 }
	for name, change := range map[string]func(p *Parts){
		"nothing of the sum": func(p *Parts) { p.Increment(1, 2, 0, Expiry{}) },
		"a take-back": func(p *Parts) {
			p.Increment(1, 2, 5, Expiry{})
			p.TakeBack(3, lost(1, 2, 5))
		},
		"an expiry": func(p *Parts) { p.SetExpiry(1, 2, 1, 1) },
	} {
		var p, forgot Parts
		p.Increment(0, 1, 1, Expiry{})
		change(&p)
		p.Delete(0, 4, p.Seen(0))
		if !p.Unclosed(1) || p.Droppable(all, everyone) {
			t.Errorf("%s: forgotten with %+v", name, p)
		}
		p.Delete(1, 5, p.Seen(1))
		if p.Unclosed(1) || !p.Droppable(all, everyone) {
			t.Errorf("%s: %+v", name, p)
		}
		for _, q := range []*Parts{&p, &forgot} { // it has no more to say than this of what there was
			q.Increment(0, 6, 1, Expiry{})
			q.SetExpiry(1, 6, 2, 0)
		}
		if string(p.AppendAgreed(nil)) != string(forgot.AppendAgreed(nil)) {
			t.Errorf("%s: %+v and %+v", name, p, forgot)
		}
	}
	for _, q := range []Part{{Region: 1, Base: Base{5, 3, 0}}, {Region: 1, Clock: 6, Base: Base{5, 0, 0}}} {
		if !(Parts{q}).Unclosed(1) {
			t.Errorf("closed: %+v", q)
		}
	}
}

// TestUndoIsShared: copies of a part that take back different things do not disturb each other.
func TestUndoIsShared(t *testing.T) {
	t.Parallel()
	var p Parts
	for seq := uint64(1); seq <= 7; seq += 2 { // three entries leave room behind them
		p.Increment(0, seq, 1, Expiry{})
		if seq < 7 {
			p.TakeBack(seq+1, lost(0, seq, 1))
		}
	}
	q, merged, before := p.Clone(), Parts(nil), slices.Clone(p)
	merged.Merge(p)
	p.TakeBack(8, lost(0, 7, 1))
	q.TakeBack(9, lost(0, 7, 1))
	merged.TakeBack(10, lost(0, 7, 1))
	if p[0].Undo[3].Clock != 8 || q[0].Undo[3].Clock != 9 || merged[0].Undo[3].Clock != 10 ||
		len(before[0].Undo) != 3 {
		t.Errorf("%+v, %+v, %+v", p[0].Undo, q[0].Undo, merged[0].Undo)
	}
}

// TestExpiryIsClosed: a part that is dead, but whose expiry no deletion has seen, is not closed:
// what another region has to remove there is not all gone.
func TestExpiryIsClosed(t *testing.T) {
	t.Parallel()
	var p Parts
	p.SetExpiry(0, 4, 1, 1)
	if p.Alive() || !p.Unclosed(0) || p.Droppable(func(by, of Region) uint64 { return 9 }, everyone) {
		t.Errorf("%+v", p)
	}
	p.Delete(0, 5, nil)
	if p.Unclosed(0) || p.Expiry().HLC != 0 {
		t.Errorf("%+v", p)
	}
}

// TestExpiryIsAssertedAgain: a region that had not seen an increment deletes what has expired;
// what is left of the counter expires too.
func TestExpiryIsAssertedAgain(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Increment(0, 1, 1, Expiry{})
	p.SetExpiry(0, 2, 2, 1000)
	seen := p.Seen(2)
	p.Increment(1, 1, 1, p.Expiry())
	p.Delete(2, 1, seen)
	if e := p.Expiry(); !p.Alive() || e.At != 1000 || e.HLC != 2 || e.Clock != 1 {
		t.Errorf("%+v", e)
	}
}

// TestSeenBases: a deletion that ends take-backs tells which winners deletions have removed before:
// else a region that hears of it first would show them again.
func TestSeenBases(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Increment(0, 1, 5, Expiry{})
	p.Increment(1, 1, 5, Expiry{})
	third := p.Clone()
	p.Delete(0, 2, p.Seen(0)[:0]) // it has seen its own part alone
	p.TakeBack(3, Owed{Applied{0, 1, 5}, Applied{1, 1, 5}})
	third.Merge(p)
	if v, _ := p.Value(); v != 0 {
		t.Errorf("%d although the operation was deleted: %+v", v, p)
	}
	p.Delete(1, 2, nil) // of which the third does not hear
	bases := p.Seen(2)
	p.Delete(2, 1, bases)
	p.Settle(0, 4, Settlement{Clocks: []uint64{3}})
	third.Delete(2, 1, bases)
	third.Settle(0, 4, Settlement{Clocks: []uint64{3}})
	if v, _ := third.Value(); v != 0 {
		t.Errorf("%d: %+v", v, third)
	}
}

// TestCovered: of an operation that three regions applied a deletion has removed one application; the
// others do not count either, whatever lost to what, and however much each added.
func TestCovered(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Increment(0, 1, 100, Expiry{})
	p.Increment(1, 1, 20, Expiry{})
	p.Increment(2, 1, 3, Expiry{})
	p.mergeBases([]RegionBase{{0, Base{1, 100, 0}}})
	first, second, third := Applied{2, 1, 3}, Applied{1, 1, 20}, Applied{0, 1, 100}
	if v, _ := p.AsPaid([]Owed{{third, second}, {second, first}}).Value(); v != 0 {
		t.Errorf("as paid: %d", v)
	}
	for i, o := range []Owed{{third, second}, {second, first}} {
		want := []int64{3, 0}[i]
		if v, _ := p.AsTakenBack(o); v != want {
			t.Errorf("%+v: %d, not %d", o, v, want)
		}
		p.TakeBack(2, o)
		if v, _ := p.Value(); v != want || p.Share(2) != want || p.Share(0)+p.Share(1) != 0 {
			t.Errorf("%+v is taken back: %d, %+v", o, v, p)
		}
	}
	if s, _ := p.Spent(1, func(_, _ Region) uint64 { return 9 }, everyone, nil); len(s.Clocks) != 0 {
		t.Errorf("%v are forgotten, by which the first is found", s.Clocks)
	}
	round := Owed{first, third} // which cannot be
	p.TakeBack(3, round)
	p.Value()
}
