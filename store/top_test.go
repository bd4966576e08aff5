package store

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// scanTop is what Top must return: by a look at every key.
func scanTop(t *testing.T, s *Store, prefix string, n int) (list []Leader) {
	t.Helper()
	tables := s.Tables()
	var b Batch
	for cursor := uint64(0); ; {
		next, err := s.Scan(cursor, 1000, func(key []byte, is Type) {
			if is == TypeCounter && tables.Of(string(key)).Prefix == prefix {
				b.Add(Get).Key = key
			}
		})
		must(t, err)
		if cursor = next; cursor == 0 {
			break
		}
	}
	s.Execute(&b)
	for _, op := range b.Ops {
		if op.Found {
			list = append(list, Leader{string(op.Key), op.Value})
		}
	}
	slices.SortFunc(list, func(a, b Leader) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Key, b.Key))
	})
	list = slices.Compact(list)
	return list[:min(n, len(list))]
}

// checkTop compares the two. Of two that ask at the same time, one finds the other at its walk.
func checkTop(t *testing.T, s *Store, prefix string, n int) {
	t.Helper()
	want := scanTop(t, s, prefix, n)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if got, _, err := s.Top(prefix, n); err != nil || !slices.Equal(got, want) {
				t.Errorf("CTOP %q %d, %v:\n got %v\nwant %v", prefix, n, err, got, want)
			}
		})
	}
	if both.Wait(); t.Failed() {
		t.FailNow()
	}
	for _, p := range s.partitions {
		p.lock()
		for _, l := range p.hot.leaders {
			if len(l.members) > 2*l.want {
				t.Errorf("%d members, of which %d are wanted", len(l.members), l.want)
			}
		}
		p.mu.Unlock()
	}
}

// topWorld does random things to two tables with TOP, one of which is within the other, and to
// others.
type topWorld struct {
	s     *Store
	clock *fakeClock
	rand  *rand.Rand
	keys  int
	id    int
}

func (w *topWorld) key() []byte {
	prefix := []string{"p:", "p:q:", "other:", "p:{one}"}[w.rand.IntN(4)]
	return fmt.Append(nil, prefix, w.rand.IntN(w.keys))
}

// op returns a random operation on one key.
func (w *topWorld) op() Op {
	w.id++
	op := Op{Kind: CIncrBy, Key: w.key(), ID: fmt.Append(nil, w.id), Delta: int64(w.rand.IntN(41) - 20)}
	switch w.rand.IntN(12) {
	case 0:
		return Op{Kind: Del, Keys: [][]byte{op.Key}}
	case 1:
		return Op{Kind: Set, Key: op.Key, Delta: op.Delta, Flags: HasExpire,
			ExpireAt: w.clock.wall + int64(w.rand.IntN(30_000))}
	case 2:
		return Op{Kind: Set, Key: op.Key, Delta: int64(w.rand.IntN(300) - 150)}
	case 3:
		return Op{Kind: CGetDel, Key: op.Key, ID: op.ID}
	case 4:
		return Op{Kind: ExpireAt, Key: op.Key, ExpireAt: w.clock.wall + int64(w.rand.IntN(30_000))}
	case 5:
		return Op{Kind: BFCAdd, Key: op.Key, ID: op.ID, Keys: [][]byte{[]byte("item")}}
	case 6:
		return Op{Kind: IncrBy, Key: op.Key, Delta: op.Delta}
	}
	return op
}

// TestTopModel: CTOP lists exactly what a look at every key does, whatever has happened to them, and in
// particular where members fall behind the floor.
func TestTopModel(t *testing.T) {
	for name, w := range map[string]*topWorld{
		"all in memory": {keys: 200}, "most of them as rows": {keys: 1000}, "more than TOP": {keys: 30},
	} {
		t.Run(name, func(t *testing.T) { w.play(t) })
	}
}

func (w *topWorld) play(t *testing.T) {
	fs := vfs.NewMem()
	w.rand, w.clock = rand.New(rand.NewPCG(1, uint64(w.keys))), newFakeClock()
	open := func() {
		w.s = testStore(t, func(o *Options) { o.FS, o.HotCounters, o.Clock = fs, 4*64, w.clock.now })
	}
	open()
	must(t, w.s.CreateTable(TableOptions{Name: "p", Prefix: "p:", Top: 40}))
	must(t, w.s.CreateTable(TableOptions{Name: "q", Prefix: "p:q:", Top: 3}))
	for range 200 {
		var b Batch
		for range w.rand.IntN(60) {
			op, o := w.op(), b.Add(CIncrBy)
			run := o.run
			*o = op
			o.run = run
		}
		w.s.Execute(&b)
		switch w.rand.IntN(40) {
		case 0:
			must(t, w.s.Snapshot())
		case 1:
			must(t, w.s.Close())
			open()
		case 2:
			top := 1 + w.rand.IntN(60)
			must(t, w.s.AlterTable("p", TableChange{Top: &top}))
		case 3:
			must(t, w.s.DropTable("q"))
			checkTop(t, w.s, "p:", 1)
			must(t, w.s.CreateTable(TableOptions{Name: "q", Prefix: "p:q:", Top: 3}))
		case 4:
			w.clock.advance(time.Duration(w.rand.IntN(20_000)) * time.Millisecond)
		case 5:
			if w.rand.IntN(4) == 0 {
				do(w.s, Op{Kind: FlushAll})
			}
		case 6: // a walk that has failed
			for _, p := range w.s.partitions {
				p.lock()
				p.hot.lead(p.catalog, p.catalog.byPrefix("p:"), 1)
				p.mu.Unlock()
			}
		case 7, 8:
			do(w.s, Op{Kind: Del, Keys: w.members()})
		}
		if w.rand.IntN(3) == 0 {
			checkTop(t, w.s, "p:", 1+w.rand.IntN(w.s.Tables().Of("p:").Top))
			checkTop(t, w.s, "p:q:", 3)
		}
	}
}

