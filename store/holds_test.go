package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// holdModel is the exact reference of holds on a few keys of one table without bounds.
type holdModel struct {
	value map[string]int64
	open  map[[2]string]*modelHold
	ended map[[2]string]*modelHold
}

type modelHold struct {
	amount, reply, expires int64
	how                    string
	settled, result        int64
}

func (m *holdModel) sums(key string) (up, down, n int64) {
	for k, h := range m.open {
		if k[0] == key {
			up, down, n = up+max(h.amount, 0), down+min(h.amount, 0), n+1
		}
	}
	return up, down, n
}

// end ends the holds whose time has come.
func (m *holdModel) end(wall int64) {
	for k, h := range m.open {
		if h.expires <= wall {
			h.how = "expired"
			m.ended[k] = h
			delete(m.open, k)
		}
	}
}

// hold is what CHOLD answers.
func (m *holdModel) hold(key, id string, amount, expires, lower, upper int64) (int64, error) {
	k := [2]string{key, id}
	for _, known := range []*modelHold{m.open[k], m.ended[k]} {
		switch {
		case known == nil:
		case known.amount != amount:
			return 0, ErrMismatch
		default:
			return known.reply, nil
		}
	}
	up, down, _ := m.sums(key)
	left := m.value[key] + amount + up
	if amount < 0 {
		left = m.value[key] + amount + down
	}
	if amount > 0 && left > upper || amount < 0 && left < lower {
		return 0, ErrBound
	}
	m.open[k] = &modelHold{amount: amount, reply: left, expires: expires}
	return left, nil
}

// settle is what CSETTLE and CCANCEL answer; cancel has no amount.
func (m *holdModel) settle(key, id string, amount int64, cancel bool) (int64, error) {
	k := [2]string{key, id}
	if h := m.ended[k]; h != nil {
		switch {
		case h.how == "increment":
			return 0, ErrMismatch
		case h.how == "expired":
			return 0, ErrHoldExpired
		case cancel && h.how == "cancelled":
			return m.value[key], nil
		case !cancel && h.how == "settled" && h.settled == amount:
			return h.result, nil
		}
		return 0, ErrEnded
	}
	h := m.open[k]
	switch {
	case h == nil:
		return 0, ErrNoHold
	case !cancel && amount != 0 && (amount > 0) != (h.amount > 0):
		return 0, ErrHoldSign
	}
	h.how = "cancelled"
	if !cancel {
		m.value[key] += amount
		h.how, h.settled, h.result = "settled", amount, m.value[key]
	}
	m.ended[k] = h
	delete(m.open, k)
	return m.value[key], nil
}

// TestHoldModel compares holds, retries, ends and restarts with the reference: a hold ends once, what it sets
// aside is judged by bounds until then, and nothing is lost by a checkpoint, a rebuild or a start.
func TestHoldModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testHoldModel(t, seed) })
	}
}

