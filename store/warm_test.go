package store

import (
	"math"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// reopenWarm closes a store and opens it again, and returns it when its counters are in memory.
func reopenWarm(t *testing.T, s *Store, change func(*Options)) *Store {
	t.Helper()
	must(t, s.Close())
	s = testStore(t, change)
	untilWarm(s)
	return s
}

func untilWarm(s *Store) {
	for s.warming.Load() {
		runtime.Gosched()
	}
}

// TestWarmUp: after a start counters are in memory before anyone asks for them: all of them, or
// those that changed last if there are more than hot-counters.
func TestWarmUp(t *testing.T) {
	for _, c := range []struct {
		name                  string
		keys, changed, limit  int
		least, most, ofNewest int // keys in memory, and how many of the changed ones at least
	}{
		{"all fit", 3000, 300, 10_000, 3000, 3000, 300},
		{"more than fit", 6000, 1000, 1200, 900, 1200, 850},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			options := func(o *Options) { o.FS, o.HotCounters, o.Partitions, o.Fsync = fs, c.limit, 2, No }
			s := testStore(t, options)
			setKeys(s, 0, c.keys)
			must(t, s.Snapshot())
			setKeys(s, 0, c.changed)
			s = reopenWarm(t, s, options)
			st := s.Stats()
			if st.ColdCounters != 0 || st.HotCounters < c.least || st.HotCounters > c.most {
				t.Errorf("%d counters in memory, %d to come", st.HotCounters, st.ColdCounters)
			}
			newest := 0
			for i := range c.changed {
				key := "k" + strconv.Itoa(i)
				if p := s.partitions[Slot([]byte(key))>>s.shift]; p.hot.peek(key) != nil {
					newest++
				}
			}
			if newest < c.ofNewest {
				t.Errorf("%d of the %d counters that changed last are in memory", newest, c.changed)
			}
			must(t, s.rebuild(cut{s.partitions[0], math.MaxUint64}, cut{s.partitions[1], math.MaxUint64}))
			s.warmUpIfDue() // unless the store has begun
			untilWarm(s)
			if n := s.Stats().HotCounters; n < c.least {
				t.Errorf("%d counters in memory after a rebuild", n)
			}
			wantKeys(t, s, 0, c.keys)
		})
	}
}

// TestWarmUpKeepsWhatIsNewer: a row that was read ahead of its use takes nobody's place if anything
// has happened to its key since.
func TestWarmUpKeepsWhatIsNewer(t *testing.T) {
	key := []byte("k7")
	flush := func(s *Store) { do(s, Op{Kind: FlushAll}) }
	evict := func(t *testing.T, s *Store, p *partition) {
		must(t, s.flushRows(p))
		p.hot.forget(p.hot.peek(string(key)))
	}
	for _, c := range []struct {
		name   string
		before func(s *Store)
		happen func(t *testing.T, s *Store, p *partition)
		value  int64
		exists bool
		inHot  int
	}{
		{"nothing", nil, func(*testing.T, *Store, *partition) {}, 7, true, 100},
		{"change", nil, func(_ *testing.T, s *Store, _ *partition) {
			do(s, Op{Kind: Set, Key: key, Delta: 8})
		}, 8, true, 100},
		{"change that is evicted", nil, func(t *testing.T, s *Store, p *partition) {
			do(s, Op{Kind: Set, Key: key, Delta: 8})
			evict(t, s, p)
		}, 8, true, 99},
		{"deletion that is evicted", nil, func(t *testing.T, s *Store, p *partition) {
			do(s, Op{Kind: Del, Keys: [][]byte{key}})
			evict(t, s, p)
		}, 0, false, 99},
		{"FLUSHALL", nil, func(_ *testing.T, s *Store, _ *partition) { flush(s) }, 0, false, 0},
		{"FLUSHALL before", flush, func(*testing.T, *Store, *partition) {}, 0, false, 0},
		{"rebuild", nil, func(t *testing.T, s *Store, p *partition) {
			must(t, s.rebuild(cut{p, math.MaxUint64}))
		}, 7, true, 0},
		{"no room", nil, func(_ *testing.T, _ *Store, p *partition) { p.hot.limit = 99 }, 7, true, 99},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			options := func(o *Options) { o.FS, o.Partitions, o.Fsync = fs, 1, No }
			s := testStore(t, options)
			setKeys(s, 0, 100)
			s = reopenWarm(t, s, options)
			s.warming.Store(true) // no other warm-up begins
			p := s.partitions[0]
			p.hot.forget(p.hot.peek(string(key)))
			if c.before != nil {
				c.before(s)
			}
			w, err := s.beginWarming(p)
			must(t, err)
			from, to := p.rowRange()
			must(t, eachRow(s.db, from, to, func(k persistence.RowKey, r *row) bool {
				w.read(k, r)
				return true
			}))
			c.happen(t, s, p)
			w.install()
			if n := p.hot.len(); n != c.inHot {
				t.Errorf("%d keys in memory instead of %d", n, c.inHot)
			}
			if v, ok := get(s, string(key)); v != c.value || ok != c.exists {
				t.Errorf("the counter is %d, %v", v, ok)
			}
		})
	}
}

// TestWarmUpUnderWrites: while rows are read ahead again and again, counters change, get their rows and
// are evicted; none loses a change.
func TestWarmUpUnderWrites(t *testing.T) {
	const keys, rounds = 2000, 8
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions, o.Fsync = 1500, 2, No })
	setKeys(s, 0, keys)
	stop := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer close(stop)
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, p := range s.partitions {
				p.mu.Lock()
				p.hot.warm = false
				p.mu.Unlock()
			}
			s.warmUpIfDue()
			untilWarm(s)
		}
	})
	for round := range rounds {
		var b Batch
		for i := range keys {
			op := b.Add(IncrBy)
			op.Key, op.Delta = []byte("k"+strconv.Itoa(i)), 1
			if len(b.Ops) == 100 {
				s.Execute(&b)
				b.Reset()
			}
		}
		s.Execute(&b)
		for _, p := range s.partitions {
			must(t, s.flushRows(p))
		}
		for i := range keys {
			if v, _ := get(s, "k"+strconv.Itoa(i)); v != int64(i+round+1) {
				t.Fatalf("round %d: counter %d is %d", round, i, v)
			}
		}
	}
}
