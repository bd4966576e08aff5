package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// owedOp is owed; what counts in its place is not held.
func owedOp(r part.Region, dot uint64, made int64) part.Owed {
	return part.Owed{Applied: part.Applied{Region: r, Dot: dot, Made: made},
		Winner: part.Applied{Region: 1, Dot: 1}}
}

func sameOwed(a, b part.Owed) bool { return a.Applied == b.Applied }

// owedOf is what a key's operations are owed for.
func (s *idStore) owedOf(key string) []part.Owed {
	p := s.partitions[0]
	p.lock()
	defer p.mu.Unlock()
	return slices.Clone(p.regions.owed.byKey[key])
}

// internalOp executes an operation that only members have.
func (s *idStore) internalOp(op Op) error {
	b := Batch{Atomic: true}
	*b.Add(op.Kind) = op
	s.Execute(&b)
	return b.Ops[0].Err
}

// lost tells that a region has taken back an operation it told before, because winner counts.
func (s *idStore) lost(h, winner told) error {
	return s.internalOp(Op{Kind: regionLost, Key: []byte(h.key), ID: []byte(h.id),
		Object: &Lost{h.region, h.dot, h.delta, false, Heard{
			Origin: winner.region, Dot: winner.dot, Wall: winner.wall, Delta: winner.delta,
			Result: winner.result,
		}}})
}

// TestOwedInFavour: a region says in whose favour it will take an operation back, which is logged once.
func TestOwedInFavour(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	at := func(r part.Region, wall int64) told {
		return s.next(told{key: "k", id: "x", region: r, wall: start + wall, delta: 5})
	}
	a, c := at(0, -1), at(2, -2)
	mustTake(t, s, a)
	mustTake(t, s, c, a)
	says := func() {
		must(t, s.internalOp(Op{Kind: regionLost, Key: []byte("k"), ID: []byte("x"),
			Object: &Lost{a.region, a.dot, a.delta, true, Heard{Origin: 1, Dot: 7, Delta: 5}}}))
	}
	says()
	last := s.partitions[0].seq
	if says(); s.partitions[0].seq != last {
		t.Error("what is known already is logged")
	}
	if got := s.owedOf("k"); len(got) != 1 || got[0].Winner != (part.Applied{Region: 1, Dot: 7, Made: 5}) {
		t.Errorf("owed is %+v", got)
	}
	if must(t, s.lost(a, a)); len(s.owedOf("k")) > 0 {
		t.Error("it is still owed")
	}
}