// members returns the members of all leaders.
func (w *topWorld) members() (keys [][]byte) {
	for _, p := range w.s.partitions {
		p.lock()
		for _, l := range p.hot.leaders {
			for _, c := range l.members {
				keys = append(keys, []byte(c.key()))
			}
		}
		p.mu.Unlock()
	}
	return keys
}

// TestTopRefusals: only a table with TOP has a list, which is at most so long.
func TestTopRefusals(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.CreateTable(TableOptions{Name: "p", Prefix: "p:", Top: 3}))
	for _, tc := range []struct {
		prefix string
		n      int
		want   error
	}{{"p:", 3, nil}, {"p:", 0, ErrOption}, {"p:", 4, ErrOption}, {"p:1", 1, ErrNoTop}, {"p", 1, ErrNoTop},
		{"", 1, ErrNoTop}} {
		if list, _, err := s.Top(tc.prefix, tc.n); !errors.Is(err, tc.want) || len(list) > 0 {
			t.Errorf("CTOP %q %d: %v, %v", tc.prefix, tc.n, list, err)
		}
	}
	for _, top := range []int{-1, MaxTop + 1} {
		if err := s.AlterTable("p", TableChange{Top: &top}); !errors.Is(err, ErrOption) {
			t.Errorf("TOP %d: %v", top, err)
		}
	}
}

// TestTopAtOneTime: a list is of one time in all partitions, also while they change, and while leaders are
// found: what goes from counter to counter is in it once.
func TestTopAtOneTime(t *testing.T) {
	s := testStore(t, func(o *Options) { o.FS, o.HotCounters = vfs.NewMem(), 4*64 })
	must(t, s.CreateTable(TableOptions{Name: "p", Prefix: "p:", Top: 8}))
	key := func(i int) []byte { return fmt.Append(nil, "p:", i) }
	const keys = 6000 // more than a page of a walk in each partition
	var b Batch
	for i := range keys {
		op := b.Add(Set)
		if op.Key, op.Delta = key(i), int64(-i); i < 8 {
			op.Delta = 1 << 20
		}
	}
	s.Execute(&b)
	must(t, s.Snapshot())
	var all sync.WaitGroup
	for w := range 2 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for n := range 3000 {
				from := r.IntN(8)
				do(s, Op{Kind: CMIncrBy, Keys: [][]byte{key(from), key((from + 1 + r.IntN(7)) % 8)},
					ID: fmt.Append(nil, w, ".", n), Deltas: []int64{-1, 1}})
				cincr(s, string(key(8+r.IntN(keys-8))), fmt.Sprint(w, ",", n), int64(r.IntN(100)-50))
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for asked := 0; ; asked++ {
		select {
		case <-done:
			checkTop(t, s, "p:", 8)
			return
		default:
		}
		list, _, err := s.Top("p:", 8)
		must(t, err)
		sum := int64(0)
		for _, l := range list {
			sum += l.Value
		}
		if sum != 8<<20 {
			t.Fatalf("%v add up to %d", list, sum)
		}
		if asked%4 == 0 {
			for _, p := range s.partitions {
				p.lock()
				p.hot.unlead()
				p.mu.Unlock()
			}
		}
	}
}

// TestTopIsCommitted: a value is not listed before it is committed; if it is taken back, it never is (G3).
func TestTopIsCommitted(t *testing.T) {
	s, l := proposingStore(t, vfs.NewMem(), func(o *Options) { o.Partitions = 1 })
	must(t, s.CreateTable(TableOptions{Name: "p", Prefix: "p:", Top: 3}))
	must(t, do(s, Op{Kind: Set, Key: []byte("p:kept"), Delta: 1}).Err)
	p := s.partitions[0]
	checkTop(t, s, "p:", 3)
	upTo := p.seq
	l.holdBack()
	var waiting sync.WaitGroup
	waiting.Go(func() { do(s, Op{Kind: Set, Key: []byte("p:early"), Delta: 2}) })
	eventually(t, "it is decided", func() bool {
		p.lock()
		defer p.mu.Unlock()
		return p.seq > upTo
	})
	var early []Leader
	var told atomic.Bool
	waiting.Go(func() {
		if list, _, err := s.Top("p:", 3); err == nil {
			early = list
		}
		told.Store(true)
	})
	eventually(t, "CTOP waits for the commit", func() bool {
		p.committed.mu.Lock()
		defer p.committed.mu.Unlock()
		return p.committed.waiting > 0 || told.Load()
	})
	l.cut()
	must(t, s.rebuild(cut{p, upTo}))
	waiting.Wait()
	if len(early) > 0 {
		t.Errorf("CTOP tells %v", early)
	}
	checkTop(t, s, "p:", 3)
}
