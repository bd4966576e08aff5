package store

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// someRegional has something in each field.
func someRegional() *regional {
	return &regional{
		note: regionNote{HLC: 1e12, By: 3, Absent: true, Left: -4,
			Bases: []part.RegionBase{{Region: 2, Base: part.Base{Clock: 5, Cum: -3}},
				{Region: 9, Base: part.Base{Clock: 1}}}},
		parts: part.Parts{part.FromCounter(3, -5, 1<<40)},
		heard: Heard{Origin: 7, Dot: 1 << 50, Wall: 1e12, Result: -9, Use: seen.DrainNone},
		back:  takeBack{Dot: 77, Made: -5, Held: true, Winner: part.Applied{Region: 3, Dot: 5, Made: 6}},
		cursor: RegionCursor{RegionTaken{RegionSource{2, 3}, 99}, 1e12,
			[]RegionTaken{{RegionSource{1, 3}, 4}, {RegionSource{2, 0}, 5}}, Proof{7, 8}, 0},
		change: -7,
		spent:  part.Settlement{Clocks: []uint64{5, 7}},
		rights: part.RightsChange{Begins: true, Value: -4, To: 3, Gives: [part.Sides]int64{5, 6}},
		owed:   []part.Owed{owedOp(2, 5, -1), owedOp(2, 7, 1), owedOp(3, 1, 1)},
	}
}

// TestRegionEntries: what a member logs comes back, and its room is enough; what no member logs is
// refused.
func TestRegionEntries(t *testing.T) {
	far := regionNote{HLC: part.MaxHLC, Absent: true, Left: math.MinInt64}
	for i := range part.MaxRegions {
		far.Bases = append(far.Bases, part.RegionBase{Region: part.Region(i),
			Base: part.Base{Clock: math.MaxUint64, Cum: math.MinInt64, High: -1 << 56}})
	}
	for _, n := range []regionNote{{}, someRegional().note, far, {HLC: 1}, {Bases: far.Bases[:1]}} {
		b := n.appendTo(nil)
		again, err := decodeNote(b)
		if err != nil || !reflect.DeepEqual(n, again) {
			t.Errorf("%+v: %+v %v", n, again, err)
		}
		if len(b)+2 > maxNote {
			t.Errorf("a note of %d bytes", len(b))
		}
		for i := range b {
			if _, err := decodeNote(b[:i]); !errors.Is(err, errCorruptEntry) {
				t.Errorf("a part of %x is read: %v", b, err)
			}
		}
	}
	for _, bad := range [][]byte{{}, {8}, {0, 0}, {1, 0}, {1, 0x81, 0}, {4, 0}, {4, 1, 16, 1, 0}, {4, 1, 0, 0,
		0}, {4, 2, 1, 1, 0, 1, 1, 0}, {4, 2, 2, 1, 0, 1, 1, 0}, {4, 17},
		{4, 1, 0x82, 1, 0, 0}} {
		if n, err := decodeNote(bad); !errors.Is(err, errCorruptEntry) {
			t.Errorf("%x: %+v", bad, n)
		}
	}
	begin := beginSection(nil, moment{logged: 1, wall: 2})
	blob := part.Parts{part.FromCounter(3, -5, 9)}.AppendTo(nil)
	merge := func(what byte, parts ...byte) []byte {
		return append([]byte{byte(entryMerge), 0, 1, 'k', 1, 2, what, byte(len(parts))}, parts...)
	}
	for what, b := range map[string][]byte{
		"no parts":            merge(0, 0),
		"parts cut":           merge(0, blob[:len(blob)-1]...),
		"a key ends and is":   merge(mergeEnds, blob...),
		"an unknown merge":    merge(3, blob...),
		"a region beyond all": {byte(entryCursor), 0, part.MaxRegions, 0, 1, 1, 0},
		"a source twice":      {byte(entryCursor), 0, 1, 0, 1, 1, 2, 1, 0, 5, 1, 0, 6},
		"more than there is":  {byte(entryCursor), 0, 1, 0, 1, 1, 200, 1, 0, 5},
		"an unknown use":      {byte(entryHeard), 0, 1, 1, 'k', 1, 'i', 2, 2, 3<<useShift + 1, 1, 2, 0},
		"held and owed":       {byte(entryTakeBack), 0, 1, 1, 'k', 1, 'i', 2, 2, 1, 2, 0, 3, 0, 1, 1, 2, 1, 0},
		"a kind beyond":       {byte(entryPaid) + 1, 0, 1, 'k'},
		"too many clocks":     {byte(entrySpent), 0, 1, 'k', 100, 1},
		"a clock twice":       {byte(entrySpent), 0, 1, 'k', 2, 1, 0},
		"nothing is owed":     {byte(entryOwed), 0, 1, 'k', 0, 0},
		"owed twice":          {byte(entryOwed), 0, 1, 'k', 0, 2, 1, 5, 2, 1, 5, 2},
		"owed by nobody":      {byte(entryOwed), 0, 1, 'k', 0, 1, part.MaxRegions, 5, 2},
	} {
		r, err := newSectionReader(append(slices.Clone(begin), b...))
		var e entry
		if err != nil || r.next(&e) || !errors.Is(r.err(), errCorruptEntry) {
			t.Errorf("%s: %+v, %v", what, e, r.err())
		}
	}
	if r, err := newSectionReader(append(slices.Clone(begin), merge(0, blob...)...)); err != nil ||
		!r.next(new(entry)) {
		t.Error("a merge is refused:", r.err())
	}
}

