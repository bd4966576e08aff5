package store

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// testReplica opens a replica on a log whose commits the test decides.
func testReplica(t testing.TB, fs vfs.FS, clock Clock) (*Store, *proposals) {
	t.Helper()
	l := new(proposals)
	l.decided.L = &l.mu
	s := testStore(t, func(o *Options) {
		o.FS, o.Clock, o.Seed = fs, clock, [16]byte{7}
		o.Replicated = func(local *oplog.Log) Log { l.Log = local; return l }
	})
	return s, l
}

// records returns what a leader has logged from the nth record on, and how many records
// there are.
func (l *proposals) records(n int) (records [][]byte, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.list[n:] {
		records = append(records, p.record)
	}
	return records, len(l.list)
}

// receive makes a replica log and redo records.
func receive(t *testing.T, s *Store, l *proposals, records [][]byte) {
	t.Helper()
	for _, r := range records {
		place, _, err := l.Log.Append(r)
		must(t, err)
		must(t, l.Log.Wait(place))
		must(t, s.Follow(r, nil))
	}
}

func replicaGet(s *Store, key string) (int64, error) {
	var b Batch
	b.Replica = true
	b.Add(Get).Key = []byte(key)
	s.Execute(&b)
	return b.Ops[0].Value, b.Ops[0].Err
}

// TestReplica: one store leads, the other follows, refuses to decide, is read, and then leads
// itself: a retry gets the original answer, and time goes on although its clock is behind.
func TestReplica(t *testing.T) {
	ahead, behind := newFakeClock(), newFakeClock()
	ahead.step(time.Hour)
	a, la := testReplica(t, vfs.NewMem(), ahead.now)
	b, lb := testReplica(t, vfs.NewMem(), behind.now)
	if op := cincr(a, "k", "1", 5); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("before anybody leads: %v", op.Err)
	}
	if _, err := replicaGet(a, "k"); !errors.Is(err, ErrNotLeader) {
		t.Errorf("read before anybody led: %v", err)
	}
	must(t, a.Snapshot()) // which has nothing to save
	must(t, a.Lead())
	if op := cincr(a, "k", "1", 5); op.Err != nil || op.Value != 5 {
		t.Fatal(op.Value, op.Err)
	}
	cincr(a, "k", "2", 1)
	must(t, a.CreateTable(TableOptions{Name: "t", Prefix: "t:"}))
	all, n := la.records(0)
	receive(t, b, lb, all)
	if v, err := replicaGet(b, "k"); err != nil || v != 6 {
		t.Errorf("a replica reads %d, %v", v, err)
	}
	if op := cincr(b, "k", "3", 5); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("a replica counts: %v", op.Err)
	}
	if err := b.DropTable("t"); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a replica drops a table: %v", err)
	}
	must(t, b.Snapshot())

	a.StopLeading(func() {})
	if more, _ := la.records(n); len(more) > 0 {
		t.Fatalf("%d more records", len(more))
	}
	must(t, b.Lead())
	if op := cincr(b, "k", "1", 5); op.Err != nil || op.Value != 5 || op.Applied {
		t.Errorf("a retry at the new leader: %d, %v", op.Value, op.Err)
	}
	if got, want := b.WallTime(), a.WallTime(); got < want {
		t.Errorf("wall time went back from %d to %d", want, got)
	}
	for i, p := range b.partitions {
		if got, want := p.moment(b.look()).logged, a.partitions[i].at.logged; got <= want {
			t.Errorf("logged time of partition %d went back from %d to %d", i, want, got)
		}
	}
}

// TestReplicaConflict: a leader is deposed with decisions that were not committed, and what
// another one has decided arrives (R3).
func TestReplicaConflict(t *testing.T) {
	clock := newFakeClock()
	a, la := testReplica(t, vfs.NewMem(), clock.now)
	b, lb := testReplica(t, vfs.NewMem(), clock.now)
	must(t, a.Lead())
	cincr(a, "k", "1", 1)
	first, n := la.records(0)
	receive(t, b, lb, first)

	must(t, b.Lead()) // what it logs at its beginning: nothing
	lb.holdBack()
	done := make(chan error, 2)
	for _, id := range []string{"lost", "lost too"} {
		go func() { done <- cincr(b, "k", id, 100).Err }()
	}
	for {
		if some, _ := lb.records(0); len(some) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	b.StopLeading(func() {})
	lb.cut()
	cincr(a, "k", "2", 1)
	more, _ := la.records(n)
	receive(t, b, lb, more)
	for range 2 {
		if err := <-done; !errors.Is(err, ErrNotLeader) {
			t.Errorf("what was taken back is answered %v", err)
		}
	}
	if v, err := replicaGet(b, "k"); err != nil || v != 2 {
		t.Errorf("the replica reads %d, %v", v, err)
	}
	must(t, b.Lead())
	if op := cincr(b, "k", "lost", 100); op.Err != nil || !op.Applied || op.Value != 102 {
		t.Errorf("what was taken back, again: %d, applied %v, %v", op.Value, op.Applied, op.Err)
	}
}

// TestReplicaContainedOrGap: what recovery began with is skipped, what is missing is noticed,
// and so is what comes twice (R4).
func TestReplicaContainedOrGap(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	a, la := testReplica(t, vfs.NewMem(), clock.now)
	b, lb := testReplica(t, fs, clock.now)
	must(t, a.Lead())
	for _, id := range []string{"1", "2", "3"} {
		cincr(a, "k", id, 1)
	}
	all, _ := la.records(0)
	receive(t, b, lb, all[:3])
	if err := b.Follow(all[2], nil); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("a section comes twice: %v", err)
	}
	must(t, b.Close())
	b, lb = testReplica(t, fs, clock.now)
	must(t, b.Follow(all[1], nil))
	cincr(a, "k", "4", 1)
	last, _ := la.records(4)
	if err := b.Follow(last[0], nil); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("a section is missing: %v", err)
	}
	receive(t, b, lb, all[3:])
	if v, err := replicaGet(b, "k"); err != nil || v != 3 {
		t.Errorf("the replica reads %d, %v", v, err)
	}
}

