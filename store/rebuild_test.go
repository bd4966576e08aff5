package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/seen"
)

// all is the cut behind everything.
func all(ps ...*partition) (cuts []cut) {
	for _, p := range ps {
		cuts = append(cuts, cut{p, math.MaxUint64})
	}
	return cuts
}

// story is what a test has done to a store.
type story struct {
	s    *Store
	ops  []Op // applied, in EXACT and APPROX tables
	keys map[string]int64
	sets []string // FBF keys, each with item "item"
}

func newStory(s *Store) *story { return &story{s: s, keys: make(map[string]int64)} }

// add applies some operations of each sort.
func (y *story) add(t *testing.T, name string) {
	t.Helper()
	for i := range 40 {
		for _, prefix := range []string{"", "approx:"} {
			key := fmt.Sprint(prefix, "k", i%20)
			op := cincr(y.s, key, fmt.Sprint(name, i), int64(i))
			must(t, op.Err)
			y.ops, y.keys[key] = append(y.ops, op), op.Value
		}
		if i%10 == 0 {
			set := fmt.Sprint("set", name, i)
			must(t, do(y.s, Op{Kind: FBFAdd, Key: []byte(set), Keys: [][]byte{[]byte("item")}}).Err)
			y.sets = append(y.sets, set)
		}
	}
}

func (y *story) flush(t *testing.T) {
	t.Helper()
	must(t, do(y.s, Op{Kind: FlushAll}).Err)
	y.ops, y.keys, y.sets = nil, make(map[string]int64), nil
}

// verify asks for all of it.
func (y *story) verify(t *testing.T, when string) {
	t.Helper()
	if n, err := y.s.DBSize(); err != nil || int(n) != len(y.keys)+len(y.sets) {
		t.Fatalf("%s: DBSIZE is %d (%v), want %d", when, n, err, len(y.keys)+len(y.sets))
	}
	if n := len(strings.Fields(scanOf(t, y.s))); n != len(y.keys)+len(y.sets) {
		t.Fatalf("%s: SCAN finds %d keys", when, n)
	}
	for _, op := range y.ops {
		again := cincr(y.s, string(op.Key), string(op.ID), op.Delta)
		want := op.Value
		if strings.HasPrefix(string(op.Key), "approx:") {
			want = y.keys[string(op.Key)]
		}
		if again.Err != nil || again.Applied || again.Value != want {
			t.Fatalf("%s: %q of %q answers %d, applied: %v (%v), want %d", when, op.ID, op.Key, again.Value,
				again.Applied, again.Err, want)
		}
	}
	for key, want := range y.keys {
		if v, ok := get(y.s, key); !ok || v != want {
			t.Fatalf("%s: %q is %d, want %d", when, key, v, want)
		}
	}
	for _, set := range y.sets {
		op := do(y.s, Op{Kind: FBFAdd, Key: []byte(set), Keys: [][]byte{[]byte("item")}})
		if op.Err != nil || !op.Founds[0] {
			t.Fatalf("%s: %q does not know its item: %v, %v", when, set, op.Founds, op.Err)
		}
	}
}

// checkpointUpTo does the steps of a checkpoint of each partition and then fails.
func checkpointUpTo(t *testing.T, s *Store, step string) {
	t.Helper()
	for _, p := range s.partitions {
		c := checkpoint{s: s, p: p}
		s.snapshots.lock()
		c.capture(seen.Tidy, true)
		for _, next := range []struct {
			step string
			do   func() error
		}{{"nothing", nil}, {"runs", c.build.Run}, {"rows", c.writeBack}, {"state", c.writeState},
			{"snapshot", c.writeSnapshot}} {
			if next.do != nil {
				must(t, next.do())
			}
			if next.step == step {
				break
			}
		}
		p.endSnapshot()
		c.giveBack()
		c.build.GiveBack()
		s.snapshots.unlock()
	}
}

