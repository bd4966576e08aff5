package part

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"testing"
)

// sample has every field.
var sample = Parts{
	{Region: 0, Base: Base{Clock: 5, Cum: -1}},
	{Region: 3, Clock: 300, Live: 299, Cum: math.MinInt64,
		Set:    Register{Clock: 298, HLC: 1 << 60, Value: -9},
		Expire: Expiry{Clock: 300, HLC: 1<<60 + 1, At: 1_800_000_000_000, By: 2},
		Undo: []Undo{{Dot: 1, Clock: 2, Delta: 7},
			{Dot: 200, Clock: 300, Delta: -7, Winner: Applied{3, 9, 5}}},
		Base: Base{Clock: 2, Cum: 3}},
	{Region: 4, Clock: 9, Live: 9, Cum: 2, Rights: &Rights{Begins: true,
		Net:   [Sides]sum{whole(1, 0), whole(-2, 1)},
		Given: []Grant{{2, [Sides]sum{whole(3, 0), {}}}},
		Waits: [Sides][2]Waiting{{{whole(4, 0), 7}, {whole(5, 0), 9}}, {}}}},
	{Region: 14, Clock: 2, Live: 2, Drained: true},
	{Region: 15, Clock: math.MaxUint64, Live: 0, Cum: 1, High: 1 << 56, Base: Base{Clock: 1, High: -1}},
}

// TestCode: what is decoded is what was encoded, and no byte of it can be left out.
func TestCode(t *testing.T) {
	t.Parallel()
	b := sample.AppendTo(nil)
	const want = "0500080000000501030fac0201ffffffffffffffffff010280808080808080801011008180808080808080" +
		"1080c0e285e368020202010e00000daa02640d03091802060480090004020101020003020206000000070800090a000000" +
		"000000000e80020000010f28ffffffffffffffffff01ffffffffffffffffff0102010080808080808080800201"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("the bytes are\n%s, were\n%s", got, want)
	}
	p, err := Decode(b)
	if err != nil || !slices.EqualFunc(p, sample, func(x, y Part) bool {
		return x.Region == y.Region && x.Drained == y.Drained && x.Clock == y.Clock && x.Base == y.Base &&
			equalButBase(x, y)
	}) {
		t.Fatalf("%+v, %v", p, err)
	}
	for n := range b {
		if _, err := Decode(b[:n]); err == nil {
			t.Errorf("%d bytes of %d are accepted", n, len(b))
		}
	}
	if p, err := Decode([]byte{0}); err != nil || p != nil {
		t.Errorf("none: %v, %v", p, err)
	}
}

// waitFor returns rights that wait for two clocks.
func waitFor(first, rest uint64) *Rights {
	w := new(Rights)
	w.Waits[Upper] = [2]Waiting{{Clock: first}, {Clock: rest}}
	return w
}

