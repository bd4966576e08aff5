package store

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
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
		if !strings.HasSuffix(op.Path, ".log") || op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData && op.Kind != errorfs.OpFileSyncTo {
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
	for range 1000 {
		g.mu.Lock()
		held := g.held
		g.mu.Unlock()
		if held > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nothing is synced")
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
		"retry of the original":      original,
		"same opid, other delta":     {Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 6},
		"GET of the counter":         {Kind: Get, Key: []byte("k")},
		"MGET":                       {Kind: MGet, Keys: [][]byte{[]byte("old"), []byte("k")}},
		"EXISTS":                     {Kind: Exists, Keys: [][]byte{[]byte("k")}},
		"CSEEN":                      {Kind: CSeen, Key: []byte("k"), ID: []byte("1")},
		"refusal because of k":       {Kind: CIncrBy, Key: []byte("k"), ID: []byte("2"), Delta: math.MaxInt64},
		"CMINCRBY known in part":     {Kind: CMIncrBy, Keys: [][]byte{[]byte("k"), []byte("new")}, Deltas: []int64{5, 1}, ID: []byte("1")},
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
	for range 1000 {
		p := s.partitions[0]
		p.mu.Lock()
		now := p.seq
		p.mu.Unlock()
		if now >= seq {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the operation was never decided")
}

// TestFailStop fails an fsync: the operation's outcome is unknown, later writes
// and duplicates are refused the same way, reads of what is durable go on, and
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
