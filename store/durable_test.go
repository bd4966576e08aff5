package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/seen"
)

// gate is a file system whose WAL syncs wait while it is shut, or fail.
type gate struct {
	mu   sync.Mutex
	open sync.Cond
	shut bool
	held int // syncs that wait
	err  error
}

func newGate() *gate {
	g := new(gate)
	g.open.L = &g.mu
	return g
}

func (g *gate) fs() vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") || op.Kind != errorfs.OpFileSync &&
			op.Kind != errorfs.OpFileSyncData && op.Kind != errorfs.OpFileSyncTo {
			return nil
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for g.shut {
			g.held++
			g.open.Wait()
			g.held--
		}
		return g.err
	}))
}

func (g *gate) set(shut bool, err error) {
	g.mu.Lock()
	g.shut, g.err = shut, err
	g.open.Broadcast()
	g.mu.Unlock()
}

// holds waits until a sync waits.
func (g *gate) holds(t *testing.T) {
	t.Helper()
	eventually(t, "something is synced", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.held > 0
	})
}

// inBubble runs a test where time passes only while nobody has anything to do. No sstable
// may be written in it: Pebble keeps writers, whose channels are of the bubble, for others.
func inBubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// TestNothingIsAnsweredFromTheFuture holds back an fsync: until it is through,
// no reply may leave that rests on what it makes durable (G2, G3), while
// replies that rest on older state are not held up.
func TestNothingIsAnsweredFromTheFuture(t *testing.T) {
	original := Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 5}
	waits := map[string]Op{
		"retry of the original":  original,
		"same opid, other delta": {Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 6},
		"GET of the counter":     {Kind: Get, Key: []byte("k")},
		"MGET":                   {Kind: MGet, Keys: [][]byte{[]byte("old"), []byte("k")}},
		"EXISTS":                 {Kind: Exists, Keys: [][]byte{[]byte("k")}},
		"CSEEN":                  {Kind: CSeen, Key: []byte("k"), ID: []byte("1")},
		"refusal because of k": {Kind: CIncrBy, Key: []byte("k"), ID: []byte("2"),
			Delta: math.MaxInt64},
		"CMINCRBY known in part": {Kind: CMIncrBy, Keys: [][]byte{[]byte("k"), []byte("new")},
			Deltas: []int64{5, 1}, ID: []byte("1")},
		"DEL of nothing, k's absent": {Kind: ExpireAt, Key: []byte("k"), Flags: XX, ExpireAt: math.MaxInt64},
	}
	for _, mode := range []Mode{Exact, Approx} {
		for name, op := range waits {
			t.Run(name, inBubble(func(t *testing.T) {
				g := newGate()
				s := testStore(t, func(o *Options) { o.FS, o.Partitions = g.fs(), 1 })
				if err := s.AlterTable(DefaultTable, TableChange{Mode: &mode}); err != nil {
					t.Fatal(err)
				}
				cincr(s, "old", "0", 1)
				g.set(true, nil)
				defer g.set(false, nil)
				first, second := make(chan Op, 1), make(chan Op, 1)
				go func() { first <- do(s, original) }()
				waitSeq(t, s, 4)
				go func() { second <- do(s, op) }()
				if v, ok := get(s, "old"); !ok || v != 1 {
					t.Fatalf("old = %d, %v", v, ok)
				}
				synctest.Wait()
				if len(first) > 0 {
					t.Error("acknowledged before its fsync")
				}
				if len(second) > 0 {
					t.Error("answered from the future")
				}
				g.set(false, nil)
				wantOp(t, <-first, 5, true)
				<-second
			}))
		}
	}
}

// waitSeq waits until the only partition has decided that many outcomes.
func waitSeq(t *testing.T, s *Store, seq uint64) {
	t.Helper()
	p := s.partitions[0]
	eventually(t, "the operation is decided", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.seq >= seq
	})
}

// TestFailStop fails an fsync: the operation's outcome is unknown, later writes
// and duplicates are refused the same way, reads of durable data go on, and
// opening the directory again clears it (G8).
func TestFailStop(t *testing.T) {
	g := newGate()
	fs := g.fs()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions, o.Fatal = fs, 1, func(error) {} })
	wantOp(t, cincr(s, "old", "0", 1), 1, true)
	g.set(false, errors.New("injected"))
	if op := cincr(s, "k", "1", 5); !errors.Is(op.Err, ErrUnknownOutcome) {
		t.Fatalf("failed commit answered %+v", op)
	}
	g.set(false, nil)
	for name, op := range map[string]Op{
		"retry":        {Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 5},
		"old retry":    {Kind: CIncrBy, Key: []byte("old"), ID: []byte("0"), Delta: 1},
		"other write":  {Kind: IncrBy, Key: []byte("x"), Delta: 1},
		"read of it":   {Kind: Get, Key: []byte("k")},
		"table change": {Kind: FlushAll},
	} {
		if got := do(s, op); !errors.Is(got.Err, ErrUnknownOutcome) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if v, ok := get(s, "old"); !ok || v != 1 {
		t.Errorf("durable state: %d %v", v, ok)
	}
	if s.Failure() == nil {
		t.Error("no failure reported")
	}
	s.CloseNow()
	s = testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	op := cincr(s, "k", "1", 5)
	if op.Err != nil || op.Value != 5 {
		t.Fatalf("after reopening: %+v", op)
	}
	wantOp(t, cincr(s, "old", "0", 1), 1, false)
}

