package part

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fbfkv/fbfkv/store/coding"
)

// threeTwins are parts of three regions that have applied one operation, of which those of the second and the
// third were drained before they were taken back.
func threeTwins() (p Parts) {
	for r := range Region(3) {
		p.Increment(r, 1, 5, Expiry{})
	}
	for r := Region(1); r < 3; r++ {
		p.Delete(r, 2, nil)
		p.TakeBack(3, Owed{Applied{r, 1, 5}, Applied{0, 1, 5}})
	}
	return p
}

// TestJudge: the lower of two regions keeps the sum of a winner that counts, once the other one's take-back
// is gone everywhere. Nothing is forgotten that a region may not know yet, or of which more is owed.
func TestJudge(t *testing.T) {
	t.Parallel()
	yielded := threeTwins()
	s, _ := yielded.Spent(2, func(_, _ Region) uint64 { return 9 }, everyone, nil)
	yielded.Settle(2, 4, s)
	gone := threeTwins()
	gone.Delete(0, 2, nil)
	owed := func(winner Region) []Owed { return []Owed{{Applied{3, 1, 5}, Applied{winner, 1, 5}}} }
	for _, c := range []struct {
		what           string
		p              Parts
		region         Region
		acked          [3]uint64 // by all, of each
		owed           []Owed
		goes           bool
		covers, yields bool
	}{
		{"the higher one", threeTwins(), 2, [3]uint64{9, 9, 9}, nil, true, false, true},
		{"the lower one, before the other", threeTwins(), 1, [3]uint64{9, 9, 9}, nil, false, false, false},
		{"the lower one", yielded, 1, [3]uint64{9, 9, 4}, nil, true, true, false},
		{"some do not know that the other yielded", yielded, 1, [3]uint64{9, 9, 3}, nil, false, false, false},
		{"some do not know it", threeTwins(), 2, [3]uint64{9, 9, 2}, nil, false, false, false},
		{"some do not know the winner", threeTwins(), 2, [3]uint64{0, 9, 9}, nil, false, false, false},
		{"some do not know the other one", threeTwins(), 2, [3]uint64{9, 2, 9}, nil, false, false, false},
		{"a debt names it", threeTwins(), 2, [3]uint64{9, 9, 9}, owed(2), false, false, false},
		{"a debt names the other", threeTwins(), 2, [3]uint64{9, 9, 9}, owed(1), false, false, false},
		{"a debt names the winner", threeTwins(), 2, [3]uint64{9, 9, 9}, owed(0), false, false, false},
		{"the winner is gone", gone, 2, [3]uint64{9, 9, 9}, nil, true, false, false},
		{"the winner is gone, for the lower one", gone, 1, [3]uint64{9, 9, 9}, nil, true, false, false},
	} {
		acked := func(_, of Region) uint64 { return c.acked[of] }
		s, _ := c.p.Spent(c.region, acked, everyone, c.owed)
		if (len(s.Clocks) > 0) != c.goes || (len(s.Covers) > 0) != c.covers || s.Yields != c.yields {
			t.Errorf("%s: %+v", c.what, s)
		}
		p := c.p.Clone()
		p.Settle(c.region, 10, s)
		before, _ := c.p.Value()
		if v, _ := p.Value(); v != before {
			t.Errorf("%s: the value was %d, and is %d: %+v", c.what, before, v, p)
		}
	}
}

// TestOwesTheLast: a region owes a take-back also if its application and the winner are gone, but one counts
// to which that lost.
func TestOwesTheLast(t *testing.T) {
	t.Parallel()
	p := threeTwins()[:2]
	p.Increment(2, 1, 5, Expiry{})
	p.Delete(2, 2, nil)
	for _, counts := range []bool{true, false} {
		o := Owed{Applied{2, 1, 5}, Applied{1, 1, 5}}
		owes, here := p.Owes(o)
		if held, _ := p.CanTakeBack(o, MaxUndo); owes != counts || held != counts || !here {
			t.Errorf("the first counts %v: owes %v, holds %v, is here %v", counts, owes, held, here)
		}
		p.Delete(0, 2, nil)
	}
}

