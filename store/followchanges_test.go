package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// testFollower keeps what it was told.
type testFollower struct {
	s      *Store
	cursor string
	count  int // of changes that are enough
	asked  int // … told since it has asked
	values map[string]int64
	sums   map[string]int64 // of values and deltas
	whole  bool             // it has been told all
	lines  []string
	last   map[uint16][2]uint64
}

func newTestFollower(s *Store) *testFollower {
	return &testFollower{s: s, count: 1000, values: make(map[string]int64), sums: make(map[string]int64),
		last: make(map[uint16][2]uint64)}
}

// clone is a copy, for the time when the follower goes back.
func (f *testFollower) clone() *testFollower {
	c := *f
	c.values, c.sums, c.last = maps.Clone(f.values), maps.Clone(f.sums), maps.Clone(f.last)
	return &c
}

// endPartition forgets all keys of a partition.
func (f *testFollower) endPartition(p uint16) {
	maps.DeleteFunc(f.values, func(key string, _ int64) bool {
		if f.s.partitionOf(key).id == p {
			delete(f.sums, key)
			return true
		}
		return false
	})
}

// ask asks once.
func (f *testFollower) ask(start FollowStart) (FollowAnswer, error) {
	f.asked = 0
	a, err := f.s.FollowChanges(&FollowRequest{Group: "g", Start: start, Cursor: f.cursor,
		Wants: func(key []byte) bool { return !bytes.HasPrefix(key, []byte("other:")) }, Tell: f.tell})
	if err == nil {
		f.cursor = a.Cursor
	}
	return a, err
}

func (f *testFollower) tell(c *Followed) (enough bool) {
	at := [2]uint64{c.Seq, c.Index}
	if before := f.last[c.Partition]; slices.Compare(at[:], before[:]) <= 0 && c.Kind != FollowedSnapshot {
		f.lines = append(f.lines, fmt.Sprintf("%d of partition %d again", at, c.Partition))
	}
	f.last[c.Partition] = at
	key := string(c.Key)
	line := fmt.Sprintf("%s %s %s", c.Kind, c.Key, c.ID)
	if c.Kind == FollowedValue {
		if had, known := f.values[key]; known {
			f.lines = append(f.lines, fmt.Sprintf("%s was %d, again", key, had))
		}
	}
	switch {
	case c.Key == nil:
		f.endPartition(c.Partition)
	case c.Kind.Ends():
		delete(f.values, key)
	default:
		f.values[key] = c.Value
		line += fmt.Sprintf(" = %s", AppendDecimal(nil, c.Value, c.Scale))
	}
	switch _, exists := f.values[key]; {
	case !exists:
		delete(f.sums, key)
	case c.Kind.HasDelta():
		if f.sums[key] += c.Delta; f.whole && f.sums[key] != c.Value {
			f.lines = append(f.lines, fmt.Sprintf("the sum of %s is %d, and not %d, again", key, f.sums[key], c.Value))
		}
	default:
		f.sums[key] = c.Value
	}
	if c.Kind.HasDelta() {
		line += fmt.Sprintf(" by %s", AppendDecimal(nil, c.Delta, c.Scale))
	}
	if c.Region != "" {
		line += " of " + c.Region
	}
	f.lines = append(f.lines, line)
	f.asked++
	return f.asked >= f.count
}

// catchUp asks until there is nothing more.
func (f *testFollower) catchUp(t testing.TB, start FollowStart) {
	t.Helper()
	for {
		a, err := f.ask(start)
		must(t, err)
		if start = FollowCursor; !a.More {
			return
		}
	}
}