// TestCodeRefuses what no changes lead to.
func TestCodeRefuses(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Parts{
		"two of one region":       {{Region: 1, Clock: 1}, {Region: 1, Clock: 2}},
		"wrong order":             {{Region: 2, Clock: 1}, {Region: 1, Clock: 2}},
		"no such region":          {{Region: MaxRegions, Clock: 1}},
		"a part of nothing":       {{Region: 1}},
		"a sum of nothing":        {{Region: 1, Cum: 1, Base: Base{Clock: 1}}},
		"a high of nothing":       {{Region: 1, Clock: 1, Base: Base{High: 1}}},
		"live after the newest":   {{Region: 1, Clock: 1, Live: 2}},
		"drained by nothing":      {{Region: 1, Clock: 1, Drained: true}},
		"set after the newest":    {{Region: 1, Clock: 1, Live: 1, Set: Register{Clock: 2}}},
		"set that is not alive":   {{Region: 1, Clock: 5, Live: 1, Set: Register{Clock: 2}}},
		"expiry after the newest": {{Region: 1, Clock: 1, Expire: Expiry{Clock: 2}}},
		"a set beyond all clocks": {{Region: 1, Clock: 5, Live: 5,
			Set: Register{Clock: 5, HLC: MaxHLC + 1}}},
		"expiry of no region":       {{Region: 1, Clock: 5, Expire: Expiry{Clock: 5, By: MaxRegions}}},
		"expiry beyond all clocks":  {{Region: 1, Clock: 5, Expire: Expiry{Clock: 5, HLC: MaxHLC + 1}}},
		"undo after the newest":     {{Region: 1, Clock: 3, Undo: []Undo{{Dot: 1, Clock: 4, Delta: 1}}}},
		"undo before it was done":   {{Region: 1, Clock: 3, Undo: []Undo{{Dot: 3, Clock: 2, Delta: 1}}}},
		"undo when it was done":     {{Region: 1, Clock: 3, Undo: []Undo{{Dot: 2, Clock: 2, Delta: 1}}}},
		"undo of nothing":           {{Region: 1, Clock: 3, Undo: []Undo{{Dot: 0, Clock: 2, Delta: 1}}}},
		"undos in the wrong order":  {{Region: 1, Clock: 9, Undo: []Undo{{Dot: 1, Clock: 5, Delta: 1}, {Dot: 2, Clock: 4, Delta: 1}}}},
		"two undos at one sequence": {{Region: 1, Clock: 9, Undo: []Undo{{Dot: 1, Clock: 5, Delta: 1}, {Dot: 2, Clock: 5, Delta: 1}}}},
		"settled after the newest":  {{Region: 1, Clock: 3, Settled: &Settled{Upto: 4}}},
		"yielded after the newest":  {{Region: 1, Clock: 3, Settled: &Settled{Yielded: 4}}},
		"settled of nothing":        {{Region: 1, Base: Base{Clock: 1}, Settled: new(Settled)}},
		"a cover of no region":      {{Region: 1, Clock: 3, Settled: &Settled{Covers: []Cover{{Region: MaxRegions, Dot: 1}}}}},
		"a cover of nothing":        {{Region: 1, Clock: 3, Settled: &Settled{Covers: []Cover{{Region: 2}}}}},
		"two covers of one region": {{Region: 1, Clock: 3,
			Settled: &Settled{Covers: []Cover{{Region: 2, Dot: 1}, {Region: 2, Dot: 2}}}}},
		"rights of nothing":            {{Region: 1, Base: Base{Clock: 1}, Rights: new(Rights)}},
		"rights given to no region":    {{Region: 1, Clock: 3, Rights: &Rights{Given: []Grant{{To: MaxRegions}}}}},
		"two grants to one region":     {{Region: 1, Clock: 3, Rights: &Rights{Given: []Grant{{To: 2}, {To: 2}}}}},
		"a right that waits for later": {{Region: 1, Clock: 3, Rights: waitFor(4, 0)}},
		"a right that waits, alone":    {{Region: 1, Clock: 3, Rights: waitFor(0, 2)}},
		"rights in the wrong order":    {{Region: 1, Clock: 3, Rights: waitFor(2, 2)}},
		"too many parts":               make(Parts, MaxRegions+1),
	} {
		if got, err := Decode(p.AppendTo(nil)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, b := range map[string]string{
		"unknown field": "010010010002", "a field that is empty": "0100040100020000",
		"a long varint":  "010000810000" + "02",
		"more behind it": "0000", "nothing": "", "number too large": "ffffffffff01",
	} {
		raw, err := hex.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(raw); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDelta: the old parts and a delta, which has only the difference of the take-backs, make the
// new parts, also if take-backs are dropped. Nothing but an encoding of a delta is accepted.
func TestDelta(t *testing.T) {
	t.Parallel()
	undos := func(from, to uint64) (all []Undo) {
		for i := from; i < to; i++ {
			all = append(all, Undo{Dot: i, Clock: 1000 + i, Delta: int64(i), Winner: Applied{2, i, 1}})
		}
		return all
	}
	before := Parts{{Region: 1, Clock: 1500, Live: 900, Undo: undos(1, 400)}, FromCounter(2, 5, 9),
		{Region: 4, Clock: 2000, Undo: undos(1, 3)}}
	for name, tc := range map[string]struct {
		undo  []Undo
		bytes int
	}{
		"as before":       {undos(1, 400), 40},
		"two more":        {undos(1, 402), 50},
		"some dropped":    {append(undos(1, 100), undos(101, 380)...), 80},
		"dropped, more":   {undos(5, 410), 140},
		"all dropped":     {nil, 40},
		"others":          {undos(500, 510), 130},
		"another history": {append(undos(1, 2), undos(700, 702)...), 900},
	} {
		after := before.Clone()
		after[0].Undo, after[0].Clock, after[0].Cum = tc.undo, 2000, 77
		after = append(after, FromCounter(7, 1, 1))
		b := AppendDelta(nil, before, after)
		d, err := DecodeDelta(b)
		if err != nil || len(b) > tc.bytes || !bytes.Equal(d.AppendTo(nil), b) {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		if got := d.Parts(before.Clone()); !bytes.Equal(got.AppendTo(nil), after.AppendTo(nil)) {
			t.Errorf("%s: %+v, not %+v", name, got, after)
		}
		if h := d.Heads(); len(h) != 4 || h[0].Cum != 77 || h[0].Clock != 2000 {
			t.Errorf("%s: %+v", name, h)
		}
		if _, err := Decode(b); d.Keeps() && err == nil {
			t.Errorf("%s: is taken for parts", name)
		}
	}
	whole := AppendDelta(nil, nil, before)
	if d, err := DecodeDelta(whole); err != nil || d.Keeps() || !bytes.Equal(whole, before.AppendTo(nil)) {
		t.Errorf("what was there before is told by %x: %v", whole, err)
	}
	kept := &keptUndo{dropped: []uint64{7, 7}}
	twice := (&Delta{Parts{{Region: 1, Clock: 9}}, []*keptUndo{kept}}).AppendTo(nil)
	if d, err := DecodeDelta(twice); err == nil {
		t.Errorf("dropped twice: %+v", d)
	}
	kept.dropped = []uint64{7, 10}
	if d, err := DecodeDelta((&Delta{Parts{{Region: 1, Clock: 9}},
		[]*keptUndo{kept}}).AppendTo(nil)); err == nil {
		t.Errorf("dropped later than the part: %+v", d)
	}
}

// FuzzDelta: accepted bytes are the encoding of the delta that they say, which does no harm
// whatever the parts were before.
func FuzzDelta(f *testing.F) {
	more := sample.Clone()
	more.Increment(1, 1<<40, 1, Expiry{})
	f.Add(AppendDelta(nil, sample, more))
	f.Add(sample.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeDelta(b)
		if err != nil {
			return
		}
		if !bytes.Equal(d.AppendTo(nil), b) {
			t.Fatalf("%x is read as %+v", b, d)
		}
		for _, before := range []Parts{nil, sample, d.Parts(sample.Clone())} {
			after := d.Parts(before.Clone())
			after.Value()
			after.AppendTo(nil)
		}
	})
}

// FuzzDecode: accepted bytes are the encoding of the parts that they say. After any change these
// can be encoded.
func FuzzDecode(f *testing.F) {
	f.Add(sample.AppendTo(nil), uint8(3), uint64(400), int64(-1))
	f.Add(Parts{FromCounter(2, 7, 9)}.AppendTo(nil), uint8(2), uint64(9), int64(1))
	f.Add([]byte{0}, uint8(16), uint64(1), int64(1))
	f.Fuzz(func(t *testing.T, b []byte, region uint8, seq uint64, v int64) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.AppendTo(nil), b) {
			t.Fatalf("%x is read as %+v", b, p)
		}
		r := Region(region)
		for _, change := range []func(p *Parts){
			func(p *Parts) { p.Increment(r, seq, v, p.Expiry()) },
			func(p *Parts) { p.Delete(r, seq, []RegionBase{{Region(v), Base{uint64(v), v, 0}}}) },
			func(p *Parts) {
				p.Assign(r, seq, min(seq, MaxHLC), v, p.Seen(r), Expiry{HLC: min(seq, MaxHLC), At: v})
			},
			func(p *Parts) { p.SetExpiry(r, seq, min(uint64(v), MaxHLC), v) }, // a note has no later one
			func(p *Parts) { p.TakeBack(seq, Owed{Applied{r, uint64(v), v}, Applied{1, seq, v}}) },
			func(p *Parts) { p.Settle(r, seq, Settlement{Clocks: []uint64{2}, Settled: Settled{Base: seq}}) },
			func(p *Parts) {
				p.ChangeRights(r, seq, RightsChange{Begins: v < 9, Value: v, To: r / 2,
					Gives: [Sides]int64{v & 7, 1}, Settles: [Sides]bool{v&1 == 0, v&2 == 0}})
			},
			func(p *Parts) { p.Merge(sample) },
		} {
			q := p.Clone()
			change(&q)
			q.Value()
			q.Room(r, 1<<63-1, v)
			if _, err := Decode(q.AppendTo(nil)); err != nil {
				t.Fatalf("%+v became %+v", p, q)
			}
			again := q.Clone()
			if change(&again); !bytes.Equal(again.AppendTo(nil), q.AppendTo(nil)) {
				t.Fatalf("a second time changes %+v to %+v", q, again)
			}
		}
	})
}

// TestAgreed: a region that has forgotten a dead counter and hears of it anew agrees with one that has
// not; and what makes a difference is told.
func TestAgreed(t *testing.T) {
	agreed := func(p Parts) string { return string(p.AppendAgreed(nil)) }
	kept := Parts{{Region: 0, Clock: 9, Live: 9, Cum: 2, Base: Base{Clock: 5}}, {Region: 1, Clock: 6,
		Base: Base{Clock: 6}}}
	forgot := Parts{{Region: 0, Clock: 9, Live: 9, Cum: 2}}
	if agreed(kept) != agreed(forgot) || agreed(kept) == "" {
		t.Errorf("%x and %x", agreed(kept), agreed(forgot))
	}
	if dead := agreed(Parts{{Region: 0, Clock: 9, Live: 9, Cum: 2,
		Base: Base{Clock: 9, Cum: 2}}}); dead != "" {
		t.Errorf("of a dead counter: %x", dead)
	}
	whole := Part{Region: 0, Clock: 9, Live: 8, Cum: 5,
		Set: Register{8, 7, 6}, Expire: Expiry{8, 7, 6, 5}, Undo: []Undo{{Dot: 7, Clock: 9, Delta: 1}},
		Base: Base{6, 3, 0}}
	seen := map[string]bool{agreed(Parts{whole}): true}
	for i, change := range []func(q *Part){
		func(q *Part) { q.Region++ },
		func(q *Part) { q.Clock++ },
		func(q *Part) { q.Live++ },
		func(q *Part) { q.Drained = true },
		func(q *Part) { q.Cum++ },
		func(q *Part) { q.Set.Value++ },
		func(q *Part) { q.Set.HLC++ },
		func(q *Part) { q.Expire.At++ },
		func(q *Part) { q.Expire.By++ },
		func(q *Part) { q.Undo = nil },
		func(q *Part) { q.Settled = new(Settled) },
		func(q *Part) { q.Settled = &Settled{Covers: []Cover{{1, 2, sum{lo: 3}}}} },
		func(q *Part) { q.Rights = new(Rights) },
		func(q *Part) { q.Rights = &Rights{Begins: true} },
		func(q *Part) { q.Base.Clock++ },
		func(q *Part) { q.Base.Cum++ },
	} {
		q := whole
		change(&q)
		if told := agreed(Parts{q}); seen[told] {
			t.Errorf("change %d makes no difference", i)
		} else {
			seen[told] = true
		}
	}
}
