package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store/part"
)

// reopenAs starts a region from a copy of its directory.
func (w *testRegions) reopenAs(r *testRegion, fs vfs.FS) {
	must(w.t, r.s.CloseNow())
	r.fs = fs
	w.open(r)
}

// copied returns a copy of a region's directory, as it is when its process has ended.
func (w *testRegions) copied(r *testRegion) vfs.FS {
	w.t.Helper()
	must(w.t, r.s.CloseNow())
	fs := vfs.NewMem()
	if ok, err := vfs.Clone(r.fs, fs, "data", "data"); !ok || err != nil {
		w.t.Fatal(ok, err)
	}
	w.open(r)
	return fs
}

// TestWentBack: a region whose directory was put back from a copy has a doubt, whichever way it
// hears that another one has taken more, and goes on; but the other one's positions prove it, also
// if the copy has gone further since. Then it is fenced for good: clients' writes are refused, and
// others do not read it, also after a start and however much it takes. It goes on if all others are
// lost.
func TestWentBack(t *testing.T) {
	for _, parts := range [][2]int{{1, 1}, {4, 2}, {1, 4}} {
		for _, how := range []string{"is asked", "reads a log", "takes a state", "went on"} {
			t.Run(fmt.Sprint(how, parts), func(t *testing.T) { testWentBack(t, how, parts) })
		}
	}
}

func testWentBack(t *testing.T, how string, parts [2]int) {
	w := newTestRegions(t, 1, parts[0], parts[1])
	a, b := w.r[0], w.r[1]
	key, n := []byte("k"), Slot([]byte("k"))
	incr := func(r *testRegion) error { return do(r.s, Op{Kind: IncrBy, Key: key, Delta: 1}).Err }
	must(t, incr(a))
	must(t, incr(b))
	w.drain()
	known, old := a.s.Meta(), w.copied(a)
	for range 9 {
		must(t, incr(a))
	}
	w.drain()
	w.reopenAs(a, old)
	if how != "is asked" {
		must(t, incr(a)) // it knows nothing yet
	}
	if how == "went on" {
		a.clock.step(time.Second)
		for range 20 {
			must(t, incr(a))
		}
	}
	finer := max(a.parts, b.parts)
	first, _ := slotRange(int(n)*finer/slots, finer)
	ask := func() error { // for what b has not taken
		after, _, err := b.s.TakenOf(first>>b.s.shift, RegionSource{0, first >> a.s.shift})
		must(t, err)
		last, _, _ := pullRange(int(first>>a.s.shift), a.parts, b.parts, first)
		_, err = a.s.Pull(Pull{By: 1, Group: 77, Incarnation: known.Incarnation,
			Partition: first >> a.s.shift, First: first, Last: last, After: after, Acked: after})
		return err
	}
	read := func() (err error) { // by a, of b
		answer, err := w.pull(a, b, first>>b.s.shift, first, 0)
		must(t, err)
		_, err = a.s.Take(answer)
		return err
	}
	var err error
	switch how {
	case "is asked":
		err = ask()
	case "reads a log":
		err = read()
	case "takes a state":
		last, _, _ := pullRange(int(first>>b.s.shift), b.parts, a.parts, first)
		page, failed := b.s.State(StateQuery{Pull: Pull{
			By: 0, Group: 77, Incarnation: b.s.Meta().Incarnation, Partition: first >> b.s.shift,
			First: first, Last: last, Most: 1000,
		}, Of: 1})
		must(t, failed)
		_, err = a.s.Take(page)
	}
	if how != "went on" && !errors.Is(err, ErrAhead) {
		t.Fatalf("it has no doubt: %v", err)
	}
	if a.s.Meta() != known || incr(a) != nil {
		t.Fatal("a number is enough to fence it")
	}
	if err := a.s.Examine(1, w.positions(b, a)); !errors.Is(err, errWentBack) {
		t.Fatalf("it goes on: %v", err)
	}
	for range 3 {
		if err := incr(a); !errors.Is(err, ErrRestored) {
			t.Errorf("a write: %v", err)
		}
		if err := ask(); !errors.Is(err, ErrStream) {
			t.Errorf("it is read: %v", err)
		}
		must(t, incr(b))
		must(t, read()) // what others do it takes
		must(t, a.s.Snapshot())
		must(t, a.s.CloseNow())
		w.open(a)
		if m := a.s.Meta(); m != known || !a.s.Older() {
			t.Errorf("it was %+v, and is %+v, older %v", known, m, a.s.Older())
		}
	}
	set, _ := a.s.Regions()
	set, err = set.Remove(0, 1)
	must(t, err)
	must(t, a.s.SetRegions(set))
	must(t, incr(a))
	if last := a.s.LastOf(n >> a.s.shift); a.s.Older() || last < 1<<incarnationBits {
		t.Errorf("older %v; what it does counts as what others have seen: entry %d", a.s.Older(), last)
	}
}

// positions returns how far a region has taken another one's logs, as it says.
func (w *testRegions) positions(by, of *testRegion) []Position {
	w.t.Helper()
	b, err := by.s.Positions(part.Region(of.n), 77, by.s.Meta().Incarnation)
	must(w.t, err)
	all, err := DecodePositions(b)
	must(w.t, err)
	return all
}

