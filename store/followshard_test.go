package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// followedShards are shards between which partitions move while somebody follows all of them.
type followedShards struct {
	*mover
	rnd    *rand.Rand
	clock  *fakeClock
	shards [3]*Store
	gone   [3]bool // it is not of the cluster any more
	owner  []int   // of partitions
	n      int
}

func newFollowedShards(t *testing.T, seed uint64) *followedShards {
	m := &followedShards{mover: newMover(t, vfs.NewMem()), rnd: rand.New(rand.NewPCG(seed, 9)),
		clock: newFakeClock(), owner: make([]int, 4)}
	for i := range m.shards {
		m.open(i)
	}
	for p := range m.owner {
		m.owner[p] = p % 2
	}
	return m
}

func (m *followedShards) open(i int) {
	l := new(proposals)
	l.decided.L = &l.mu
	m.shards[i] = testStore(m.t, func(o *Options) {
		o.Dir, o.FS, o.Clock, o.Seed = fmt.Sprint("shard", i), m.fs, m.clock.now, [16]byte{7}
		o.Replicated = func(local *oplog.Log) Log { l.Log = local; return l }
		o.Shard = func() Shard {
			return Shard{Cluster: 1, Log: uint64(i + 1), Owns: func(p uint16) bool { return m.owner[p] == i },
				Exists: func(log uint64) bool { return !m.gone[log-1] }}
		}
	})
	must(m.t, m.shards[i].Lead())
}

// steps changes some counters, where they are served.
func (m *followedShards) steps() {
	for range m.rnd.IntN(30) {
		m.n++
		key := fmt.Sprint("k", m.rnd.IntN(200))
		s := m.shards[m.owner[m.shards[0].partitionOf(key).id]]
		op := Op{Kind: CIncrBy, Key: []byte(key), ID: fmt.Append(nil, m.n), Delta: int64(m.n)}
		switch m.rnd.IntN(100) {
		case 0:
			op = Op{Kind: FlushAll}
			s = m.shards[m.rnd.IntN(len(m.shards))]
		case 1, 2, 3, 4, 5:
			op = Op{Kind: Del, Keys: [][]byte{[]byte(key)}}
		}
		if err := do(s, op).Err; err != nil && !errors.Is(err, ErrNotLeader) { // it is handed over
			m.t.Fatal(err)
		}
	}
}

// poll has a follower ask shards, or one, some times.
func (m *followedShards) poll(f *testFollower) {
	m.t.Helper()
	for range m.rnd.IntN(4) {
		f.s, f.count = m.shards[m.rnd.IntN(len(m.shards))], 1+m.rnd.IntN(40)
		if _, err := f.ask(FollowCursor); err != nil {
			m.t.Fatal(err)
		}
	}
}

// catchUp has a follower ask all shards until none has more.
func (m *followedShards) catchUp(f *testFollower) {
	m.t.Helper()
	for before := ""; before != f.cursor; {
		before = f.cursor
		for i := range m.shards {
			f.s = m.shards[i]
			f.catchUp(m.t, FollowCursor)
		}
	}
}

// check compares what a follower has with what there is.
func (m *followedShards) check(f *testFollower) {
	m.t.Helper()
	m.catchUp(f)
	n := 0
	for _, s := range m.shards {
		keys := scanAll(m.t, s)
		n += len(keys)
		for key := range keys {
			if want, _ := get(s, key); f.values[key] != want {
				m.t.Errorf("%s is %d, and the follower has %d", key, want, f.values[key])
			}
		}
	}
	if n != len(f.values) {
		m.t.Errorf("there are %d keys, and the follower has %d", n, len(f.values))
	}
	for _, line := range f.lines {
		if strings.HasSuffix(line, "again") {
			m.t.Errorf("told %s", line)
		}
	}
}

// move moves a partition, or takes that back, with something done before each of its steps.
func (m *followedShards) move(p uint16, between func()) {
	m.t.Helper()
	from, to := m.owner[p], (m.owner[p]+1+m.rnd.IntN(2))%3
	source, target := m.shards[from], m.shards[to]
	out, in := m.begin(source, target, p)
	between()
	m.follow(out, in, 1<<20)
	between()
	last, err := source.HandOver(p, 7)
	must(m.t, err)
	between()
	m.follow(out, in, 1<<20)
	out.Close()
	must(m.t, target.Adopt(p, out.To, last, 7))
	between()
	gives, has := source, target
	if m.rnd.IntN(3) == 0 { // it stays
		gives, has = target, source
	} else {
		m.owner[p] = to
	}
	ends := []func() error{func() error { return gives.Vacate(p, 7) },
		func() error { return has.Release(p, 7) }}
	if m.rnd.IntN(2) == 0 {
		slices.Reverse(ends)
	}
	for _, end := range ends {
		between()
		must(m.t, end())
	}
}

