package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/part"
)

// pass lets logged time pass: one look at the clock advances it by a second at most.
func (s *idStore) pass(d time.Duration) {
	for ; d > 0; d -= time.Second / 2 {
		s.clock.advance(min(d, time.Second/2))
		s.look()
	}
}

// save brings everything to disk, and forgets what may be forgotten.
func (s *idStore) save() {
	s.t.Helper()
	must(s.t, s.checkpoint(s.partitions[0], true))
}

// acks is a region that says in its own log that it has taken this one's up to a sequence.
func (s *idStore) acks(r part.Region, seq uint64) {
	s.t.Helper()
	s.seq[r]++
	c := &RegionCursor{RegionTaken: RegionTaken{RegionSource: RegionSource{r,
		0}, Seq: s.seq[r]}, Vector: []RegionTaken{{RegionSource{1, 0}, seq}}}
	if op := do(s.Store, Op{Kind: regionCursor, Object: c}); op.Err != nil {
		s.t.Fatal(op.Err)
	}
}

// TestOwnRecordsWaitForRegions: an operation is taken back although it is older than the
// table remembers, wherever its record is, until every other region has acknowledged it;
// then, or when its time is over, the record goes, and what went too early is counted. A retry
// of a client is judged by the window as ever.
func TestOwnRecordsWaitForRegions(t *testing.T) {
	const late = 10 * time.Minute
	for _, tc := range []struct {
		name      string
		saves     bool // the record goes to a run while it is remembered
		acks      []part.Region
		retention time.Duration
		back      bool // it is taken back
		unchecked uint64
	}{
		{"in memory", false, nil, 0, true, 0},
		{"in a run", true, nil, 0, true, 0},
		{"one region has it", true, []part.Region{0}, 0, true, 0},
		{"all have it", true, []part.Region{0, 2}, 0, false, 0},
		{"its time is over", true, []part.Region{0}, time.Minute, false, 1},
		{"it is given no time", true, nil, -1, false, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newIDStore(t, func(o *Options) { o.RegionRetention = tc.retention })
			start, _ := s.clock.now()
			wantOp(t, cincr(s.Store, "k", "x", 5), 5, true)
			for _, r := range tc.acks {
				s.acks(r, s.partitions[0].seq)
			}
			if tc.saves {
				s.save()
			}
			s.pass(late)
			wantOp(t, cincr(s.Store, "k", "others", 1), 6, true) // so that filters forget
			if tc.saves {
				s.save()
			}
			if r := s.partitions[0]; s.cseen("k", "x").Found {
				t.Fatalf("after %v the opid is known to clients: %+v", late, r.seen.Figures())
			}
			now, _ := s.clock.now()
			mustTake(t, s,
				s.next(told{key: "k", id: "x", region: 0, wall: start - 1, now: now, delta: 5, result: 77}))
			want := int64(6)
			if !tc.back {
				want = 11
			}
			if v, _ := get(s.Store, "k"); v != want {
				t.Errorf("value %d, not %d", v, want)
			}
			n, wantIDs := s.RegionIDs(), RegionIDs{Unchecked: tc.unchecked}
			if tc.back {
				wantIDs.Twins, wantIDs.TakenBack = 1, 1
			} else {
				wantIDs.Late = 1
			}
			if n != wantIDs {
				t.Errorf("%+v, not %+v", n, wantIDs)
			}
			// which has not acknowledged it
			if of := s.RegionIDsOf(); len(tc.acks) == 1 && of[2].Unchecked != tc.unchecked {
				t.Errorf("of region 2: %+v", of[2])
			}
			s.reopen(true)
			if v, _ := get(s.Store, "k"); v != want {
				t.Errorf("opened again: value %d, not %d", v, want)
			}
			if op := s.cseen("k", "x"); op.Found != tc.back {
				t.Errorf("opened again: %+v", op)
			}
		})
	}
}

// TestHeardByAge: an opid that arrives after the remembering time is only compared with the own
// record; a younger one is kept as long as if it had been applied now. How far the
// other region's clock is off does not matter.
func TestHeardByAge(t *testing.T) {
	s := newIDStore(t, nil)
	keep := s.partitions[0].catalog.find([]byte("k")).keep(0)
	now, _ := s.clock.now()
	for i, tc := range []struct {
		age, behind int64 // by the clock of who tells it, which may be behind ours
		kept        bool
	}{{keep, 0, true}, {keep + 1, 0, false}, {-1000, 0, true}, {1 << 40, 0, false}, {keep, 1 << 30, true},
		{keep + 1, -1 << 30, false}} {
		id := fmt.Sprint(i)
		mustTake(t, s,
			s.next(told{key: "k", id: id, region: 2, wall: now - tc.age - tc.behind, now: now - tc.behind,
				delta: 1}))
		if op := s.cseen("k", id); op.Found != tc.kept {
			t.Errorf("age %d: %+v", tc.age, op.Seen)
		}
	}
	if n, of := s.RegionIDs(), s.RegionIDsOf(); n != (RegionIDs{Heard: 3, Late: 3}) || of[2] != n {
		t.Errorf("%+v, of which region 2: %+v", n, of[2])
	}
	s.pass(time.Duration(keep-1000) * time.Millisecond)
	if op := s.cseen("k", "0"); !op.Found {
		t.Error("it is not remembered for window and skew from its arrival")
	}
}

