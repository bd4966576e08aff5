package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestSnapshotWaits: a snapshot whose bits may be those of an operation that is
// not yet durable is not published before it is (G4).
func TestSnapshotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = g.fs(), 1 })
		wantOp(t, cincr(s, "old", "0", 1), 1, true)
		p := s.partitions[0]
		p.mu.Lock()
		snap := p.beginSnapshot()
		p.mu.Unlock()
		defer p.endSnapshot()
		g.set(true, nil)
		defer g.set(false, nil)
		op, published := make(chan Op, 1), make(chan error, 1)
		before := p.seq
		go func() { op <- cincr(s, "k", "1", 1) }()
		waitSeq(t, s, before+1)
		go func() {
			w, err := s.db.CreateSnapshot(p.id, snap.seq)
			if err == nil {
				err = snap.write(p, w)
			}
			published <- err
		}()
		synctest.Wait()
		if list, err := s.db.Snapshots(p.id); len(list) > 0 || err != nil || len(published) > 0 {
			t.Errorf("the snapshot was published before the operation that it may remember is durable (%v)",
				err)
		}
		g.set(false, nil)
		wantOp(t, <-op, 1, true)
		must(t, <-published)
	})
}

// TestColdLoad changes more keys than memory holds from several clients, with
// checkpoints writing them back meanwhile: a row never hides or replaces a newer
// value (G4).
func TestColdLoad(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions = 64, 2 })
	const keys, clients, each = 600, 4, 300
	var want [keys]atomic.Int64
	var work sync.WaitGroup
	done := make(chan struct{})
	for c := range clients {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			var b Batch
			for range each {
				b.Reset()
				for range 8 {
					k := rnd.IntN(keys)
					op := b.Add(IncrBy)
					op.Key, op.Delta = []byte("k"+strconv.Itoa(k)), 1
					want[k].Add(1)
				}
				s.Execute(&b)
			}
		})
	}
	saving := make(chan struct{})
	go func() {
		defer close(saving)
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				must(t, s.checkpoint(s.partitions[n%2], false))
				must(t, s.flushRows(s.partitions[n/2%2]))
			}
		}
	}()
	work.Wait()
	close(done)
	<-saving
	for k := range want {
		if v, _ := get(s, "k"+strconv.Itoa(k)); v != want[k].Load() {
			t.Fatalf("k%d = %d, want %d", k, v, want[k].Load())
		}
	}
}

// TestRetriesDuringRuns repeats operations while their records move from memory
// into runs, and runs are merged: at no moment are they nowhere (G1).
func TestRetriesDuringRuns(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, s.Snapshot())
	var work sync.WaitGroup
	var applied, sent atomic.Int64
	done := make(chan struct{})
	for c := range 3 {
		work.Go(func() {
			var ids []string
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			for i := range 700 {
				id := fmt.Sprint(c, "-", i)
				ids = append(ids, id)
				sent.Add(1)
				if cincr(s, "k"+strconv.Itoa(c), id, 1).Applied {
					applied.Add(1)
				}
				for range 3 {
					id := ids[max(0, len(ids)-1-rnd.IntN(60))]
					if op := cincr(s, "k"+strconv.Itoa(c), id, 1); op.Applied || op.Err != nil {
						t.Errorf("%s was applied again (%v)", id, op.Err)
						return
					}
				}
			}
		})
	}
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				must(t, s.flushRecords(s.partitions[0], false))
			}
		}
	})
	work.Wait()
	close(done)
	flushing.Wait()
	if applied.Load() != sent.Load() && !t.Failed() {
		t.Errorf("%d of %d new operations were applied", applied.Load(), sent.Load())
	}
}

// TestExactDismissesNothing: with a filter that is wrong half of the time, an
// EXACT table still applies every new operation (G5).
func TestExactDismissesNothing(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.AlterTable(DefaultTable, TableChange{Error: ptr(0.5)}))
	for i := range 6000 {
		if op := cincr(s, "k"+strconv.Itoa(i%50), strconv.Itoa(i), 1); !op.Applied || op.Err != nil {
			t.Fatalf("operation %d was dismissed (%v)", i, op.Err)
		}
		if i%2000 == 1000 {
			must(t, s.Snapshot())
		}
	}
}

// preparedCIncr begins and prepares an increment of k, and returns whether it could be
// decided. No lock is held.
func preparedCIncr(s *Store, b *Batch, id string) (x *execution, ready bool) {
	o := b.Add(CIncrBy)
	o.Key, o.ID, o.Delta = []byte("k"), []byte(id), 1
	b.execution.begin(s, b)
	x = &b.execution
	x.lock()
	defer x.unlock()
	return x, x.prepare(x.share.from, x.share.to)
}

