package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"
)

// openHold opens a hold that lasts a minute.
func openHold(t *testing.T, s *Store, clock *fakeClock, key, id string, amount int64) {
	t.Helper()
	wall, _ := clock.now()
	if op := do(s, Op{Kind: CHold, Key: []byte(key), ID: []byte(id), Delta: amount,
		ExpireAt: wall + time.Minute.Milliseconds()}); op.Err != nil {
		t.Fatalf("hold %s of %s: %v", id, key, op.Err)
	}
}

// TestHoldsMeetINCREX: holds narrow the bounds of INCREX up to the ends of the integers, and an increment
// that is clipped to them never goes back.
func TestHoldsMeetINCREX(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	for _, c := range []struct {
		key           string
		value, held   int64
		delta         int64
		bounds        [2]int64
		flags         Flags
		want, changed int64
	}{
		{"all that a decrement can take is held", 0, math.MinInt64, -1, [2]int64{-10, 10}, 0, 0, 0},
		{"the same, clipped", 0, math.MinInt64, -1, [2]int64{-10, 10}, Saturate, 0, 0},
		{"all that can be added is held", 0, math.MaxInt64, 1, [2]int64{-10, 10}, 0, 0, 0},
		{"down, and less is left than is held", 3, -5, -1, [2]int64{0, 100}, Saturate, 3, 0},
		{"up, and less is left than is held", 3, -5, 1, [2]int64{0, 100}, Saturate, 4, 1},
		{"up, and there is less room than is held", 3, 5, 1, [2]int64{0, 5}, Saturate, 3, 0},
		{"down, and there is less room than is held", 3, 5, -1, [2]int64{0, 5}, Saturate, 2, -1},
		{"up to what is held", 3, 5, 9, [2]int64{0, 10}, Saturate, 5, 2},
		{"down to what is held", 9, -5, -9, [2]int64{0, 10}, Saturate, 5, -4},
		{"beyond the bound itself", 7, 5, 1, [2]int64{0, 5}, Saturate, 5, -2},
	} {
		must(t, do(s, Op{Kind: Set, Key: []byte(c.key), Delta: c.value}).Err)
		openHold(t, s, clock, c.key, "hold", c.held)
		op := do(s, Op{Kind: IncrEx, Key: []byte(c.key), Delta: c.delta, Deltas: c.bounds[:], Flags: c.flags})
		if op.Err != nil || op.Value != c.want || len(op.Values) != 1 || op.Values[0] != c.changed {
			t.Errorf("%s: %d, %v, %v; want %d, [%d]", c.key, op.Value, op.Values, op.Err, c.want, c.changed)
		}
	}
}

// TestEndedHoldsTakeNoMemory: holds that have ended leave neither notes for the next checkpoint nor slots.
func TestEndedHoldsTakeNoMemory(t *testing.T) {
	var h holdings
	hash := func(id string) uint64 { return hotHash([]byte(id)) }
	open := func(i int) *hold {
		o := &hold{id: fmt.Sprint(i), amount: 1, expires: int64(i)}
		h.open(hash(o.id), []byte("k"), o)
		return o
	}
	open(-1)
	for i := range 50_000 {
		h.end(open(i))
	}
	if n := cap(h.opened); n > 100 {
		t.Errorf("the next checkpoint has notes of %d holds, of which one is open", n)
	}
	var all []*hold
	for i := range 10_000 {
		all = append(all, open(i))
	}
	for _, o := range all {
		h.end(o)
	}
	if k := h.keys["k"]; k.count != 1 || len(k.slots) > 16 {
		t.Errorf("%d holds have %d slots", k.count, len(k.slots))
	}
	if h.find(hash("-1"), []byte("k"), []byte("-1")) == nil {
		t.Error("the open hold is not found")
	}
	if s := h.takeChanged(); len(s.put) != 1 || len(s.gone) != 0 {
		t.Errorf("a checkpoint writes %d holds and deletes %d, want the open one", len(s.put), len(s.gone))
	}
}

