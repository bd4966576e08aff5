package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// watchKeys notes what keys are like.
func watchKeys(s *Store, keys ...string) []int64 {
	return do(s, Op{Kind: Watch, Keys: keysOf(keys...)}).Values
}

// ifUnchanged executes operations if the keys are as they were.
func ifUnchanged(s *Store, keys []string, notes []int64, ops ...Op) (bool, []Op) {
	var b Batch
	g := b.Add(IfUnchanged)
	g.Keys, g.Deltas, g.Delta = keysOf(keys...), notes, int64(len(ops))
	for _, op := range ops {
		run := b.Add(op.Kind).run
		op.run = run
		b.Ops[len(b.Ops)-1] = op
	}
	s.Execute(&b)
	if err := b.Ops[0].Err; err != nil {
		panic(err)
	}
	return b.Ops[0].Applied, b.Ops[1:]
}

// holdOp is a hold of 5, or of another amount, that ends so long after a fake clock's start.
func holdOp(key, id string, d time.Duration, amount ...int64) Op {
	return Op{Kind: CHold, Key: []byte(key), ID: []byte(id), Delta: append(amount, 5)[0],
		ExpireAt: newFakeClock().wall + d.Milliseconds()}
}

// TestWatch: what changes a key lets the operations that depend on it do
// nothing; what changes none does not.
func TestWatch(t *testing.T) {
	for name, tc := range map[string]struct {
		ops     []Op // between WATCH and EXEC
		pass    time.Duration
		changed bool
	}{
		"nothing":     {},
		"another key": {ops: []Op{{Kind: IncrBy, Key: []byte("other"), Delta: 1}}},
		"a read":      {ops: []Op{{Kind: Get, Key: []byte("k")}, {Kind: ExpireTime, Key: []byte("k")}}},
		"a duplicate": {ops: []Op{{Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 5}}},
		"a refusal": {ops: []Op{{Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 6},
			{Kind: FBFAdd, Key: []byte("k"), Keys: keysOf("x")}}},
		"SET NX":          {ops: []Op{{Kind: Set, Key: []byte("k"), Delta: 5, Flags: NX}}},
		"PERSIST of none": {ops: []Op{{Kind: Persist, Key: []byte("k")}}},
		"time":            {pass: time.Minute},
		"DEL of nothing":  {ops: []Op{{Kind: Del, Keys: keysOf("missing")}}},
		"an increment": {ops: []Op{{Kind: CIncrBy, Key: []byte("k"), ID: []byte("2"), Delta: 1}},
			changed: true},
		"the same value": {ops: []Op{{Kind: Set, Key: []byte("k"), Delta: 5}}, changed: true},
		"there and back": {ops: []Op{{Kind: IncrBy, Key: []byte("k"), Delta: 1},
			{Kind: IncrBy, Key: []byte("k"), Delta: -1}}, changed: true},
		"DEL": {ops: []Op{{Kind: Del, Keys: keysOf("k")}}, changed: true},
		"DEL and SET": {ops: []Op{{Kind: Del, Keys: keysOf("k")},
			{Kind: Set, Key: []byte("k"), Delta: 5}}, changed: true},
		"EXPIRE":   {ops: []Op{{Kind: ExpireAt, Key: []byte("k"), ExpireAt: 1 << 60}}, changed: true},
		"expiry":   {pass: 2 * time.Hour, changed: true},
		"FLUSHALL": {ops: []Op{{Kind: FlushAll}}, changed: true},
		"FLUSHALL and SET": {ops: []Op{{Kind: FlushAll}, {Kind: Set, Key: []byte("k"), Delta: 5}},
			changed: true},
		"CMINCRBY": {ops: []Op{{Kind: CMIncrBy, Keys: keysOf("k", "m"), Deltas: []int64{1, 1},
			ID: []byte("3")}}, changed: true},
		"a missing key is made": {
			ops: []Op{{Kind: Set, Key: []byte("missing"), Delta: 1}}, changed: true},
		"a missing key comes and goes": {
			ops:     []Op{{Kind: Set, Key: []byte("missing"), Delta: 1}, {Kind: Del, Keys: keysOf("missing")}},
			changed: true},
		"an item of a filter": {ops: []Op{{Kind: FBFAdd, Key: []byte("f"), Keys: keysOf("x")}},
			changed: true},
		"a hold":                  {ops: []Op{holdOp("k", "2", time.Hour)}, changed: true},
		"a hold of a missing key": {ops: []Op{holdOp("missing", "2", time.Hour)}, changed: true},
		"a hold of another key":   {ops: []Op{holdOp("other", "2", time.Hour)}},
		"a hold that was open":    {ops: []Op{holdOp("h", "open", time.Minute/2)}},
		"a hold that is refused":  {ops: []Op{holdOp("h", "open", time.Hour, 9)}},
		"another hold":            {ops: []Op{holdOp("h", "2", time.Hour)}, changed: true},
		"a hold's end": {ops: []Op{{Kind: CCancel, Key: []byte("h"), ID: []byte("open")}},
			changed: true},
		"a settled hold": {ops: []Op{{Kind: CSettle, Key: []byte("h"), ID: []byte("open"), Delta: 1}},
			changed: true},
		"a hold comes and goes": {ops: []Op{holdOp("missing", "2", time.Hour),
			{Kind: CCancel, Key: []byte("missing"), ID: []byte("2")}}, changed: true},
		"a hold of nothing over FLUSHALL": {ops: []Op{holdOp("missing", "2", time.Hour), {Kind: FlushAll}},
			changed: true},
		"a hold's expiry":  {pass: 40 * time.Minute, changed: true},
		"an item is there": {ops: []Op{{Kind: FBFAdd, Key: []byte("f"), Keys: keysOf("y")}}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newFakeClock()
			s := testStore(t, func(o *Options) { o.Clock = clock.now })
			cincr(s, "k", "1", 5)
			do(s, Op{Kind: Set, Key: []byte("timed"), Delta: 1, Flags: HasExpire, ExpireAt: clock.wall +
				time.Hour.Milliseconds()})
			do(s, Op{Kind: FBFAdd, Key: []byte("f"), Keys: keysOf("y")})
			wantOp(t, do(s, holdOp("h", "open", 30*time.Minute)), 5, true)
			keys := []string{"k", "timed", "missing", "f", "h"}
			l := listen(s)
			notes := watchKeys(s, keys...)
			for _, op := range tc.ops {
				do(s, op)
			}
			told := slices.ContainsFunc(l.list, func(key string) bool {
				return key == "all" || slices.Contains(keys, key)
			})
			if tc.pass == 0 && told != tc.changed {
				t.Errorf("told of a change: %v", told) // CLIENT TRACKING and WATCH agree
			}
			clock.advance(tc.pass)
			held, ops := ifUnchanged(s, keys, notes,
				Op{Kind: CIncrBy, Key: []byte("result"), ID: []byte("r"), Delta: 7}, Op{Kind: FlushAll})
			if held == tc.changed {
				t.Errorf("unchanged: %v", held)
			}
			if tc.changed {
				if _, there := get(s, "result"); there || ops[0].Applied {
					t.Error("an operation had its turn that must not")
				}
				wantOp(t, cincr(s, "result", "r", 7), 7, true) // its opid is not consumed (G6)
			}
		})
	}
}