// TestFollowedKinds: a follower is told of each change of a counter what it was, and of nothing else.
func TestFollowedKinds(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock, o.Partitions = clock.now, 1 })
	must(t, s.CreateTable(TableOptions{Name: "money", Prefix: "eur:", Mode: Exact, Scale: 2}))
	f := newTestFollower(s)
	incr(s, "k", 3)
	f.catchUp(t, FollowNow)
	key, id := []byte("k"), []byte("1")
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() { cincr(s, "k", "1", 5) }, "add k 1 = 8 by 5"},
		{func() { cincr(s, "k", "1", 5) }, ""},
		{func() { incr(s, "k", -9) }, "add k  = -1 by -9"},
		{func() { cincr(s, "other:k", "2", 5) }, ""},
		{func() { cincr(s, "eur:k", "1", 5) }, "add eur:k 1 = 5 by 5"},
		{func() {
			do(s, Op{Kind: CIncrBy, Key: []byte("eur:k"), ID: []byte("2"), Delta: 25, Points: [3]Points{Decimal | 2}})
		}, "add eur:k 2 = 5.25 by 0.25"},
		{func() {
			do(s, Op{Kind: IncrEx, Key: key, Delta: 9, Deltas: []int64{-5, 2}, Flags: Saturate})
		}, "add k  = 2 by 3"},
		{func() { do(s, Op{Kind: ExpireAt, Key: key, ExpireAt: clock.wall + 1000}) }, ""},
		{func() { clock.advance(2 * time.Second); s.expireAllDue(new(Batch)) }, "expired k "},
		{func() { do(s, Op{Kind: Set, Key: key, Delta: 7}) }, "set k  = 7"},
		{func() { do(s, Op{Kind: CHold, Key: key, ID: []byte("h"), Delta: -3, ExpireAt: clock.wall + 1000}) }, ""},
		{func() { do(s, Op{Kind: CSettle, Key: key, ID: []byte("h"), Delta: -2}) }, "add k h = 5 by -2"},
		{func() { do(s, Op{Kind: CHold, Key: key, ID: []byte("i"), Delta: -3, ExpireAt: clock.wall + 1000}) }, ""},
		{func() { do(s, Op{Kind: CCancel, Key: key, ID: []byte("i")}) }, ""},
		{func() { do(s, Op{Kind: CGetDel, Key: key, ID: []byte("d")}) }, "drained k d by -5"},
		{func() { do(s, Op{Kind: CGetDel, Key: key, ID: []byte("e")}) }, ""},
		{func() { do(s, throttled("t", "t", 5, 1, 1, 2)) }, fmt.Sprintf("set t t = %d", (clock.wall+4000)*1000)},
		{func() { do(s, Op{Kind: FBFAdd, Key: key, Keys: [][]byte{id}}) }, ""},
		{func() { do(s, Op{Kind: Del, Keys: [][]byte{key, []byte("eur:k")}}) }, "deleted eur:k "},
		{func() { do(s, Op{Kind: Set, Key: key, Delta: 7, Flags: HasExpire, ExpireAt: clock.wall + 1000}) },
			"set k  = 7"},
		{func() { clock.advance(2 * time.Second); cincr(s, "k", "3", 5) }, "expired k , add k 3 = 5 by 5"},
		{func() { do(s, Op{Kind: ExpireAt, Key: key, ExpireAt: clock.wall + 1000}) }, ""},
		{func() { clock.advance(2 * time.Second); do(s, Op{Kind: Set, Key: key, Delta: 4}) },
			"expired k , set k  = 4"},
		{func() { do(s, Op{Kind: FlushAll}) }, "flushed  "},
	} {
		c.do()
		f.lines = nil
		f.catchUp(t, FollowCursor)
		if got := strings.Join(f.lines, ", "); got != c.want {
			t.Errorf("told %q, want %q", got, c.want)
		}
	}
}