// TestFollowMoves: partitions move, also back and before a follower has read what is behind them, or the move
// is taken back in its last step; shards save and start again. A follower that goes from shard to shard with
// its cursor is told each change once, in order, whether it began with all or with a snapshot.
func TestFollowMoves(t *testing.T) {
	for seed := range uint64(6) {
		m := newFollowedShards(t, seed)
		m.steps()
		f := newTestFollower(m.shards[0])
		f.whole = true
		_, err := f.ask(FollowOldest)
		must(t, err)
		m.catchUp(f) // from here on all of them keep the log
		saved, late := f.clone(), f.clone()
		for range 25 {
			m.move(uint16(m.rnd.IntN(len(m.owner))), func() {
				switch i := m.rnd.IntN(3); m.rnd.IntN(40) {
				case 0:
					must(t, m.shards[i].Snapshot())
				case 1:
					f = saved.clone()
				case 2:
					saved = f.clone()
				case 3:
					f = newTestFollower(m.shards[i])
					f.whole = true
					_, err := f.ask(FollowSnapshot)
					must(t, err)
				default:
					m.steps()
				}
				m.poll(f)
			})
			if i := m.rnd.IntN(3); m.rnd.IntN(6) == 0 {
				must(t, m.shards[i].Close())
				m.open(i)
			}
		}
		m.check(f)
		m.check(late)
	}
}

// TestFollowLeaders: a follower goes from one replica of a shard to another, also to one that has less. It is
// told what is committed, over a change of leader as well, and never what was taken back.
func TestFollowLeaders(t *testing.T) {
	clock := newFakeClock()
	a, la := testReplica(t, vfs.NewMem(), clock.now)
	b, lb := testReplica(t, vfs.NewMem(), clock.now)
	for _, s := range []*Store{a, b} {
		s.opts.Shard = func() Shard { return Shard{1, 2, func(uint16) bool { return true }, nil} }
	}
	must(t, a.Lead())
	f := newTestFollower(b)
	f.whole = true
	f.catchUp(t, FollowOldest)
	if f.s = a; len(f.lines) > 0 {
		t.Fatalf("before it has anything a replica tells %q", f.lines)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	told, n := 0, 0
	ask := func(s *Store) {
		t.Helper()
		f.s, f.count = s, 1+rng.IntN(10)
		if _, err := f.ask(FollowCursor); err != nil {
			t.Fatal(err)
		}
	}
	count := func(lead, other *Store, ll, lo *proposals) {
		for range 100 {
			n++
			cincr(lead, fmt.Sprint("k", n%9), fmt.Sprint(n), 1)
			if rng.IntN(9) == 0 {
				records, all := ll.records(told)
				receive(t, other, lo, records)
				told = all
			}
			ask([]*Store{a, b}[rng.IntN(2)])
		}
		records, _ := ll.records(told)
		receive(t, other, lo, records)
	}
	count(a, b, la, lb)
	la.holdBack()
	undecided := make(chan Op, 1)
	_, before := la.records(0)
	first := a.partitionOf("k").seq + 1
	go func() { undecided <- cincr(a, "k", "undecided", 1) }()
	eventually(t, "it is logged", func() bool { _, now := la.records(0); return now > before })
	f.catchUp(t, FollowCursor)
	a.StopLeading(func() {})
	la.cut()
	must(t, a.TakeBack(map[uint16]uint64{a.partitionOf("k").id: first}))
	if op := <-undecided; !errors.Is(op.Err, ErrNotLeader) {
		t.Fatal(op.Err)
	}
	_, told = lb.records(0)
	must(t, b.Lead())
	count(b, a, lb, la)
	for _, s := range []*Store{b, a} {
		f.s = s
		f.catchUp(t, FollowCursor)
		f.check(t, "at the end")
	}
	if _, exists := f.values["k"]; exists {
		t.Error("it was told what was taken back")
	}
}

// TestFollowLostShard: whoever cannot go on behind a move is told so, and how to begin again.
func TestFollowLostShard(t *testing.T) {
	m := newFollowedShards(t, 1)
	f := newTestFollower(m.shards[0])
	_, err := f.ask(FollowNow)
	must(t, err)
	key := keysIn(m.shards[0])[0]
	m.mover.move(m.shards[0], m.shards[2], 0)
	m.owner[0] = 2
	at := f.clone()
	if _, err := at.ask(FollowCursor); err != nil { // the source tells what it has
		t.Fatal(err)
	}
	left := at.clone()
	f.s, at.s, left.s = m.shards[2], m.shards[2], m.shards[2]
	if a, err := f.ask(FollowCursor); err != nil || len(f.lines) > 0 {
		t.Fatalf("the target goes on before the source is through: %+v %v %q", a, err, f.lines)
	}
	m.gone[0] = true
	for _, leads := range []bool{true, false} {
		if !leads { // else one that asks whichever replica answers would wait for ever
			m.shards[2].StopLeading(func() {})
		}
		if _, err := f.ask(FollowCursor); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "partition 0,") {
			t.Errorf("the source is no more; asked is the leader: %v; %v", leads, err)
		}
	}
	must(t, m.shards[2].Lead())
	cincr(m.shards[2], key, "1", 5)
	if _, err := at.ask(FollowCursor); err != nil || fmt.Sprint(at.lines) != "[add "+key+" 1 = 5 by 5]" {
		t.Errorf("the source was through: %v %q", err, at.lines)
	}
	m.shards[2].arrivals.of = map[uint16][]arrival{} // as if its log did not reach back so far
	m.gone[0] = false
	if _, err := left.ask(FollowCursor); !errors.Is(err, ErrLost) {
		t.Errorf("the adoption is not in the log: %v", err)
	}
	if _, err := at.ask(FollowSnapshot); err != nil || at.values[key] != 5 {
		t.Errorf("the remedy: %v %v", err, at.values)
	}
	m.mover.move(m.shards[2], m.shards[0], 0)
	m.owner[0] = 0
	cincr(m.shards[0], key, "2", 5)
	at = newTestFollower(m.shards[0])
	if _, err := at.ask(FollowOldest); err != nil || fmt.Sprint(at.lines) != "[add "+key+" 2 = 10 by 5]" {
		t.Errorf("the oldest since it has come back: %v %q", err, at.lines)
	}
}