// TestRebuild: after a rebuild the answers are the same, wherever the views are on their
// way to disk, and the filters take the memory that they take after a start; and then
// the directory is as sound as before.
func TestRebuild(t *testing.T) {
	for _, step := range []string{"", "nothing", "runs", "rows", "state", "snapshot"} {
		for _, flush := range []bool{false, true} {
			t.Run(fmt.Sprint("checkpoint up to ", step, ", FLUSHALL ", flush), func(t *testing.T) {
				fs, clock := vfs.NewMem(), newFakeClock()
				open := func() *Store {
					return testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
				}
				s := open()
				must(t, s.CreateTable(TableOptions{Name: "a", Prefix: "approx:", Mode: Approx}))
				y := newStory(s)
				y.add(t, "old")
				must(t, s.Snapshot())
				y.add(t, "new")
				if flush {
					y.flush(t)
					y.add(t, "after")
				}
				if step != "" {
					checkpointUpTo(t, s, step)
				}
				y.add(t, "last")
				for _, p := range s.partitions {
					must(t, s.flushRecords(p, true)) // nobody will have published these runs
				}
				y.add(t, "recent")
				for range 2 { // the second with what the first has left
					must(t, s.rebuild(all(s.partitions...)...))
					y.verify(t, "rebuilt")
				}
				used := s.pool.used.Load()
				must(t, s.CloseNow())
				s = open()
				y.s = s
				if now := s.pool.used.Load(); now != used {
					t.Errorf("the filters take %d bytes after a rebuild, %d after a start", used, now)
				}
				y.verify(t, "opened again")
				must(t, s.rebuild(all(s.partitions[1])...))
				y.add(t, "then")
				must(t, s.Snapshot())
				y.verify(t, "saved")
				must(t, s.Close())
				report, err := Check(CheckOptions{Dir: "data", FS: fs})
				if err != nil || len(report.Problems) > 0 {
					t.Error(report.Problems, err)
				}
			})
		}
	}
}