// TestOwed: what other regions have applied and does not count is owed, until their take-back is
// heard in whatever way, also after the store was opened again; and a take-back that comes first leaves
// nothing to be owed.
func TestOwed(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	merge := func(key string, changes ...Change) {
		t.Helper()
		must(t, s.internalOp(Op{Kind: regionMerge, Key: []byte(key), Object: changes}))
	}
	at := func(key string, r part.Region, wall int64) told {
		return s.next(told{key: key, id: "x", region: r, wall: start + wall, delta: 5,
			result: int64(r) * 100})
	}
	back := func(h told) Change {
		s.seq[h.region]++
		return Change{Kind: ChangeTakeBack, Region: h.region, Seq: s.seq[h.region], Dot: h.dot,
			Delta: h.delta}
	}
	want := make(map[string][]part.Owed)
	settle := func(key string, how func(h, winner told)) {
		a, c := at(key, 0, -1), at(key, 2, -2)
		mustTake(t, s, a)
		mustTake(t, s, c, a)
		if got := s.owedOf(key); !slices.EqualFunc(got, []part.Owed{owedOp(0, a.dot, 5)}, sameOwed) {
			t.Errorf("%s: owed is %v", key, got)
		}
		if how(a, c); len(s.owedOf(key)) > 0 {
			t.Errorf("%s: still owed: %v", key, s.owedOf(key))
		}
	}
	settle("by its log", func(a, c told) { must(t, s.lost(a, c)) })
	settle("by its part's change", func(a, _ told) { merge("by its part's change", back(a)) })
	settle("and forgotten", func(a, _ told) {
		b := back(a)
		s.seq[0]++
		merge("and forgotten", b,
			Change{Kind: ChangeSpent, Region: 0, Seq: s.seq[0],
				Spent: part.Settlement{Clocks: []uint64{b.Seq}}})
	})
	settle("by a state", func(a, _ told) {
		s.seq[0]++
		p := part.Parts{{Region: 0, Clock: s.seq[0], Live: a.dot,
			Undo: []part.Undo{{Dot: a.dot, Clock: s.seq[0], Delta: 5}}}}
		merge("by a state", Change{Kind: ChangeParts, Region: 0, Parts: p})
	})
	settle("by a deletion", func(a, _ told) {
		s.seq[2]++
		merge("by a deletion", Change{Kind: ChangeDelete, Region: 2, Seq: s.seq[2],
			Bases: []part.RegionBase{{Region: 0, Base: part.Base{Clock: a.dot, Cum: 5}}}})
	})
	for key, first := range map[string]bool{"own first": true, "own later": false} {
		wantOp(t, cincr(s.Store, key, "x", 5), 5, true)
		h := at(key, 0, map[bool]int64{true: 1, false: -1}[first])
		if mustTake(t, s, h); first {
			want[key] = []part.Owed{owedOp(0, h.dot, 5)}
		}
	}
	c, a := at("the later one", 2, -2), at("the later one", 0, -1)
	mustTake(t, s, c, a)
	want["the later one"] = []part.Owed{owedOp(0, a.dot, 5)}
	a, c = at("taken back first", 0, -1), at("taken back first", 2, -2)
	mustTake(t, s, a)
	must(t, s.lost(a, c))
	mustTake(t, s, c)
	if op := s.cseen("taken back first", "x"); op.Seen.Region != 2 || op.Seen.Result != 200 {
		t.Errorf("what counts is %+v", op.Seen)
	}
	mustTake(t, s, at("alone", 0, -1))
	check := func(when string) {
		t.Helper()
		p := s.partitions[0]
		p.lock()
		defer p.mu.Unlock()
		got := p.regions.owed
		n := 0
		for key, ops := range got.byKey {
			if n += len(ops); !slices.EqualFunc(ops, want[key], sameOwed) {
				t.Errorf("%s: of %s %v is owed, not %v", when, key, ops, want[key])
			}
		}
		if n != len(want) || got.count[0] != n {
			t.Errorf("%s: %d are owed, or %d, not %d", when, n, got.count[0], len(want))
		}
	}
	check("live")
	s.reopen(false)
	check("from the log")
	s.reopen(true)
	check("from the state row")
	p := s.partitions[0]
	p.lock()
	for i := 0; p.regions.owed.byOthers(1) < maxOwed; i++ {
		p.regions.owed.add(fmt.Append(nil, "many", i), []part.Owed{owedOp(0, 1, 1)})
	}
	p.mu.Unlock()
	wantOp(t, cincr(s.Store, "too many", "x", 5), 5, true)
	mustTake(t, s, at("too many", 0, 1))
	if n := s.RegionIDs(); len(s.owedOf("too many")) > 0 || n.Unchecked != 1 {
		t.Errorf("beyond the bound: %v, %+v", s.owedOf("too many"), n)
	}
}

