package store

import (
	"errors"
	"testing"
	"time"
)

func keysOf(keys ...string) (list [][]byte) {
	for _, k := range keys {
		list = append(list, []byte(k))
	}
	return list
}

// TestMSet: several counters are set by one operation; with NX all or none
// (G6), and what they held before goes, an expiry and a filter too.
func TestMSet(t *testing.T) {
	s := testStore(t, nil)
	clock, _ := s.look()
	do(s, Op{Kind: Set, Key: []byte("a"), Delta: 1, Flags: HasExpire, ExpireAt: clock + 1_000_000})
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	if op := do(s, Op{Kind: MSet, Keys: keysOf("a", "b", "filter", "b"),
		Deltas: []int64{5, 6, 7, 8}}); op.Err != nil || !op.Applied {
		t.Fatalf("MSET: %+v", op)
	}
	for key, want := range map[string]int64{"a": 5, "b": 8, "filter": 7} {
		if v, ok := get(s, key); !ok || v != want {
			t.Errorf("%s = %d %v, want %d", key, v, ok, want)
		}
		if op := do(s, Op{Kind: ExpireTime, Key: []byte(key)}); op.Value != 0 {
			t.Errorf("%s still expires at %d", key, op.Value)
		}
	}
	if n, _ := s.DBSize(); n != 3 {
		t.Errorf("DBSIZE %d", n)
	}
	before := s.Stats().Entries
	if op := do(s, Op{Kind: MSet, Flags: NX, Keys: keysOf("new", "b"),
		Deltas: []int64{1, 1}}); op.Err != nil || op.Applied {
		t.Errorf("MSETNX of an existing key: %+v", op)
	}
	if op := do(s, Op{Kind: MSet, Keys: keysOf("new"), Deltas: nil}); !errors.Is(op.Err, ErrOption) {
		t.Errorf("MSET without values: %+v", op)
	}
	if after := s.Stats().Entries; after != before {
		t.Errorf("refused, but %d entries were logged", after-before)
	}
	if op := do(s,
		Op{Kind: MSet, Flags: NX, Keys: keysOf("new", "new"), Deltas: []int64{1, 2}}); !op.Applied {
		t.Errorf("MSETNX of a new key: %+v", op)
	}
	if v, _ := get(s, "new"); v != 2 {
		t.Errorf("new = %d", v)
	}
}

// TestMSetAfterFlush: the keys of a batch are found anew after its FLUSHALL.
func TestMSetAfterFlush(t *testing.T) {
	s := testStore(t, nil)
	incr(s, "a", 1)
	var b Batch
	b.Add(FlushAll)
	o := b.Add(MSet)
	o.Flags, o.Keys, o.Deltas = NX, keysOf("a", "b"), []int64{2, 3}
	s.Execute(&b)
	if v, _ := get(s, "a"); !b.Ops[1].Applied || v != 2 {
		t.Errorf("%+v, a = %d", b.Ops[1], v)
	}
}

// TestGetEx: reading a counter may change its expiry and nothing else.
func TestGetEx(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	cincr(s, "k", "id", 5)
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	expire := func(want int64) {
		t.Helper()
		if op := do(s, Op{Kind: ExpireTime, Key: []byte("k")}); op.Value != want {
			t.Errorf("expires at %d, want %d", op.Value, want)
		}
	}
	getEx := func(key string, f Flags, at int64) Op {
		return do(s, Op{Kind: GetEx, Key: []byte(key), Flags: f, ExpireAt: at})
	}
	if op := getEx("k", 0, 0); op.Value != 5 || !op.Found {
		t.Errorf("%+v", op)
	}
	expire(0)
	later := clock.wall + time.Hour.Milliseconds()
	if op := getEx("k", HasExpire, later); op.Value != 5 {
		t.Errorf("%+v", op)
	}
	expire(later)
	getEx("k", 0, 0)
	expire(later)
	getEx("k", NoExpire, 0)
	expire(0)
	if op := getEx("none", HasExpire, later); op.Found || op.Err != nil {
		t.Errorf("%+v", op)
	}
	if op := getEx("filter", HasExpire, later); !errors.Is(op.Err, ErrWrongType) {
		t.Errorf("%+v", op)
	}
	if op := getEx("k", HasExpire, clock.wall); op.Value != 5 || !op.Found {
		t.Errorf("%+v", op)
	}
	if _, ok := get(s, "k"); ok {
		t.Error("an expiry that is past deletes")
	}
	wantOp(t, cincr(s, "k", "id", 5), 5, false) // the id is still remembered
}