// TestFollowChanges: over restarts, checkpoints and power losses, with answers of every size, and also when
// it goes back to an older cursor, a follower is told each change once, in the order of its partition.
func TestFollowChanges(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		clock, fs := newFakeClock(), vfs.NewCrashableMem()
		open := func() *Store {
			return testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
		}
		s := open()
		f := newTestFollower(s)
		f.whole = true
		f.catchUp(t, FollowOldest)
		saved := f.clone()
		for i := range 300 {
			key := []byte(fmt.Sprint("k", rng.IntN(30)))
			switch rng.IntN(50) {
			case 0:
				must(t, s.Snapshot())
			case 1:
				s.CloseNow()
				fs = fs.CrashClone(vfs.CrashCloneCfg{})
				s = open()
				f.s, saved.s = s, s
			case 2:
				f = saved.clone()
			case 3:
				saved = f.clone()
			case 4:
				must(t, do(s, Op{Kind: FlushAll}).Err)
			case 5:
				f.catchUp(t, FollowSnapshot)
			case 6:
				must(t, do(s, Op{Kind: ExpireAt, Key: key, ExpireAt: clock.wall + 1000}).Err)
			case 7:
				clock.advance(600 * time.Millisecond)
			case 8, 9:
				must(t, do(s, Op{Kind: Del, Keys: [][]byte{key}}).Err)
			case 10, 11, 12, 13:
				f.count = 1 + rng.IntN(20)
				if _, err := f.ask(FollowCursor); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			default:
				b := new(Batch) // several partitions' sections are in one record
				for j := range 1 + rng.IntN(4) {
					op := b.Add(CIncrBy)
					op.Key, op.ID = fmt.Append(nil, "k", rng.IntN(30)), fmt.Append(nil, seed, i, j)
					op.Delta = int64(j)
				}
				s.Execute(b)
			}
		}
		s.expireAllDue(new(Batch))
		f.catchUp(t, FollowCursor)
		f.check(t, fmt.Sprint("seed ", seed))
	}
}

// check compares what the follower was told with what there is.
func (f *testFollower) check(t testing.TB, name string) {
	t.Helper()
	for key, value := range f.values {
		if got, ok := get(f.s, key); !ok || got != value {
			t.Errorf("%s: %s is %d (%v), and the follower has %d", name, key, got, ok, value)
		}
	}
	if n, err := f.s.DBSize(); int(n) != len(f.values) || err != nil {
		t.Errorf("%s: %d keys (%v), and the follower has %d", name, n, err, len(f.values))
	}
	for _, line := range f.lines {
		if strings.HasSuffix(line, "again") {
			t.Errorf("%s: told %s", name, line)
		}
	}
}

// TestFollowWaits: what is not committed is not told, and a follower learns what to wait for.
func TestFollowWaits(t *testing.T) {
	s := testStore(t, nil)
	f := newTestFollower(s)
	cincr(s, "k", "1", 5)
	a, err := f.ask(FollowOldest)
	if must(t, err); len(f.lines) != 1 || a.More || len(a.Behind) != len(s.partitions) {
		t.Fatalf("told %q, %+v", f.lines, a)
	}
	waited := make(chan error)
	go func() { waited <- s.AwaitAny(t.Context(), a.Behind) }()
	cincr(s, "k", "2", 5)
	must(t, <-waited)
	p := s.partitionOf("k")
	p.committed.last.Add(^uint64(0)) // as if the last entry were not committed yet
	if a, err = f.ask(FollowCursor); err != nil || len(f.lines) != 1 || len(a.Behind) != 1 ||
		a.Behind[0] != (Behind{p.id, p.seq - 1}) {
		t.Fatalf("told %q, %+v, %v", f.lines, a, err)
	}
	p.committed.advance(p.seq)
	if _, err = f.ask(FollowCursor); err != nil || len(f.lines) != 2 {
		t.Errorf("told %q, %v", f.lines, err)
	}
}

