package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/part"
)

const (
	shardHome  = 0xc1 // the incarnation of the region that is a cluster
	shardParts = 4
)

// shardReplica is a replica of a shard of region 0.
type shardReplica struct {
	*Store
	l    *proposals
	seen int // records of the leader's that it has
	time *fakeClock
}

// shardWorld is a region of two replicas, 0, and one that is a single server, 1.
type shardWorld struct {
	t     *testing.T
	r     [2]*shardReplica
	other *Store
	set   RegionSet
}

func newShardWorld(t *testing.T, has ...uint16) *shardWorld {
	w := &shardWorld{t: t}
	clock := newFakeClock()
	mode, window := Exact, time.Hour
	exact := TableChange{Mode: &mode, Window: &window}
	w.other = testStore(t, func(o *Options) { o.Clock, o.Partitions, o.Seed = clock.now, 2, [16]byte{9} })
	must(t, w.other.AlterTable(DefaultTable, exact))
	for i := range w.r {
		l := new(proposals)
		l.decided.L = &l.mu
		s := testStore(t, func(o *Options) {
			o.FS, o.Clock, o.Seed, o.Partitions, o.RegionIncarnation = vfs.NewMem(), clock.now, [16]byte{7},
				shardParts, shardHome
			o.LogFileSize = 4 << 10
			o.Replicated = func(local *oplog.Log) Log { l.Log = local; return l }
		})
		w.r[i] = &shardReplica{Store: s, l: l, time: clock}
	}
	w.set = RegionSet{Group: 77, Version: 3, Members: []RegionMember{
		{Region: 0, Name: "cluster", Partitions: shardParts, Incarnation: shardHome},
		{Region: 1, Name: "server", Partitions: 2, Incarnation: w.other.Meta().Incarnation},
	}}
	must(t, w.r[0].Lead())
	must(t, w.r[0].AlterTable(DefaultTable, exact))
	must(t, w.r[0].KeepRegions(w.set, has))
	theirs := w.set
	theirs.Self = 1
	must(t, w.other.SetRegions(theirs))
	w.follow(0, 1)
	w.toCluster()
	w.toOther(0)
	w.toCluster()
	w.follow(0, 1)
	return w
}

// follow gives one replica what another one has committed as the leader.
func (w *shardWorld) follow(from, to int) {
	w.t.Helper()
	all, n := w.r[from].l.records(w.r[to].seen)
	receive(w.t, w.r[to].Store, w.r[to].l, all)
	w.r[to].seen = n
}

// elect lets another replica lead, which has followed all.
func (w *shardWorld) elect(from, to int) {
	w.t.Helper()
	w.r[from].StopLeading(func() {})
	_, w.r[from].seen = w.r[to].l.records(0)
	must(w.t, w.r[to].Lead())
}

// read lets one store take what another one tells of the slots of its own partitions.
func (w *shardWorld) read(to, from *Store, home uint64) (n int) {
	w.t.Helper()
	here, _ := to.Regions()
	there, _ := from.Regions()
	ranges, err := to.PullRanges(there.Self)
	must(w.t, err)
	for _, r := range ranges {
		after, acked, err := to.TakenOf(r.Own, r.Source)
		must(w.t, err)
		b, err := from.Pull(Pull{By: here.Self, Group: 77, Incarnation: home, Partition: r.Source.Partition,
			First: r.First, Last: r.Last, After: after, Acked: acked})
		if errors.Is(err, ErrGap) {
			w.state(to, from, &StateQuery{Pull: Pull{
				By: here.Self, Group: 77, Incarnation: home, Partition: r.Source.Partition,
				First: r.First, Last: r.Last, Most: 1 << 20,
			}, Of: there.Self})
			continue
		}
		if errors.Is(err, ErrNoRegions) && there.Self == 0 {
			continue // another shard's
		}
		if err != nil {
			w.t.Fatalf("partition %d: %v", r.Source.Partition, err)
		}
		taken, err := to.Take(b)
		must(w.t, err)
		if taken.Seq > after {
			n++
		}
	}
	return n
}

