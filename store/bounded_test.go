package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// bounded makes an INCREX; with an id it is idempotent.
func bounded(key, id string, delta, lower, upper int64, f Flags) Op {
	op := Op{Kind: IncrEx, Key: []byte(key), Delta: delta, Deltas: []int64{lower, upper}, Flags: f}
	if id != "" {
		op.Kind, op.ID = CIncrEx, []byte(id)
	}
	return op
}

// boundedModel is the exact reference of bounded increments.
type boundedModel struct {
	counters map[string]*boundedCounter
	seen     map[string]boundedAnswer // by key and id
}

type boundedCounter struct{ value, expire int64 }

// boundedAnswer is what an operation answers; err is nil, or why it was refused.
type boundedAnswer struct {
	value, made int64
	applied     bool
	asked       int64
	err         error
}

// answer applies an operation to the reference.
func (m *boundedModel) answer(op *Op, wall int64) boundedAnswer {
	key, name := string(op.Key), string(op.Key)+"/"+string(op.ID)
	if old, ok := m.seen[name]; ok && op.Kind == CIncrEx {
		if old.asked != op.Delta {
			return boundedAnswer{err: ErrMismatch}
		}
		old.applied = false
		return old
	}
	c := m.counters[key]
	if c != nil && c.expire != 0 && c.expire <= wall {
		c = nil
	}
	if c == nil {
		c = new(boundedCounter)
	}
	// In floating point, which is exact for the small numbers of this model.
	next := float64(c.value) + float64(op.Delta)
	lower, upper := math.Inf(-1), math.Inf(1)
	if len(op.Deltas) > 0 {
		lower, upper = float64(op.Deltas[0]), float64(op.Deltas[1])
	}
	if op.Flags&Saturate != 0 {
		next = math.Min(math.Max(next, lower), upper)
	} else if next < lower || next > upper {
		return boundedAnswer{value: c.value}
	}
	a := boundedAnswer{value: int64(next), made: int64(next) - c.value, applied: true, asked: op.Delta}
	if op.Kind == CIncrEx {
		m.seen[name] = a
	}
	m.counters[key] = &boundedCounter{value: int64(next), expire: c.expire}
	switch c = m.counters[key]; {
	case op.Flags&NoExpire != 0:
		c.expire = 0
	case op.Flags&HasExpire != 0 && (op.Flags&IfNoExpire == 0 || c.expire == 0):
		if c.expire = op.ExpireAt; c.expire <= wall {
			delete(m.counters, key)
		}
	}
	return a
}

// TestBoundedModel compares bounded increments, new ones and retries, with an
// exact reference, across expiry, DEL, checkpoints, runs and restarts.
func TestBoundedModel(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	open := func() *Store {
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.now, Partitions: 2, SnapshotInterval: -1,
			MinFreeDisk: -1})
		must(t, err)
		return s
	}
	s := open()
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Hour)}))
	m := boundedModel{counters: make(map[string]*boundedCounter), seen: make(map[string]boundedAnswer)}
	rnd := rand.New(rand.NewPCG(1, 7))
	var sent []Op
	var outOfBounds, clipped, retries int
	const operations, least = 20_000 / raced.Step, 500 / raced.Step // of each kind of answer
	for n := range operations {
		op := randomBounded(rnd, n, clock.wall)
		if len(sent) > 0 && rnd.IntN(3) == 0 {
			op = sent[rnd.IntN(len(sent))]
			op.Deltas = randomBounded(rnd, n, clock.wall).Deltas // the bounds are no part of its identity
		} else if op.Kind == CIncrEx {
			sent = append(sent, op)
		}
		if rnd.IntN(20) == 0 && op.Kind == CIncrEx {
			op.Delta++
		}
		want, got := m.answer(&op, clock.wall), do(s, op)
		if !errors.Is(got.Err, want.err) || got.Err == nil &&
			(got.Value != want.value || got.Values[0] != want.made || got.Applied != want.applied) {
			t.Fatalf("operation %d, %+v\nanswered %d %v %v %v\nwant     %+v", n, op, got.Value, got.Values,
				got.Applied, got.Err, want)
		}
		switch {
		case want.err == nil && !want.applied && want.asked != 0:
			retries++
		case want.err == nil && !want.applied:
			outOfBounds++
		case want.made != want.asked:
			clipped++
		}
		switch rnd.IntN(400) {
		case 0:
			must(t, s.checkpoint(s.partitions[rnd.IntN(2)], false))
		case 1:
			must(t, s.flushRecords(s.partitions[rnd.IntN(2)], false))
		case 2:
			must(t, s.CloseNow())
			s = open()
		case 3:
			clock.advance(time.Second)
		case 4:
			key := fmt.Appendf(nil, "k%d", rnd.IntN(4))
			do(s, Op{Kind: Del, Keys: [][]byte{key}})
			delete(m.counters, string(key))
		}
	}
	for key, c := range m.counters {
		v, ok := get(s, key)
		alive := c.expire == 0 || c.expire > clock.wall
		if e := do(s, Op{Kind: ExpireTime, Key: []byte(key)}); ok != alive || alive &&
			(v != c.value || e.Value != c.expire) {
			t.Errorf("%s = %d %v, expires %d; want %+v", key, v, ok, e.Value, *c)
		}
	}
	if outOfBounds < least || clipped < least || retries < least {
		t.Errorf("out of bounds %d, clipped %d, retries %d: the test tries too little", outOfBounds, clipped,
			retries)
	}
	must(t, s.Close())
	checkSound(t, fs, "data")
}

