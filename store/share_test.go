package store

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// TestMain has nearly every batch of the tests split, however small. Benchmarks
// measure what servers do.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		minSplit, minOthers = 4, 1
		pieceSize = 8
	}
	os.Exit(m.Run())
}

// TestSplit: a large batch, whose shares are decided one after another in any order, or
// which is one share, answers and leaves what the same batch does as a whole, with keys
// that are cold, retries within the batch, and opids to be looked for on disk.
func TestSplit(t *testing.T) {
	for _, procs := range []int{1, 4} {
		t.Run(fmt.Sprint("procs=", procs), func(t *testing.T) { testSplit(t, procs) })
	}
}

func testSplit(t *testing.T, procs int) {
	clock := newFakeClock()
	open := func(procs int) (*Store, vfs.FS) {
		fs := vfs.NewMem()
		s := testStore(t, func(o *Options) {
			o.FS, o.Partitions, o.HotCounters, o.Clock = fs, 16, 256, clock.now
		})
		s.procs = procs
		return s, fs
	}
	alone, _ := open(1)
	shared, fs := open(procs)
	rnd := rand.New(rand.NewPCG(7, 7))
	for round := range 30 / raced.Slowdown {
		var one, other Batch
		for range 100 + rnd.IntN(1000) {
			op := randomSimpleOp(rnd, clock.wall)
			for _, b := range []*Batch{&one, &other} {
				o := b.Add(op.Kind)
				run := o.run
				*o = op
				o.run = run
			}
		}
		one.Atomic = true
		if round%4 == 3 {
			must(t, alone.Snapshot())
			must(t, shared.Snapshot())
		}
		alone.Execute(&one)
		shared.Execute(&other)
		if one.execution.isSplit || !other.execution.isSplit {
			t.Fatal("the wrong one was split")
		}
		for i := range one.Ops {
			if a, b := answerOf(&one.Ops[i]), answerOf(&other.Ops[i]); a != b {
				t.Fatalf("round %d, operation %d, %+v:\n%s, split\n%s", round, i, one.Ops[i], a, b)
			}
		}
		clock.advance(time.Duration(rnd.IntN(2000)) * time.Millisecond)
	}
	// Entries that shares logged are redone in the order of the log.
	must(t, shared.CloseNow())
	again := testStore(t, func(o *Options) { o.FS, o.Partitions, o.Clock = fs, 16, clock.now })
	for i := range 600 {
		k := "k" + strconv.Itoa(i)
		if a, b := do(alone, Op{Kind: Get, Key: []byte(k)}),
			do(again, Op{Kind: Get, Key: []byte(k)}); a.Value != b.Value || a.Found != b.Found {
			t.Errorf("%s = %d, after a crash %d", k, a.Value, b.Value)
		}
	}
}

// randomSimpleOp makes an operation of the kinds that a split batch can hold.
func randomSimpleOp(rnd *rand.Rand, wall int64) Op {
	kinds := []Kind{CIncrBy, CIncrBy, CIncrBy, CIncrBy, CIncrEx, IncrEx, CSeen, IncrBy, Set, GetDel, GetEx,
		ExpireAt, Persist, Get, TypeOf, ExpireTime, Nop}
	op := Op{Kind: kinds[rnd.IntN(len(kinds))], Key: []byte("k" + strconv.Itoa(rnd.IntN(600))), Delta: 1 +
		rnd.Int64N(5)}
	switch op.Kind {
	case CIncrBy, CIncrEx, CSeen:
		op.ID = []byte(strconv.Itoa(rnd.IntN(4000)))
	case GetEx, ExpireAt:
		op.Flags, op.ExpireAt = HasExpire, wall+rnd.Int64N(4000)-100
	}
	if op.Kind == CIncrEx || op.Kind == IncrEx {
		op.Deltas = []int64{0, 40}
	}
	return op
}

func answerOf(op *Op) string {
	original := op.Seen
	original.Dot = 0 // what filters do of themselves takes sequences, too
	return fmt.Sprint(op.Err, op.Value, op.Values, op.Applied, op.Found, op.Type, original)
}

// TestAtomicBatch: a reader of all counters sees all that a large batch does or
// nothing (G6), if the batch is atomic.
func TestAtomicBatch(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions, o.Fsync = 16, No })
	s.procs = 4
	const keys, rounds = 200, 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			b := Batch{Atomic: true}
			for k := range keys {
				op := b.Add(IncrBy)
				op.Key, op.Delta = []byte("k"+strconv.Itoa(k)), 1
			}
			s.Execute(&b)
		}
	}()
	var all [][]byte
	for k := range keys {
		all = append(all, []byte("k"+strconv.Itoa(k)))
	}
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		op := do(s, Op{Kind: MGet, Keys: all})
		must(t, op.Err)
		for k, v := range op.Values {
			if v != op.Values[0] {
				t.Fatalf("k0 is %d and k%d is %d", op.Values[0], k, v)
			}
		}
	}
}