// state lets one store take the state of another one.
func (w *shardWorld) state(to, from *Store, q *StateQuery) {
	w.t.Helper()
	for ends := false; !ends; {
		b, err := from.State(*q)
		must(w.t, err)
		taken, err := to.Take(b)
		must(w.t, err)
		q.Seq, q.At, ends = taken.State.Seq, taken.State.Next, taken.State.Next == nil
	}
}

func (w *shardWorld) toCluster() int {
	return w.read(w.r[0].Store, w.other, w.other.Meta().Incarnation)
}
func (w *shardWorld) toOther(from int) int { return w.read(w.other, w.r[from].Store, shardHome) }

// logs returns the first sequences of the partitions that the files of the log have.
func (w *shardWorld) logs(s *Store) (first []uint64) {
	for _, p := range s.partitions {
		seq := uint64(0)
		must(w.t, s.db.Log().Tail(p.id, 0, func(n uint64, _ []byte) error {
			if seq == 0 {
				seq = n
			}
			return nil
		}))
		first = append(first, seq)
	}
	return first
}

var allOfShard = []uint16{0, 1, 2, 3}

// TestShardTells: any replica tells what is committed, under the cluster's incarnation; one that is
// behind tells nothing, and refuses nobody. A replica does not tell what it has not committed.
func TestShardTells(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	keys := keysIn(w.r[0].Store)
	for _, k := range keys {
		cincr(w.r[0].Store, k, "a", 1)
	}
	w.follow(0, 1)
	if n := w.toOther(1); n != shardParts {
		t.Errorf("a follower has told of %d partitions", n)
	}
	cincr(w.r[0].Store, keys[2], "b", 5)
	if n := w.toOther(1); n != 0 {
		t.Errorf("a follower that is behind has told of %d partitions", n)
	}
	if n := w.toOther(0); n != 1 {
		t.Errorf("the leader has told of %d partitions", n)
	}
	w.toOther(1) // which knows less than was taken
	if v, err := replicaGet(w.other, keys[2]); v != 6 || err != nil {
		t.Errorf("the other region shows %d, %v", v, err)
	}
	p := Pull{By: 1, Group: 77, Incarnation: w.r[1].Meta().Incarnation, Last: 4095}
	if _, err := w.r[1].Pull(p); !errors.Is(err, ErrStream) {
		t.Errorf("under the directory's name: %v", err)
	}
	w.r[0].l.holdBack()
	done := make(chan error)
	go func() { done <- cincr(w.r[0].Store, keys[2], "c", 100).Err }()
	for here := w.r[0].partitions[2]; here.committed.upTo() == here.last(); {
		time.Sleep(time.Millisecond)
	}
	if n := w.toOther(0); n != 0 {
		t.Errorf("what is not committed was told, of %d partitions", n)
	}
	upTo := w.r[0].partitions[2].committed.upTo()
	w.r[0].StopLeading(func() {})
	w.r[0].l.cut()
	must(t, w.r[0].TakeBack(map[uint16]uint64{2: upTo + 1}))
	if err := <-done; !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
}

// last is the last sequence of a partition.
func (p *partition) last() uint64 {
	p.lock()
	defer p.mu.Unlock()
	return p.seq
}

// partsOf are the parts of a counter, if it is in memory.
func (p *partition) partsOf(key string) part.Parts {
	p.lock()
	defer p.mu.Unlock()
	if c := p.hot.peek(key); c != nil {
		return slices.Clone(c.parts())
	}
	return nil
}