// TestReplicaDoesNotSkip: a committed section has sequences that others had before, as two leaders
// would give that decide at once. Neither a replica that follows leaves it out, nor a start or a
// rebuild, which have these sequences in their views (R4).
func TestReplicaDoesNotSkip(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	a, la := testReplica(t, vfs.NewMem(), clock.now)
	b, lb := testReplica(t, fs, clock.now)
	c, lc := testReplica(t, vfs.NewMem(), clock.now)
	must(t, a.Lead())
	cincr(a, "k", "1", 1)
	first, n := la.records(0)
	receive(t, b, lb, first)
	receive(t, c, lc, first)
	must(t, c.Lead())
	_, before := lc.records(0)
	batch := Batch{Ops: []Op{{Kind: CIncrBy, Key: []byte("k"), ID: []byte("2"), Delta: 1},
		{Kind: CIncrBy, Key: []byte("k"), ID: []byte("3"), Delta: 1}}}
	c.Execute(&batch)
	other, _ := lc.records(before)
	cincr(a, "k", "2", 1)
	more, _ := la.records(n)
	receive(t, b, lb, more)
	must(t, b.Snapshot())
	must(t, b.Close())

	b, lb = testReplica(t, fs, clock.now)
	if err := b.Follow(other[0], nil); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("it is followed: %v", err)
	}
	place, _, err := lb.Log.Append(other[0])
	must(t, err)
	must(t, lb.Log.Wait(place))
	must(t, b.CloseNow())
	o := b.opts
	o.Replicated = func(local *oplog.Log) Log { return &proposals{Log: local} }
	if b, err := Open(o); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("it is opened: %v", err)
		if err == nil {
			b.CloseNow()
		}
	}
}

// TestNothingLoggedIsProved: a batch that logs nothing has no commit by which it proves that this
// node leads, whether it only reads or writes what is so already. So it asks, and a node that was
// deposed and has not noticed answers none.
func TestNothingLoggedIsProved(t *testing.T) {
	s, l := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	must(t, s.CreateTable(TableOptions{Name: "approx", Prefix: "a:", Mode: Approx}))
	ops := map[string]Op{
		"a read":                         {Kind: Get, Key: []byte("k")},
		"a duplicate of an approx table": {Kind: CIncrBy, Key: []byte("a:k"), ID: []byte("1"), Delta: 1},
		"a deletion of nothing":          {Kind: Del, Keys: [][]byte{[]byte("none")}},
	}
	for _, k := range []string{"k", "a:k"} {
		must(t, cincr(s, k, "1", 1).Err)
	}
	_, before := l.records(0)
	for _, deposed := range []bool{false, true} {
		l.deposed.Store(deposed)
		for name, op := range ops {
			if op := do(s, op); errors.Is(op.Err, ErrNotLeader) != deposed {
				t.Errorf("%s, deposed %v, is answered %d, %v", name, deposed, op.Value, op.Err)
			}
		}
	}
	if _, now := l.records(0); now != before {
		t.Errorf("%d records were logged", now-before)
	}
}

// TestCutBatch: when the log of a batch is cut off, it is certain that nothing was applied only if
// it was one record: of several, the first ones may have been committed (R7).
func TestCutBatch(t *testing.T) {
	s, _ := testReplica(t, vfs.NewMem(), newFakeClock().now)
	for records, want := range map[int]error{1: ErrNotLeader, 2: ErrUndecided} {
		x := s.internal(s.partitions...)
		x.ops, x.err, x.records = []Op{{Kind: CIncrBy}, {Kind: Get,
			Err: ErrKeySize}, {Kind: CIncrBy}}, ErrNotLeader, records
		x.failAll()
		for i, want := range []error{want, ErrKeySize, want} {
			if got := x.ops[i].Err; !errors.Is(got, want) {
				t.Errorf("operation %d of a batch of %d records is answered %v, want %v", i, records, got,
					want)
			}
		}
	}
}