// TestRunFiltersSpareLookUps: what the filter of a table takes for known by mistake is
// decided at once where the filters of the runs know better; what is known is not.
func TestRunFiltersSpareLookUps(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, s.AlterTable(DefaultTable, TableChange{Error: ptr(0.5)}))
	const ids = 2000
	for i := range ids {
		cincr(s, "k", strconv.Itoa(i), 1)
	}
	must(t, s.flushRecords(s.partitions[0], false))
	mistakes, late := 0, 0
	for i := range 10_000 {
		var b Batch
		x, ready := preparedCIncr(s, &b, "new"+strconv.Itoa(i))
		if len(x.judging.positives) == 0 {
			continue
		}
		mistakes++
		if !ready {
			late++
		} else if r := &x.refs[0]; r.verdict != verdictNew || !r.dismissed {
			t.Fatalf("%+v", r)
		}
	}
	if mistakes < 100 || late > mistakes/10 {
		t.Errorf("%d of %d mistakes of the filter were to be looked up", late, mistakes)
	}
	for i := range ids {
		var b Batch
		if _, ready := preparedCIncr(s, &b, strconv.Itoa(i)); ready {
			t.Fatalf("%d was decided without a look at its record", i)
		}
	}
}

// TestLookUpIsRepeated: an operation is looked up in the runs with no lock held.
// If its twin is applied meanwhile, and its record goes to a run, too, what was
// found before counts no longer (G1).
func TestLookUpIsRepeated(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
	s := open()
	must(t, s.AlterTable(DefaultTable, TableChange{Error: ptr(0.5)}))
	for i := range 2000 {
		cincr(s, "k", strconv.Itoa(i), 1)
	}
	must(t, s.Close())
	s = open() // whose runs have no filters in memory
	tried := 0
	for i := range 200 {
		id := "new" + strconv.Itoa(i)
		var b Batch
		x, ready := preparedCIncr(s, &b, id)
		if ready {
			continue // the filter knows that it is new
		}
		tried++
		x.fetch()
		if twin := cincr(s, "k", id, 1); !twin.Applied {
			t.Fatalf("%+v", twin)
		}
		must(t, s.flushRecords(s.partitions[0], false))
		x.commitShares()
		x.wait()
		if op := b.Ops[0]; op.Applied || op.Err != nil {
			t.Fatalf("applied although its twin was: %+v", op)
		}
	}
	if tried == 0 {
		t.Error("the filter was never wrong")
	}
}

// asksForRuns opens a store of one partition that has applied the opids 0 to 99 to k, and
// must read a run to know it: runs that a process finds have no filters in memory. open
// opens it again.
func asksForRuns(t *testing.T, fs vfs.FS) (open func() *Store, s *Store) {
	open = func() *Store {
		return testStore(t, func(o *Options) { o.FS, o.Partitions, o.Fsync = fs, 1, Always })
	}
	s = open()
	for i := range 100 {
		cincr(s, "k", strconv.Itoa(i), 1)
	}
	must(t, s.Close())
	s = open()
	get(s, "k") // into memory
	return open, s
}

// TestPiecesAreCommitted: when a batch must read something, what it has decided before is
// committed, and nothing else is: others go on from there, and so does the next start
// (G2, G4).
func TestPiecesAreCommitted(t *testing.T) {
	open, s := asksForRuns(t, vfs.NewMem())
	var b Batch
	for i := range 2*pieceSize + 1 {
		o := b.Add(CIncrBy)
		o.Key, o.ID, o.Delta = []byte("k"), []byte("new"+strconv.Itoa(i)), 1
		if i == 2*pieceSize-1 {
			o.ID = []byte("5")
		}
	}
	blocked := false
	b.OnBlock = func() {
		if blocked {
			return
		}
		blocked = true
		p := s.partitions[0]
		p.mu.Lock()
		if p.draft.first != 0 {
			t.Error("a record is begun and not in the log")
		}
		p.mu.Unlock()
		wantOp(t, cincr(s, "k", "other", 1), 101+int64(pieceSize), true)
	}
	s.Execute(&b)
	for i := range b.Ops {
		want := int64(101 + i)
		switch {
		case i == 2*pieceSize-1:
			want = 6 // as the first time
		case i == 2*pieceSize:
			want--
			fallthrough
		case i >= pieceSize:
			want++ // the other
		}
		wantOp(t, b.Ops[i], want, i != 2*pieceSize-1)
	}
	must(t, s.CloseNow())
	s = open()
	if v, _ := get(s, "k"); v != int64(101+2*pieceSize) {
		t.Errorf("after a crash k = %d", v)
	}
}