// TestRebuildUnderLoad rebuilds partitions again and again while batches of all kinds,
// checkpoints and the expiry of keys go on.
func TestRebuildUnderLoad(t *testing.T) {
	s := testStore(t, func(o *Options) {
		o.SnapshotInterval, o.RecordMemory = 20*time.Millisecond, 32<<10
		o.MaxLogBytes, o.HotCounters = 256<<10, 64
	})
	const workers, keys = 3, 50
	var stop atomic.Bool
	var work sync.WaitGroup
	results := make([][]Op, workers)
	for w := range workers {
		work.Go(func() {
			var b Batch
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for n := 0; !stop.Load(); n++ {
				b.Reset()
				for i := range 1 + rng.IntN(100) {
					op := b.Add(CIncrBy)
					op.Key, op.ID, op.Delta = fmt.Appendf(nil, "k%d:%d", w, rng.IntN(keys)),
						fmt.Appendf(nil, "%d.%d", n, i), 1
				}
				if rng.IntN(4) == 0 {
					op := b.Add(CMIncrBy)
					op.ID = fmt.Appendf(nil, "%d.m", n)
					for i := range 3 {
						op.Keys, op.Deltas = append(op.Keys, fmt.Appendf(nil, "k%d:%d", w, i)),
							append(op.Deltas, 1)
					}
				}
				s.Execute(&b)
				for _, op := range b.Ops {
					if op.Err != nil || !op.Applied {
						t.Errorf("%q of %q: %v, applied: %v", op.ID, op.Key, op.Err, op.Applied)
						return
					}
					op.Keys, op.Values = append([][]byte(nil), op.Keys...), append([]int64(nil), op.Values...)
					results[w] = append(results[w], op)
				}
				do(s, Op{Kind: Set, Key: []byte("soon"), Delta: 1, Flags: HasExpire,
					ExpireAt: time.Now().UnixMilli() + 1})
			}
		})
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for range 60 {
		cuts := all(s.partitions[rng.IntN(4)])
		if rng.IntN(4) == 0 {
			cuts = all(s.partitions...)
		}
		must(t, s.rebuild(cuts...))
		if _, err := s.DBSize(); err != nil {
			t.Error(err)
		}
		s.Stats()
		scanOf(t, s)
	}
	stop.Store(true)
	work.Wait()
	must(t, s.rebuild(all(s.partitions...)...))
	for w := range results {
		counts := make(map[string]int64)
		for _, op := range results[w] {
			if op.Kind == CMIncrBy {
				for i, k := range op.Keys {
					if counts[string(k)]++; op.Values[i] != counts[string(k)] {
						t.Fatalf("%q of %q answered %d, want %d", op.ID, k, op.Values[i], counts[string(k)])
					}
				}
				continue
			}
			if counts[string(op.Key)]++; op.Value != counts[string(op.Key)] {
				t.Fatalf("%q of %q answered %d, want %d", op.ID, op.Key, op.Value, counts[string(op.Key)])
			}
			wantOp(t, cincr(s, string(op.Key), string(op.ID), 1), op.Value, false)
		}
		for k, want := range counts {
			if v, _ := get(s, k); v != want {
				t.Fatalf("%q is %d, want %d", k, v, want)
			}
		}
	}
}

// proposals is a log as a replicated one is seen from a leader: while it holds them,
// records wait for others, until they are committed, or cut off.
type proposals struct {
	*oplog.Log
	mu      sync.Mutex
	decided sync.Cond
	hold    bool
	list    []proposal
	deposed atomic.Bool // and Confirm says so
}

func (l *proposals) Confirm() error {
	if l.deposed.Load() {
		return ErrNotLeader
	}
	return nil
}

type proposal struct {
	record  []byte
	decided bool
	place   uint64 // in the log beneath
	err     error
}

func (l *proposals) NewBatch() *oplog.Batch { return oplog.NewBatch(l) }

func (l *proposals) Append(record []byte) (place uint64, size int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := proposal{record: append([]byte(nil), record...)}
	if !l.hold {
		p.decided = true
		p.place, size, err = l.Log.Append(record)
	}
	l.list = append(l.list, p)
	return uint64(len(l.list)), size, err
}

func (l *proposals) Wait(place uint64) error {
	if place == 0 {
		return nil
	}
	l.mu.Lock()
	p := &l.list[place-1]
	for !p.decided {
		l.decided.Wait()
		p = &l.list[place-1]
	}
	at, err := p.place, p.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.Log.Wait(at)
}

// cut cuts off all that is held.
func (l *proposals) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if p := &l.list[i]; !p.decided {
			p.decided, p.err = true, oplog.ErrCut
		}
	}
	l.hold = false
	l.decided.Broadcast()
}

func (l *proposals) holdBack() {
	l.mu.Lock()
	l.hold = true
	l.mu.Unlock()
}

// proposingStore opens a store whose log is proposals.
func proposingStore(t *testing.T, fs vfs.FS, change func(*Options)) (*Store, *proposals) {
	t.Helper()
	o := Options{Dir: "data", FS: fs, Partitions: 4, SnapshotInterval: -1, MinFreeDisk: -1}
	change(&o)
	o = o.withDefaults()
	db, err := persistence.Open(persistence.Options{FS: fs, Dir: o.Dir, Fsync: Always,
		Partitions: o.Partitions})
	must(t, err)
	s := newStore(o, db)
	l := &proposals{Log: db.Log()}
	l.decided.L = &l.mu
	s.oplog = l
	must(t, s.recover())
	s.oplog.EndRecovery()
	s.start()
	t.Cleanup(func() { s.CloseNow() })
	return s, l
}

// keysIn returns a key of each partition.
func keysIn(s *Store) (keys []string) {
	keys = make([]string, len(s.partitions))
	for i, left := 0, len(keys); left > 0; i++ {
		k := fmt.Sprint("key", i)
		if at := &keys[Slot([]byte(k))>>s.shift]; *at == "" {
			*at = k
			left--
		}
	}
	return keys
}