// TestWatchMissingOverFlush: FLUSHALL changes no key that is missing, however many
// others there are, unless it was made before or is made afterwards.
func TestWatchMissingOverFlush(t *testing.T) {
	flush := Op{Kind: FlushAll}
	set := func(key string) Op { return Op{Kind: Set, Key: []byte(key), Delta: 1} }
	del := Op{Kind: Del, Keys: keysOf("missing")}
	for name, tc := range map[string]struct {
		ops     []Op
		changed bool
	}{
		"once":        {ops: []Op{flush}},
		"twice":       {ops: []Op{flush, flush}},
		"made before": {ops: []Op{set("missing"), flush}, changed: true},
		"a filter": {ops: []Op{{Kind: FBFAdd, Key: []byte("missing"), Keys: keysOf("x")},
			flush}, changed: true},
		"made and deleted before":  {ops: []Op{set("missing"), del, flush}, changed: true},
		"made afterwards":          {ops: []Op{flush, set("missing")}, changed: true},
		"made and gone afterwards": {ops: []Op{flush, set("missing"), del}, changed: true},
		"made between":             {ops: []Op{flush, set("missing"), flush}, changed: true},
		"expired and made":         {ops: []Op{set("timed"), flush}, changed: true},
		"expired":                  {ops: []Op{set("other")}},
		"another one":              {ops: []Op{flush, set("other")}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newFakeClock()
			s := testStore(t, func(o *Options) { o.Clock = clock.now })
			for i := range 2000 {
				incr(s, fmt.Sprint("k", i), 1)
			}
			keys := []string{"missing", "not there"}
			if name == "expired" || name == "expired and made" {
				do(s, Op{Kind: Set, Key: []byte("timed"), Delta: 1, Flags: HasExpire, ExpireAt: clock.wall +
					1000})
				clock.advance(time.Second)
				keys = append(keys, "timed")
			}
			notes := watchKeys(s, keys...)
			for _, op := range tc.ops {
				do(s, op)
			}
			if held, _ := ifUnchanged(s, keys, notes, set("result")); held == tc.changed {
				t.Errorf("unchanged: %v", held)
			}
		})
	}
}