// TestHeirWaits: an heir inherits when each other region has said that it has levelled, and only
// what those acknowledge from then on counts for the region that is gone. It says so again to one that
// joins. Nothing of the region that is gone is taken any more.
func TestHeirWaits(t *testing.T) {
	s := newIDStore(t, nil)
	now, _ := s.clock.now()
	h := s.next(told{key: "k", id: "x", region: 0, wall: now, delta: 5})
	mustTake(t, s, h)
	set, _ := s.Regions()
	next, err := set.Remove(1, 0)
	must(t, err)
	must(t, s.SetRegions(next))
	if err := s.take(s.next(told{key: "k", id: "y", region: 0, wall: now, delta: 5})); !errors.Is(err,
		ErrStream) {
		t.Errorf("of a region that is gone: %v", err)
	}
	for _, since := range []uint64{0, 2} {
		if err := s.Levelled(0, since); !errors.Is(err, ErrOption) {
			t.Errorf("levelled since %d: %v", since, err)
		}
	}
	p := s.partitions[0]
	acked := func(by part.Region) uint64 {
		p.lock()
		defer p.mu.Unlock()
		return p.regions.acked(Slot([]byte("k")))(by, 0)
	}
	seqNow := func() uint64 {
		p.lock()
		defer p.mu.Unlock()
		return p.seq
	}
	state := func() (r Removal) { return s.Removals()[0] }
	must(t, s.Levelled(0, 1))
	if r := state(); r.Levelled || r.Done || !slices.Equal(r.Waiting, []part.Region{2}) || acked(1) != 0 {
		t.Errorf("before the other has levelled: %+v, %d", r, acked(1))
	}
	says := func(since uint64) {
		t.Helper()
		s.seq[2]++
		must(t, s.internalOp(Op{Kind: regionLevel,
			Object: &levelled{Gone: 0, Since: since, By: RegionSource{2, 0}, Seq: s.seq[2]}}))
	}
	says(2) // of another removal
	must(t, s.Levelled(0, 1))
	if r := state(); r.Levelled {
		t.Errorf("it inherits: %+v", r)
	}
	s.reopen(false)
	p = s.partitions[0]
	s.acks(2, seqNow()) // of everything before
	says(1)
	must(t, s.Levelled(0, 1))
	if r := state(); !r.Levelled || !r.Done || len(r.Waiting) > 0 {
		t.Errorf("after the other has levelled: %+v", r)
	}
	if acked(2) != 0 || acked(1) == 0 {
		t.Errorf("sequence %d, acknowledged %d and %d", seqNow(), acked(2), acked(1))
	}
	seq := seqNow()
	s.acks(2, seq)
	if acked(2) != seq {
		t.Errorf("acknowledged %d, not %d", acked(2), seq)
	}
	s.reopen(true)
	p = s.partitions[0]
	if r := state(); !r.Done || acked(2) != seq {
		t.Errorf("opened again: %+v, %d", r, acked(2))
	}
	set, _ = s.Regions()
	set.Version++
	set.Members = append(slices.Clone(set.Members), RegionMember{Region: 3, Name: "a", Partitions: 1})
	must(t, s.SetRegions(set))
	if r := state(); r.Levelled || r.Done || !slices.Equal(r.Waiting, []part.Region{3}) {
		t.Errorf("after one has joined: %+v", r)
	}
	set, err = set.Remove(1, 3)
	must(t, err)
	must(t, s.SetRegions(set))
	says(set.Version) // anew
	must(t, s.Levelled(0, set.Version))
	if r := state(); !r.Done {
		t.Errorf("after that is gone: %+v", r)
	}
}

// TestAckedGone: in a region that is not the heir.
func TestAckedGone(t *testing.T) {
	set := threeRegions(1, 1)
	set, err := set.Remove(2, 0)
	must(t, err)
	set.Members = append(set.Members, RegionMember{Region: 3, Name: "d", Partitions: 1})
	g := newRegions(set)
	heir, other := RegionSource{2, 0}, RegionSource{3, 0}
	g.cursors[RegionSource{0, 0}], g.cursors[heir] = 50, 20
	g.heard[other] = map[RegionSource]uint64{{0, 0}: 50, heir: 9}
	check := func(self, by, third uint64) {
		t.Helper()
		acked := g.acked(0)
		if a, b, c := acked(1, 0), acked(2, 0), acked(3, 0); a != self || b != by || c != third {
			t.Errorf("acknowledged %d, %d and %d; want %d, %d and %d", a, b, c, self, by, third)
		}
	}
	check(0, 0, 0)
	g.stated[statement{0, heir}] = stated{since: 1, seq: 10}
	check(20, 20, 0)
	g.heard[other][heir] = 12
	check(20, 20, 12)
	g.cursors[heir] = 9
	check(0, 0, 12)
}