// TestSettledEnds: sums that a deletion has removed are not carried on.
func TestSettledEnds(t *testing.T) {
	t.Parallel()
	all := func(_, _ Region) uint64 { return math.MaxInt64 }
	var p Parts
	seq := uint64(0)
	for _, made := range []int64{5, 7} {
		seq++
		p.Increment(0, seq, made, Expiry{})
		winner := Applied{0, seq, made}
		p.Increment(1, seq, made, Expiry{})
		p.Delete(2, seq, []RegionBase{{1, p[1].asBase()}}) // it knows of no other part
		seq++
		p.TakeBack(seq, Owed{Applied{1, seq - 1, made}, winner})
		s, _ := p.Spent(1, all, everyone, nil)
		seq++
		p.Settle(1, seq, s)
		if len(s.Covers) != 1 || s.Covers[0].Made != whole(made, 0) || s.Sum != whole(made, 0) {
			t.Errorf("of %d: %+v", made, s)
		}
		if v, _ := p.Value(); v != 0 {
			t.Errorf("of %d: %d, %+v", made, v, p)
		}
		seq++
		p.Delete(0, seq, p.Seen(0))
	}
}

// TestSettledBeyond: what is settled may be more than an int64.
func TestSettledBeyond(t *testing.T) {
	t.Parallel()
	var p Parts
	for seq := uint64(1); seq < 4; seq++ {
		p.Increment(0, seq, math.MaxInt64, Expiry{})
		p.Increment(1, seq, math.MaxInt64, Expiry{})
	}
	p.Delete(2, 1, []RegionBase{{1, p[1].asBase()}})
	for seq := uint64(1); seq < 4; seq++ {
		p.TakeBack(seq+3, Owed{Applied{1, seq, math.MaxInt64}, Applied{0, seq, math.MaxInt64}})
	}
	s, _ := p.Spent(1, func(_, _ Region) uint64 { return 9 }, everyone, nil)
	b := s.AppendTo(nil)
	r := coding.Reader{Rest: b}
	read := ReadSettlement(&r)
	if r.End(); r.Bad || string(read.AppendTo(nil)) != string(b) || read.Bases[0].High == 0 {
		t.Fatalf("%+v is read as %+v", s, read)
	}
	p.Settle(1, 7, read)
	p.Increment(0, 4, 3, Expiry{})
	again, err := Decode(p.AppendTo(nil))
	if v, clamped := again.Value(); err != nil || v != 3 || clamped || len(p[1].Undo) != 0 {
		t.Errorf("%d, %v, %v: %+v", v, clamped, err, p)
	}
}

// TestClosedWithSums: a part that has settled something is not closed, though its base is 0: a region that
// forgets it has another copy than one that does not.
func TestClosedWithSums(t *testing.T) {
	t.Parallel()
	var p Parts
	for seq, made := range []int64{5, -5} {
		p.Increment(0, uint64(seq+1), made, Expiry{})
		p.Increment(1, uint64(seq+1), made, Expiry{})
	}
	p.Delete(1, 3, nil)
	for seq, made := range []int64{5, -5} {
		dot := uint64(seq + 1)
		p.TakeBack(dot+3, Owed{Applied{1, dot, made}, Applied{0, dot, made}})
	}
	s, _ := p.Spent(1, func(_, _ Region) uint64 { return 9 }, everyone, nil)
	p.Settle(1, 6, s)
	p.Delete(0, 7, p.Seen(0))
	if p.Alive() || !p.Unclosed(1) || p.Droppable(func(_, _ Region) uint64 { return 9 }, everyone) {
		t.Errorf("%+v", p)
	}
}

