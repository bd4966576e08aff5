package store

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// TestLogRoom: no operation logs more than the room that is reserved for it before it
// is decided, however long its fields are, and whatever it finds (G8).
func TestLogRoom(t *testing.T) {
	long := func(b byte) []byte { return bytes.Repeat([]byte{b}, 300) }
	far := int64(math.MaxInt64 / 2)
	items := [][]byte{long('x'), []byte("y"), nil}
	keys := [][]byte{long('a'), append(long('b'), 1), append(long('c'), 2)}
	bounds := []int64{math.MinInt64 + 1, math.MinInt64 + 1}
	header, _ := sketch.AppendBloom(nil, BloomOptions{Error: 0.1, Capacity: 10, Expansion: 2})
	write := map[string]Op{
		"CIncrBy":  {Kind: CIncrBy, ID: long('i'), Delta: math.MinInt64},
		"CMIncrBy": {Kind: CMIncrBy, Keys: keys, Deltas: []int64{math.MinInt64, 1, 2}, ID: long('i')},
		"CIncrEx": {Kind: CIncrEx, ID: long('i'), Delta: math.MinInt64, Deltas: bounds,
			Flags: Saturate | HasExpire, ExpireAt: far},
		"and goes": {Kind: CIncrEx, ID: long('i'), Delta: math.MinInt64, Deltas: bounds,
			Flags: Saturate | HasExpire, ExpireAt: 1},
		"IncrEx": {Kind: IncrEx, Delta: math.MinInt64, Deltas: bounds, Flags: Saturate | HasExpire,
			ExpireAt: far},
		"IncrBy":   {Kind: IncrBy, Delta: math.MinInt64},
		"Set":      {Kind: Set, Delta: math.MinInt64, Flags: HasExpire, ExpireAt: far},
		"MSet":     {Kind: MSet, Keys: keys, Deltas: []int64{math.MinInt64, 1, 2}},
		"Del":      {Kind: Del, Keys: keys},
		"GetDel":   {Kind: GetDel},
		"GetEx":    {Kind: GetEx, Flags: HasExpire, ExpireAt: far},
		"ExpireAt": {Kind: ExpireAt, ExpireAt: far},
		"Persist":  {Kind: Persist},
		"FlushAll": {Kind: FlushAll},
		"FBFAdd": {Kind: FBFAdd, Keys: items,
			Object: &FilterOptions{Window: MaxWindow, Error: 1.2345678901234567e-6, Capacity: 1234}},
		"FBFReserve": {Kind: FBFReserve,
			Object: &FilterOptions{Fixed: true, Bits: 12345, Hashes: 32, Past: 64, Refresh: MaxWindow}},
		"FBFRefresh": {Kind: FBFRefresh},
		"CMSInit":    {Kind: CMSInit, Object: &SketchOptions{Width: 12345, Depth: 7, Cell: 8}},
		"CMSIncrBy":  {Kind: CMSIncrBy, Keys: items, Deltas: []int64{1 << 40, 1 << 50, 1}},
		"CMSMerge":   {Kind: CMSMerge, Keys: keys, Deltas: []int64{2, 3}},
		"BFReserve":  {Kind: BFReserve},
		"BFCAdd": {Kind: BFCAdd, ID: long('i'), Keys: items,
			Object: &BloomOptions{Error: 0.01, Capacity: 1, Expansion: 1}},
		"CMSCIncrBy": {Kind: CMSCIncrBy, ID: long('i'), Keys: items, Deltas: []int64{1 << 40, 1 << 50, 1}},
		"BFLoad":     {Kind: BFLoad, Delta: 145, Keys: [][]byte{bytes.Repeat([]byte{7}, 144)}},
		"a header":   {Kind: BFLoad, Delta: 1, Keys: [][]byte{header}},
		"BFAdd":      {Kind: BFAdd, Keys: items},
		"in turn":    {Kind: CMSIncrBy, Keys: items, Deltas: []int64{1 << 40, 1 << 50, -1}},
	}
	logged := make(map[string]bool)
	for was, before := range map[string][]Op{
		"a counter": {{Kind: Set, Delta: -5, Flags: HasExpire, ExpireAt: far}},
		"a filter":  {{Kind: FBFAdd, Keys: items}, {Kind: ExpireAt, ExpireAt: far}},
		"a sketch": {{Kind: CMSInit, Object: &SketchOptions{Width: 1000, Depth: 3, Cell: 8}},
			{Kind: CMSIncrBy, Keys: items, Deltas: []int64{1, 2, 3}}, {Kind: ExpireAt, ExpireAt: far}},
		"bits":    {{Kind: BFAdd, Keys: items[:1]}, {Kind: ExpireAt, ExpireAt: far}},
		"nothing": {},
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
					t.Errorf("%s of what was %s (expired: %v) took %d bytes of the log, but reserved %d",
						name, was, gone, used, room)
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
// of the background work, which holds no more than a tombstone; a large change has several.
func loggedBy(t *testing.T, s *Store, op Op) (used, room int64) {
	from := s.Stats().Entries + 1
	b := Batch{Ops: []Op{op}}
	x := &b.execution
	x.begin(s, &b)
	more := x.room
	if x.flushes {
		s.snapshots.lock()
	}
	x.commitShares()
	if x.flushes {
		s.snapshots.unlock()
	}
	more = x.room - more
	x.giveBackRoom()
	x.wait()
	must(t, s.CloseNow())
	db, err := persistence.OpenReadOnly(persistence.Options{FS: s.opts.FS, Dir: s.opts.Dir,
		Fatal: func(error) {}})
	must(t, err)
	defer db.Close()
	must(t, db.Log().Read(0, from, func(_ uint64, record []byte) error {
		if size := int64(len(record)) + oplog.SectionOverhead; more > 0 {
			used += size
		} else {
			used = max(used, size)
		}
		return nil
	}))
	return used, op.logRoom(1) + more
}

// TestKinds: every kind of a type is declared, and says whether it writes.
func TestKinds(t *testing.T) {
	declared := map[Type][]kind{TypeCounter: kinds[CIncrBy : IfUnchanged+1]}
	for typ, o := range objectTypes {
		if o != nil {
			declared[Type(typ)] = o.kinds()
		}
	}
	for typ, list := range declared {
		if len(list) == 0 || len(list) > kindsPerType {
			t.Errorf("type %d has %d kinds", typ, len(list))
		}
		for i, k := range list {
			if k.turn == nil || (k.is&writes != 0) != (k.entries > 0) {
				t.Errorf("kind %d of type %d is not declared, or logs nothing although it writes, or the "+
					"other way round", i, typ)
			}
		}
	}
}

// TestEntriesSayWhatWasAsked: the log tells an increment from a value that was set, a new
// expiry from a new value, and a deletion from an expiry.
func TestEntriesSayWhatWasAsked(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Partitions, o.Clock = 1, clock.now })
	key, soon := []byte("k"), clock.wall+1000
	keys := [][]byte{key}
	for _, op := range []Op{
		{Kind: IncrBy, Key: key, Delta: 5},
		{Kind: IncrEx, Key: key, Delta: 100, Deltas: []int64{0, 7}, Flags: Saturate},
		{Kind: ExpireAt, Key: key, ExpireAt: soon},
		{Kind: GetEx, Key: key, Flags: NoExpire},
		{Kind: Set, Key: key, Delta: -3},
		{Kind: Del, Keys: keys},
		{Kind: FBFReserve, Key: key},
		{Kind: ExpireAt, Key: key, ExpireAt: soon},
		{Kind: Persist, Key: key},
		{Kind: ExpireAt, Key: key, ExpireAt: 1},
		{Kind: Set, Key: key, Delta: 9, Flags: HasExpire, ExpireAt: soon},
	} {
		must(t, do(s, op).Err)
	}
	clock.step(2 * time.Second)
	do(s, Op{Kind: removeExpired, Keys: keys})
	must(t, s.CloseNow())
	db, err := persistence.OpenReadOnly(persistence.Options{FS: s.opts.FS, Dir: s.opts.Dir,
		Fatal: func(error) {}})
	must(t, err)
	defer db.Close()
	var got []string
	must(t, db.Log().Read(0, 1, func(_ uint64, record []byte) error {
		entries, _, err := readRecord(record)
		for _, e := range entries {
			if e.kind != entryCatalog && e.kind != entryCreate {
				got = append(got, fmt.Sprintf("%d flags %02x type %d: %d to %d, clip %d, until %d", e.kind,
					uint8(e.flags), e.typ, e.delta, e.value, e.clip, max(e.expire-soon, -1)))
			}
		}
		return err
	}))
	want := []string{
		"11 flags 01 type 0: 5 to 5, clip 0, until -1",
		"11 flags 20 type 0: 100 to 7, clip 98, until -1",
		"10 flags 04 type 1: 0 to 7, clip 0, until 0",
		"10 flags 00 type 1: 0 to 7, clip 0, until -1",
		"2 flags 00 type 0: 0 to -3, clip 0, until -1",
		"3 flags 00 type 0: 0 to 0, clip 0, until -1",
		"10 flags 04 type 2: 0 to 0, clip 0, until 0",
		"10 flags 00 type 2: 0 to 0, clip 0, until -1",
		"3 flags 10 type 0: 0 to 0, clip 0, until -1",
		"2 flags 05 type 0: 0 to 9, clip 0, until 0",
		"3 flags 40 type 0: 0 to 0, clip 0, until -1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged:\n%s\ninstead of:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