// TestTwinsInOnePull: of two regions that applied what was applied here, too, both earlier, the
// own application is taken back once, in whatever order they are told in one batch; what was
// not applied here is known once.
func TestTwinsInOnePull(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	for i, walls := range [][2]int64{{-1, -2}, {-2, -1}, {-1, 1}, {1, -1}, {-2, -2}, {1, 2}} {
		for j, own := range []bool{true, false} {
			key := fmt.Sprint("k", i, j)
			if own {
				wantOp(t, cincr(s.Store, key, "x", 7), 7, true)
			}
			a := s.next(told{key: key, id: "x", region: 0, wall: start + walls[0], delta: 20, result: 20})
			c := s.next(told{key: key, id: "x", region: 2, wall: start + walls[1], delta: 300, result: 300})
			mustTake(t, s, a, c)
			mustTake(t, s, c, a) // again, which changes nothing
			first := a
			if walls[1] < walls[0] {
				first = c
			}
			want := int64(320)
			if own && first.wall > start {
				first.delta, first.result, want = 7, 7, 327
			}
			if v, _ := get(s.Store, key); v != want {
				t.Errorf("%v, applied here: %v: %d, not %d", walls, own, v, want)
			}
			wantOp(t, cincr(s.Store, key, "x", first.delta), first.result, false)
			if got := s.cseen(key, "x").Seen.Taken != 0; got != (own && first.wall < start) {
				t.Errorf("%v, applied here: %v: taken back: %v", walls, own, got)
			}
		}
	}
	if n := s.RegionIDs(); n.TakenBack != 5 {
		t.Errorf("%+v", n)
	}
}

// TestHeardKeyStates: an opid is remembered whatever its key is here. A deleted operation counts
// nowhere, also if the other region's application counts.
func TestHeardKeyStates(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(s *idStore)
		value  int64 // afterwards; own is 5, the other's 3
		found  bool
	}{
		{"as it was", func(*idStore) {}, 3, true},
		{"deleted", func(s *idStore) { do(s.Store, Op{Kind: Del, Keys: [][]byte{[]byte("k")}}) }, 0, true},
		{"deleted and counted anew", func(s *idStore) {
			do(s.Store, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
			do(s.Store, Op{Kind: IncrBy, Key: []byte("k"), Delta: 100})
		}, 100, true},
		{"assigned", func(s *idStore) { do(s.Store, Op{Kind: Set, Key: []byte("k"), Delta: 100}) }, 100,
			true},
		{"an object", func(s *idStore) {
			do(s.Store, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
			do(s.Store, Op{Kind: FBFReserve, Key: []byte("k")})
		}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newIDStore(t, nil)
			start, _ := s.clock.now()
			wantOp(t, cincr(s.Store, "k", "x", 5), 5, true)
			tc.before(s)
			h := s.next(told{key: "k", id: "x", region: 0, wall: start - 1, delta: 3, result: 3})
			check := func(when string) {
				t.Helper()
				if v, found := get(s.Store, "k"); v != tc.value || found != tc.found {
					t.Errorf("%s: %d, %v, not %d", when, v, found, tc.value)
				}
				if op := s.cseen("k", "x"); !op.Seen.Other || op.Seen.Taken == 0 || op.Seen.Delta != 3 {
					t.Errorf("%s: %+v", when, op.Seen)
				}
			}
			mustTake(t, s, h)
			check("live")
			mustTake(t, s, h)
			check("told again")
			s.reopen(false)
			check("from the log")
			s.reopen(true)
			check("from rows")
		})
	}
}

// TestHeardIsNeverRefused: at MAXDISK, and at the cap of a filter's memory, clients' new
// operations are refused, and what another region applied is remembered all the same.
func TestHeardIsNeverRefused(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	must(t, s.AlterTable(DefaultTable, TableChange{MaxDisk: ptr(uint64(MinTableDisk))}))
	for i := 0; ; i++ {
		if op := cincr(s.Store, "k", longID(i), 1); errors.Is(op.Err, ErrOutOfMemory) {
			break
		} else if op.Err != nil || i > 3500 {
			t.Fatal(i, op.Err)
		}
		if i%100 == 0 {
			s.save()
		}
	}
	const heard = 100 / raced.Slowdown
	for i := range heard {
		h := s.next(told{key: "k", id: fmt.Sprint("other", i), region: 0, wall: start, delta: 1, result: 1})
		mustTake(t, s, h)
		s.save()
		wantOp(t, cincr(s.Store, "k", h.id, 1), 1, false)
	}
	if n := s.RegionIDs(); n != (RegionIDs{Heard: heard}) {
		t.Errorf("%+v", n)
	}
}