// TestFollowBehindMove: a replica that lacks the adoption of its shard's partition begins no snapshot of it.
func TestFollowBehindMove(t *testing.T) {
	m := newFollowedShards(t, 1)
	cincr(m.shards[0], keysIn(m.shards[0])[0], "1", 5)
	m.shards[2].StopLeading(func() {})
	m.owner[0] = 2
	f := newTestFollower(m.shards[2])
	if _, err := f.ask(FollowSnapshot); err != nil {
		t.Fatal(err)
	}
	must(t, m.shards[2].Lead())
	m.mover.move(m.shards[0], m.shards[2], 0)
	m.check(f)
}

// TestFollowSnapshotMoves: a snapshot goes on where its partition has moved to, once its rows are there.
func TestFollowSnapshotMoves(t *testing.T) {
	m := newFollowedShards(t, 1)
	tag := "{" + keysIn(m.shards[0])[0] + "}"
	b := new(Batch)
	for i := range 3 * snapshotPage {
		op := b.Add(CIncrBy)
		op.Key, op.ID, op.Delta = fmt.Append(nil, tag, i), []byte("1"), int64(i)
	}
	m.shards[0].Execute(b)
	f := newTestFollower(m.shards[0])
	f.whole, f.count = true, 10
	start := FollowSnapshot
	for len(f.values) == 0 {
		_, err := f.ask(start)
		must(t, err)
		start = FollowCursor
	}
	if a, err := f.ask(FollowCursor); err != nil || !a.More || len(f.values) >= 3*snapshotPage {
		t.Fatalf("%d counters: %+v %v", len(f.values), a, err)
	}
	for i := range 100 {
		must(t, do(m.shards[0], Op{Kind: Del, Keys: [][]byte{fmt.Append(nil, tag, i*20)}}).Err)
	}
	m.mover.move(m.shards[0], m.shards[2], 0)
	m.owner[0] = 2
	for i := range 100 {
		cincr(m.shards[2], fmt.Sprint(tag, i*30), "2", 1)
	}
	f.catchUp(t, FollowCursor)
	had, p := len(f.values), m.shards[2].partitions[0]
	setRows := func(rows *persistence.Tables) {
		p.lock()
		p.movedRows = rows
		p.mu.Unlock()
	}
	m.shards[2].rebuilds.Lock() // nothing puts them there
	f.s = m.shards[2]
	setRows(new(persistence.Tables))
	for range 30 {
		if _, err := f.ask(FollowCursor); err != nil || len(f.values) > had+100 {
			t.Fatalf("without its rows: %v, %d counters behind %d", err, len(f.values), had)
		}
	}
	setRows(nil)
	m.shards[2].rebuilds.Unlock()
	m.check(f)
}
