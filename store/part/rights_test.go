package part

import (
	"reflect"
	"testing"

	"github.com/fbfkv/fbfkv/store/coding"
)

// TestRights: what changes spend and make, and what counts when.
func TestRights(t *testing.T) {
	t.Parallel()
	bounds := [Sides]int64{-2, 20}
	var p Parts
	acked := uint64(0)
	all := []Region{0, 1}
	ack := func(_, _ Region) uint64 { return acked }
	rightsOf := func(r Region, heir bool) [Sides]sum {
		return p.RightsOf(r, func(Region) bool { return heir }, bounds)
	}
	settle := func(seq uint64) {
		sides, _ := p.Settles(0, ack, all)
		p.ChangeRights(0, seq, RightsChange{Settles: sides})
	}
	for _, step := range []struct {
		name         string
		change       func()
		lower, upper int64 // that A has
		given        [Sides]int64
	}{
		{"counted before", func() { p.Increment(0, 1, 5, Expiry{}) }, 0, 0, [Sides]int64{}},
		{"begun at 5", func() { p.ChangeRights(0, 2, RightsChange{Begins: true, Value: 5}) }, 7, 15, [Sides]int64{}},
		{"a known change", func() { p.ChangeRights(0, 2, RightsChange{Begins: true, Value: 5}) }, 7, 15, [Sides]int64{}},
		{"raised by 4", func() { p.Increment(0, 3, 4, Expiry{}) }, 7, 11, [Sides]int64{}},
		{"raised by 1", func() { p.Increment(0, 4, 1, Expiry{}) }, 7, 10, [Sides]int64{}},
		{"not all know it", func() { acked = 2; settle(5) }, 7, 10, [Sides]int64{}},
		{"all know the first", func() { acked = 3; settle(6) }, 11, 10, [Sides]int64{}},
		{"the second is taken back", func() { p.TakeBack(7, Owed{Applied{0, 4, 1}, Applied{1, 9, 1}}) }, 11, 10,
			[Sides]int64{}},
		{"all know that", func() { acked = 7; settle(8) }, 11, 11, [Sides]int64{}},
		{"lowered by 3", func() { p.Increment(0, 9, -3, Expiry{}) }, 8, 11, [Sides]int64{}},
		{"given", func() { p.ChangeRights(0, 10, RightsChange{To: 1, Gives: [Sides]int64{4, 6}}) }, 4, 5,
			[Sides]int64{4, 6}},
		{"… again", func() { p.ChangeRights(0, 11, RightsChange{To: 1, Gives: [Sides]int64{1, 0}}) }, 3, 5,
			[Sides]int64{5, 6}},
	} {
		step.change()
		has, got := rightsOf(0, false), rightsOf(1, false)
		if has != [Sides]sum{whole(step.lower, 0), whole(step.upper, 0)} ||
			got != [Sides]sum{whole(step.given[0], 0), whole(step.given[1], 0)} {
			t.Fatalf("%s: %v, and B %v", step.name, has, got)
		}
	}
	if v, _ := p.Value(); v != 6 || p.Left(Lower, -2) != whole(8, 0) || p.Left(Upper, 20) != whole(14, 0) {
		t.Errorf("%d leaves %v and %v", v, p.Left(Lower, -2), p.Left(Upper, 20))
	}
	// B inherits from A: what waits counts.
	if has := rightsOf(1, true); has != [Sides]sum{whole(8, 0), whole(14, 0)} {
		t.Errorf("the heir has %v", has)
	}
	if p.Unclosed(0) || !p.Waiting(0) {
		t.Error("it is closed, or nothing waits")
	}
	before := p.Clone()
	p.Increment(0, 12, 1, Expiry{})
	if reflect.DeepEqual(p[0].Rights, before[0].Rights) {
		t.Error("a copy changed with what it was made of")
	}
	p.DropRights()
	if begun, open := p.HaveRights(0); begun || open {
		t.Error("rights are left")
	}
}

// TestRightsChange: what is decoded is what was encoded, and nothing else is read.
func TestRightsChange(t *testing.T) {
	t.Parallel()
	for _, ch := range []RightsChange{{}, {Begins: true, Value: -5}, {Asks: [Sides]int64{1, 0}},
		{To: 3, Gives: [Sides]int64{0, 1 << 62}}, {Settles: [Sides]bool{true, false}},
		{Begins: true, Asks: [Sides]int64{3, 4}, Gives: [Sides]int64{1, 2},
			Settles: [Sides]bool{true, true}}} {
		b := ch.AppendTo(nil)
		r := coding.Reader{Rest: b}
		if got := ReadRightsChange(&r); r.Bad || len(r.Rest) > 0 || got != ch {
			t.Errorf("%+v is read as %+v", ch, got)
		}
		for n := range b {
			if r := (coding.Reader{Rest: b[:n]}); ReadRightsChange(&r) == ch && !r.Bad {
				t.Errorf("%d bytes of %d are accepted", n, len(b))
			}
		}
	}
	for _, b := range [][]byte{{allRights + 1}, {rightsAsk, 0, 0}, {rightsAsk, 1, 0},
		{rightsGive, MaxRegions, 2, 0}, {rightsGive, 1, 0, 1}} {
		if r := (coding.Reader{Rest: b}); !r.Bad {
			if ch := ReadRightsChange(&r); !r.Bad {
				t.Errorf("%x is read as %+v", b, ch)
			}
		}
	}
}