// TestSeenBetweenPieces: what others do while a batch reads, and what it then sees of it,
// is not durable because what it did before is: the batch waits for it, and so do all
// others (G2, G3).
func TestSeenBetweenPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		_, s := asksForRuns(t, g.fs())
		defer g.set(false, nil)
		p := s.partitions[0]
		var b Batch
		for i := range pieceSize {
			o := b.Add(CIncrBy)
			o.Key, o.ID, o.Delta = []byte("k"), []byte("new"+strconv.Itoa(i)), 1
		}
		retry := b.Add(CIncrBy)
		retry.Key, retry.ID, retry.Delta = []byte("k"), []byte("5"), 1
		b.Add(Get).Key = []byte("k")
		other, done := make(chan Op, 1), make(chan bool)
		var seq atomic.Uint64 // 0 until the batch asks for something from disk
		var once sync.Once
		b.OnBlock = func() {
			once.Do(func() {
				if err := s.db.Sync(); err != nil {
					t.Error(err)
				}
				g.set(true, nil)
				go func() { other <- cincr(s, "k", "other", 1) }()
				waitSeq(t, s, p.committed.upTo()+uint64(pieceSize)+1)
				p.mu.Lock()
				seq.Store(p.seq)
				p.mu.Unlock()
			})
		}
		go func() { s.Execute(&b); close(done) }()
		g.holds(t)
		synctest.Wait()
		select {
		case <-done:
			t.Error("answered from the future")
		default:
		}
		if now, seq := p.committed.upTo(), seq.Load(); now >= seq && seq > 0 {
			t.Errorf("%d counts as committed, of which %d is not", now, seq)
		}
		g.set(false, nil)
		<-done
		wantOp(t, <-other, int64(101+pieceSize), true)
		if v := b.Ops[pieceSize+1].Value; v != int64(101+pieceSize) {
			t.Errorf("GET answers %d", v)
		}
	})
}

// TestFailureBetweenPieces: if the log fails while a batch reads, the outcome of all of it
// is unknown, and what the next start finds is what was committed before, or nothing of
// it (G8).
func TestFailureBetweenPieces(t *testing.T) {
	g := newGate()
	open, s := asksForRuns(t, g.fs())
	var b Batch
	for i := range 3 * pieceSize {
		o := b.Add(CIncrBy)
		o.Key, o.ID, o.Delta = []byte("k"), []byte("new"+strconv.Itoa(i)), 1
		if i == pieceSize {
			o.ID = []byte("5")
		}
	}
	var once sync.Once
	b.OnBlock = func() {
		once.Do(func() {
			g.set(false, errors.New("disk"))
			if s.db.Sync() == nil {
				t.Error("the log did not fail")
			}
		})
	}
	s.Execute(&b)
	for i := range b.Ops {
		if !errors.Is(b.Ops[i].Err, ErrUnknownOutcome) {
			t.Fatalf("operation %d: %v", i, b.Ops[i].Err)
		}
	}
	if op := cincr(s, "k", "later", 1); op.Err == nil {
		t.Error("a write is taken after the failure")
	}
	_ = s.CloseNow() // it has failed
	g.set(false, nil)
	s = open()
	if v, _ := get(s, "k"); v != 100 && v != int64(100+pieceSize) {
		t.Errorf("k = %d", v)
	}
}

// TestRunFiltersForgetNoApprox: that no run has an opid says nothing of what the table
// remembered while it was APPROX (G1).
func TestRunFiltersForgetNoApprox(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, s.AlterTable(DefaultTable, TableChange{Error: ptr(0.3), Mode: ptr(Approx)}))
	applied := make(map[string]bool)
	for i := range 1000 {
		id := "approx" + strconv.Itoa(i)
		applied[id] = cincr(s, "k", id, 1).Applied
	}
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Exact)}))
	for i := range 2000 {
		cincr(s, "k", "exact"+strconv.Itoa(i), 1)
	}
	must(t, s.flushRecords(s.partitions[0], false))
	both := 0
	for id := range applied {
		var b Batch
		x, ready := preparedCIncr(s, &b, id)
		if p := x.judging.positives; ready && len(p) > 0 && p[0].match.Tags == tagExact|tagApprox {
			both++
		}
		if applied[id] && cincr(s, "k", id, 1).Applied {
			t.Fatalf("%s was applied twice", id)
		}
	}
	if both < 10 {
		t.Errorf("%d opids were asked for in runs' filters", both)
	}
}

// TestColdRowIsReadAgain: a row is read with no lock held. If its key was loaded
// by someone else meanwhile, changed, written back and evicted, what was read
// counts no longer (G4).
func TestColdRowIsReadAgain(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions = 64, 1 })
	p := s.partitions[0]
	incr(s, "k", 1)
	evict := func() {
		t.Helper()
		for i := range 4000 {
			must(t, s.checkpoint(p, false))
			p.mu.Lock()
			cold := p.hot.peek("k") == nil
			p.mu.Unlock()
			if cold {
				return
			}
			for j := range 50 {
				incr(s, fmt.Sprint("other", i, "-", j), 1)
			}
		}
		t.Fatal("k was never evicted")
	}
	evict()
	var b Batch
	o := b.Add(IncrBy)
	o.Key, o.Delta = []byte("k"), 1
	b.execution.begin(s, &b)
	x := &b.execution
	x.lock()
	if x.prepare(x.share.from, x.share.to) {
		t.Fatal("k is in memory")
	}
	x.unlock()
	x.fetch()
	incr(s, "k", 1)
	evict()
	x.commitShares()
	x.wait()
	if op := b.Ops[0]; op.Err != nil || op.Value != 3 {
		t.Errorf("k = %d (%v), want 3", op.Value, op.Err)
	}
}