// TestRefusalOfUncommitted: an operation is refused because of another one whose commit fails. Its
// client must not learn of the refusal: the reason is gone, so it may be carried out (G3).
func TestRefusalOfUncommitted(t *testing.T) {
	s, l := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	_, before := l.records(0)
	l.holdBack()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- cincr(s, "k", "1", math.MaxInt64).Err }()
	for now := before; now == before; time.Sleep(time.Millisecond) {
		_, now = l.records(0)
	}
	go func() { second <- cincr(s, "k", "2", 1).Err }()
	for waits := false; !waits; time.Sleep(time.Millisecond) { // until it is decided
		for _, p := range s.partitions {
			p.committed.mu.Lock()
			waits = waits || p.committed.waiting > 0
			p.committed.mu.Unlock()
		}
	}
	s.StopLeading(func() {})
	s.GiveUp()
	l.cut()
	if err := <-first; !errors.Is(err, ErrUndecided) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("the first one is told %v", err)
	}
	if err := <-second; !errors.Is(err, ErrUndecided) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("the one that would overflow is told %v", err)
	}
}

// TestReplicaGivesUp: who cannot be told in time is told that the outcome is unknown, and
// that ends when the node leads again (R7).
func TestReplicaGivesUp(t *testing.T) {
	s, _ := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	cincr(s, "k", "1", 1)
	p := s.partitions[0]
	here := point{p, p.committed.life.Load(), p.seq + 1}
	waited := make(chan error, 1)
	go func() { waited <- here.wait() }()
	s.StopLeading(func() {})
	s.GiveUp()
	if err := <-waited; !errors.Is(err, ErrUndecided) {
		t.Errorf("it is told %v", err)
	}
	must(t, s.Lead())
	here.life = p.committed.life.Load()
	go func() { waited <- here.wait() }()
	for waits := false; !waits && len(waited) == 0; time.Sleep(time.Millisecond) { // until it has looked
		p.committed.mu.Lock()
		waits = p.committed.waiting > 0
		p.committed.mu.Unlock()
	}
	p.committed.advance(here.seq)
	if err := <-waited; err != nil {
		t.Errorf("under the new leadership it is told %v", err)
	}
}

// TestCutNeedsNoCommit: a checkpoint waits for a commit that cannot be before another replica
// has the files of a cut; the cut does not wait for it.
func TestCutNeedsNoCommit(t *testing.T) {
	s, l := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	cincr(s, "k", "1", 1)
	l.holdBack()
	counted, saved := make(chan error, 1), make(chan error, 1)
	go func() { counted <- cincr(s, "k", "2", 1).Err }()
	defer func() {
		s.StopLeading(func() {})
		l.cut()
		s.GiveUp()
		<-counted
	}()
	for {
		if all, _ := l.records(0); len(all) > 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	go func() { saved <- s.Snapshot() }()
	eventually(t, "the checkpoint waits for the commit", func() bool {
		return slices.ContainsFunc(s.partitions, func(p *partition) bool {
			p.committed.mu.Lock()
			defer p.committed.mu.Unlock()
			return p.committed.waiting > 0
		})
	})
	made := make(chan error, 1)
	go func() { made <- s.Cut() }()
	eventually(t, "the cut is made", func() bool { return len(made) > 0 })
	must(t, <-made)
	if err := <-saved; !errors.Is(err, errPostponed) {
		t.Errorf("the checkpoint ends with %v", err)
	}
}

// TestCutNeedsNoFlushAll: a FLUSHALL waits for a commit that cannot be before another replica has
// the files of a cut; the cut does not wait for it. The deleted keys stay on disk, also when a
// checkpoint comes between, and are there when the FLUSHALL is taken back.
func TestCutNeedsNoFlushAll(t *testing.T) {
	s, l := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	cincr(s, "k", "1", 1)
	must(t, s.Snapshot())
	_, before := l.records(0)
	l.holdBack()
	flushed, saved, made := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { flushed <- do(s, Op{Kind: FlushAll}).Err }()
	for all := before; all == before; time.Sleep(time.Millisecond) {
		_, all = l.records(0)
	}
	go func() { saved <- s.Snapshot() }()
	go func() { made <- s.Cut() }()
	select {
	case err := <-made:
		must(t, err)
	case <-time.After(testwait.Limit):
		t.Error("the cut waits for the commit of FLUSHALL")
	}
	if rows := onDiskOf(t, s); rows != "k" {
		t.Errorf("on disk is %q", rows)
	}
	first := make(map[uint16]uint64)
	for _, p := range s.partitions {
		first[p.id] = p.committed.upTo() + 1
	}
	s.StopLeading(func() {})
	l.cut()
	must(t, s.TakeBack(first))
	if err := <-flushed; !errors.Is(err, ErrNotLeader) {
		t.Errorf("FLUSHALL ends with %v", err)
	}
	<-saved
	if v, err := replicaGet(s, "k"); v != 1 || err != nil {
		t.Errorf("k is %d: %v", v, err)
	}
}
