package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/part"
)

// Regions of these tests: this store is one, the others are numbers.
const (
	own   = part.Region(1)
	other = part.Region(0)
	third = part.Region(4)
)

// regionSet is the three regions, or if alone only the own one.
func regionSet(alone bool) RegionSet {
	set := RegionSet{Self: own, Members: []RegionMember{{Region: own, Name: "here", Partitions: 1}}}
	if !alone {
		set.Members = []RegionMember{{Region: other, Name: "a",
			Partitions: 1}, set.Members[0], {Region: third, Name: "c", Partitions: 2}}
	}
	return set
}

// regionStore is a store of one partition that is a member, with its file system and clock.
type regionStore struct {
	*Store
	t     *testing.T
	fs    vfs.FS
	clock *fakeClock
}

func newRegionStore(t *testing.T, alone bool) *regionStore {
	r := &regionStore{t: t, fs: vfs.NewMem(), clock: newFakeClock()}
	r.open()
	must(t, r.SetRegions(regionSet(alone)))
	return r
}

func (r *regionStore) open() {
	r.t.Helper()
	r.Store = testStore(r.t, func(o *Options) {
		o.FS, o.Clock, o.Partitions, o.HotCounters = r.fs, r.clock.now, 1, 64
	})
}

// reopen recovers the store as after a crash, and expects the same of all keys.
func (r *regionStore) reopen(keys ...string) {
	r.t.Helper()
	var before []string
	for _, k := range keys {
		before = append(before, r.dump(k))
	}
	size := r.partitions[0].size
	must(r.t, r.CloseNow())
	checkSound(r.t, r.fs, "data")
	r.open()
	for i, k := range keys {
		if after := r.dump(k); after != before[i] {
			r.t.Fatalf("key %s was\n%s\nand after recovery is\n%s", k, before[i], after)
		}
	}
	if r.partitions[0].size != size {
		r.t.Fatalf("DBSIZE was %d and is %d", size, r.partitions[0].size)
	}
}

// counter returns a copy of what memory knows of a key.
func (r *regionStore) counter(key string) *counter {
	r.t.Helper()
	must(r.t, do(r.Store, Op{Kind: ExpireTime, Key: []byte(key)}).Err) // which brings it into memory
	p := r.partitions[0]
	p.lock()
	defer p.mu.Unlock()
	k := p.hot.peek(key)
	if k == nil {
		return new(counter)
	}
	c := k.clone()
	c.setParts(slices.Clone(k.parts()))
	return c
}

// dump is all that there is to know of a key.
func (r *regionStore) dump(key string) string {
	r.t.Helper()
	c := r.counter(key)
	return fmt.Sprintf("kind %d, %d, expires %d, parts %+v", c.kind, c.value, c.expire, c.parts())
}

// parts are those that another region would be told of in an exchange of states.
func (r *regionStore) parts(key string) part.Parts {
	c := r.counter(key)
	return c.asParts(own)
}

func (r *regionStore) merge(key string, changes ...Change) Op {
	r.t.Helper()
	op := do(r.Store, Op{Kind: regionMerge, Key: []byte(key), Object: changes})
	must(r.t, op.Err)
	return op
}

func (r *regionStore) must(ops ...Op) {
	r.t.Helper()
	for _, op := range ops {
		must(r.t, do(r.Store, op).Err)
	}
}

func added(from part.Region, seq uint64, delta int64) Change {
	return Change{Kind: ChangeAdd, Region: from, Seq: seq, Delta: delta}
}

// shows expects a key to be what clients see of it.
func (r *regionStore) shows(key string, value int64, exists bool) {
	r.t.Helper()
	v, ok := get(r.Store, key)
	n := do(r.Store, Op{Kind: Exists, Keys: [][]byte{[]byte(key)}}).Value == 1
	typ := do(r.Store, Op{Kind: TypeOf, Key: []byte(key)}).Found
	_, scanned := scanAll(r.t, r.Store)[key]
	if v != value || ok != exists || n != exists || typ != exists || scanned != exists {
		r.t.Fatalf("%s: %d (%v), EXISTS %v, TYPE %v, SCAN %v instead of %d, %v", key, v, ok, n, typ, scanned,
			value, exists)
	}
}

