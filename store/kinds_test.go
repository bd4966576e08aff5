package store

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestLogRoom: no operation logs more than the room that is reserved for it before it
// is decided, however long its fields are, and whatever it finds (G8).
func TestLogRoom(t *testing.T) {
	long := func(b byte) []byte { return bytes.Repeat([]byte{b}, 300) }
	far := int64(math.MaxInt64 / 2)
	items := [][]byte{long('x'), []byte("y"), nil}
	keys := [][]byte{long('a'), append(long('b'), 1), append(long('c'), 2)}
	bounds := []int64{math.MinInt64 + 1, math.MinInt64 + 1}
	write := map[string]Op{
		"CIncrBy":    {Kind: CIncrBy, ID: long('i'), Delta: math.MinInt64},
		"CMIncrBy":   {Kind: CMIncrBy, Keys: keys, Deltas: []int64{math.MinInt64, 1, 2}, ID: long('i')},
		"CIncrEx":    {Kind: CIncrEx, ID: long('i'), Delta: math.MinInt64, Deltas: bounds, Flags: Saturate | HasExpire, ExpireAt: far},
		"and goes":   {Kind: CIncrEx, ID: long('i'), Delta: math.MinInt64, Deltas: bounds, Flags: Saturate | HasExpire, ExpireAt: 1},
		"IncrEx":     {Kind: IncrEx, Delta: math.MinInt64, Deltas: bounds, Flags: Saturate | HasExpire, ExpireAt: far},
		"IncrBy":     {Kind: IncrBy, Delta: math.MinInt64},
		"Set":        {Kind: Set, Delta: math.MinInt64, Flags: HasExpire, ExpireAt: far},
		"MSet":       {Kind: MSet, Keys: keys, Deltas: []int64{math.MinInt64, 1, 2}},
		"Del":        {Kind: Del, Keys: keys},
		"GetDel":     {Kind: GetDel},
		"GetEx":      {Kind: GetEx, Flags: HasExpire, ExpireAt: far},
		"ExpireAt":   {Kind: ExpireAt, ExpireAt: far},
		"Persist":    {Kind: Persist},
		"FlushAll":   {Kind: FlushAll},
		"FBFAdd":     {Kind: FBFAdd, Keys: items, Filter: &FilterOptions{Window: MaxWindow, Error: 1.2345678901234567e-6, Capacity: 1234}},
		"FBFReserve": {Kind: FBFReserve, Filter: &FilterOptions{Fixed: true, Bits: 12345, Hashes: 32, Past: 64, Refresh: MaxWindow}},
		"FBFRefresh": {Kind: FBFRefresh},
	}
	logged := make(map[string]bool)
	for was, before := range map[string][]Op{
		"a counter": {{Kind: Set, Delta: -5, Flags: HasExpire, ExpireAt: far}},
		"a filter":  {{Kind: FBFAdd, Keys: items}, {Kind: ExpireAt, ExpireAt: far}},
		"nothing":   {},
	} {
		for name, op := range write {
			for _, gone := range []bool{false, true} {
				clock := newFakeClock()
				s := testStore(t, func(o *Options) { o.Partitions, o.Clock = 1, clock.now })
				for _, key := range append(keys, long('k')) {
					for _, op := range before {
						if op.Key = key; gone && op.ExpireAt != 0 {
							op.ExpireAt = clock.wall + 10
						}
						must(t, do(s, op).Err)
					}
				}
				if gone { // but not yet removed
					clock.step(20 * time.Millisecond)
				}
				op.Key = long('k')
				if op.Kind == FlushAll {
					op.Key = nil
				}
				used, room := loggedBy(t, s, op)
				if logged[name] = logged[name] || used > 0; used > room {
					t.Errorf("%s of what was %s (expired: %v) took %d bytes of the log, but reserved %d", name, was, gone, used, room)
				}
			}
		}
	}
	for name := range write {
		if !logged[name] {
			t.Errorf("%s logs nothing", name)
		}
	}
}

// loggedBy executes an operation in a store of one partition, closes it, and returns what
// the operation took in the log and what was reserved. Beside its record there may be one
// of the background work, which holds no more than a tombstone.
func loggedBy(t *testing.T, s *Store, op Op) (used, room int64) {
	from := s.Stats().Entries + 1
	do(s, op)
	must(t, s.CloseNow())
	db, err := persistence.OpenReadOnly(persistence.Options{FS: s.opts.FS, Dir: s.opts.Dir, Fatal: func(error) {}})
	must(t, err)
	defer db.Close()
	must(t, db.ReadLog(0, from, func(_ uint64, record []byte) error {
		used = max(used, int64(len(record))+persistence.RecordOverhead)
		return nil
	}))
	return used, op.logRoom(1)
}

// TestKinds: every kind between the first and the last of a type is declared.
func TestKinds(t *testing.T) {
	for first, last := range map[Kind]Kind{CIncrBy: IfUnchanged, FBFReserve: FBFInfo} {
		for k := first; k <= last; k++ {
			if kinds[k].turn == nil || k.Write() != (kinds[k].entries > 0) {
				t.Errorf("kind %d is not declared, or logs nothing although it writes, or the other way round", k)
			}
		}
	}
}