// TestMembersStay: numbers are not given again, and nobody comes back.
func TestMembersStay(t *testing.T) {
	s := newIDStore(t, nil)
	set, _ := s.Regions()
	for name, r := range map[string][2]part.Region{"the own region": {0, 1}, "its own heir": {0,
		0}, "no heir": {9, 0}, "nobody": {1, 9}} {
		if _, err := set.Remove(r[0], r[1]); !errors.Is(err, ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(set *RegionSet){
		"is missing":        func(set *RegionSet) { set.Members = set.Members[1:] },
		"is another one":    func(set *RegionSet) { set.Members[0].Partitions = 2 },
		"gone since before": func(set *RegionSet) { set.Members[0].Gone, set.Members[0].Heir = true, 1 },
		"heir, not gone":    func(set *RegionSet) { set.Members[0].Heir = 1 },
	} {
		next := set
		next.Version = 8
		next.Members = slices.Clone(set.Members)
		if change(&next); !errors.Is(s.SetRegions(next), ErrOption) {
			t.Errorf("%s: %+v", name, next)
		}
	}
	gone, err := set.Remove(2, 0)
	must(t, err)
	must(t, s.SetRegions(gone))
	back := gone
	back.Version++
	back.Members = set.Members
	if s.SetRegions(back) == nil {
		t.Error("a region has come back")
	}
	anew := gone
	anew.Members = append(slices.Clone(gone.Members), RegionMember{Region: 3, Name: "d", Partitions: 1})
	anew, err = anew.Remove(2, 3)
	if m := anew.Members[0]; err != nil || m.Heir != 2 || m.Since != anew.Version {
		t.Errorf("with another removal all are levelled anew: %+v, %v", anew, err)
	}
	both, err := gone.Remove(1, 2)
	must(t, err)
	if m := both.Members[0]; m.Heir != 1 || m.Since != 2 {
		t.Errorf("when an heir goes, its heir is that of all: %+v", both)
	}
	wrong := both
	wrong.Members = slices.Clone(both.Members)
	wrong.Members[0].Since = 1
	if s.SetRegions(wrong) == nil {
		t.Error("an heir since before it was one")
	}
	must(t, s.SetRegions(both))
}

// TestOwedIsTold: a region that has levelled says first what the one that is gone owes, and says it
// also of debts that it learns of later. The heir does not believe that blindly: it takes back, once,
// only operations that its part still contains.
func TestOwedIsTold(t *testing.T) {
	s := newIDStore(t, nil)
	now, _ := s.clock.now()
	tell := func(key string, wall int64, delta int64, r part.Region) told {
		t.Helper()
		h := s.next(told{key: key, id: "x", region: r, wall: now + wall, delta: delta, result: 9})
		mustTake(t, s, h)
		return h
	}
	wantOp(t, cincr(s.Store, "early", "x", 5), 5, true)
	early, late := tell("early", 1, 5, 0), tell("late", 1, 7, 0)
	set, _ := s.Regions()
	set, err := set.Remove(2, 0)
	must(t, err)
	must(t, s.SetRegions(set))
	must(t, s.Levelled(0, 1))
	tell("late", 0, 7, 2)
	b, err := s.Pull(Pull{By: 2, Incarnation: s.Meta().Incarnation, Last: slots - 1,
		After: s.partitions[0].regions.since})
	must(t, err)
	d, err := decodePulled(b, new(pulledMemory))
	must(t, err)
	var got []string
	must(t, d.each(func(e *pulledEntry) error {
		switch e.kind {
		case entryOwed:
			got = append(got, fmt.Sprint(string(e.key), e.r.owed[0].Applied))
		case entryLevelled:
			got = append(got, fmt.Sprint(e.r.levelled.Gone))
		}
		return nil
	}))
	want := []string{fmt.Sprint("early", owedOp(0, early.dot, 5).Applied), "0",
		fmt.Sprint("late", owedOp(0, late.dot, 7).Applied)}
	if !slices.Equal(got, want) {
		t.Errorf("it tells %v, not %v", got, want)
	}

	s = newIDStore(t, nil)
	a := tell("k", 1, 5, 0)
	set, err = threeRegions(1, 1).Remove(1, 0, 2)
	must(t, err)
	must(t, s.SetRegions(set))
	owes := func(key string, dot uint64) {
		t.Helper()
		must(t, s.internalOp(Op{Kind: regionOwe, Key: []byte(key), Object: ptr(owedOp(0, dot, 5))}))
	}
	owes("k", a.dot)
	owes("unknown", 1)
	if s.dropEnded(s.partitions[0], new(Batch)); len(s.owedOf("k"))+len(s.owedOf("unknown")) != 2 {
		t.Error("an heir that does not inherit yet forgets what is owed")
	}
	must(t, s.Levelled(0, 1))
	settled := func() {
		t.Helper()
		for range 2 {
			s.dropEnded(s.partitions[0], new(Batch))
		}
		if v, ok := get(s.Store, "k"); v != 0 || !ok || len(s.owedOf("k"))+len(s.owedOf("unknown")) > 0 {
			t.Errorf("%d, %v; owed %v, %v", v, ok, s.owedOf("k"), s.owedOf("unknown"))
		}
	}
	settled()
	owes("k", a.dot) // told again, or by another region
	settled()
	s.reopen(false)
	settled()
}

// TestHeirOfHeir: a region that is not the heir also knows what is owed. When it becomes the heir,
// it takes it back, whatever clock the one before has given to the part; and drops what that has
// closed.
func TestHeirOfHeir(t *testing.T) {
	s := newIDStore(t, nil)
	now, _ := s.clock.now()
	h := s.next(told{key: "k", id: "x", region: 0, wall: now, delta: 5, result: 5})
	mustTake(t, s, h)
	set, _ := s.Regions()
	set.Members = append(slices.Clone(set.Members), RegionMember{Region: 3, Name: "d", Partitions: 1})
	set, err := set.Remove(2, 0)
	must(t, err)
	must(t, s.SetRegions(set))
	must(t, s.internalOp(Op{Kind: regionOwe, Key: []byte("k"), Object: ptr(owedOp(0, h.dot, 5))}))
	if owed := s.owedOf("k"); len(owed) != 1 {
		t.Fatalf("owed is %v", owed)
	}
	const ahead = 5 << incarnationBits
	parts := part.Parts{{Region: 0, Clock: ahead, Live: h.dot, Cum: 5}}
	must(t, s.internalOp(Op{Kind: regionMerge, Key: []byte("k"),
		Object: []Change{{Kind: ChangeParts, Region: 2, Parts: parts}}}))
	closed := part.Parts{{Region: 0, Base: part.Base{Clock: 2 * ahead}}}
	must(t, s.internalOp(Op{Kind: regionMerge, Key: []byte("dead"),
		Object: []Change{{Kind: ChangeParts, Region: 2, Parts: closed}}}))
	set, err = set.Remove(1, 2)
	must(t, err)
	must(t, s.SetRegions(set))
	for _, gone := range []part.Region{0, 2} {
		must(t, s.internalOp(Op{Kind: regionLevel,
			Object: &levelled{Gone: gone, Since: set.Version, By: RegionSource{3, 0}, Seq: 1}}))
		must(t, s.Levelled(gone, set.Version))
	}
	p := s.partitions[0]
	for range 4 {
		s.dropEnded(p, new(Batch))
		s.acks(3, p.seq)
	}
	if v, ok := get(s.Store, "k"); v != 0 || !ok || len(s.owedOf("k")) > 0 {
		t.Errorf("%d, %v; owed %v", v, ok, s.owedOf("k"))
	}
	get(s.Store, "dead")
	if c := p.hot.peek("dead"); c != nil && c.parts() != nil {
		t.Errorf("what was closed stays: %+v", c.parts())
	}
}

// TestLoneHeirPaysAll: an heir takes back all that a lost region owes of one key, batch after
// batch, though no region is left that could say anything new in between.
func TestLoneHeirPaysAll(t *testing.T) {
	const twins = 4000
	s := newIDStore(t, nil)
	now, _ := s.clock.now()
	var lost []told
	for i := range twins {
		id := fmt.Sprint("id", i)
		wantOp(t, cincr(s.Store, "hot", id, 1), int64(i)+1, true)
		lost = append(lost, s.next(told{key: "hot", id: id, region: 0, wall: now + 1, delta: 1}))
	}
	mustTake(t, s, lost...)
	if v, _ := get(s.Store, "hot"); v != 2*twins || len(s.owedOf("hot")) != twins {
		t.Fatalf("the counter is %d, of which %d are owed; want %d and %d", v, len(s.owedOf("hot")), 2*twins,
			twins)
	}
	set, err := threeRegions(1, 1).Remove(1, 0, 2)
	must(t, err)
	must(t, s.SetRegions(set))
	for _, gone := range []part.Region{0, 2} {
		must(t, s.Levelled(gone, set.Version))
	}
	for range twins/payBatch + 4 {
		s.dropEnded(s.partitions[0], new(Batch))
	}
	if v, _ := get(s.Store, "hot"); v != twins || len(s.owedOf("hot")) > 0 {
		t.Errorf("the counter is %d, of which %d are owed; want %d and none", v, len(s.owedOf("hot")), twins)
	}
}

// TestTakenBackIsNotOwed: a region hears of a twin after the other one has taken it back, and has
// forgotten that, as all have acknowledged it: this region took a state since, which has the part,
// and does not say which operation it lost. If the twin counted as owed, the heir would take it back twice.
func TestTakenBackIsNotOwed(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("it hears when the other one is removed ", late), func(t *testing.T) {
			takenBackIsNotOwed(t, late)
		})
	}
}