// TestShardTakes: the leader takes, by the shard's log; who leads next goes on where that says, and
// nothing is there twice or missing, also of what the first one had only begun.
func TestShardTakes(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	keys := keysIn(w.r[0].Store)
	for _, k := range keys {
		cincr(w.other, k, "a", 1)
	}
	if n := w.toCluster(); n == 0 {
		t.Fatal("nothing was taken")
	}
	ranges, err := w.r[0].PullRanges(1)
	must(t, err)
	if _, err := w.r[1].PullRanges(1); err != nil {
		t.Fatal(err)
	}
	before, _, err := w.r[0].TakenOf(2, ranges[2].Source)
	must(t, err)
	w.follow(0, 1)
	if after, _, err := w.r[1].TakenOf(2, ranges[2].Source); err != nil || after != before {
		t.Errorf("a follower has taken up to %d and not %d, %v", after, before, err)
	}

	// First an operation that nobody will commit, then an answer that brings nothing.
	cincr(w.other, keys[2], "b", 10)
	r := ranges[2]
	pull := Pull{By: 0, Group: 77, Incarnation: w.other.Meta().Incarnation, Partition: r.Source.Partition,
		First: r.First, Last: r.Last, After: before, Acked: before}
	lost, err := w.other.Pull(pull)
	must(t, err)
	w.r[0].l.holdBack()
	done := make(chan error)
	go func() { _, err := w.r[0].Take(lost); done <- err }()
	p := w.r[0].partitions[2]
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		last := p.last()
		p.committed.mu.Lock()
		waits = p.committed.waiting > 0 || p.committed.upTo() < last
		p.committed.mu.Unlock()
	}
	w.r[0].StopLeading(func() {})
	w.r[0].GiveUp()
	upTo := p.committed.upTo()
	w.r[0].l.cut()
	if err := <-done; err == nil {
		t.Fatal("what was cut was taken")
	}
	p.taking.mu.Lock() // as if something had brought nothing behind that, before it was taken back
	p.lock()
	p.heldTaking().ahead = map[RegionSource]uint64{r.Source: before + 100}
	p.mu.Unlock()
	p.taking.mu.Unlock()
	must(t, w.r[0].TakeBack(map[uint16]uint64{2: upTo + 1}))
	if after, _, err := w.r[0].TakenOf(2, r.Source); err != nil || after != before {
		t.Errorf("what was taken back counts as taken: up to %d and not %d, %v", after, before, err)
	}

	must(t, w.r[1].Lead())
	w.read(w.r[1].Store, w.other, w.other.Meta().Incarnation)
	for i, k := range keys {
		want := int64(1)
		if i == 2 {
			want = 11
		}
		if op := cincr(w.r[1].Store, k, "a", 1); op.Value != 1 || op.Applied || op.Err != nil {
			t.Errorf("a retry of %s at the new leader: %d, applied %v, %v", k, op.Value, op.Applied, op.Err)
		}
		if v, err := replicaGet(w.r[1].Store, k); v != want || err != nil {
			t.Errorf("%s is %d and not %d at the new leader, %v", k, v, want, err)
		}
	}
}

// TestShardTakesInOneLife: a position that follows what was taken back is not logged.
func TestShardTakesInOneLife(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	must(t, w.r[0].Snapshot())
	c := RegionCursor{RegionTaken: RegionTaken{RegionSource{1, 0}, 9}}
	w.r[0].StopLeading(func() {})
	must(t, w.r[0].TakeBack(map[uint16]uint64{0: w.r[0].Last(0) + 1}))
	must(t, w.r[0].Lead())
	if op := do(w.r[0].Store, Op{Kind: regionCursor, Object: &c}); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("a position of the life before: %v", op.Err)
	}
	c.life = w.r[0].partitions[0].committed.life.Load()
	must(t, do(w.r[0].Store, Op{Kind: regionCursor, Object: &c}).Err)
}

// TestShardIsRemoved: every replica that leads refuses writes when the cluster knows that the
// others have removed it.
func TestShardIsRemoved(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	key := keysIn(w.r[0].Store)[0]
	cincr(w.r[0].Store, key, "a", 1)
	set := w.set
	set.Version, set.Removed = set.Version+1, true
	must(t, w.r[0].KeepRegions(set, allOfShard))
	w.follow(0, 1)
	for at := range w.r {
		if at > 0 {
			w.elect(0, at)
		}
		if op := do(w.r[at].Store,
			Op{Kind: CIncrBy, Key: []byte(key), ID: []byte("b"), Delta: 1}); !errors.Is(op.Err, ErrRemoved) {
			t.Errorf("replica %d writes: %v", at, op.Err)
		}
		if v, err := replicaGet(w.r[at].Store, key); v != 1 || err != nil {
			t.Errorf("replica %d reads %d, %v", at, v, err)
		}
	}
}

