package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestFollowedByRegions: what a region takes from another one is told by operations, with opid, delta and
// region, and else by the difference; and so is what it takes back.
func TestFollowedByRegions(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1, 1)
	w.drainLogs()
	a, b, c := w.r[0], w.r[1], w.r[2]
	w.room = part.MaxUndo
	b.clock.step(time.Hour)
	f := newTestFollower(b.s)
	f.whole = true
	f.catchUp(t, FollowNow)
	key := []byte("k")
	from := func(others ...*testRegion) {
		for _, o := range others {
			w.takeFrom(b, o)
		}
	}
	at, _ := a.clock.now()
	for i, s := range []struct {
		do   func()
		want string
	}{
		{func() { cincr(a.s, "k", "1", 5); from(a) }, "add k 1 = 5 by 5 of region0"},
		{func() { from(a) }, ""},
		{func() { incr(a.s, "k", 2); cincr(a.s, "k", "2", 3); cincr(a.s, "k", "3", 4); from(a) },
			"merged k  = 7 by 2 of region0, add k 2 = 10 by 3 of region0, add k 3 = 14 by 4 of region0"},
		{func() { cincr(b.s, "k", "4", 6) }, "add k 4 = 20 by 6"},
		{func() { cincr(a.s, "k", "t", 1); cincr(b.s, "k", "t", 1); from(a) },
			"add k t = 21 by 1, add k t = 22 by 1 of region0, takeback k t = 21 by -1 of region1"},
		{func() { cincr(c.s, "k", "5", 0); from(c) }, "add k 5 = 21 by 0 of region2"},
		{func() { do(a.s, Op{Kind: Set, Key: key, Delta: 100}); cincr(a.s, "k", "6", 1); from(a) },
			"merged k  = 106 by 85 of region0, add k 6 = 107 by 1 of region0"},
		{func() { w.takeFrom(a, b); w.takeFrom(a, c); do(a.s, Op{Kind: GetDel, Key: key}); from(a) },
			"deleted k  of region0"},
		{func() { do(b.s, Op{Kind: Del, Keys: [][]byte{key}}) }, ""},
		{func() { do(a.s, Op{Kind: Set, Key: key, Delta: 0}); from(a) }, "merged k  = 0 by 0 of region0"},
		{func() { do(a.s, Op{Kind: ExpireAt, Key: key, ExpireAt: at + 2000}); from(a) }, ""},
		{func() { w.advance(3 * time.Second); from(a) }, "deleted k  of region0"},
		{func() { do(b.s, Op{Kind: FBFAdd, Key: key, Keys: [][]byte{key}}); cincr(a.s, "k", "7", 9); from(a) }, ""},
		{func() { do(b.s, Op{Kind: Del, Keys: [][]byte{key}}) }, "merged k  = 9 by 9"},
		{func() { cincr(a.s, "j", "8", 1); cincr(a.s, "other:j", "8", 1); from(a) }, "add j 8 = 1 by 1 of region0"},
	} {
		f.lines = nil
		s.do()
		f.catchUp(t, FollowCursor)
		if got := strings.Join(f.lines, ", "); got != s.want {
			t.Errorf("step %d: told %q, want %q", i, got, s.want)
		}
	}
}