// TestWatchAcrossEviction: that a key was written back, evicted and read again
// is no change; that a missing key was made and deleted is one, although
// nothing in memory or on disk tells of it any more.
func TestWatchAcrossEviction(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters = 64 * o.Partitions })
	evictAll := func() {
		t.Helper()
		for _, p := range s.partitions {
			must(t, s.checkpoint(p, false))
		}
		for round := range 30 {
			var b Batch
			for i := range 400 {
				b.Add(Get).Key = fmt.Appendf(nil, "cold%d.%d", round, i)
			}
			s.Execute(&b)
		}
		for _, p := range s.partitions {
			if p.hot.peek("there") != nil || p.hot.peek("missing") != nil {
				t.Fatal("a key was not evicted")
			}
		}
	}
	incr(s, "there", 3)
	there, missing := watchKeys(s, "there"), watchKeys(s, "missing")
	evictAll()
	if held, _ := ifUnchanged(s, []string{"there"}, there); !held {
		t.Error("eviction is no change")
	}
	incr(s, "missing", 1)
	do(s, Op{Kind: Del, Keys: keysOf("missing")})
	evictAll()
	if held, _ := ifUnchanged(s, []string{"missing"}, missing); held {
		t.Error("the change of a missing key was missed")
	}
	incr(s, "there", 1)
	evictAll()
	if held, _ := ifUnchanged(s, []string{"there"}, there); held {
		t.Error("the change of an evicted key was missed")
	}
}

// TestWatchOwnBatch: what the same batch did before counts.
func TestWatchOwnBatch(t *testing.T) {
	s := testStore(t, nil)
	incr(s, "k", 1)
	notes := watchKeys(s, "k")
	var b Batch
	o := b.Add(IncrBy)
	o.Key, o.Delta = []byte("k"), 1
	g := b.Add(IfUnchanged)
	g.Keys, g.Deltas, g.Delta = keysOf("k"), notes, 1
	o = b.Add(IncrBy)
	o.Key, o.Delta = []byte("k"), 10
	o = b.Add(IncrBy)
	o.Key, o.Delta = []byte("k"), 100
	s.Execute(&b)
	if v, _ := get(s, "k"); v != 102 {
		t.Errorf("k = %d: the guarded operation, and only that, is left out", v)
	}
}

// TestWatchRace: transactions that read, and write what they read plus one, if
// nothing changed, lose no update, while keys are evicted, written back,
// deleted and made by others.
func TestWatchRace(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions = 64, 1 })
	const workers, wanted = 6, 60
	var done, plain atomic.Int64
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() { // evicts, and writes back
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			do(s, Op{Kind: Get, Key: fmt.Appendf(nil, "cold%d", i)})
			if i%50 == 0 {
				s.checkpoint(s.partitions[0], false)
			}
		}
	})
	var workersDone sync.WaitGroup
	for w := range workers {
		workersDone.Go(func() {
			for n := 0; n < wanted; {
				if w == 0 { // increments without watching
					incr(s, "sum", 1)
					plain.Add(1)
					n++
					continue
				}
				notes := watchKeys(s, "sum")
				v, _ := get(s, "sum")
				if held, _ := ifUnchanged(s, []string{"sum"}, notes,
					Op{Kind: Set, Key: []byte("sum"), Delta: v + 1}); held {
					done.Add(1)
					n++
				}
			}
		})
	}
	workersDone.Wait()
	close(stop)
	group.Wait()
	if v, _ := get(s, "sum"); v != done.Load()+plain.Load() {
		t.Errorf("%d, but %d transactions and %d increments were acknowledged", v, done.Load(), plain.Load())
	}
}

// TestWatchMissingRace: a lock that is a key which exists. Who found it missing
// and made it under WATCH knows that nobody held it in between.
func TestWatchMissingRace(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions = 64, 1 })
	var turns, inside atomic.Int64
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for n, i := 0, 0; n < 40; i++ {
				notes := watchKeys(s, "lock")
				if _, held := get(s, "lock"); held {
					continue
				}
				seen := turns.Load()
				if held, _ := ifUnchanged(s, []string{"lock"}, notes,
					Op{Kind: Set, Key: []byte("lock"), Delta: int64(w)}); !held {
					continue
				}
				if inside.Add(1) != 1 || turns.Add(1) != seen+1 {
					t.Error("somebody else had the lock between WATCH and EXEC")
				}
				inside.Add(-1)
				do(s, Op{Kind: Del, Keys: keysOf("lock")})
				if n++; n%5 == 0 {
					s.checkpoint(s.partitions[0], false)
				}
				do(s, Op{Kind: Get, Key: fmt.Appendf(nil, "cold%d.%d", w, i)})
			}
		})
	}
	group.Wait()
}

// TestWatchAcrossRebuild: a hold that came and went is a change, also if the partition is made anew from a
// checkpoint that shows nothing of it.
func TestWatchAcrossRebuild(t *testing.T) {
	s := testStore(t, nil)
	notes := watchKeys(s, "k")
	op := do(s, Op{Kind: CHold, Key: []byte("k"), ID: []byte("1"), Delta: 5, ExpireAt: 1 << 60})
	wantOp(t, op, 5, true)
	wantOp(t, do(s, Op{Kind: CCancel, Key: []byte("k"), ID: []byte("1")}), 0, true)
	must(t, s.Snapshot())
	for _, p := range s.partitions {
		must(t, s.rebuild(all(p)...))
	}
	if held, _ := ifUnchanged(s, []string{"k"}, notes); held {
		t.Error("the hold was missed")
	}
	if held, _ := ifUnchanged(s, []string{"k"}, watchKeys(s, "k")); !held {
		t.Error("a rebuild is a change for ever")
	}
}