// TestRegionCommands: what each command makes of a key without parts, and of one with.
func TestRegionCommands(t *testing.T) {
	key := []byte("k")
	late := newFakeClock().wall + 100_000
	for name, c := range map[string]struct {
		op     Op
		plain  bool  // a key without parts stays without
		value  int64 // of 5, here, and 7, there: without and with parts
		with   int64
		gone   bool
		expire int64
	}{
		"INCRBY": {op: Op{Kind: IncrBy, Key: key, Delta: 2}, plain: true, value: 7, with: 14},
		"CINCRBY": {op: Op{Kind: CIncrBy, Key: key, ID: []byte("i"), Delta: 2}, plain: true, value: 7,
			with: 14},
		"CMINCRBY": {op: Op{Kind: CMIncrBy, Keys: [][]byte{key}, Deltas: []int64{2}, ID: []byte("i")},
			plain: true, value: 7, with: 14},
		"INCREX": {op: Op{Kind: IncrEx, Key: key, Delta: 2, Deltas: []int64{0, 6}, Flags: Saturate},
			plain: true, value: 6, with: 6},
		"INCREX EX": {op: Op{Kind: IncrEx, Key: key, Delta: 2, Flags: HasExpire, ExpireAt: late},
			value: 7, with: 14, expire: late},
		"INCREX past": {op: Op{Kind: IncrEx, Key: key, Delta: 2, Flags: HasExpire, ExpireAt: 1},
			gone: true},
		"CINCRBY EX": {op: Op{Kind: CIncrEx, Key: key, ID: []byte("i"), Delta: 2, Flags: HasExpire,
			ExpireAt: late}, value: 7, with: 14, expire: late},
		"SET": {op: Op{Kind: Set, Key: key, Delta: 3}, value: 3, with: 3},
		"SETEX": {op: Op{Kind: Set, Key: key, Delta: 3, Flags: HasExpire, ExpireAt: late}, value: 3,
			with: 3, expire: late},
		"MSET":   {op: Op{Kind: MSet, Keys: [][]byte{key}, Deltas: []int64{3}}, value: 3, with: 3},
		"DEL":    {op: Op{Kind: Del, Keys: [][]byte{key}}, gone: true},
		"GETDEL": {op: Op{Kind: GetDel, Key: key}, gone: true},
		"GETEX": {op: Op{Kind: GetEx, Key: key, Flags: HasExpire, ExpireAt: late}, value: 5,
			with: 12, expire: late},
		"GETEX past": {op: Op{Kind: GetEx, Key: key, Flags: HasExpire, ExpireAt: 1}, gone: true},
		"EXPIRE": {op: Op{Kind: ExpireAt, Key: key, ExpireAt: late}, value: 5, with: 12,
			expire: late},
		"PERSIST": {op: Op{Kind: Persist, Key: key}, plain: true, value: 5, with: 12},
		"GET":     {op: Op{Kind: Get, Key: key}, plain: true, value: 5, with: 12},
		"INCRBY of none": {op: Op{Kind: IncrBy, Key: []byte("other"), Delta: 2}, plain: true, value: 5,
			with: 12},
	} {
		for _, has := range []bool{false, true} {
			t.Run(fmt.Sprint(name, has), func(t *testing.T) {
				r := newRegionStore(t, false)
				r.must(Op{Kind: IncrBy, Key: key, Delta: 5})
				want := c.value
				if has {
					r.merge("k", added(other, 9, 7))
					want = c.with
				}
				r.must(c.op)
				r.shows("k", want, !c.gone)
				k := r.counter("k")
				if k.expire != c.expire {
					t.Errorf("expires at %d", k.expire)
				}
				if (k.parts() == nil) != (c.plain && !has) {
					t.Errorf("parts %+v", k.parts())
				}
				if v, _ := k.parts().Value(); k.parts() != nil &&
					(v != want || k.parts().Alive() == c.gone || k.parts().Expiry().At != c.expire) {
					t.Errorf("its parts make %d, %v, %+v", v, k.parts().Alive(), k.parts().Expiry())
				}
				r.reopen("k")
				must(t, r.Snapshot())
				r.reopen("k")
				r.shows("k", want, !c.gone)
				r.must(Op{Kind: IncrBy, Key: key, Delta: 1})
				if c.gone {
					want = 0
				}
				r.shows("k", want+1, true)
				r.reopen("k")
				if n, err := r.DBSize(); err != nil || n != int64(len(scanAll(t, r.Store))) {
					t.Errorf("DBSIZE is %d of %v", n, scanAll(t, r.Store))
				}
			})
		}
	}
}