// TestSplitOrder: what a batch does to one key it does in order, and only batches that
// cannot tell are split.
func TestSplitOrder(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 16 })
	s.procs = 4
	for _, c := range []struct {
		kind   Kind
		atomic bool
		split  bool
	}{
		{kind: IncrBy, split: true}, {kind: Get, split: true}, {kind: Nop, split: true},
		{kind: IncrBy, atomic: true},
		{kind: MGet}, {kind: Del}, {kind: FBFCard}, {kind: FlushAll},
	} {
		must(t, do(s, Op{Kind: FlushAll}).Err)
		b := Batch{Atomic: c.atomic}
		for i := range 500 {
			op := b.Add(IncrBy)
			op.Key, op.Delta = []byte("k"+strconv.Itoa(i%7)), 1
		}
		op := b.Add(c.kind)
		op.Key, op.Keys = []byte("other"), [][]byte{[]byte("other")}
		s.Execute(&b)
		for i := range 500 {
			if op := &b.Ops[i]; op.Err != nil || op.Value != int64(i/7+1) {
				t.Fatalf("increment %d of its key answers %d, %v", i/7+1, op.Value, op.Err)
			}
		}
		if b.execution.isSplit != c.split {
			t.Errorf("kind %d, atomic %v: split %v", c.kind, c.atomic, b.execution.isSplit)
		}
	}
}

// TestSplitAtTheSameTime: split batches at the same time, each with the
// operations of all, apply every one once and answer each with its own result (G1).
func TestSplitAtTheSameTime(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions, o.Fsync = 16, No })
	s.procs = 4
	const batches, rounds, ops, keys = 4, 20, 300, 40
	result := func(id int) string { return fmt.Sprint("k", id%keys) }
	var work sync.WaitGroup
	results := make([][]int64, batches)
	for n := range batches {
		work.Go(func() {
			for round := range rounds {
				var b Batch
				for i := range ops {
					id := round*ops + i
					op := b.Add(CIncrBy)
					op.Key, op.ID, op.Delta = []byte(result(id)), []byte(strconv.Itoa(id)), 1
				}
				s.Execute(&b)
				for i := range b.Ops {
					if b.Ops[i].Err != nil {
						t.Error(b.Ops[i].Err)
					}
					results[n] = append(results[n], b.Ops[i].Value)
				}
			}
		})
	}
	work.Wait()
	for n := range results {
		if !slices.Equal(results[n], results[0]) {
			t.Errorf("batches 0 and %d were answered differently", n)
		}
	}
	for k := range keys {
		want := int64(rounds * ops / keys)
		if got := do(s, Op{Kind: Get, Key: []byte(result(k))}).Value; got != want {
			t.Errorf("counter %d is %d, not %d", k, got, want)
		}
	}
}

// TestSplitTakesWhatIsFree: a batch waits last for a partition that somebody holds.
func TestSplitTakesWhatIsFree(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 16 })
	s.procs = 4
	var keys [][]byte // one in each partition
	for i := 0; len(keys) < len(s.partitions); i++ {
		if k := []byte(strconv.Itoa(i)); int(Slot(k)>>s.shift) == len(keys) {
			keys = append(keys, k)
		}
	}
	// Looking takes the locks that the batch tries, too: it may find one of them in use,
	// and then wait for the one that is held before it comes back to it. That is rare.
	sent, again := int64(0), 5
	for held, p := range s.partitions {
		for ; ; again-- {
			var b Batch
			for _, k := range keys {
				op := b.Add(IncrBy)
				op.Key, op.Delta = k, 1
			}
			sent++
			p.mu.Lock()
			done := make(chan struct{})
			go func() { s.Execute(&b); close(done) }()
			missing := otherShares(s, keys, held, sent)
			p.mu.Unlock()
			<-done
			for i := range b.Ops {
				if b.Ops[i].Value != sent {
					t.Fatalf("operation %d: %+v", i, b.Ops[i])
				}
			}
			if missing < 0 {
				break
			}
			if again == 0 {
				t.Fatalf("partition %d does not change while %d is held", missing, held)
			}
		}
	}
}

// otherShares waits until the counters of all shares but that of a partition have a value;
// if one does not get it, it returns the partition of that one, else -1. It looks more and more
// seldom, as it takes locks.
func otherShares(s *Store, keys [][]byte, held int, value int64) int {
	share := held / 2 // two partitions are a share
	for i, other := range s.partitions {
		for wait := time.Millisecond; i/2 != share && valueOf(other, keys[i]) != value; wait *= 2 {
			if wait > 10*time.Second {
				return i
			}
			time.Sleep(wait)
		}
	}
	return -1
}

// valueOf returns the value of a counter in memory; 0 if there is none.
func valueOf(p *partition, key []byte) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.hot.peek(string(key)); c != nil {
		return c.value
	}
	return 0
}

// TestPanicKeepsTheLocks: a panic while a share is decided comes up in the caller's
// goroutine, where the server ends the process for it. Until then nobody gets at what is
// in memory and not in the log (G8).
func TestPanicKeepsTheLocks(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 16 })
	s.procs = 4
	var b Batch
	for i := range 64 {
		op := b.Add(CIncrBy)
		op.Key, op.ID, op.Delta = []byte(strconv.Itoa(i)), []byte("id"), 1
	}
	broken := s.partitions[Slot(b.Ops[40].Key)>>s.shift]
	tables := broken.tables
	broken.tables = nil
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic without tables")
			}
		}()
		s.Execute(&b)
	}()
	if broken.mu.TryLock() {
		t.Error("its partition is unlocked")
	}
	for i := range b.execution.share.touched { // so that the store can be closed
		b.execution.share.touched[i].p.mu.Unlock()
	}
	broken.tables = tables
}