// junk is a part as a hostile peer may tell it.
func junk(rng *rand.Rand, r Region) Part {
	clock := func() uint64 {
		return []uint64{1 + rng.Uint64N(6), math.MaxUint64, rng.Uint64() | 1}[rng.IntN(3)]
	}
	v := func() int64 { return []int64{rng.Int64N(9) - 4, int64(rng.Uint64()), math.MaxInt64}[rng.IntN(3)] }
	q := Part{Region: r, Clock: clock(), Cum: v(), High: v()}
	q.Live = q.Clock - rng.Uint64N(min(q.Clock, 4)+1)
	q.Drained = q.Live > 0 && rng.IntN(2) == 0
	if rng.IntN(2) == 0 {
		q.Base = Base{clock(), v(), v()}
	}
	for before := uint64(0); q.Clock-before > 9 && rng.IntN(3) > 0; {
		u := Undo{Clock: before + 2 + rng.Uint64N(7), Delta: v()}
		u.Winner = Applied{Region(rng.IntN(3)), clock(), v()}
		u.Dot = 1 + rng.Uint64N(u.Clock-1)
		q.Undo, before = append(q.Undo, u), u.Clock
	}
	if rng.IntN(2) == 0 {
		q.Settled = &Settled{Upto: rng.Uint64N(q.Clock), Yielded: rng.Uint64N(q.Clock), Base: clock(),
			Sum: whole(v(), v())}
		for c := range Region(3) {
			q.Settled.Covers = append(q.Settled.Covers, Cover{c, clock(), whole(v(), v())})
		}
	}
	if rng.IntN(2) == 0 {
		q.Rights = &Rights{Begins: rng.IntN(2) == 0, Net: [Sides]sum{whole(v(), v()), whole(v(), v())},
			Given: []Grant{{Region(rng.IntN(3)), [Sides]sum{whole(v(), v()), {}}}}}
		q.Rights.Waits[rng.IntN(2)][0] = Waiting{whole(v(), v()), q.Clock}
	}
	return q
}

// TestJunk: whatever is done with parts that a hostile peer tells, they can be read again.
func TestJunk(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		told := Parts{junk(rng, 0), junk(rng, 1), junk(rng, 2)}
		p, err := Decode(told.AppendTo(nil))
		if err != nil {
			t.Fatalf("%+v: %v", told, err)
		}
		r, other := Region(rng.IntN(3)), junk(rng, 1)
		a := Applied{Region(rng.IntN(3)), 1 + rng.Uint64N(9), int64(rng.Uint64())}
		s, _ := p.Spent(r, func(_, _ Region) uint64 { return math.MaxUint64 >> (7 * rng.IntN(9)) }, everyone,
			[]Owed{{a, Applied{r, 3, 1}}})
		rd := coding.Reader{Rest: s.AppendTo(nil)}
		if read := ReadSettlement(&rd); rd.Bad || len(rd.Rest) > 0 {
			t.Fatalf("%+v of %+v is read as %+v", s, p, read)
		}
		if other.Settled != nil {
			s.Settled = *other.Settled
		}
		for _, change := range []func(seq uint64){
			func(seq uint64) { p.Settle(r, seq, s) },
			func(seq uint64) { p.Increment(r, seq, math.MaxInt64, Expiry{}) },
			func(seq uint64) { p.TakeBack(seq, Owed{a, Applied{r, 3, 1}}) },
			func(seq uint64) { p.Delete(r, seq, p.Seen(r)) },
		} {
			change(p.get(r).Clock + 1)
			p.Value()
			if _, err := Decode(p.AppendTo(nil)); err != nil {
				t.Fatalf("%+v cannot be read again", p)
			}
		}
	}
}

// TestOneWinner: more take-backs in favour of one application than there are regions are not looked at.
func TestOneWinner(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Increment(0, 10, 5, Expiry{})
	for r := Region(1); r < 3; r++ {
		for dot := uint64(1); dot <= MaxRegions; dot++ {
			p.Increment(r, dot, 1, Expiry{})
		}
		p.Delete(r, 100, nil)
		for dot := uint64(1); dot <= MaxRegions; dot++ {
			p.TakeBack(100+dot, Owed{Applied{r, dot, 1}, Applied{0, 1, 1}})
		}
	}
	if s, _ := p.Spent(2, func(_, _ Region) uint64 { return 1000 }, everyone, nil); len(s.Clocks) > 0 {
		t.Errorf("%+v", s)
	}
}