func testHoldModel(t *testing.T, seed uint64) {
	clock, fs := newFakeClock(), vfs.NewCrashableMem()
	with := func(o *Options) { o.FS, o.Clock, o.Partitions = fs, clock.now, 2 }
	s := testStore(t, with)
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(24 * time.Hour), IDTime: ptr(IDTimeNone)}))
	m := &holdModel{map[string]int64{}, map[[2]string]*modelHold{}, map[[2]string]*modelHold{}}
	rnd := rand.New(rand.NewPCG(seed, 1))
	keys := []string{"a", "b", "a key that is too long to be kept inside of its counter"}
	for i := range 3000 {
		key, id := keys[rnd.IntN(len(keys))], fmt.Sprint(rnd.IntN(i/4+2))
		wall, _ := clock.now()
		m.end(wall)
		amount := int64(rnd.IntN(9) - 4)
		switch rnd.IntN(12) {
		case 0, 1, 2, 3:
			if amount == 0 {
				continue
			}
			expires := wall + int64(rnd.IntN(20000)) + 1
			op := do(s, Op{Kind: CHold, Key: []byte(key), ID: []byte(id), Delta: amount, ExpireAt: expires,
				Deltas: []int64{-20, 20}})
			want, err := m.hold(key, id, amount, expires, -20, 20)
			wantHold(t, "hold", op, want, err)
		case 4, 5, 6:
			op := do(s, Op{Kind: CSettle, Key: []byte(key), ID: []byte(id), Delta: amount})
			want, err := m.settle(key, id, amount, false)
			wantHold(t, "settle", op, want, err)
		case 7:
			op := do(s, Op{Kind: CCancel, Key: []byte(key), ID: []byte(id)})
			want, err := m.settle(key, id, 0, true)
			wantHold(t, "cancel", op, want, err)
		case 8:
			up, down, n := m.sums(key)
			for _, p := range s.partitions {
				s.expireHolds(p, new(Batch))
			}
			op := do(s, Op{Kind: CHeld, Key: []byte(key)})
			if got := op.Object.(HeldInfo); op.Value != m.value[key] || got != (HeldInfo{up, down, n}) {
				t.Fatalf("held: %d %+v, want %d %d %d %d", op.Value, got, m.value[key], up, down, n)
			}
			wantHolds(t, s, m, key)
		case 9:
			op := cincr(s, key, id, 1)
			k := [2]string{key, id}
			ended := m.ended[k]
			switch isHold := m.open[k] != nil || ended != nil && ended.how != "increment"; {
			case isHold != errors.Is(op.Err, ErrMismatch):
				t.Fatalf("an increment with the opid of a hold: %v", op.Err)
			case op.Applied:
				m.value[key]++
				m.ended[k] = &modelHold{how: "increment", amount: math.MaxInt64}
			}
		case 10:
			clock.advance(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		case 11:
			if rnd.IntN(12) == 0 { // all that was answered is durable
				fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
				s = testStore(t, with)
			}
			restart(t, rnd, &s, with)
		}
	}
	for _, p := range s.partitions {
		if len(p.holds.keys) > len(keys) {
			t.Errorf("partition %d: %d bytes of holds of %d keys", p.id, p.holds.bytes, len(p.holds.keys))
		}
	}
	clock.advance(time.Hour)
	filters := int64(0)
	for _, p := range s.partitions {
		s.expireHolds(p, new(Batch))
		if p.holds.bytes != 0 || p.holds.sum != 0 || len(p.holds.keys) > 0 {
			t.Errorf("partition %d: %d bytes of holds that have ended", p.id, p.holds.bytes)
		}
		for _, table := range p.tables {
			filters += int64(table.filter.Bytes())
		}
	}
	if now := s.Stats().FilterBytes; now != filters {
		t.Errorf("%d bytes of memory, of which filters have %d", now, filters)
	}
	for _, key := range keys {
		if v, _ := get(s, key); v != m.value[key] {
			t.Errorf("%s is %d, want %d", key, v, m.value[key])
		}
	}
}

// restart saves, rebuilds or starts a store anew, one in so many times.
func restart(t *testing.T, rnd *rand.Rand, s **Store, with func(*Options)) {
	switch rnd.IntN(12) {
	case 0:
		must(t, (*s).Close())
		*s = testStore(t, with)
	case 1, 2:
		must(t, (*s).Snapshot())
	case 3:
		for _, p := range (*s).partitions {
			must(t, (*s).rebuild(cut{p, math.MaxUint64}))
		}
	}
}

func wantHold(t *testing.T, what string, op Op, want int64, err error) {
	t.Helper()
	if !errors.Is(op.Err, err) || err == nil && op.Value != want {
		t.Fatalf("%s %s %d: got %d, %v; want %d, %v", what, op.ID, op.Delta, op.Value, op.Err, want, err)
	}
}