// TestHeardWhereApprox: a table that is APPROX here remembers what another region applied, so
// that a retry here is a duplicate; that it may have been applied here, too, is counted.
func TestHeardWhereApprox(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	must(t, s.CreateTable(TableOptions{Name: "rough", Prefix: "r:", Mode: Approx, Skew: DefaultSkew}))
	wantOp(t, cincr(s.Store, "r:k", "own", 5), 5, true)
	mustTake(t, s, s.next(told{key: "r:k", id: "new", region: 0, wall: start - 1, delta: 3, result: 3}))
	mustTake(t, s, s.next(told{key: "r:k", id: "own", region: 0, wall: start - 1, delta: 5, result: 5}))
	wantOp(t, cincr(s.Store, "r:k", "new", 3), 13, false)
	wantOp(t, cincr(s.Store, "r:k", "own", 5), 13, false)
	if n := s.RegionIDs(); n != (RegionIDs{Heard: 1, Unchecked: 1}) {
		t.Errorf("%+v", n)
	}
	// Records from the time when the table was EXACT are compared as ever.
	wantOp(t, cincr(s.Store, "k", "exact", 5), 5, true)
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Approx)}))
	mustTake(t, s, s.next(told{key: "k", id: "exact", region: 0, wall: start - 1, delta: 5, result: 5}))
	if v, _ := get(s.Store, "k"); v != 5 || s.RegionIDs().TakenBack != 1 {
		t.Errorf("%d, %+v", v, s.RegionIDs())
	}
}

// TestHeardAcrossTables: a record that another table made, to which the key belonged, is taken
// back, too, also if it is older than what that table remembers.
func TestHeardAcrossTables(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	wantOp(t, cincr(s.Store, "r:k", "x", 5), 5, true)
	must(t, s.CreateTable(TableOptions{Name: "later", Prefix: "r:", Skew: DefaultSkew}))
	s.save()
	s.pass(30 * time.Second)
	mustTake(t, s, s.next(told{key: "r:k", id: "x", region: 0, wall: start - 1, delta: 5, result: 8}))
	if v, _ := get(s.Store, "r:k"); v != 5 {
		t.Errorf("%d", v)
	}
	wantOp(t, cincr(s.Store, "r:k", "x", 5), 8, false)
	s.reopen(true)
	wantOp(t, cincr(s.Store, "r:k", "x", 5), 8, false)
}