// TestOpenHoldsAreSmall: an open hold takes no more memory than it is charged, beside its opid, also where
// the slots have just grown.
func TestOpenHoldsAreSmall(t *testing.T) {
	if !measuresAlone(t) {
		return
	}
	for _, n := range []int{60_000, 98_400, 190_000} {
		var h holdings
		before := heapBytes()
		for i := range n {
			id := string(binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i)))
			o := &hold{id: id, amount: 1, expires: int64(i)}
			h.open(hotHash([]byte(id)), []byte("counter"), o)
		}
		h.opened = nil // as behind a checkpoint
		if each := float64(heapBytes()-before)/float64(n) - 16; each > holdBytes {
			t.Errorf("%d open holds take %.1f bytes each beside their opids", n, each)
		}
		runtime.KeepAlive(h)
	}
}

// TestManyHoldsEndAtOnce: one look ends all the holds of a counter whose time has come.
func TestManyHoldsEndAtOnce(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock, o.Partitions = clock.now, 1 })
	const holds = 20_000
	wall, _ := clock.now()
	var b Batch
	for i := range holds {
		op := b.Add(CHold)
		op.Key, op.ID, op.Delta, op.ExpireAt = []byte("k"), fmt.Append(nil, i), 1, wall+1000
		if len(b.Ops) == 1000 {
			s.Execute(&b)
			must(t, b.Ops[0].Err)
			b.Reset()
		}
	}
	p := s.partitions[0]
	if n := len(p.holds.due); n != holds {
		t.Fatalf("%d holds are open", n)
	}
	clock.advance(time.Second)
	s.expireHolds(p, new(Batch))
	if n := len(p.holds.due); n > 0 {
		t.Errorf("%d holds are open behind their time", n)
	}
}

// TestOldOperationMeetsHold: an operation with the opid of a hold is refused for that, however old it is.
func TestOldOperationMeetsHold(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	openHold(t, s, clock, "k", "id", 5)
	wall, _ := clock.now()
	old := Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("id"), Delta: 5, Flags: HasAt,
		At: wall - time.Hour.Milliseconds()}
	for _, how := range []string{"open", "cancelled"} {
		if err := do(s, old).Err; !errors.Is(err, ErrMismatch) {
			t.Errorf("an old increment with the opid of a hold that is %s: %v", how, err)
		}
		must(t, do(s, Op{Kind: CCancel, Key: []byte("k"), ID: []byte("id")}).Err)
	}
	must(t, do(s, Op{Kind: CGetDel, Key: []byte("k"), ID: []byte("drain")}).Err)
	err := do(s, Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("drain")}).Err
	if !errors.Is(err, ErrMismatch) {
		t.Errorf("an increment with the opid of a drain: %v", err)
	}
}

// TestObjectMeetsHolds: no object takes the key of open holds, which could not be seen or settled any more.
func TestObjectMeetsHolds(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	key := []byte("k")
	create := []Op{{Kind: FBFAdd, Key: key, Keys: keysOf("x")}, {Kind: FBFReserve, Key: key},
		{Kind: BFAdd, Key: key, Keys: keysOf("x")}, {Kind: BFReserve, Key: key},
		{Kind: CMSInit, Key: key, Object: &SketchOptions{Width: 8, Depth: 2}}}
	openHold(t, s, clock, "k", "1", 5)
	for _, op := range create {
		if got := do(s, op); !errors.Is(got.Err, ErrKeyHeld) {
			t.Errorf("operation %d beside a hold: %v", op.Kind, got.Err)
		}
	}
	wantOp(t, do(s, Op{Kind: CSettle, Key: key, ID: []byte("1"), Delta: 3}), 3, true)
	do(s, Op{Kind: Del, Keys: keysOf("k")})
	for _, op := range create {
		must(t, do(s, op).Err)
		do(s, Op{Kind: Del, Keys: keysOf("k")})
	}
}