// TestHoldTable: a hold is found as long as it is open, and only then, and a scan that begins before the
// table grows and shrinks finds all that stay.
func TestHoldTable(t *testing.T) {
	var h holdings
	hash := func(id string) uint64 { return hotHash([]byte(id)) & 0xffff000000000000 } // few homes
	key, open := []byte("k"), map[string]*hold{}
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 2000 {
		id := fmt.Sprint(rnd.IntN(300))
		if o := open[id]; o == nil {
			o = &hold{id: id, amount: int64(rnd.IntN(9) + 1), expires: int64(rnd.IntN(1000))}
			open[id] = o
			h.open(hash(id), key, o)
		} else if i%300 < 200 {
			delete(open, id)
			h.end(o)
		}
		up := int64(0)
		for id, o := range open {
			if up += o.amount; h.find(hash(id), key, []byte(id)) != o {
				t.Fatalf("the hold %s is not found", id)
			}
		}
		if got, _ := h.of(key); got != up || len(h.due) != len(open) {
			t.Fatalf("%d are set aside by %d holds, want %d by %d", got, len(h.due), up, len(open))
		}
		if next := h.next(math.MaxInt64); next != nil {
			for _, o := range open {
				if o.expires < next.expires {
					t.Fatalf("%d expires after %d", next.expires, o.expires)
				}
			}
		}
	}
	k, found := h.keys["k"], map[string]bool{}
	stay := make([]string, 0, len(open))
	for id := range open {
		stay = append(stay, id)
	}
	for cursor, first := uint32(0), true; first || cursor != 0; first = false {
		cursor = k.scan(cursor, 3, func(o *hold) { found[o.id] = true })
		for range 40 { // they come between, and go again
			id := fmt.Sprint("new", rnd.Int())
			h.open(hash(id), key, &hold{id: id, amount: 1})
		}
	}
	for _, id := range stay {
		if !found[id] {
			t.Errorf("a scan has not found the hold %s", id)
		}
	}
	for _, o := range slices.Clone(h.due) {
		h.end(o)
	}
	o := &hold{id: "again", amount: 1}
	if h.open(hash(o.id), key, o); h.find(hash(o.id), key, []byte(o.id)) != o {
		t.Error("a hold of a key that had none left is not found")
	}
}

// FuzzHold: bytes of a hold's row that are accepted say the same when they are written again.
func FuzzHold(f *testing.F) {
	f.Add([]byte("id"), (&hold{amount: -5, reply: 1 << 62, expires: 1e12, opened: 1e12}).encode(nil))
	f.Fuzz(func(t *testing.T, id, b []byte) {
		o, err := decodeHold(id, b)
		if err != nil {
			if !errors.Is(err, errCorruptEntry) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeHold(id, o.encode(nil))
		if err != nil || *again != *o {
			t.Fatalf("%+v, %v; %+v", again, err, o)
		}
	})
}

// TestHoldsMeetRegions: where regions share counters there are no holds and no drains, and no member begins
// with open holds of theirs.
func TestHoldsMeetRegions(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, s.CreateTable(TableOptions{Name: "own", Prefix: "own:", Regions: RegionsNone}))
	hold := func(key, id string) error {
		return do(s, Op{Kind: CHold, Key: []byte(key), ID: []byte(id), Delta: 1, ExpireAt: math.MaxInt64}).Err
	}
	must(t, hold("own:k", "1"))
	must(t, hold("k", "1"))
	if err := s.SetRegions(regionSet(true)); !errors.Is(err, ErrHoldsOpen) ||
		!strings.Contains(err.Error(), "REGIONS NONE") {
		t.Fatal(err)
	}
	must(t, do(s, Op{Kind: CCancel, Key: []byte("k"), ID: []byte("1")}).Err)
	must(t, s.SetRegions(regionSet(true)))
	must(t, do(s, Op{Kind: CSettle, Key: []byte("own:k"), ID: []byte("1"), Delta: 1}).Err)
	must(t, hold("own:k", "2"))
	if err := hold("k", "2"); !errors.Is(err, ErrHoldRegions) {
		t.Error(err)
	}
	must(t, do(s, Op{Kind: CGetDel, Key: []byte("own:k"), ID: []byte("3")}).Err)
	if err := s.AlterTable("own", TableChange{Regions: ptr(RegionsAll)}); !errors.Is(err, ErrHoldsOpen) {
		t.Error(err)
	}
}