func takenBackIsNotOwed(t *testing.T, late bool) {
	w := newTestRegions(t, 2, 1, 1, 1)
	a, b, c := w.r[0], w.r[1], w.r[2]
	take := func(to, from *testRegion) {
		t.Helper()
		answer, err := w.pull(to, from, 0, 0, 0)
		must(t, err)
		_, err = to.s.Take(answer)
		must(t, err)
	}
	w.drain()
	b.clock.advance(time.Hour / 2) // its application is the later one
	cincr(b.s, "k", "x", 1)
	take(c, b)
	cincr(a.s, "k", "x", 1)
	take(b, a)
	take(a, b)
	w.exchange(c, &stateRead{from: b, n: 0, first: 0})
	take(b, a)
	take(b, c)
	for range 2 {
		b.s.dropEnded(b.s.partitions[0], new(Batch))
	}
	if b.s.partitions[0].partsOf("k").Of(1).Undo != nil {
		t.Fatal("it has not forgotten that it took the operation back")
	}
	take(c, b)
	if !late {
		take(c, a)
	}
	if owed := c.s.partitions[0].regions.owed.byKey; len(owed) > 0 {
		t.Error("it believes to be owed", owed)
	}

	w.r = []*testRegion{a, c}
	for _, r := range w.r {
		set := w.set(r.n)
		set.Members[1].Region = 2
		set.Members = slices.Insert(set.Members, 1, RegionMember{Region: 1, Name: "region1", Partitions: 1,
			Incarnation: b.s.Meta().Incarnation, Gone: true, Heir: 2, Since: 1})
		set.Version = 1
		must(t, r.s.SetRegions(set))
		must(t, r.s.Levelled(1, 1))
	}
	for range 3 {
		take(c, a)
		must(t, c.s.Levelled(1, 1))
		take(a, c)
		c.s.dropEnded(c.s.partitions[0], new(Batch))
	}
	for _, r := range w.r {
		if v, _ := get(r.s, "k"); v != 1 {
			t.Errorf("region %d: k is %d after the removal", r.n, v)
		}
	}
}