// TestTakenBack: what was decided, seen and about to be saved ahead of a commit that never
// comes is as if it had never been, and nobody was told of it. Its sequences are given to
// others.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, clock := vfs.NewMem(), newFakeClock()
		s, l := proposingStore(t, fs, func(o *Options) { o.Clock = clock.now })
		keys := keysIn(s)
		for _, k := range keys {
			wantOp(t, cincr(s, k, "a", 1), 1, true)
		}
		must(t, do(s,
			Op{Kind: FBFAdd, Key: []byte(keys[0] + "{" + keys[0] + "}"), Keys: [][]byte{[]byte("x")}}).Err)
		l.holdBack()
		var waiting sync.WaitGroup
		unknown := func(what string, do func() error) {
			waiting.Go(func() {
				if err := do(); !errors.Is(err, ErrNotLeader) {
					t.Errorf("%s: %v", what, err)
				}
			})
			synctest.Wait()
		}
		cuts := []cut{{s.partitions[0], s.partitions[0].seq}, {s.partitions[1], s.partitions[1].seq}}
		var many Batch
		for _, k := range keys[:2] {
			many.Ops = append(many.Ops, Op{Kind: CIncrBy, Key: []byte(k), ID: []byte("b"), Delta: 1})
		}
		unknown("a batch", func() error {
			s.Execute(&many)
			return errors.Join(many.Ops[0].Err, many.Ops[1].Err)
		})
		unknown("a retry", func() error { return cincr(s, keys[0], "b", 1).Err })
		unknown("a read", func() error { return do(s, Op{Kind: Get, Key: []byte(keys[0])}).Err })
		unknown("a new key", func() error {
			return do(s, Op{Kind: Set, Key: []byte("{" + keys[0] + "}new"), Delta: 1}).Err
		})
		unknown("SCAN", func() error { _, err := s.Scan(0, 100, func([]byte, Type) {}); return err })
		unknown("DBSIZE", func() error { _, err := s.DBSize(); return err })
		unknown("SAVE", func() error {
			err := s.Snapshot()
			if errors.Is(err, errPostponed) { // the rebuild was there first
				err = ErrNotLeader
			}
			return err
		})
		l.cut()
		synctest.Wait()
		must(t, s.rebuild(cuts...))
		waiting.Wait()
		if err := s.Failure(); err != nil {
			t.Fatal(err)
		}
		if n, err := s.DBSize(); err != nil || n != 5 {
			t.Fatal(n, err)
		}
		judge := func(when string) {
			t.Helper()
			for i, k := range keys {
				want := int64(1)
				if i < 2 {
					want = 2
				}
				if v, _ := get(s, k); v != want {
					t.Errorf("%s: %q is %d, want %d", when, k, v, want)
				}
				wantOp(t, cincr(s, k, "a", 1), 1, false)
			}
		}
		for _, k := range keys[:2] { // certainly not applied
			wantOp(t, cincr(s, k, "b", 1), 2, true)
		}
		judge("rebuilt")
		must(t, s.CloseNow())
		s = testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
		judge("opened again")
	})
}

// TestOthersServe: while a partition is away, operations on it wait, those on others do
// not, nor do these wait for a batch that touches both; and nothing that runs in the
// background trips over it.
func TestOthersServe(t *testing.T) {
	s := testStore(t, nil)
	keys := keysIn(s)
	for _, k := range keys {
		wantOp(t, cincr(s, k, "a", 1), 1, true)
	}
	p := s.partitions[2]
	isAway := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.rebuilding
	}
	s.snapshots.lock() // a checkpoint is under way somewhere
	var waiting sync.WaitGroup
	waiting.Go(func() { must(t, s.rebuild(all(p)...)) })
	eventually(t, "the partition is away", isAway)
	for n, b := range [][]string{{keys[2]}, keys, {keys[1], keys[2]}} {
		waiting.Go(func() {
			batch := Batch{Atomic: n == 1}
			for _, k := range b {
				batch.Ops = append(batch.Ops,
					Op{Kind: CIncrBy, Key: []byte(k), ID: fmt.Append(nil, n), Delta: 1})
			}
			s.Execute(&batch)
			for _, op := range batch.Ops {
				if op.Err != nil || isAway() {
					t.Errorf("batch %d: %v, away: %v", n, op.Err, isAway())
				}
			}
		})
	}
	waiting.Go(func() {
		if n, err := s.DBSize(); err != nil || n != 4 || isAway() {
			t.Errorf("DBSIZE is %d (%v), away: %v", n, err, isAway())
		}
	})
	for n := range 100 {
		for i, k := range keys {
			if i != 2 {
				if op := cincr(s, k, fmt.Sprint("others", n), 1); op.Err != nil {
					t.Error(op.Err)
				}
			}
		}
		s.Stats()
		s.backlog()
		s.refreshDue(p)
	}
	if !isAway() {
		t.Error("the partition is back before it is rebuilt")
	}
	s.snapshots.unlock()
	waiting.Wait()
	for i, want := range []int64{102, 103, 4, 102} {
		if v, _ := get(s, keys[i]); v != want {
			t.Errorf("%q is %d, want %d", keys[i], v, want)
		}
	}
}