// TestFrozenPartition freezes one partition of two: writes that it takes part in change
// nothing anywhere, its filters and expiries rest, and reads and the other partition go on
// (G6, G8). Afterwards it goes on where it was.
func TestFrozenPartition(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Partitions, o.Clock = 2, clock.now })
	p, frozen := s.partitions[1], errors.New("injected")
	here, there := keyIn(s, p, "k"), keyIn(s, s.partitions[0], "k")
	wall, _ := clock.now()
	wantOp(t, cincr(s, here, "0", 1), 1, true)
	do(s, Op{Kind: ExpireAt, Key: []byte(here), ExpireAt: wall + 600_000})
	freeze := func(err *error) (seq uint64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.frozen.Store(err)
		return p.seq
	}
	before := freeze(&frozen)
	for name, op := range map[string]Op{
		"new":       {Kind: CIncrBy, Key: []byte(here), ID: []byte("1"), Delta: 1},
		"duplicate": {Kind: CIncrBy, Key: []byte(here), ID: []byte("0"), Delta: 1},
		"both": {Kind: CMIncrBy, Keys: [][]byte{[]byte(there), []byte(here)}, Deltas: []int64{1, 1},
			ID: []byte("1")},
		"everything": {Kind: FlushAll},
		"no opid":    {Kind: IncrBy, Key: []byte(here), Delta: 1},
	} {
		if op := do(s, op); !errors.Is(op.Err, frozen) {
			t.Errorf("%s: %+v", name, op)
		}
	}
	var b Batch
	b.Atomic = true
	for _, key := range []string{there, here} {
		op := b.Add(IncrBy)
		op.Key, op.Delta = []byte(key), 1
	}
	s.Execute(&b)
	for i := range b.Ops {
		if !errors.Is(b.Ops[i].Err, frozen) {
			t.Errorf("operation %d of an atomic batch: %+v", i, b.Ops[i])
		}
	}
	if err := s.CreateTable(TableOptions{Name: "t", Prefix: "t"}); !errors.Is(err, frozen) {
		t.Errorf("CREATE: %v", err)
	}
	if v, ok := get(s, here); !ok || v != 1 {
		t.Errorf("what is there: %d, %v", v, ok)
	}
	wantOp(t, cincr(s, there, "1", 1), 1, true)
	clock.advance(time.Hour)
	for _, p := range s.partitions {
		s.refreshDue(p)
	}
	s.expireAllDue(new(Batch))
	if after := freeze(nil); after != before {
		t.Errorf("%d entries were logged in the frozen partition", after-before)
	}
	if s.Failure() != nil {
		t.Error("the store is frozen:", s.Failure())
	}
	s.expireAllDue(new(Batch))
	if _, ok := get(s, here); ok {
		t.Error("the key has not expired")
	}
	wantOp(t, cincr(s, here, "1", 1), 1, true)
	must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "t"}))
}

// TestFlushIsNotSeenEarly: that nothing is there any more is an answer from the
// future too, until the FLUSHALL that took it is durable (G3).
func TestFlushIsNotSeenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = g.fs(), 1 })
		cincr(s, "k", "1", 5)
		g.set(true, nil)
		flushed := make(chan Op, 1)
		go func() { flushed <- do(s, Op{Kind: FlushAll}) }()
		g.holds(t)
		answers := make(chan Op, 3)
		for _, op := range []Op{
			{Kind: Get, Key: []byte("k")},
			{Kind: CSeen, Key: []byte("k"), ID: []byte("1")},
			{Kind: Exists, Keys: [][]byte{[]byte("k")}},
		} {
			go func() { answers <- do(s, op) }()
		}
		synctest.Wait()
		if len(flushed) > 0 || len(answers) > 0 {
			t.Error("answered from the future")
		}
		g.set(false, nil)
		<-flushed
		for range 3 {
			if op := <-answers; op.Err != nil || op.Found || op.Value != 0 {
				t.Errorf("%+v", op)
			}
		}
	})
}

// heldLog is an op log that is fsynced as ever, but commits nothing while it is held: all
// that it has may yet be taken back, as by a replicated log.
type heldLog struct {
	*oplog.Log
	held chan error // tells each commit how it ends; nil: it is not held
}

func (l *heldLog) NewBatch() *oplog.Batch { return oplog.NewBatch(l) }

func (l *heldLog) Wait(place uint64) error {
	if l.held != nil && place > 0 {
		if err := <-l.held; err != nil {
			return err
		}
	}
	return l.Log.Wait(place)
}

// heldStore opens a store of one partition on a heldLog, without background work.
func heldStore(t *testing.T, fs vfs.FS) (*Store, *heldLog) {
	db, err := persistence.Open(persistence.Options{Dir: "data", FS: fs, Partitions: 1})
	must(t, err)
	s := newStore(Options{MinFreeDisk: -1}.withDefaults(), db)
	l := &heldLog{Log: db.Log()}
	s.oplog = l
	must(t, s.recover())
	db.Log().EndRecovery()
	t.Cleanup(func() { s.CloseNow() })
	return s, l
}