// TestFollowTooSlow: the log is kept for a follower up to a limit, over a restart as well. Behind that it
// is told what it lost, and can begin again.
func TestFollowTooSlow(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions, o.FollowBacklog = fs, 1, 300<<10 })
	f := newTestFollower(s)
	cincr(s, "k", "0", 1)
	f.catchUp(t, FollowNow)
	fill := func(name string, n int) {
		for i := range n {
			cincr(s, "k", fmt.Sprint(name, i, strings.Repeat("x", 400)), 1)
		}
		must(t, s.Snapshot())
	}
	fill("a", 200)
	must(t, s.Close())
	s = testStore(t, func(o *Options) { o.FS, o.FollowBacklog = fs, 300<<10 })
	f.s = s
	fill("b", 200)
	lag := func() uint64 {
		t.Helper()
		all := s.Followers()
		if len(all) != 1 || all[0].Name != "g" {
			t.Fatalf("the groups are %+v", all)
		}
		return all[0].Lag
	}
	before := lag()
	if f.catchUp(t, FollowCursor); len(f.lines) != 400 || before < 400*400 || lag() != 0 {
		t.Fatalf("told %d of 400 changes; the lag was %d bytes, and is %d", len(f.lines), before, lag())
	}
	lost := fmt.Sprintf("partition 0 from %d to ", s.partitions[0].seq+1)
	fill("c", 1500)
	fill("d", 1) // the older one of two snapshots needs what came before it
	s.dropFollowers()
	if names, err := s.db.Followers(); len(names) != 0 || err != nil {
		t.Errorf("the log is still kept for %q, %v", names, err)
	}
	_, err := f.ask(FollowCursor)
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), lost) {
		t.Fatalf("the lost changes: %v", err)
	}
	f.lines = nil
	if f.catchUp(t, FollowOldest); len(f.lines) == 0 || f.values["k"] != 1902 {
		t.Errorf("told %d changes, and %v", len(f.lines), f.values)
	}
}

// TestFollowRefuses: a cursor of another log or of none, and a bad group, which changes nothing.
func TestFollowRefuses(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	cincr(s, "k", "1", 5)
	copied := testStore(t, func(o *Options) { o.FS = fs.CrashClone(vfs.CrashCloneCfg{}) })
	f := newTestFollower(s)
	cincr(s, "k", "2", 5)
	f.catchUp(t, FollowOldest)
	cursor := f.cursor
	r := s.newFollowing(nil)
	must(t, r.parse(cursor))
	r.place = &followedPlace{key: []byte("k"), partition: int(s.partitionOf("k").id+1) % len(s.partitions)}
	misplaced := r.cursor()
	for name, c := range map[string]struct {
		s      *Store
		cursor string
		want   error
	}{
		"none":           {s: s, want: ErrCursor},
		"cut":            {s: s, cursor: cursor[:len(cursor)-1], want: ErrCursor},
		"longer":         {s: s, cursor: cursor + "AA", want: ErrCursor},
		"no base64":      {s: s, cursor: "!" + cursor[1:], want: ErrCursor},
		"changed":        {s: s, cursor: "AA" + cursor[2:], want: ErrCursor},
		"too long":       {s: s, cursor: strings.Repeat("A", 100_000), want: ErrCursor},
		"misplaced":      {s: s, cursor: misplaced, want: ErrCursor},
		"another server": {s: testStore(t, nil), cursor: cursor, want: ErrOtherLog},
		"ahead":          {s: copied, cursor: cursor, want: ErrOtherLog},
	} {
		f := newTestFollower(c.s)
		f.cursor = c.cursor
		if _, err := f.ask(FollowCursor); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.s != s && len(c.s.followers.of) > 0 {
			t.Errorf("%s: the log is kept for %v", name, c.s.followers.of)
		}
	}
	cincr(copied, "k", "another", 5)
	cincr(copied, "k", "3", 5)
	f = newTestFollower(copied)
	f.cursor = cursor
	if _, err := f.ask(FollowCursor); !errors.Is(err, ErrOtherLog) || len(f.lines) > 0 {
		t.Errorf("a copy that has gone on: %v, told %q", err, f.lines)
	}
	for _, group := range []string{"", "a b", "a\n", "ä", strings.Repeat("x", maxFollowerName+1)} {
		_, err := s.FollowChanges(&FollowRequest{Group: group, Start: FollowNow})
		if !errors.Is(err, ErrFollowerName) {
			t.Errorf("group %q: %v", group, err)
		}
	}
	for i := range maxFollowers + 1 {
		_, err := s.FollowChanges(&FollowRequest{Group: fmt.Sprint("g", i), Start: FollowNow})
		if errors.Is(err, ErrFollowers) != (i >= maxFollowers-1) { // one was there
			t.Errorf("group %d: %v", i, err)
		}
	}
}