// TestHeardMultiKey: an operation on several keys, some of which another region has applied as far as
// is known here, must be tried again; one with an opid used otherwise here stays refused.
func TestHeardMultiKey(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	multi := func(id string) Op {
		return do(s.Store, Op{Kind: CMIncrBy, ID: []byte(id), Keys: [][]byte{[]byte("a"), []byte("b")},
			Deltas: []int64{1, 2}})
	}
	mustTake(t, s, s.next(told{key: "a", id: "x", region: 0, wall: start, delta: 1, result: 1}))
	if op := multi("x"); !errors.Is(op.Err, ErrPartlyHeard) {
		t.Fatal(op.Err)
	}
	wantOp(t, cincr(s.Store, "b", "y", 2), 2, true)
	if op := multi("y"); !errors.Is(op.Err, ErrPartlySeen) {
		t.Fatal(op.Err)
	}
	mustTake(t, s, s.next(told{key: "b", id: "x", region: 0, wall: start, delta: 2, result: 22}))
	if op := multi("x"); op.Err != nil || op.Applied || fmt.Sprint(op.Values) != "[1 22]" {
		t.Fatal(op.Err, op.Applied, op.Values)
	}
	// Applied in two regions: all keys have one time here, so that one region loses all.
	if op := multi("z"); op.Err != nil || !op.Applied {
		t.Fatal(op.Err)
	}
	s.clock.advance(time.Hour)
	a, b := s.cseen("a", "z").Seen, s.cseen("b", "z").Seen
	if a.UnixMs != b.UnixMs {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestHeardRefusals: what no other region can have told is refused, and changes nothing.
func TestHeardRefusals(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	wantOp(t, cincr(s.Store, "k", "x", 5), 5, true)
	before := s.partitions[0].seq
	for name, tc := range map[string]struct {
		what any
		err  error
	}{
		"nothing":             {nil, ErrOption},
		"the own region":      {&Heard{Origin: 1, Dot: 1, Wall: start}, ErrOption},
		"no member":           {&Heard{Origin: 3, Dot: 1, Wall: start}, ErrOption},
		"no dot":              {&Heard{Origin: 0, Wall: start}, ErrOption},
		"ahead of its effect": {&Heard{Origin: 0, Dot: 1, Wall: start - 1, Delta: 5}, ErrIDAhead},
	} {
		op := do(s.Store, Op{Kind: regionHear, Key: []byte("k"), ID: []byte("x"), Object: tc.what})
		if !errors.Is(op.Err, tc.err) {
			t.Errorf("%s: %v", name, op.Err)
		}
	}
	if v, _ := get(s.Store, "k"); v != 5 || s.partitions[0].seq != before || s.cseen("k", "x").Seen.Other {
		t.Errorf("value %d, %d entries more", v, s.partitions[0].seq-before)
	}
	alone := testStore(t, nil)
	if op := do(alone, Op{Kind: regionHear, Key: []byte("k"), ID: []byte("x"),
		Object: &Heard{Dot: 1}}); !errors.Is(op.Err, ErrNoRegions) {
		t.Error(op.Err)
	}
}

// TestTakeBackWhenFull: a part that remembers as many take-backs as it can forgets those that all
// regions know. A take-back without room even so is owed, and the cycle makes it once there is room.
func TestTakeBackWhenFull(t *testing.T) {
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	twins := func(from, n int) {
		t.Helper()
		var b Batch
		var heard []told
		for i := range n {
			id := fmt.Sprint("op", from+i)
			*b.Add(CIncrBy) = Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte(id), Delta: 1}
			heard = append(heard,
				s.next(told{key: "k", id: id, region: 0, wall: start - 1, delta: 1, result: 1}))
		}
		s.Execute(&b)
		mustTake(t, s, heard...)
	}
	twins(0, part.MaxUndo)
	p := s.partitions[0]
	hear := func(by part.Region) {
		p.lock()
		defer p.mu.Unlock()
		p.regions.hear(RegionSource{Region: by}, []RegionTaken{{RegionSource{Region: 1}, p.seq}})
	}
	hear(0)
	twins(part.MaxUndo, 1) // one of the two has not said that it knows
	owes := func(when string, value int64, owed int) {
		t.Helper()
		if v, _ := get(s.Store, "k"); v != value || len(s.owedOf("k")) != owed ||
			s.RegionIDs().Unchecked != 0 {
			t.Errorf("%s: value %d, owed %v, %+v", when, v, s.owedOf("k"), s.RegionIDs())
		}
		if taken := s.cseen("k", fmt.Sprint("op", part.MaxUndo)).Seen; taken.Taken == 0 || !taken.Other {
			t.Errorf("%s: %+v", when, taken)
		}
	}
	owes("full", part.MaxUndo+2, 1)
	s.reopen(false)
	owes("from the log", part.MaxUndo+2, 1)
	s.reopen(true)
	owes("from the state row", part.MaxUndo+2, 1)
	p = s.partitions[0]
	s.dropEnded(p, new(Batch))
	owes("still full", part.MaxUndo+2, 1)
	hear(0)
	hear(2)
	eventually(t, "the cycle pays", func() bool {
		s.dropEnded(p, new(Batch))
		return len(s.owedOf("k")) == 0
	})
	owes("paid", part.MaxUndo+1, 0)
	twins(part.MaxUndo+1, 1)
	owes("there is room", part.MaxUndo+2, 0)
	s.reopen(false)
	owes("paid, from the log", part.MaxUndo+2, 0)
	if undo := s.partitions[0].hot.peek("k").parts()[1].Undo; len(undo) != 2 {
		t.Errorf("%d take-backs are remembered", len(undo))
	}
}

// TestCheckOfWhatIsNotLogged: a checkpoint may know of more acknowledgements of other regions than the log,
// as they are not logged while nothing else happens. One that knows of fewer is damaged.
func TestCheckOfWhatIsNotLogged(t *testing.T) {
	s := newIDStore(t, nil)
	wantOp(t, cincr(s.Store, "k", "x", 5), 5, true)
	s.acks(0, 1)
	p := s.partitions[0]
	heard := p.regions.heard[RegionSource{0, 0}]
	for _, tc := range []struct {
		acked uint64
		sound bool
	}{{p.seq, true}, {0, false}} {
		p.lock()
		heard[RegionSource{1, 0}] = tc.acked
		p.mu.Unlock()
		wantOp(t, cincr(s.Store, "k", fmt.Sprint(tc.acked), 0), 5, true)
		s.save()
		must(t, s.CloseNow())
		r, err := Check(CheckOptions{Dir: "data", FS: s.fs})
		if err != nil || (len(r.Problems) == 0) != tc.sound {
			t.Errorf("acknowledged %d: %v %v", tc.acked, r.Problems, err)
		}
		s.reopen(false)
		p = s.partitions[0]
		heard = p.regions.heard[RegionSource{0, 0}]
	}
}