// TestShardHasPartitions: only the partitions that a shard has are the region's here.
func TestShardHasPartitions(t *testing.T) {
	w := newShardWorld(t, 2, 3)
	for i, r := range w.r {
		ranges, err := r.PullRanges(1)
		if err != nil || len(ranges) != 2 || ranges[0].Own != 2 || ranges[1].Own != 3 {
			t.Errorf("replica %d reads %v, %v", i, ranges, err)
		}
		if set, ok := r.Regions(); !ok || set.Version != 3 {
			t.Errorf("replica %d knows version %d, %v", i, set.Version, ok)
		}
	}
	if op := do(w.r[0].Store, Op{Kind: FlushAll}); !errors.Is(op.Err, ErrRegionFlush) {
		t.Errorf("FLUSHALL: %v", op.Err)
	}
	if _, err := w.r[0].Pull(Pull{By: 1, Group: 77, Incarnation: shardHome, Partition: 0,
		Last: 4095}); !errors.Is(err, ErrNoRegions) {
		t.Errorf("a partition of another shard: %v", err)
	}
	next := w.set
	next.Version, next.Era = 4, 1
	key := keysIn(w.r[0].Store)[3]
	cincr(w.r[0].Store, key, "a", 1)
	must(t, w.r[0].KeepRegions(next, []uint16{2, 3}))
	must(t, w.r[0].KeepRegions(w.set, []uint16{2, 3})) // of a leader that has heard less
	w.follow(0, 1)
	for i, r := range w.r {
		set, _ := r.Regions()
		v, err := replicaGet(r.Store, key)
		if set.Version != 4 || set.Era != 1 || v != 0 || err != nil {
			t.Errorf("replica %d: version %d, era %d, and %s is %d after a flush, %v", i, set.Version,
				set.Era, key, v, err)
		}
	}
}

// TestShardGivesUp: each replica keeps its log for another region, and gives it up once that has
// said, in its own log, that it has taken it: that region may never ask this replica.
func TestShardGivesUp(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	keys := keysIn(w.r[0].Store)
	count := func(s *Store, from, to int) {
		for i := from; i < to; i++ {
			for _, k := range keys {
				cincr(s, k, time.Duration(i).String(), 1)
			}
		}
	}
	count(w.r[0].Store, 0, 100)
	w.follow(0, 1)
	must(t, w.r[1].Snapshot())
	count(w.r[0].Store, 100, 101)
	w.follow(0, 1)
	must(t, w.r[1].Snapshot())
	if kept := w.logs(w.r[1].Store); kept[0] != 1 {
		t.Fatalf("a follower has given up its log: %v", kept)
	}
	w.toOther(0)             // which logs where it is
	count(w.other, 100, 110) // and does something itself
	w.toCluster()
	w.follow(0, 1)
	for _, r := range w.r {
		r.giveUpHeard()
	}
	for i := range 3 { // it is kept for older snapshots, too
		count(w.r[0].Store, 200+100*i, 300+100*i)
		w.follow(0, 1)
		must(t, w.r[0].Snapshot())
		must(t, w.r[1].Snapshot())
	}
	for i, r := range w.r {
		r.peers.mu.Lock()
		h := r.peers.of[part.Region(1)]
		r.peers.mu.Unlock()
		if h == nil || h.hold.Lost() {
			t.Fatalf("replica %d keeps nothing", i)
		}
		if kept := w.logs(r.Store); kept[0] == 1 {
			t.Errorf("replica %d has given up nothing: %v", i, kept)
		}
	}
}

// TestShardLeaves: every replica that leads refuses writes once one of them was told that the region leaves,
// also when another member tells of its own, until one is told that it stays. A new leader says anew where
// the logs end.
func TestShardLeaves(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	writes := 0
	check := func(at int, leaves bool) {
		t.Helper()
		writes++
		op := cincr(w.r[at].Store, "k", fmt.Sprint(writes), 1)
		if errors.Is(op.Err, ErrLeaving) != leaves || op.Err != nil != leaves || w.r[at].Leaving() != leaves {
			t.Errorf("write %d at replica %d: %v", writes, at, op.Err)
		}
	}
	leave := func(at int, yes bool) {
		t.Helper()
		ends, err := w.r[at].Leave(yes)
		must(t, err)
		for p := range ends {
			if last := w.r[at].LastOf(uint16(p)); ends[p] != last {
				t.Errorf("partition %d ends at %d, and says %d", p, last, ends[p])
			}
		}
	}
	leave(0, true)
	check(0, true)
	w.follow(0, 1)
	w.elect(0, 1)
	check(1, true)
	set := w.set
	set.Version++
	must(t, w.r[1].KeepRegions(set, allOfShard))
	check(1, true)
	leave(1, true)
	w.follow(1, 0)
	w.elect(1, 0)
	leave(0, true)
	check(0, true)
	leave(0, false)
	check(0, false)
	w.follow(0, 1)
	w.elect(0, 1)
	check(1, false)
}