// TestSettleCarriesBases: a region that forgets a take-back, as a deletion has removed the winner, tells of
// that deletion: else one that does not know it would show the winner again.
func TestSettleCarriesBases(t *testing.T) {
	t.Parallel()
	var p Parts
	p.Increment(0, 1, 5, Expiry{})
	p.Increment(1, 1, 5, Expiry{})
	p.Delete(1, 2, nil)
	p.TakeBack(3, Owed{Applied{1, 1, 5}, Applied{0, 1, 5}})
	third := p.Clone()
	p.Delete(0, 2, nil)
	s, _ := p.Spent(1, func(_, _ Region) uint64 { return 9 }, everyone, nil)
	third.Settle(1, 4, s)
	if v, _ := third.Value(); v != 0 || len(s.Clocks) != 1 {
		t.Errorf("%d: %+v", v, third)
	}
}

// TestManyDrainedTwins: of 50,000 operations of which a drain has removed one application, and which another
// region has applied, too, nothing stays in the end that a change must look at; and never more than there is
// room for, though nobody acknowledges anything for long.
func TestManyDrainedTwins(t *testing.T) {
	t.Parallel()
	const twins = 50_000
	var p Parts
	for seq := uint64(1); seq <= twins; seq++ {
		p.Increment(0, seq, 1, Expiry{})
		p.Increment(1, seq, 1, Expiry{})
	}
	p.Delete(1, twins+1, nil) // it has heard nothing of the other region
	seq, dot := uint64(twins+1), uint64(0)
	for rounds := 0; dot < twins; rounds++ {
		for dot < twins {
			o := Owed{Applied{1, dot + 1, 1}, Applied{0, dot + 1, 1}}
			if held, full := p.CanTakeBack(o, MaxUndo); full {
				break
			} else if !held {
				t.Fatalf("nothing is held of %+v", o)
			}
			dot, seq = dot+1, seq+1
			p.TakeBack(seq, o)
		}
		if v, _ := p.Value(); v != int64(twins-dot) || len(p.covered()) > MaxUndo+1 {
			t.Fatalf("%d of %d are taken back, and the value is %d; %d are looked at", dot, twins, v,
				len(p.covered()))
		}
		seq++
		s, _ := p.Spent(1, func(_, _ Region) uint64 { return seq }, everyone, nil)
		p.Settle(1, seq, s)
		if n := len(p[1].Undo); n > 0 || len(p.covered()) > 1 || rounds > twins/MaxUndo {
			t.Fatalf("%d take-backs stay in round %d, and %d winners", n, rounds, len(p.covered()))
		}
	}
	if v, _ := p.Value(); v != 0 || p.Share(0) != 0 || len(p.AppendTo(nil)) > 60 {
		t.Errorf("the value is %d, in %d bytes: %+v", v, len(p.AppendTo(nil)), p)
	}
	p.Increment(0, seq+1, 7, Expiry{})
	if v, _ := p.Value(); v != 7 {
		t.Errorf("%d is counted later", v)
	}
	p.Delete(2, 1, p.Seen(2))
	p.Increment(1, seq+2, 5, Expiry{})
	if v, _ := p.Value(); v != 5 {
		t.Errorf("%d is counted after another deletion", v)
	}
}

// BenchmarkDrainedTwins measures a change and a look at a counter with drained twins that all have
// acknowledged.
func BenchmarkDrainedTwins(b *testing.B) {
	for _, twins := range []uint64{1, 50_000} {
		b.Run(fmt.Sprint(twins), func(b *testing.B) {
			var p Parts
			p.Increment(1, twins, int64(twins), Expiry{})
			p.Increment(0, twins, int64(twins), Expiry{})
			p.Delete(1, twins+1, nil)
			for i := range twins {
				p.TakeBack(twins+2+i, Owed{Applied{1, i + 1, 1}, Applied{0, i + 1, 1}})
			}
			seq := 3 * twins
			s, _ := p.Spent(1, func(_, _ Region) uint64 { return seq }, everyone, nil)
			p.Settle(1, seq, s)
			for b.Loop() {
				seq++
				p.Increment(0, seq, 1, Expiry{})
				p.Value()
			}
		})
	}
}