// TestFollowedHandOuts: what drains make of a counter is told exactly, in the region that drains, in one that
// takes that back, and in others; what they have emptied is gone.
func TestFollowedHandOuts(t *testing.T) {
	w := newTestRegions(t, 2, 1, 1, 1)
	w.drainLogs()
	a, b, c := w.r[0], w.r[1], w.r[2]
	b.clock.advance(time.Hour / 2)
	f := newTestFollower(b.s)
	f.whole = true
	f.catchUp(t, FollowNow)
	from := func(o *testRegion) { w.takeFrom(b, o) }
	for i, s := range []struct {
		do   func()
		want string
	}{
		{func() { cincr(b.s, "k", "1", 5); w.drainedIn(b, "d", 5, true) }, "add k 1 = 5 by 5, drained k d by -5"},
		{func() { w.drainedIn(b, "e", -1, true) }, ""},
		{func() { cincr(a.s, "k", "2", 7); w.drainedIn(a, "f", 7, true); from(a) }, ""},
		{func() { cincr(a.s, "k", "3", 2); from(a) }, "add k 3 = 2 by 2 of region0"},
		{func() { w.drainedIn(a, "g", 2, true); from(a) }, "deleted k  of region0"},
		{func() { cincr(b.s, "k", "4", 100); w.takeFrom(a, b); w.drainedIn(a, "h", 100, true); from(a) },
			"add k 4 = 100 by 100, deleted k  of region0"},
		// two drains at once, and what makes up for them
		{func() { cincr(b.s, "k", "5", 10); w.takeFrom(a, b) }, "add k 5 = 10 by 10"},
		{func() { w.drainedIn(a, "i", 10, true); w.drainedIn(b, "j", 10, true); from(a) }, "drained k j by -10, add k i = -10 by -10 of region0"},
		{func() { cincr(b.s, "k", "6", 10) }, "add k 6 = 0 by 10, deleted k "},
		// twins: the drain of the other region counts
		{func() { cincr(a.s, "k", "8", 4); w.drainedIn(a, "t", 4, true); cincr(b.s, "k", "7", 3) },
			"add k 7 = 3 by 3"},
		{func() { w.drainedIn(b, "t", 3, true); from(a) },
			"drained k t by -3, takeback k t = 3 by 3 of region1"},
		// what is owed is left
		{func() { cincr(a.s, "k", "x", 20); cincr(c.s, "k", "x", 20); from(a) }, "add k x = 23 by 20 of region0"},
		{func() { from(c) }, "merged k  = 43 by 20 of region2"},
		{func() { w.drainedIn(b, "l", 23, true) }, "add k l = 20 by -23"},
		{func() { w.takeFrom(c, a); w.takeFrom(c, b); from(c) }, "deleted k  of region2"},
		// what a take-back has ended, later operations do not bring back
		{func() { w.takeFrom(a, b); w.takeFrom(a, c); cincr(a.s, "k", "9", 1) }, ""},
		{func() { w.drainedIn(a, "m", 1, true); from(a) }, ""},
		{func() { cincr(b.s, "k", "y", 5); cincr(c.s, "k", "y", 5); cincr(c.s, "k", "z", -5) }, "add k y = 5 by 5"},
		{func() { from(c) },
			"add k y = 10 by 5 of region2, takeback k y = 5 by -5 of region1, deleted k  of region1"},
	} {
		f.lines = nil
		s.do()
		f.catchUp(t, FollowCursor)
		if got := strings.Join(f.lines, ", "); got != s.want {
			t.Errorf("step %d: told %q, want %q", i, got, s.want)
		}
	}
}

// followedWorld are followers of regions that come, go and start again.
type followedWorld struct {
	*testRemoval
	of    map[int]*testFollower
	saved map[int]*testFollower
	told  map[string]int // how often each kind was
}

// poll lets a follower ask once, or go back to what it was.
func (w *followedWorld) poll() {
	r := w.r[w.rnd.IntN(len(w.r))]
	f := w.follower(r)
	switch w.rnd.IntN(20) {
	case 0:
		w.saved[r.n] = f.clone()
	case 1:
		if saved := w.saved[r.n]; saved != nil {
			w.of[r.n] = saved.clone()
			f = w.follower(r)
		}
	case 2:
		f.catchUp(w.t, FollowSnapshot)
	}
	f.count = 1 + w.rnd.IntN(30)
	if _, err := f.ask(FollowCursor); err != nil {
		w.t.Fatal(err)
	}
}

// handOut counts or drains in a region, sometimes what another one does.
func (w *followedWorld) handOut() {
	r, n := w.r[w.rnd.IntN(len(w.r))], w.told["handed"]
	w.told["handed"]++
	key, id := []byte(fmt.Sprint("d", n%2)), []byte(fmt.Sprint("hand", n-w.rnd.IntN(8)/2*2))
	op := Op{Kind: CIncrBy, Key: key, ID: append(id, 'i'), Delta: 5}
	if w.rnd.IntN(2) == 0 {
		op = Op{Kind: CGetDel, Key: key, ID: append(id, 'd')}
	} else if w.rnd.IntN(4) == 0 {
		op = Op{Kind: IncrBy, Key: key, Delta: w.rnd.Int64N(9) - 4}
	}
	if op = do(r.s, op); op.Err != nil {
		w.told[op.Err.Error()]++
	}
}