// TestRegionAlone: while there is no other region nothing gets parts. A store outside of any
// group has not even regions.
func TestRegionAlone(t *testing.T) {
	r := newRegionStore(t, true)
	key := []byte("k")
	r.must(Op{Kind: Set, Key: key, Delta: 3}, Op{Kind: ExpireAt, Key: key, ExpireAt: r.clock.wall + 5000},
		Op{Kind: IncrBy, Key: key, Delta: 1})
	if k := r.counter("k"); k.parts() != nil {
		t.Fatalf("parts %+v", k.parts())
	}
	must(t, r.SetRegions(regionSet(false)))
	r.merge("k", added(other, 3, 10))
	r.shows("k", 14, true)
	if k := r.counter("k"); k.expire != r.clock.wall+5000 {
		t.Errorf("expires at %d", k.expire)
	}
	r.reopen("k")
	if set, ok := r.Regions(); !ok || !reflect.DeepEqual(set, regionSet(false)) {
		t.Errorf("%+v", set)
	}
	plain := testStore(t, nil)
	if _, ok := plain.Regions(); ok ||
		do(plain, Op{Kind: regionMerge, Key: key, Object: []Change{added(other, 1, 1)}}).Err != ErrNoRegions {
		t.Error("a store that is no member merges")
	}
}

