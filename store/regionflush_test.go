package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/store/part"
)

// twoRegions are the regions of these tests, as one of them knows them.
func twoRegions(self part.Region, era uint64, partitions int) RegionSet {
	set := RegionSet{Group: 77, Version: era, Era: era, Self: self}
	for i := range part.Region(2) {
		set.Members = append(set.Members,
			RegionMember{Region: i, Name: fmt.Sprint("region", i), Partitions: partitions, Incarnation: 0})
	}
	return set
}

// flushWorld is two regions of one partition each.
type flushWorld struct {
	t *testing.T
	s [2]*Store
}

func newFlushWorld(t *testing.T) *flushWorld {
	w := &flushWorld{t: t}
	for i := range w.s {
		w.s[i] = testStore(t, func(o *Options) {
			o.FS, o.Partitions, o.Seed = vfs.NewMem(), 1, [16]byte{byte(i + 1)}
		})
	}
	return w
}

// join makes both members.
func (w *flushWorld) join() {
	w.flush(0, 0)
	w.flush(1, 0)
	for to := range w.s { // what they did alone
		q := StateQuery{Pull: Pull{
			By: part.Region(to), Group: 77, Incarnation: w.s[1-to].Meta().Incarnation, Last: slots - 1,
			Most: 1000,
		}, Of: part.Region(1 - to)}
		for more := true; more; more = q.At != nil {
			page, err := w.s[1-to].State(q)
			must(w.t, err)
			taken, err := w.s[to].Take(page)
			must(w.t, err)
			q.Seq, q.At = taken.State.Seq, taken.State.Next
		}
	}
}

// flush lets a region enter an era.
func (w *flushWorld) flush(i int, era uint64) {
	w.t.Helper()
	set := twoRegions(part.Region(i), era, 1)
	for j := range set.Members {
		set.Members[j].Incarnation = w.s[j].Meta().Incarnation
	}
	must(w.t, w.s[i].SetRegions(set))
}

// ask lets a region ask the other one for all that it has not taken.
func (w *flushWorld) ask(to int) []byte { return w.askMost(to, 0) }

func (w *flushWorld) askMost(to, most int) []byte {
	w.t.Helper()
	after, acked, err := w.s[to].TakenOf(0, RegionSource{Region: part.Region(1 - to)})
	must(w.t, err)
	b, err := w.s[1-to].Pull(Pull{
		By: part.Region(to), Group: 77, Incarnation: w.s[1-to].Meta().Incarnation, Last: slots - 1,
		After: after, Acked: acked, Most: most,
	})
	must(w.t, err)
	return b
}

func (w *flushWorld) take(to int, answer []byte, want error) {
	w.t.Helper()
	if _, err := w.s[to].Take(answer); !errors.Is(err, want) {
		w.t.Fatalf("region %d: %v, want %v", to, err, want)
	}
}

// upTo is how far a region has taken the other one's log.
func (w *flushWorld) upTo(i int) uint64 {
	w.t.Helper()
	after, _, err := w.s[i].TakenOf(0, RegionSource{Region: part.Region(1 - i)})
	must(w.t, err)
	return after
}

func (w *flushWorld) shows(i int, key string, want int64, exists bool) {
	w.t.Helper()
	if v, ok := get(w.s[i], key); v != want || ok != exists {
		w.t.Errorf("region %d: %s = %d, %v; want %d, %v", i, key, v, ok, want, exists)
	}
}

// TestRegionFlush: a region that enters a new era empties its store, and waits for no other one. It
// passes over answers of a region that has not followed. A region that has not followed lets the answers
// of the new era wait.
func TestRegionFlush(t *testing.T) {
	w := newFlushWorld(t)
	w.join()
	cincr(w.s[0], "k", "a", 5)
	late := w.ask(1)
	w.take(1, late, nil)
	cincr(w.s[1], "k", "b", 7)
	cincr(w.s[1], "own", "b", 7)
	unread := w.ask(0)
	w.flush(0, 1)
	w.shows(0, "k", 0, false)
	if w.upTo(1) == 0 {
		t.Fatal("nothing was taken")
	}

	w.take(0, unread, nil) // of the old era
	w.shows(0, "k", 0, false)
	w.shows(0, "own", 0, false)
	if passed, last := w.upTo(0), w.s[1].CommittedOf(0); passed != last {
		t.Errorf("what was passed ends at %d, and the log at %d", passed, last)
	}
	if op := cincr(w.s[0], "k", "b", 7); !op.Applied {
		t.Errorf("an id of the old era was heard: %+v", op)
	}

	before, at := w.s[1].CommittedOf(0), w.upTo(1)
	answer := w.ask(1)
	w.take(1, answer, ErrEra)
	w.shows(1, "k", 12, true)
	if w.s[1].CommittedOf(0) != before || w.upTo(1) != at {
		t.Error("something of the new era was taken in the old one")
	}
	w.flush(1, 1)
	w.shows(1, "k", 0, false)
	if w.upTo(1) != at {
		t.Errorf("the cursor went from %d to %d", at, w.upTo(1))
	}
	w.take(1, answer, nil)
	w.take(1, late, nil)
	w.shows(1, "k", 7, true)
	if op := cincr(w.s[1], "k", "b", 7); op.Applied || op.Value != 7 {
		t.Errorf("an id of the new era was not heard: %+v", op)
	}
	w.take(0, w.ask(0), nil)
	w.shows(0, "k", 7, true)
	w.shows(0, "own", 0, false)

	w.flush(0, 2) // two at once for the region that is away
	w.flush(0, 3)
	cincr(w.s[0], "k", "a", 1)
	w.take(1, w.ask(1), ErrEra)
	w.flush(1, 3)
	w.take(1, w.ask(1), nil)
	w.shows(1, "k", 1, true)
}