// follower returns the follower of a region.
func (w *followedWorld) follower(r *testRegion) *testFollower {
	f := w.of[r.n]
	if f == nil {
		f = newTestFollower(r.s)
		f.whole = true
		start := FollowSnapshot
		if !r.joins && w.rnd.IntN(2) == 0 {
			start = FollowOldest
		}
		f.catchUp(w.t, start)
		w.of[r.n] = f
	}
	f.s = r.s
	return f
}

// check compares what followers have with what regions have, also of counters that expire.
func (w *followedWorld) check() {
	w.t.Helper()
	for _, r := range w.r {
		f, has := w.follower(r), map[string]int64(nil)
		for range 3 { // the cycle may delete some meanwhile
			has = w.has(r)
			if f.catchUp(w.t, FollowCursor); maps.Equal(f.values, has) {
				break
			}
		}
		if !maps.Equal(f.values, has) || !maps.Equal(f.sums, has) {
			w.t.Errorf("region %d has %v, and the follower %v, by sums %v", r.n, has, f.values, f.sums)
		}
		for _, line := range f.lines {
			if w.told[strings.Fields(line)[0]]++; strings.HasSuffix(line, "again") {
				w.t.Errorf("region %d: told %s", r.n, line)
			}
		}
		f.lines = nil
	}
}

// has are the counters of a region, also those whose time has come.
func (w *followedWorld) has(r *testRegion) map[string]int64 {
	has := make(map[string]int64)
	for prefix, n := range map[string]int{"k": w.keys, "e": passingKeys, "d": 2} {
		for i := range n {
			key := fmt.Sprint(prefix, i)
			get(r.s, key) // into memory
			p := r.s.partitionOf(key)
			p.lock()
			if c := p.hot.peek(key); c != nil && c.kind == TypeCounter {
				has[key] = c.value
			}
			p.mu.Unlock()
		}
	}
	return has
}

// TestFollowRegions: what a follower of a region was told adds up to what that region has, through twins,
// take-backs, debts, deletions, SETs, expiries, flushes, restarts, states and the removal of a region with an
// heir.
func TestFollowRegions(t *testing.T) {
	told := make(map[string]int)
	for seed := *regionSeed; seed < *regionSeed+uint64(*removalRuns); seed++ {
		w := &followedWorld{testRemoval: newTestRemoval(t, seed, 2, 1<<(seed%3), 1),
			of: make(map[int]*testFollower), saved: make(map[int]*testFollower), told: told}
		step := func() { w.life(1) }
		if seed%3 == 0 {
			w.flushes, step = 10, w.step
		}
		live := func(steps int) {
			for range steps {
				if step(); w.rnd.IntN(4) == 0 {
					w.poll()
				}
				if w.rnd.IntN(8) == 0 {
					w.handOut()
				}
			}
			w.check()
		}
		live(300)
		if w.flushes == 0 { // else the lists of members are the flushes'
			w.lose()
			live(100)
			w.finish()
			w.check()
			w.join(2)
			live(200)
			w.finish()
		}
		w.drain()
		w.check()
	}
	for _, kind := range []string{"add", "set", "value", "merged", "takeback", "deleted", "expired", "flushed",
		"drained"} {
		if told[kind] == 0 && *removalRuns >= 9 {
			t.Errorf("nothing was told as %q: %v", kind, told)
		}
	}
	t.Log(told)
}

// TestFollowManyTwins: so do debts that are paid late, by the region or by its heir.
func TestFollowManyTwins(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newManyTwins(t, 3)
		of := make(map[int]*testFollower)
		for _, r := range w.r {
			of[r.n] = newTestFollower(r.s)
			of[r.n].whole = true
			of[r.n].catchUp(t, FollowOldest)
		}
		if w.takeFrom(w.r[2], w.loser); lost {
			w.loseOne(1, 2)
			w.finish()
		}
		w.ends(twinsOfOne)
		for _, r := range w.r {
			f := of[r.n]
			f.catchUp(t, FollowCursor)
			f.check(t, fmt.Sprint("region ", r.n))
			backs := slices.ContainsFunc(f.lines, func(line string) bool {
				return strings.HasPrefix(line, "takeback hot")
			})
			if backs != (r == w.loser && !lost || r.n == 2 && lost) {
				t.Errorf("region %d (lost %v): that it takes back is told: %v", r.n, lost, backs)
			}
		}
	}
}