// TestReadOverRebuild: what a batch has read from disk before a rebuild does not count
// behind it: neither a row nor that runs lack an opid.
func TestReadOverRebuild(t *testing.T) {
	fs := vfs.NewMem()
	open, s := asksForRuns(t, fs)
	must(t, do(s, Op{Kind: Set, Key: []byte("other"), Delta: 1}).Err)
	must(t, s.Close())
	s = open()
	var b Batch
	op := b.Add(CIncrBy)
	op.Key, op.ID, op.Delta = []byte("other"), []byte("id"), 1
	b.Add(Get).Key = []byte("other")
	x := &b.execution
	x.begin(s, &b)
	x.lock()
	x.prepare(0, 2)
	x.unlock()
	x.fetch()
	wantOp(t, cincr(s, "other", "id", 1), 2, true)
	must(t, s.Snapshot())
	must(t, s.rebuild(all(s.partitions...)...))
	x.lock()
	if x.prepare(0, 2) || len(x.cold) != 2 {
		t.Errorf("%d rows are read again", len(x.cold))
	}
	x.unlock()
}

// TestRebuildBetweenPieces: a batch that has logged its first piece when its partition is
// rebuilt is not waited for by the rebuild, and does not answer if the piece is taken back.
func TestRebuildBetweenPieces(t *testing.T) {
	for _, takenBack := range []bool{false, true} {
		fs := vfs.NewMem()
		_, s := asksForRuns(t, fs)
		must(t, s.Close())
		s, l := proposingStore(t, fs, func(o *Options) { o.Partitions = 1 })
		get(s, "k") // into memory
		p := s.partitions[0]
		var b Batch
		for i := range pieceSize {
			b.Ops = append(b.Ops, Op{Kind: CIncrBy, Key: []byte("k"), ID: fmt.Append(nil, "new", i),
				Delta: 1})
		}
		b.Ops = append(b.Ops, Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("5"), Delta: 1}) // in a run
		rebuilt := make(chan error, 1)
		b.OnBlock = func() {
			b.OnBlock = nil
			b.execution.onBlock = nil
			if takenBack {
				l.cut()
				rebuilt <- s.rebuild(cut{p, p.committed.upTo()})
				return
			}
			go func() { rebuilt <- s.rebuild(all(p)...) }()
			eventually(t, "the partition is away", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.rebuilding
			})
		}
		if takenBack {
			l.holdBack()
		}
		s.Execute(&b)
		must(t, <-rebuilt)
		for i, op := range b.Ops {
			if takenBack != errors.Is(op.Err, ErrNotLeader) || !takenBack && op.Err != nil {
				t.Fatalf("taken back: %v, and operation %d answers %d (%v)", takenBack, i, op.Value, op.Err)
			}
		}
		want := int64(100)
		if !takenBack {
			want += int64(pieceSize)
		}
		if v, _ := get(s, "k"); v != want {
			t.Errorf("taken back: %v, and the counter is %d, want %d", takenBack, v, want)
		}
	}
}