// TestRegionFlushRefused: an era that has ended does not come back, a FLUSHALL is for a region that is
// alone, and no other region learns of changes before it.
func TestRegionFlushRefused(t *testing.T) {
	w := newFlushWorld(t)
	alone := twoRegions(0, 0, 1)
	alone.Members = alone.Members[:1]
	must(t, w.s[0].SetRegions(alone))
	must(t, do(w.s[0], Op{Kind: IncrBy, Key: []byte("k"), Delta: 3}).Err)
	must(t, do(w.s[0], Op{Kind: FlushAll}).Err)
	must(t, do(w.s[0], Op{Kind: IncrBy, Key: []byte("new"), Delta: 4}).Err)
	w.join()
	w.shows(0, "new", 4, true) // whoever becomes a member, or gets others, keeps what it has
	w.take(1, w.ask(1), nil)
	w.shows(1, "k", 0, false)
	w.shows(1, "new", 4, true)
	if op := do(w.s[0], Op{Kind: FlushAll}); !errors.Is(op.Err, ErrRegionFlush) {
		t.Error("FLUSHALL:", op.Err)
	}
	w.flush(0, 2)
	if err := w.s[0].SetRegions(twoRegions(0, 1, 1)); !errors.Is(err, ErrOption) {
		t.Error("an era ends twice:", err)
	}
}

// TestRegionFlushTaking: what is being taken while an era ends is not taken into the next one.
func TestRegionFlushTaking(t *testing.T) {
	w := newFlushWorld(t)
	w.join()
	var b Batch
	for i := range 4 * takeOps {
		*b.Add(CIncrBy) = Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "k%d", i%100),
			ID: fmt.Appendf(nil, "op%d", i), Delta: 1}
		if len(b.Ops) == takeOps {
			w.s[0].Execute(&b)
			b.Reset()
		}
	}
	answer, before := w.ask(1), w.s[1].CommittedOf(0)
	done := make(chan error)
	go func() {
		_, err := w.s[1].Take(answer)
		done <- err
	}()
	w.s[1].partitions[0].committed.waitBehind(before, 1<<40)
	w.flush(1, 1)
	must(t, <-done)
	if n, err := w.s[1].DBSize(); n != 0 || err != nil {
		t.Errorf("%d keys of the old era are left: %v", n, err)
	}
}

// TestRegionFlushCommit: nobody hears of an era before it is durable.
func TestRegionFlushCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = g.fs(), 1 })
		must(t, s.SetRegions(twoRegions(1, 0, 1)))
		before := s.CommittedOf(0)
		cincr(s, "k", "a", 5) // nobody hears of it: it is of the era that ends
		g.set(true, nil)
		go s.SetRegions(twoRegions(1, 1, 1))
		g.holds(t)
		answer := make(chan []byte, 1)
		go func() {
			b, err := s.Pull(Pull{By: 0, Group: 77, Incarnation: s.Meta().Incarnation, Last: slots - 1,
				After: before})
			must(t, err)
			answer <- b
		}()
		synctest.Wait()
		if len(answer) > 0 {
			t.Error("it was told too early")
		}
		g.set(false, nil)
		d, err := decodePulled(<-answer, new(pulledMemory))
		must(t, err)
		if d.era != 1 || len(d.sections) > 0 || d.upTo != s.CommittedOf(0) {
			t.Errorf("%+v", d)
		}
	})
}

// flushCrash is a store of two partitions, whose file system may crash.
type flushCrash struct {
	t *testing.T
	s *Store
	crashable
}

// crashable is a file system that keeps what a crash would leave before each operation, while it is
// watching.
type crashable struct {
	mem      *vfs.MemFS
	mu       sync.Mutex
	watching bool
	during   []*vfs.MemFS
}