// TestHoldsAreNotSeenEarly: nothing is answered from a hold, its end or a drain before that is durable (G3).
func TestHoldsAreNotSeenEarly(t *testing.T) {
	inBubble(func(t *testing.T) {
		g := newGate()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = g.fs(), 1 })
		must(t, s.AlterTable(DefaultTable, TableChange{Max: ptr(boundAt(10))}))
		hold := func(key string) Op {
			return Op{Kind: CHold, Key: []byte(key), ID: []byte("1"), Delta: 10, ExpireAt: math.MaxInt64}
		}
		cancel := Op{Kind: CCancel, Key: []byte("a"), ID: []byte("1")}
		drain := Op{Kind: CGetDel, Key: []byte("none"), ID: []byte("1")}
		must(t, do(s, hold("a")).Err)
		watched := Op{Kind: IfUnchanged, Keys: keysOf("b"), Deltas: watchKeys(s, "b")}
		g.set(true, nil)
		defer g.set(false, nil)
		first := []Op{cancel, drain, hold("b")}
		second := []Op{cancel, drain, {Kind: IncrBy, Key: []byte("b"), Delta: 1}, watched}
		answers := make(chan Op, 7)
		for _, op := range first {
			seq := s.partitions[0].seq
			go func() { answers <- do(s, op) }()
			waitSeq(t, s, seq+1)
		}
		for _, op := range second {
			go func() { answers <- do(s, op) }()
		}
		synctest.Wait()
		if n := len(answers); n > 0 {
			t.Errorf("%d are answered from the future", n)
		}
		g.set(false, nil)
		refused := 0
		for range 7 {
			if op := <-answers; errors.Is(op.Err, ErrBound) {
				refused++
			} else if op.Err != nil {
				t.Errorf("%+v", op)
			}
		}
		if refused != 1 {
			t.Errorf("%d were refused", refused)
		}
	})(t)
}

// TestFlushEndsHolds: FLUSHALL ends all holds, also those that a checkpoint has saved.
func TestFlushEndsHolds(t *testing.T) {
	fs := vfs.NewMem()
	with := func(o *Options) { o.FS = fs }
	s := testStore(t, with)
	for i := range 2 {
		id := []byte(fmt.Sprint(i))
		must(t, do(s, Op{Kind: CHold, Key: []byte("k"), ID: id, Delta: 1, ExpireAt: math.MaxInt64}).Err)
		if i == 0 {
			must(t, s.Snapshot())
		}
	}
	must(t, do(s, Op{Kind: FlushAll}).Err)
	for range 2 {
		if held := do(s, Op{Kind: CHeld, Key: []byte("k")}).Object; held != (HeldInfo{}) {
			t.Fatalf("behind FLUSHALL %+v is held", held)
		}
		must(t, s.Close())
		s = testStore(t, with)
	}
	op := do(s, Op{Kind: CSettle, Key: []byte("k"), ID: []byte("0"), Delta: 1})
	if !errors.Is(op.Err, ErrNoHold) {
		t.Fatal(op.Err)
	}
}

// TestHoldTwins: what one batch opens and ends is known to the rest of it.
func TestHoldTwins(t *testing.T) {
	s := testStore(t, nil)
	for _, atomic := range []bool{false, true} {
		key := []byte(fmt.Sprint("k", atomic))
		var b Batch
		b.Atomic = atomic
		add := func(kind Kind, delta int64) *Op {
			op := b.Add(kind)
			op.Key, op.ID, op.Delta, op.ExpireAt = key, []byte("1"), delta, math.MaxInt64
			return op
		}
		for _, step := range []struct {
			kind  Kind
			delta int64
		}{{CHold, 5}, {CHold, 5}, {CIncrBy, 5}, {CSettle, 4}, {CSettle, 4}, {CCancel, 0}, {CHold, 5},
			{CIncrBy, 5}, {CHold, 6}} {
			add(step.kind, step.delta)
		}
		s.Execute(&b)
		for i, want := range []error{nil, nil, ErrMismatch, nil, nil, ErrEnded, nil, ErrMismatch,
			ErrMismatch} {
			op := &b.Ops[i]
			if !errors.Is(op.Err, want) || op.Applied != (i == 0 || i == 3) {
				t.Errorf("operation %d: %d, applied %v, %v; want %v", i, op.Value, op.Applied, op.Err, want)
			}
		}
	}
}