// TestRegionRefusals: what a member does not do.
func TestRegionRefusals(t *testing.T) {
	r := newRegionStore(t, false)
	if op := do(r.Store, Op{Kind: FlushAll}); !errors.Is(op.Err, ErrRegionFlush) {
		t.Error("FLUSHALL:", op.Err)
	}
	if _, err := r.ExportTail(0, 1); !errors.Is(err, ErrRegions) {
		t.Error("a partition moves:", err)
	}
	for _, bad := range []RegionSet{
		{}, {Self: 1}, {Self: 1, Members: regionSet(true).Members[:0]},
		{Self: own, Members: []RegionMember{{Region: own, Name: "x", Partitions: 3}}},
		{Self: own, Members: []RegionMember{{Region: own, Name: "x", Partitions: 1},
			{Region: other, Name: "y", Partitions: 1}}},
		{Self: own, Members: []RegionMember{{Region: own, Name: "x", Partitions: 2}}},
		{Self: own, Members: []RegionMember{{Region: own, Name: "x", Partitions: 1},
			{Region: third, Name: "x", Partitions: 1}}},
		{Self: third, Members: regionSet(false).Members},
	} {
		if err := r.SetRegions(bad); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, c := range []RegionCursor{{}, {RegionTaken: RegionTaken{RegionSource{own,
		0}, 1}}, {RegionTaken: RegionTaken{RegionSource{third, 2}, 1}}} {
		c.Partition += 1 - min(c.Partition, 1) // region 0 has one partition
		if op := do(r.Store, Op{Kind: regionCursor, Object: &c}); !errors.Is(op.Err, ErrOption) {
			t.Errorf("%+v: %v", c, op.Err)
		}
	}
}

// TestRegionOverflow: neither the own part nor the total leaves 64 bits, and a total that others
// have made too large shows the largest number.
func TestRegionOverflow(t *testing.T) {
	r := newRegionStore(t, false)
	incr := func(delta int64) error {
		return do(r.Store, Op{Kind: IncrBy, Key: []byte("k"), Delta: delta}).Err
	}
	must(t, incr(math.MaxInt64-10))
	r.merge("k", added(other, 9, -100))
	if err := incr(20); !errors.Is(err, ErrOverflow) {
		t.Error("the own part overflows:", err)
	}
	r.merge("k", added(other, 10, 200))
	r.shows("k", math.MaxInt64, true)
	if err := incr(1); !errors.Is(err, ErrOverflow) {
		t.Error("the total overflows:", err)
	}
	if op := do(r.Store, Op{Kind: CIncrEx, Key: []byte("k"), ID: []byte("i"), Delta: 1}); !errors.Is(op.Err,
		ErrOverflow) {
		t.Error("the total overflows:", op.Err)
	}
	must(t, incr(-50))
	r.shows("k", math.MaxInt64, true) // 90 - 50 too many
	must(t, incr(-50))
	r.shows("k", math.MaxInt64-10, true)
	r.reopen("k")
}

// TestRegionExpiry: a key whose time has come is deleted before it is counted again or merged. The
// deletion covers the changes known here; an increment asserts its expiry again.
func TestRegionExpiry(t *testing.T) {
	r := newRegionStore(t, false)
	key := []byte("k")
	at := r.clock.wall + 1000
	r.must(Op{Kind: IncrEx, Key: key, Delta: 4, Flags: HasExpire, ExpireAt: at})
	r.merge("k", added(other, 9, 7))
	r.must(Op{Kind: IncrBy, Key: key, Delta: 1})
	mine := r.parts("k")[1]
	if mine.Region != own || mine.Expire.Clock != mine.Clock || mine.Expire.At != at {
		t.Fatalf("the expiry is not asserted again: %+v", mine)
	}
	if r.clock.step(2 * time.Second); !t.Failed() {
		r.must(Op{Kind: IncrBy, Key: key, Delta: 2})
	}
	r.shows("k", 2, true)
	if k := r.counter("k"); k.expire != 0 || k.parts()[0].Base.Cum != 7 {
		t.Errorf("%+v", k.parts())
	}
	r.merge("k", added(other, 10, 1))
	r.shows("k", 3, true)
	r.reopen("k")

	at = r.clock.wall + 1000
	r.must(Op{Kind: ExpireAt, Key: key, ExpireAt: at})
	r.clock.step(2 * time.Second)
	r.merge("k", added(other, 11, 1))
	r.shows("k", 1, true)
	r.reopen("k")
}

// TestRegionLastWins: what was said here last is in force here, whatever other clocks say.
func TestRegionLastWins(t *testing.T) {
	r := newRegionStore(t, false)
	ahead := uint64(r.clock.wall + 1_000_000)
	r.must(Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	r.merge("k", Change{Kind: ChangeExpire, Region: other, Seq: 3,
		Expire: part.Expiry{HLC: ahead, At: r.clock.wall + 9000}})
	r.must(Op{Kind: ExpireAt, Key: []byte("k"), ExpireAt: r.clock.wall + 5000})
	if k := r.counter("k"); k.expire != r.clock.wall+5000 || k.parts().Expiry().At != k.expire {
		t.Errorf("expires at %d, %+v", k.expire, k.parts())
	}
	r.must(Op{Kind: Persist, Key: []byte("k")})
	if k := r.counter("k"); k.expire != 0 || k.parts().Expiry().At != 0 {
		t.Errorf("expires at %d, %+v", k.expire, k.parts())
	}
	r.merge("k", Change{Kind: ChangeSet, Region: other, Seq: 4, HLC: ahead, Delta: 50})
	r.must(Op{Kind: Set, Key: []byte("k"), Delta: 6})
	r.shows("k", 6, true)
	r.reopen("k")
}

// TestRegionDrop: a deleted key stays known, unseen, until all regions have said that they took
// its end; then nothing of it is left, in memory or on disk.
func TestRegionDrop(t *testing.T) {
	r := newRegionStore(t, false)
	key := []byte("k")
	r.must(Op{Kind: IncrBy, Key: key, Delta: 4})
	r.merge("k", added(other, 9, 7))
	r.must(Op{Kind: Del, Keys: [][]byte{key}})
	end := r.partitions[0].seq
	drop := func() { r.must(Op{Kind: regionDrop, Keys: [][]byte{key}}) }
	said := func(by part.Region, partition uint16, seq, taken uint64) {
		r.must(Op{Kind: regionCursor,
			Object: &RegionCursor{RegionTaken: RegionTaken{RegionSource{by, partition}, seq},
				Vector: []RegionTaken{
					{RegionSource{other, 0}, 10}, {RegionSource{own, 0}, taken}}}})
	}
	n := uint16(int(Slot(key)) * 2 / slots)
	drop()
	said(other, 0, 10, end)
	drop()
	said(third, n, 4, end)
	drop() // the other's part is not closed
	if len(r.parts("k")) == 0 {
		t.Fatal("dropped although a base is left")
	}
	r.merge("k", Change{Kind: ChangeDelete, Region: other, Seq: 10})
	r.must(Op{Kind: IncrBy, Key: key, Delta: 4}, Op{Kind: Del, Keys: [][]byte{key}})
	end = r.partitions[0].seq
	said(other, 0, 11, end)
	said(third, n, 5, end-1)
	drop()
	must(t, r.Snapshot())
	r.reopen("k")
	said(third, 1-n, 99, end) // the partition of another slot
	drop()
	if len(r.parts("k")) == 0 {
		t.Fatal("dropped before all knew")
	}
	r.shows("k", 0, false)
	if op := r.merge("k", added(other, 9, 7)); op.Applied {
		t.Error("it comes back")
	}
	said(third, n, 6, end)
	eventually(t, "the cycle drops it", func() bool { return len(r.parts("k")) == 0 })
	must(t, r.Snapshot())
	r.reopen("k")
	if report := checkSound(t, r.copyOf(), "data"); report.Rows != 0 {
		t.Errorf("%d rows are left", report.Rows)
	}
}

// TestRegionDropped: keys that only their rows know to have ended are not shown.
func TestRegionDropped(t *testing.T) {
	r := newRegionStore(t, false)
	for i := range 10 {
		key := fmt.Appendf(nil, "k%d", i)
		r.must(Op{Kind: IncrBy, Key: key, Delta: 4}, Op{Kind: Del, Keys: [][]byte{key}})
	}
	r.must(Op{Kind: IncrBy, Key: []byte("is"), Delta: 4})
	must(t, r.Close())
	report := checkSound(t, r.fs, "data")
	r.open()
	if all := scanAll(t, r.Store); len(all) != 1 || report.Rows != 11 || report.Keys != 1 {
		t.Errorf("%v, %+v", all, report)
	}
	if k, ok, err := r.RandomKey(); string(k) != "is" || !ok || err != nil {
		t.Errorf("RANDOMKEY %q", k)
	}
	if n, _ := r.DBSize(); n != 1 {
		t.Errorf("DBSIZE %d", n)
	}
	if found := do(r.Store, Op{Kind: MemoryUsage, Key: []byte("is")}).Value; found == 0 {
		t.Error("MEMORY USAGE of a key with parts")
	}
	r.shows("k3", 0, false)
}

// copyOf closes the store and returns its directory.
func (r *regionStore) copyOf() vfs.FS {
	must(r.t, r.CloseNow())
	return r.fs
}

// TestRegionClose: when another region's deletion has removed all of the own part, that is closed.
func TestRegionClose(t *testing.T) {
	r := newRegionStore(t, false)
	r.must(Op{Kind: IncrBy, Key: []byte("k"), Delta: 4})
	seq := r.partitions[0].seq
	r.merge("k", Change{Kind: ChangeDelete, Region: other, Seq: 3,
		Bases: []part.RegionBase{{Region: own, Base: part.Base{Clock: seq, Cum: 4}}}})
	r.shows("k", 0, false)
	if parts := r.parts("k"); parts.Unclosed(own) || parts[1].Clock <= seq {
		t.Errorf("%+v", parts)
	}
	if n, _ := r.DBSize(); n != 0 {
		t.Errorf("DBSIZE %d", n)
	}
	r.reopen("k")
}

// TestRegionAside: what others count under a key that holds an object here is kept and not shown.
func TestRegionAside(t *testing.T) {
	r := newRegionStore(t, false)
	key := []byte("k")
	r.must(Op{Kind: FBFAdd, Key: key, Keys: [][]byte{[]byte("x")}})
	r.merge("k", added(other, 9, 7))
	aside := func() {
		t.Helper()
		if k := r.counter("k"); k.kind != TypeFilter || len(k.parts()) != 1 || k.parts()[0].Cum != 7 {
			t.Fatalf("%d %+v", k.kind, k.parts())
		}
	}
	aside()
	r.reopen("k")
	must(t, r.Snapshot())
	aside()
	r.reopen("k")
	aside()
	r.must(Op{Kind: Set, Key: key, Delta: 2}) // as over any other counter
	r.shows("k", 2, true)
	r.reopen("k")
}

// farRegion is another region, as the rules of package part have it.
type farRegion struct {
	seq     uint64
	keys    map[string]*part.Parts
	changes map[string][]Change // not sent yet
}

// act does something to a key.
func (o *farRegion) act(rng *rand.Rand, key string, wall int64) {
	if o.keys[key] == nil {
		o.keys[key] = new(part.Parts)
	}
	o.seq++
	p := o.keys[key]
	ch := Change{Region: other, Seq: o.seq}
	switch rng.IntN(6) {
	case 0:
		ch.Kind, ch.Bases = ChangeDelete, p.Seen(other)
	case 1:
		ch.Kind, ch.Delta, ch.HLC, ch.Bases = ChangeSet, rng.Int64N(100), uint64(wall), p.Seen(other)
	case 2:
		ch.Kind, ch.Expire = ChangeExpire, part.Expiry{HLC: uint64(wall), At: wall + rng.Int64N(5000)}
	default:
		ch.Kind, ch.Delta, ch.Expire = ChangeAdd, rng.Int64N(9)-2, p.Expiry()
	}
	ch.apply(p)
	o.changes[key] = append(o.changes[key], ch)
}

// TestRegionRandom: whatever the own region and another one do, in any order: recovery leads to
// the same state, the log alone tells another region all of the own part, and once each has taken
// all changes, both show the same.
func TestRegionRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	for run := range max(1, 6/raced.Slowdown) {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		r := newRegionStore(t, false)
		o := &farRegion{keys: make(map[string]*part.Parts), changes: make(map[string][]Change)}
		keys := []string{"a", "b", "a key that is too long to stand inside of its counter"}
		for step := range 250 {
			key := keys[rng.IntN(len(keys))]
			switch k := []byte(key); rng.IntN(20) {
			case 0:
				r.must(Op{Kind: Set, Key: k, Delta: rng.Int64N(50)})
			case 1:
				r.must(Op{Kind: Del, Keys: [][]byte{k}})
			case 2:
				r.must(Op{Kind: ExpireAt, Key: k, ExpireAt: r.clock.wall + rng.Int64N(3000)})
			case 3:
				r.must(Op{Kind: Persist, Key: k})
			case 4:
				r.must(Op{Kind: IncrEx, Key: k, Delta: 3, Flags: HasExpire, ExpireAt: r.clock.wall +
					rng.Int64N(3000)})
			case 5:
				r.must(Op{Kind: IncrEx, Key: k, Delta: 3, Flags: NoExpire})
			case 6:
				r.clock.step(time.Duration(rng.IntN(1500)) * time.Millisecond)
			case 7, 8, 9, 10:
				o.act(rng, key, r.clock.wall)
			case 11, 12:
				r.merge(key, o.changes[key]...)
				o.changes[key] = nil
			case 13:
				if o.keys[key] != nil {
					o.keys[key].Merge(r.parts(key))
				}
			case 14:
				if rng.IntN(5) == 0 {
					must(t, r.Snapshot())
				}
			case 15:
				if rng.IntN(3) == 0 {
					r.reopen(keys...)
				}
			case 16:
				r.must(Op{Kind: CIncrBy, Key: k, ID: fmt.Appendf(nil, "%d-%d", run, step), Delta: 2})
			default:
				r.must(Op{Kind: IncrBy, Key: k, Delta: rng.Int64N(9) - 3})
			}
		}
		for _, key := range keys {
			if o.keys[key] == nil {
				continue
			}
			r.must(Op{Kind: removeExpired, Keys: [][]byte{[]byte(key)}})
			r.merge(key, o.changes[key]...)
			o.keys[key].Merge(r.parts(key))
			theirs, mine := *o.keys[key], r.parts(key)
			if !reflect.DeepEqual(theirs.AppendTo(nil), mine.AppendTo(nil)) {
				t.Fatalf("%s:\n%+v\n%+v", key, theirs, mine)
			}
			k := r.counter(key)
			if v, _ := theirs.Value(); v != k.value || theirs.Alive() != (k.kind == TypeCounter) ||
				theirs.Alive() && theirs.Expiry().At != k.expire {
				t.Fatalf("%s: %d %d %d of %+v", key, k.kind, k.value, k.expire, theirs)
			}
		}
		r.reopen(keys...)
		told := make(map[string]part.Parts)
		want := make(map[string]part.Parts)
		for _, key := range keys {
			want[key] = r.parts(key)
		}
		must(t, r.CloseNow())
		r.readLog(func(e *entry, seq uint64) {
			if ch, ok := e.change(own, seq); ok && e.told(own) {
				p := told[string(e.key)]
				ch.apply(&p)
				told[string(e.key)] = p
			}
		})
		for _, key := range keys {
			is, should := partOf(told[key], own), partOf(want[key], own)
			is.Base, should.Base = part.Base{}, part.Base{}
			if !reflect.DeepEqual(is, should) {
				t.Fatalf("the log tells\n%+v\ninstead of\n%+v", is, should)
			}
		}
	}
}

func partOf(p part.Parts, r part.Region) part.Part {
	for i := range p {
		if p[i].Region == r {
			return p[i]
		}
	}
	return part.Part{}
}

// readLog reads the whole log of the store, which is closed.
func (r *regionStore) readLog(fn func(e *entry, seq uint64)) {
	r.t.Helper()
	db, err := persistence.OpenReadOnly(persistence.Options{FS: r.fs, Dir: "data", Fatal: func(error) {}})
	must(r.t, err)
	defer db.Close()
	must(r.t, db.Log().Read(0, 1, func(seq uint64, content []byte) error {
		rd, err := newSectionReader(content)
		for e := (entry{}); rd.next(&e); seq++ {
			fn(&e, seq)
		}
		return errors.Join(err, rd.err())
	}))
}