func randomBounded(rnd *rand.Rand, n int, wall int64) Op {
	lower := rnd.Int64N(60) - 40
	id := ""
	if rnd.IntN(4) > 0 {
		id = fmt.Sprint("op", n)
	}
	op := bounded(fmt.Sprint("k", rnd.IntN(4)), id, rnd.Int64N(41)-20, lower, lower+rnd.Int64N(80), 0)
	switch rnd.IntN(6) {
	case 0, 1:
		op.Flags |= Saturate
	case 2:
		op.Deltas = nil
	}
	switch rnd.IntN(12) {
	case 0:
		op.Flags, op.ExpireAt = op.Flags|HasExpire, wall+rnd.Int64N(5000)-100
	case 1:
		op.Flags, op.ExpireAt = op.Flags|HasExpire|IfNoExpire, wall+rnd.Int64N(5000)-100
	case 2:
		op.Flags |= NoExpire
	}
	return op
}

// TestBoundedLimits: at the ends of the integers.
func TestBoundedLimits(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for _, tc := range []struct {
		value, delta, lower, upper int64
		saturate                   bool
		want, made                 int64
		applied                    bool
		err                        error
	}{
		{most - 7, most - 7, least, most, false, most - 7, 0, false, nil},
		{most - 7, most - 7, least, most, true, most, 7, true, nil},
		{least + 8, least + 8, least, most, false, least + 8, 0, false, nil},
		{least + 8, least + 8, least, most, true, least, -8, true, nil},
		{most - 7, 1, least, least, true, 0, 0, false, ErrIncrementOverflow},
		{most - 7, 1, least, least, false, most - 7, 0, false, nil},
		{least, most, 0, most, false, least, 0, false, nil},
		{least, most, 0, most, true, 0, 0, false, ErrIncrementOverflow},
		{-1, least, least, most, false, -1, 0, false, nil},
		{0, least, least, most, false, least, least, true, nil},
		{50, 5, least, 30, false, 50, 0, false, nil},
		{50, 5, least, 30, true, 30, -20, true, nil},
		{50, -25, least, 30, false, 25, -25, true, nil},
	} {
		s := testStore(t, nil)
		do(s, Op{Kind: Set, Key: []byte("k"), Delta: tc.value})
		for _, id := range []string{"", "id"} {
			var f Flags
			if tc.saturate {
				f = Saturate
			}
			do(s, Op{Kind: Set, Key: []byte("k"), Delta: tc.value})
			op := do(s, bounded("k", id, tc.delta, tc.lower, tc.upper, f))
			if !errors.Is(op.Err, tc.err) || tc.err == nil &&
				(op.Value != tc.want || op.Values[0] != tc.made || op.Applied != tc.applied) {
				t.Errorf("%+v: %d %v %v %v", tc, op.Value, op.Values, op.Applied, op.Err)
			}
			if seen := do(s, Op{Kind: CSeen, Key: []byte("k"), ID: []byte("id")}); seen.Found != (id != "" &&
				tc.applied) {
				t.Errorf("%+v: the opid is remembered: %v (G6)", tc, seen.Found)
			}
		}
	}
}