// wantHolds compares a whole scan with the reference.
func wantHolds(t *testing.T, s *Store, m *holdModel, key string) {
	t.Helper()
	var got, want []string
	op := Op{Kind: CHolds, Key: []byte(key), At: 2}
	for first := true; first || op.Delta != 0; first = false {
		answer := do(s, op)
		for _, h := range answer.Object.([]HoldInfo) {
			got = append(got, fmt.Sprint(h))
		}
		op.Delta = answer.Value
	}
	for k, h := range m.open {
		if k[0] == key {
			want = append(want, fmt.Sprint(HoldInfo{k[1], h.amount, h.expires}))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Fatalf("holds of %s: %v, want %v", key, got, want)
	}
}

// TestDrain: CGETDEL reads and deletes once, also a counter that is not there, and also behind a start.
func TestDrain(t *testing.T) {
	fs := vfs.NewMem()
	with := func(o *Options) { o.FS = fs }
	s := testStore(t, with)
	drain := func(id string) Op { return do(s, Op{Kind: CGetDel, Key: []byte("k"), ID: []byte(id)}) }
	incr(s, "k", 5)
	first, none := drain("1"), drain("2")
	if first.Value != 5 || !first.Found || !first.Applied || none.Found || !none.Applied {
		t.Fatalf("%+v, %+v", first, none)
	}
	incr(s, "k", 7)
	for range 2 {
		first, none := drain("1"), drain("2")
		if first.Value != 5 || !first.Found || first.Applied || none.Found || none.Applied {
			t.Fatalf("retries: %+v, %+v", first, none)
		}
		must(t, s.Close())
		s = testStore(t, with)
	}
	if v, _ := get(s, "k"); v != 7 {
		t.Errorf("retries have changed the counter to %d", v)
	}
	if err := cincr(s, "k", "1", 0).Err; !errors.Is(err, ErrMismatch) {
		t.Error(err)
	}
}

// TestOtherCommandsOpid: an opid that one command has used is refused to another, and the error says whose it
// is.
func TestOtherCommandsOpid(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	at := func(kind Kind, key string, delta int64) Op {
		return Op{Kind: kind, Key: []byte(key), ID: []byte("id"), Delta: delta}
	}
	op := map[string]func(key string) Op{
		"CINCRBY": func(key string) Op { return at(CIncrBy, key, 3) },
		"INCREX":  func(key string) Op { return at(CIncrEx, key, 3) },
		"CGETDEL": func(key string) Op { return at(CGetDel, key, 0) },
		"BF.CADD": func(key string) Op {
			return Op{Kind: BFCAdd, Key: []byte(key), ID: []byte("id"), Keys: [][]byte{[]byte("item")}}
		},
		"CL.THROTTLE": func(key string) Op { return throttled(key, "id", 5, 1, 60, 1) },
		"CSETTLE":     func(key string) Op { return at(CSettle, key, 3) },
		"CCANCEL":     func(key string) Op { return at(CCancel, key, 0) },
		"CMINCRBY": func(key string) Op {
			return Op{Kind: CMIncrBy, Keys: [][]byte{[]byte(key)}, ID: []byte("id"), Deltas: []int64{3}}
		},
		"CHOLD": func(key string) Op {
			hold := at(CHold, key, 3)
			wall, _ := clock.now()
			hold.ExpireAt = wall + 1000
			return hold
		},
	}
	const increment = "an increment, such as CINCRBY"
	users := map[string]string{"CINCRBY": increment, "INCREX": increment, "CMINCRBY": increment,
		"CGETDEL": "CGETDEL", "CL.THROTTLE": "CL.THROTTLE", "CHOLD": "CHOLD", "CSETTLE": "CHOLD",
		"BF.CADD": "a command of a sketch, such as BF.CADD"}
	for first, user := range users {
		must(t, do(s, op["CHOLD"]("CSETTLE")).Err) // for CSETTLE to end; again it changes nothing
		must(t, do(s, op[first](first)).Err)
		for then := range op {
			ofHolds := then == "CHOLD" || then == "CSETTLE" || then == "CCANCEL"
			if then == first || users[then] == user || user == "CHOLD" && ofHolds {
				continue
			}
			entries := s.Stats().Entries
			err := do(s, op[then](first)).Err
			if want := "opid was used by " + user + ": use a new one"; !errors.Is(err, ErrMismatch) ||
				err.Error() != want || s.Stats().Entries != entries {
				t.Errorf("%s after %s: %v, not %q", then, first, err, want)
			}
		}
	}
}