// TestRegionState: what a member knows comes back from the state row.
func TestRegionState(t *testing.T) {
	g := newRegions(regionSet(false))
	g.take(&RegionCursor{RegionTaken{RegionSource{other, 0}, 9}, 1,
		[]RegionTaken{{RegionSource{own, 0}, 4}, {RegionSource{third, 1}, 5}}, Proof{7, 8}, 0}, 1000)
	g.hear(RegionSource{third, 1}, []RegionTaken{{RegionSource{own, 0}, 2}})
	state := partitionState{catalog: newCatalog(), regions: g.clone()}
	b := state.encode()
	again, err := decodeState(b)
	if err != nil || !slices.Equal(again.encode(), b) || !reflect.DeepEqual(again.regions.heard, g.heard) ||
		!reflect.DeepEqual(again.regions.cursors, g.cursors) ||
		!reflect.DeepEqual(again.regions.clocks, g.clocks) || g.clocks[RegionSource{other, 0}] != -999 ||
		!reflect.DeepEqual(again.regions.RegionSet, g.RegionSet) {
		t.Fatalf("%+v %v", again.regions, err)
	}
	g.take(&RegionCursor{RegionTaken: RegionTaken{RegionSource{other, 0}, 3}}, 2000)
	if g.cursors[RegionSource{other, 0}] != 9 || state.regions.cursors[RegionSource{other, 0}] != 9 {
		t.Error("a cursor goes back")
	}
	for i := range len(b) - len(state.catalog.encode()) {
		if i > 0 {
			if _, err := decodeState(append(slices.Clone(b[:len(b)-i]), make([]byte, 0)...)); err == nil &&
				i < len(g.RegionSet.Encode()) {
				t.Errorf("a state without its last %d bytes is read", i)
			}
		}
	}
}

// TestNoteBeyondAllClocks: a time that no region could make later is refused, and one as late as
// may be is no longer made later, but what is set in its place is shown.
func TestNoteBeyondAllClocks(t *testing.T) {
	if _, err := decodeNote((&regionNote{HLC: part.MaxHLC + 1}).appendTo(nil)); !errors.Is(err,
		errCorruptEntry) {
		t.Error(err)
	}
	r := newRegionStore(t, false)
	r.merge("k", Change{Kind: ChangeSet, Region: third, Seq: 3, HLC: part.MaxHLC, Delta: 9})
	r.shows("k", 9, true)
	r.must(Op{Kind: Set, Key: []byte("k"), Delta: 4})
	r.shows("k", 4, true)
	if k := r.counter("k"); k.parts()[1].Set.HLC != part.MaxHLC {
		t.Errorf("%+v", k.parts())
	}
	r.reopen("k")
}