// TestToldBeforeNoted: a batch makes two entries, which are told together as soon as the first one
// is known to be committed: another batch, which has only seen that, may be the first to know. So
// who has taken both knows more than the commit mark, and the directory has not gone back.
func TestToldBeforeNoted(t *testing.T) {
	w := newTestRegions(t, 1, 2, 1)
	a, b := w.r[0], w.r[1]
	must(t, do(a.s, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}).Err)
	w.drain() // states are taken, as the first changes are older than the group
	at := func(partition uint16) (keys [2][]byte) {
		for i, n := 0, 0; n < len(keys); i++ {
			if k := fmt.Append(nil, "key", i); Slot(k)>>a.s.shift == partition {
				keys[n], n = k, n+1
			}
		}
		return keys
	}
	of, elsewhere := at(1), at(0)
	first := slots / 2
	mark := &a.s.partitions[1].committed
	read := func(to, from *testRegion, n uint16) {
		t.Helper()
		answer, err := w.pull(to, from, n, uint16(first), 0)
		must(t, err)
		_, err = to.s.Take(answer)
		must(t, err)
	}
	doAll := func(ops ...Op) {
		var batch Batch
		for _, op := range ops {
			o := batch.Add(op.Kind)
			o.Key, o.Delta = op.Key, op.Delta
		}
		a.s.Execute(&batch)
	}
	durable, noted, done := make(chan bool), make(chan bool), make(chan bool)
	note := sync.OnceFunc(func() { close(noted) })
	t.Cleanup(note) // before the store is closed
	commits := atomic.Int32{}
	a.s.OnEvent(func(event string, _ time.Duration) {
		if event == EventCommit && commits.Add(1) == 1 {
			close(durable)
			<-noted
		}
	})
	go func() {
		doAll(Op{Kind: IncrBy, Key: of[0], Delta: 1}, Op{Kind: IncrBy, Key: of[1], Delta: 1})
		close(done)
	}()
	<-durable
	doAll(Op{Kind: Get, Key: of[0]}, Op{Kind: IncrBy, Key: elsewhere[0], Delta: 1})
	known, logged := mark.upTo(), a.s.partitions[1].last()
	if known+1 != logged {
		t.Fatalf("entries up to %d are known to be committed, of %d", known, logged)
	}
	read(b, a, 1)
	if after, _, err := b.s.TakenOf(0, RegionSource{0, 1}); after != logged || err != nil {
		t.Fatalf("what is taken ends at %d, %v", after, err)
	}
	read(b, a, 1) // which asks behind that
	read(a, b, 0) // which says so
	note()
	<-done
	if m := a.s.Meta(); m.Incarnation != w.set(0).Members[0].Incarnation || a.s.unread.Load() != nil {
		t.Fatal("the directory is taken for an older one")
	}
	do(a.s, Op{Kind: IncrBy, Key: of[0], Delta: 1})
	w.drain()
	if v, _ := get(b.s, string(of[0])); v != 2 {
		t.Errorf("the other region has %d", v)
	}
}

// TestAsking: a member that starts, and a leader that leads anew, writes nothing until the others were
// asked, or for RegionAsk; what was begun before is refused.
func TestAsking(t *testing.T) {
	write := Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}
	begin := func(s *Store) (waits chan bool, done chan error) {
		waits, done = make(chan bool, 9), make(chan error, 1)
		go func() {
			b := Batch{OnBlock: func() { waits <- true }}
			*b.Add(write.Kind) = write
			s.Execute(&b)
			done <- b.Ops[0].Err
		}()
		return waits, done
	}
	awaits := func(s *Store, what string) {
		t.Helper()
		waits, done := begin(s)
		select {
		case <-waits:
		case err := <-done:
			t.Fatalf("%s: a write does not wait: %v", what, err)
		}
		if op := do(s, Op{Kind: Get, Key: []byte("k")}); op.Err != nil {
			t.Errorf("%s: a read: %v", what, op.Err)
		}
		s.Asked(new(Asking)) // another one's
		if len(done) > 0 {
			t.Errorf("%s: it is over too early", what)
		}
		s.Asked(s.Asking())
		must(t, <-done)
	}
	w := newTestRegions(t, 1, 1, 1)
	a := w.r[0]
	must(t, do(a.s, write).Err)
	for _, ask := range []time.Duration{time.Hour, time.Millisecond} {
		must(t, a.s.CloseNow())
		a.ask = ask
		w.open(a)
		if ask == time.Hour {
			awaits(a.s, "a start")
		} else if _, done := begin(a.s); <-done != nil {
			t.Error("the time does not end it")
		}
	}
	must(t, a.s.CloseNow())
	a.ask = 2 * time.Minute // a store that is closed does not wait for that, and writes nothing
	w.open(a)
	waits := make(chan bool, 1)
	cycle := Batch{OnBlock: func() { waits <- true }}
	*cycle.Add(write.Kind) = write
	a.s.running.Go(func() { a.s.Execute(&cycle) })
	<-waits
	must(t, a.s.Close())
	if err := cycle.Ops[0].Err; !errors.Is(err, ErrAsking) {
		t.Errorf("a write of a store that is closed: %v", err)
	}

	c := newShardWorld(t, allOfShard...)
	s := c.r[0].Store
	s.opts.RegionAsk = time.Hour
	for range 2 {
		var began Batch
		*began.Add(write.Kind) = write
		began.execution.begin(s, &began)
		s.StopLeading(func() {})
		must(t, s.Lead())
		asking := s.Asking()
		began.execution.commitShares()
		if err := began.Ops[0].Err; !errors.Is(err, ErrAsking) || asking == nil {
			t.Errorf("a write that was begun before: %v", err)
		}
		began.execution.giveBackRoom()
		s.StopLeading(func() {})
		must(t, s.Lead())
		if s.Asking() == asking {
			t.Error("it leads anew, and does not ask anew")
		}
		awaits(s, "a lead")
	}
}