// TestShardForgetsWhatWasTakenBack: what a leader says of its region and nobody commits, it does not say when
// it leads anew.
func TestShardForgetsWhatWasTakenBack(t *testing.T) {
	w := newShardWorld(t, allOfShard...)
	s, first := w.r[0], make(map[uint16]uint64)
	for _, p := range allOfShard {
		first[p] = s.LastOf(p) + 1
	}
	s.l.holdBack()
	done := make(chan error)
	go func() { _, err := s.Leave(true); done <- err }()
	for !s.Leaving() || s.LastOf(3) < first[3] {
		time.Sleep(time.Millisecond)
	}
	s.StopLeading(func() {})
	s.GiveUp()
	s.l.cut()
	if err := <-done; err == nil {
		t.Error("it leaves")
	}
	must(t, s.TakeBack(first))
	must(t, s.Lead())
	if op := cincr(s.Store, "k", "a", 1); op.Err != nil || s.Leaving() {
		t.Errorf("a write: %v", op.Err)
	}
}

// TestShardWentBack: a leader of a shard that has lost entries which it told sees it by others' positions,
// also if it has as many entries by now. The shard is fenced for good, and others do not read it.
func TestShardWentBack(t *testing.T) {
	for _, more := range []int{0, 9} {
		w := newShardWorld(t, allOfShard...)
		keys := keysIn(w.r[0].Store)
		for range 3 {
			must(t, do(w.r[0].Store, Op{Kind: IncrBy, Key: []byte(keys[2]), Delta: 1}).Err)
		}
		if n := w.toOther(0); n == 0 {
			t.Fatal("nothing was told")
		}
		b, err := w.other.Positions(0, 77, w.other.Meta().Incarnation)
		must(t, err)
		known, err := DecodePositions(b)
		must(t, err)
		must(t, w.r[0].Examine(1, known))
		back := w.r[1] // which has not followed: all others were put back to what it has
		must(t, back.Examine(1, known))
		w.r[0].StopLeading(func() {})
		must(t, back.Lead())
		back.time.step(time.Second)
		for range more {
			must(t, do(back.Store, Op{Kind: IncrBy, Key: []byte(keys[2]), Delta: 1}).Err)
		}
		at := known[slices.IndexFunc(known, func(at Position) bool { return at.Partition == 2 })]
		pull := Pull{By: 1, Group: 77, Incarnation: shardHome, Partition: 2, First: slots / 2,
			Last: slots/4*3 - 1, After: at.Seq, Acked: at.Seq,
			Code: w.other.CodeOf(1, at.RegionSource, at.Seq)}
		if _, err := w.r[0].Pull(pull); err != nil {
			t.Errorf("what it has told: %v", err)
		}
		if _, err := back.Pull(pull); !errors.Is(err, ErrAhead) {
			t.Errorf("with %d more the other one reads on: %v", more, err)
		}
		if err := back.Examine(1, known); !errors.Is(err, errWentBack) {
			t.Fatalf("with %d more it goes on: %v", more, err)
		}
		for range 2 {
			op := do(back.Store, Op{Kind: IncrBy, Key: []byte(keys[1]), Delta: 1})
			if !errors.Is(op.Err, ErrRestored) || !back.Older() {
				t.Errorf("a write: %v", op.Err)
			}
			_, err := back.Pull(Pull{By: 1, Group: 77, Incarnation: shardHome, Partition: 0, Last: 4095})
			if !errors.Is(err, ErrStream) {
				t.Errorf("it is read: %v", err)
			}
			back.StopLeading(func() {})
			must(t, back.Lead())
		}
	}
}