func (c *crashable) fs() vfs.FS {
	c.mem = vfs.NewCrashableMem()
	return errorfs.Wrap(c.mem, errorfs.InjectorFunc(func(errorfs.Op) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for percent := 0; c.watching && percent <= 100; percent += 100 {
			c.during = append(c.during, crashtest.Clone(c.mem, percent, rand.New(rand.NewPCG(1, 1))))
		}
		return nil
	}))
}

func (c *crashable) watches(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching = is
}

// flushKeys are keys of the two partitions.
var flushKeys = [2]string{"k2", "k0"}

func (c *flushCrash) open(fs vfs.FS) *Store {
	return testStore(c.t, func(o *Options) { o.FS, o.Partitions, o.SnapshotInterval = fs, 2, -1 })
}

func newFlushCrash(t *testing.T) *flushCrash {
	c := &flushCrash{t: t}
	c.s = c.open(c.fs())
	must(t, c.s.SetRegions(twoRegions(1, 0, 2)))
	for i, k := range flushKeys {
		if n := Slot([]byte(k)) >> c.s.shift; int(n) != i {
			t.Fatalf("%s is in partition %d", k, n)
		}
		b := Batch{Atomic: true}
		*b.Add(regionMerge) = Op{Kind: regionMerge, Key: []byte(k), Object: []Change{added(0, 10, 5)}}
		cursor := RegionCursor{RegionTaken: RegionTaken{RegionSource{0, uint16(i)}, 10}}
		*b.Add(regionCursor) = Op{Kind: regionCursor, Delta: int64(i), Object: &cursor}
		c.s.Execute(&b)
		must(t, errors.Join(b.Ops[0].Err, b.Ops[1].Err))
		if i == 0 {
			must(t, c.s.Snapshot()) // the other one's is in the log only
		}
		cincr(c.s, k, "own", 1)
	}
	return c
}

// judge expects a store to be in an era, one of some, in all partitions.
func (c *flushCrash) judge(s *Store, step string, eras ...uint64) {
	c.t.Helper()
	set, _ := s.Regions()
	if !slices.Contains(eras, set.Era) {
		c.t.Fatalf("%s: era %d", step, set.Era)
	}
	for i, k := range flushKeys {
		want := [...]int64{6, 0, 2}[set.Era]
		if v, ok := get(s, k); v != want || ok != (want > 0) || s.partitions[i].regions.Era != set.Era {
			c.t.Fatalf("%s: %s = %d, %v in era %d of %d", step, k, v, ok, s.partitions[i].regions.Era,
				set.Era)
		}
		if seen := do(s, Op{Kind: CSeen, Key: []byte(k), ID: []byte("own")}).Found; seen != (set.Era == 0) {
			c.t.Fatalf("%s: in era %d the id of era 0 is remembered: %v", step, set.Era, seen)
		}
		if at, _, _ := s.TakenOf(uint16(i), RegionSource{0, uint16(i)}); at != 10 {
			c.t.Fatalf("%s: the cursor is at %d", step, at)
		}
	}
}

// opens opens what a crash has left, twice.
func (c *flushCrash) opens(clone *vfs.MemFS, step string, eras ...uint64) {
	c.t.Helper()
	checkSound(c.t, clone, "data")
	for range 2 {
		again := c.open(clone)
		c.judge(again, step, eras...)
		must(c.t, again.Snapshot())
		must(c.t, again.Close())
	}
	checkSound(c.t, clone, "data")
}

// crashes lets it crash now.
func (c *flushCrash) crashes(step string, eras ...uint64) {
	c.t.Helper()
	for _, percent := range []int{0, 50, 100} {
		c.opens(crashtest.Clone(c.mem, percent, rand.New(rand.NewPCG(uint64(len(step)), 1))), step, eras...)
	}
}

// TestRegionFlushCrash: a crash before, in or behind a flush leaves all of the old era in all
// partitions, or nothing of it in any, whatever of the views had come to disk; cursors stay.
func TestRegionFlushCrash(t *testing.T) {
	c := newFlushCrash(t)
	c.crashes("before", 0)
	c.watches(true)
	must(t, c.s.SetRegions(twoRegions(1, 1, 2)))
	c.watches(false)
	if len(c.during) < 4 {
		t.Fatalf("it wrote %d times", len(c.during)/2)
	}
	for i, clone := range c.during {
		c.opens(clone, fmt.Sprint("during ", i), 0, 1)
	}
	c.crashes("flushed", 1)
	must(t, c.s.flushRows(c.s.partitions[0]))
	must(t, c.s.checkpoint(c.s.partitions[1], true))
	c.crashes("flushed, a checkpoint of one", 1)
	must(t, c.s.SetRegions(twoRegions(1, 2, 2)))
	for _, k := range flushKeys {
		must(t, do(c.s, Op{Kind: IncrBy, Key: []byte(k), Delta: 2}).Err)
	}
	c.crashes("again, and new keys", 2)
	must(t, c.s.Snapshot())
	c.crashes("snapshot", 2)
}