// diskViews are all that a partition writes beside its log.
var diskViews = map[string]struct {
	// write writes the view. It calls change before it, or in the middle of it.
	write   func(s *Store, change func()) error
	written func(t testing.TB, s *Store, files []string) bool
}{
	"row": {
		func(s *Store, change func()) error { change(); return s.flushRows(s.partitions[0]) },
		func(t testing.TB, s *Store, _ []string) (ok bool) {
			must(t, s.db.Rows(0, math.MaxUint64, func(k persistence.RowKey, _ []byte) bool {
				ok = ok || string(k.Key) == "k"
				return true
			}))
			return ok
		},
	},
	"expiry": {
		func(s *Store, change func()) error { change(); return s.flushRows(s.partitions[0]) },
		func(t testing.TB, s *Store, _ []string) (ok bool) {
			must(t, s.db.Expiries(0, math.MaxInt64, func(int64, persistence.RowKey) bool {
				ok = true
				return false
			}))
			return ok
		},
	},
	"run": {
		func(s *Store, change func()) error { change(); return s.flushRecords(s.partitions[0], true) },
		func(_ testing.TB, _ *Store, files []string) bool { return contains(files, "data/runs/") },
	},
	"run of a checkpoint": {
		func(s *Store, change func()) error { change(); return s.checkpoint(s.partitions[0], true) },
		func(_ testing.TB, _ *Store, files []string) bool { return contains(files, "data/runs/") },
	},
	"state row": {
		func(s *Store, change func()) error { change(); return s.checkpoint(s.partitions[0], true) },
		func(t testing.TB, s *Store, _ []string) bool {
			_, ok, err := s.db.State(0)
			must(t, err)
			return ok
		},
	},
	"snapshot": {
		func(s *Store, change func()) error {
			c := checkpoint{s: s, p: s.partitions[0]}
			c.capture(seen.Tidy, true)
			defer c.p.endSnapshot()
			change() // while the filters are copied
			return c.run()
		},
		func(_ testing.TB, _ *Store, files []string) bool { return contains(files, "data/snapshots/") },
	},
	"backup": {
		func(s *Store, change func()) error {
			return errors.Join(s.checkpoint(s.partitions[0], true), s.Backup("backup"))
		},
		func(_ testing.TB, _ *Store, files []string) bool { return contains(files, "backup/META") },
	},
}

// TestNothingUncommittedReachesDisk: rows and their expiries, runs, state rows, snapshots
// and backups wait for the commit of their contents, although the op log with it has
// been fsynced; and nothing is written if the commit fails (R1).
func TestNothingUncommittedReachesDisk(t *testing.T) {
	for name, view := range diskViews {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " fails ", fails), func(t *testing.T) {
				mem := vfs.NewMem()
				var s *Store
				var l *heldLog
				done := make(chan Op, 2)
				change := sync.OnceFunc(func() {
					l.held = make(chan error)
					p := s.partitions[0]
					before := p.seq
					for _, op := range []Op{
						{Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 1},
						{Kind: ExpireAt, Key: []byte("k"), ExpireAt: math.MaxInt64},
					} {
						go func() { done <- do(s, op) }()
						before++
						waitSeq(t, s, before)
					}
				})
				s, l = heldStore(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "backup") {
						change() // while the backup is written
					}
					return nil
				})))
				wantOp(t, cincr(s, "other", "0", 1), 1, true)
				written := func() bool {
					list, err := files(mem, "")
					must(t, err)
					return view.written(t, s, list)
				}
				ended := make(chan error, 1)
				go func() { ended <- view.write(s, change) }()
				awaitsCommit(t, s.partitions[0], ended)
				if written() {
					t.Error("what is not committed is on the disk")
				}
				var failure error
				if fails {
					failure = errors.New("injected")
				}
				for range 2 {
					l.held <- failure
				}
				for range 2 {
					if op := <-done; fails != (op.Err != nil) {
						t.Errorf("%+v", op)
					}
				}
				if err := <-ended; fails != (err != nil) || fails && !errors.Is(err, ErrUnknownOutcome) {
					t.Error(err)
				}
				if written() == fails {
					t.Errorf("after the commit, which fails: %v, the view is written: %v", fails, !fails)
				}
			})
		}
	}
}

// contains reports whether a file that is whole begins with a path.
func contains(files []string, path string) bool {
	return slices.ContainsFunc(files, func(name string) bool {
		return strings.HasPrefix(name, path) && !strings.HasSuffix(name, ".tmp")
	})
}

// awaitsCommit waits until an operation waits for a commit in the partition. The operation must
// not end before.
func awaitsCommit(t *testing.T, p *partition, ended <-chan error) {
	t.Helper()
	eventually(t, "somebody waits for the commit", func() bool {
		p.committed.mu.Lock()
		defer p.committed.mu.Unlock()
		return p.committed.waiting > 0 || len(ended) > 0 // too early: it shows
	})
}