// TestBoundedRefusals: what is refused or out of bounds logs nothing (G6).
func TestBoundedRefusals(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.CreateTable(TableOptions{Name: "timed", Prefix: "timed:", IDTime: IDTimeMS, Skew: DefaultSkew,
		Window: time.Hour}))
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	incr(s, "k", 3)
	wall, _ := s.look()
	timed := func(ms int64) Op {
		op := bounded("timed:k", "", 1, 0, 9, PairID)
		op.Kind, op.ID = CIncrEx, AppendPairID(nil, []byte("producer"), fmt.Appendf(nil, "%d-1", ms))
		return op
	}
	for name, tc := range map[string]struct {
		op   Op
		want error
	}{
		"out of bounds": {bounded("k", "a", 5, 0, 7, 0), nil},
		"missing":       {bounded("none", "a", 5, 10, 20, 0), nil},
		"plain":         {bounded("none", "", 5, 10, 20, 0), nil},
		"type":          {bounded("filter", "a", 1, 0, 9, 0), ErrWrongType},
		"plain type":    {bounded("filter", "", 1, 0, 9, 0), ErrWrongType},
		"bounds":        {bounded("k", "a", 1, 9, 0, 0), ErrOption},
		"one bound":     {Op{Kind: IncrEx, Key: []byte("k"), Delta: 1, Deltas: []int64{5}}, ErrOption},
		"overflow": {Op{Kind: CIncrEx, Key: []byte("k"), ID: []byte("a"), Delta: math.MaxInt64,
			Flags: NoExpire}, ErrOverflow},
		"stale": {timed(wall - 2*time.Hour.Milliseconds()), ErrStale},
		"no time": {Op{Kind: CIncrEx, Key: []byte("timed:k"), ID: []byte("x"), Flags: PairID,
			Deltas: []int64{0, 1}}, ErrNoIDTime},
	} {
		before := s.Stats().Entries
		if op := do(s, tc.op); !errors.Is(op.Err, tc.want) || op.Applied {
			t.Errorf("%s: %+v", name, op)
		}
		if after := s.Stats().Entries; after != before {
			t.Errorf("%s: logged %d entries", name, after-before)
		}
	}
	if op := do(s, timed(wall)); !op.Applied || op.Err != nil {
		t.Errorf("%+v", op)
	}
	if _, there := get(s, "none"); there {
		t.Error("an operation out of bounds made its counter")
	}
	wantOp(t, do(s, bounded("k", "a", 5, 0, 8, 0)), 8, true) // not consumed by the refusals
}

// TestExpiryIsPartOfTheOutcome: a CINCRBY sets its counter's expiry together with the
// opid; a retry changes neither, whatever it asks for and however much time has passed,
// also after the power was lost, in both modes.
func TestExpiryIsPartOfTheOutcome(t *testing.T) {
	for _, mode := range []Mode{Exact, Approx} {
		fs, clock := vfs.NewCrashableMem(), newFakeClock()
		options := func(o *Options) { o.FS, o.Clock = fs, clock.now }
		s := testStore(t, options)
		must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "k", Mode: mode, Window: time.Hour}))
		begin := clock.wall
		expiring := func(id string, delta, at int64, f Flags) Op {
			return Op{Kind: CIncrEx, Key: []byte("k"), ID: []byte(id), Delta: delta, ExpireAt: at, Flags: f}
		}
		send := func(op Op, value int64, applied bool, ends int64) {
			t.Helper()
			wantOp(t, do(s, op), value, applied)
			if e := do(s, Op{Kind: ExpireTime, Key: []byte("k")}); e.Found && e.Value != ends || !e.Found &&
				ends != -1 {
				t.Fatalf("mode %v: after %s it expires at %d (%v), want %d", mode, op.ID, e.Value, e.Found,
					ends)
			}
		}
		send(expiring("a", 5, begin+60_000, HasExpire), 5, true, begin+60_000)
		send(expiring("b", 1, begin+90_000, HasExpire|IfNoExpire), 6, true, begin+60_000)
		fs = fs.CrashClone(vfs.CrashCloneCfg{}) // the power fails
		s = testStore(t, options)
		original := int64(5)
		if mode == Approx {
			original = 6
		}
		send(expiring("a", 5, begin+99_000, HasExpire), original, false, begin+60_000)
		send(expiring("a", 5, 0, NoExpire), original, false, begin+60_000)
		send(Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("a"), Delta: 5}, original, false, begin+60_000)
		send(expiring("c", 1, 0, NoExpire), 7, true, 0)
		send(expiring("d", 1, begin+70_000, HasExpire|IfNoExpire), 8, true, begin+70_000)
		send(expiring("e", 1, begin, HasExpire), 9, true, -1) // past: it goes
		gone := original
		if mode == Approx {
			gone = 0
		}
		send(expiring("a", 5, begin+99_000, HasExpire), gone, false, -1)
		send(expiring("f", 1, begin+60_000, HasExpire), 1, true, begin+60_000)
		clock.advance(time.Minute)
		send(expiring("g", 2, clock.wall+10, HasExpire|IfNoExpire), 2, true, clock.wall+10) // a new counter
		if mode == Exact {
			if op := do(s, expiring("a", 6, begin, HasExpire)); !errors.Is(op.Err, ErrMismatch) {
				t.Errorf("another delta: %+v", op)
			}
		}
	}
}

// TestBoundedApprox: a filter alone knows neither the value nor the increment;
// the reply to a retry assumes that nothing was cut.
func TestBoundedApprox(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.CreateTable(TableOptions{Name: "a", Prefix: "a:", Mode: Approx, Window: time.Hour}))
	wantOp(t, do(s, bounded("a:k", "1", 5, 0, 9, 0)), 5, true)
	incr(s, "a:k", 1)
	op := do(s, bounded("a:k", "1", 5, 0, 9, 0))
	if wantOp(t, op, 6, false); op.Values[0] != 5 {
		t.Errorf("%+v", op)
	}
	op = do(s, bounded("a:k", "2", 5, 0, 9, 0))
	if wantOp(t, op, 6, false); op.Values[0] != 0 {
		t.Errorf("%+v", op)
	}
}

func TestPairID(t *testing.T) {
	ids := make(map[string]string)
	for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"", "abc"}, {"\x01",
		"abc"}, {string(make([]byte, 200)), "x"}} {
		id := string(AppendPairID(nil, []byte(pair[0]), []byte(pair[1])))
		if old, ok := ids[id]; ok {
			t.Errorf("%q and %q have one opid", old, pair)
		}
		ids[id] = fmt.Sprintf("%q", pair)
		op := Op{ID: []byte(id), Flags: PairID}
		if got := string(op.timeID()); got != pair[1] {
			t.Errorf("%q: time is read from %q", pair, got)
		}
	}
	for _, bad := range []string{"", "\x05ab", "\xff"} {
		op := Op{ID: []byte(bad), Flags: PairID}
		if got := op.timeID(); got != nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

// TestIncrexTTL: a bounded increment tells what its counter has left after it: of a refusal and a
// duplicate the present time, which no retry changes, and none of a counter whose time has come.
func TestIncrexTTL(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	left := func(step string, op Op, value, made, want int64) {
		t.Helper()
		op.Key, op.Delta, op.Flags = []byte("k"), 1, op.Flags|WithTTL
		got := do(s, op)
		if got.Err != nil || got.Value != value || !slices.Equal(got.Values, []int64{made, want}) {
			t.Errorf("%s: %v, %d, %d, want %d, %d, %d", step, got.Err, got.Value, got.Values, value, made, want)
		}
	}
	wall, _ := clock.now()
	first := Op{Kind: CIncrEx, ID: []byte("1"), Flags: HasExpire, ExpireAt: wall + 5000}
	left("none", Op{Kind: IncrEx}, 1, 1, -1)
	left("set", first, 2, 1, 5000)
	clock.advance(2 * time.Second)
	left("duplicate", first, 2, 1, 3000)
	left("kept", Op{Kind: CIncrEx, ID: []byte("2")}, 3, 1, 3000)
	left("refused", Op{Kind: IncrEx, Deltas: []int64{0, 3}}, 3, 0, 3000)
	left("removed", Op{Kind: IncrEx, Flags: NoExpire}, 4, 1, -1)
	left("again", Op{Kind: IncrEx, Flags: HasExpire, ExpireAt: wall + 4000}, 5, 1, 2000)
	clock.advance(3 * time.Second)
	left("over", first, 2, 1, -1)
	left("refused when over", Op{Kind: IncrEx, Deltas: []int64{5, 9}}, 0, 0, -1)
	left("gone at once", Op{Kind: IncrEx, Flags: HasExpire, ExpireAt: 1}, 1, 1, -1)
}
