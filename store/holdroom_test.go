package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHoldsAndMaxMemory: the holds of a table, of whatever keys, may take what its filters leave of
// MAXMEMORY. Those of other tables do not count.
func TestHoldsAndMaxMemory(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 16 })
	must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "t:", MaxMemory: MinTableMemory}))
	hold := func(key string, i int) error {
		return do(s, Op{Kind: CHold, Key: []byte(key), ID: fmt.Appendf(nil, "%06d", i), Delta: 1,
			ExpireAt: math.MaxInt64}).Err
	}
	cancel := func(key string, i int) {
		t.Helper()
		must(t, do(s, Op{Kind: CCancel, Key: []byte(key), ID: fmt.Appendf(nil, "%06d", i)}).Err)
	}
	const size = holdBytes + 6
	for i := range MinTableMemory / size / 2 {
		must(t, hold(fmt.Sprint("other", i%100), i))
	}
	noteAll := func() { // as each partition does now and then
		for _, p := range s.partitions {
			p.lock()
			p.noteUse()
			p.mu.Unlock()
		}
	}
	must(t, hold("t:a", 0))
	noteAll()
	n := 1
	for ; hold("t:a", n) == nil; n++ {
	}
	info := func(name string) TableInfo {
		t.Helper()
		i, err := s.TableInfo(name)
		must(t, err)
		return i
	}
	has := info("t")
	room := MinTableMemory - int(has.Filter.Bytes+has.HoldBytes)
	if has.Holds != uint64(n) || room < 0 || room >= size {
		t.Fatalf("%d holds, %+v: room for %d bytes", n, has, room)
	}
	for i := range 16 { // in other partitions
		if err := hold(fmt.Sprint("t:", i), 1); !errors.Is(err, ErrOutOfMemory) {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		cancel("t:a", i)
	}
	noteAll()
	must(t, hold("t:b", 1))
	must(t, hold("other", 1))

	// A table that keys move to has their holds.
	must(t, s.CreateTable(TableOptions{Name: "a", Prefix: "t:a"}))
	if a, of := info("a"), info("t"); a.Holds != uint64(n-4) || of.Holds != 1 {
		t.Errorf("%d holds, and %d", a.Holds, of.Holds)
	}
	cancel("t:a", n-1)
	if a := info("a"); a.Holds != uint64(n-5) {
		t.Errorf("%d holds", a.Holds)
	}
	do(s, Op{Kind: FlushAll})
	a, all := info("a").heldFigures, s.Stats()
	if a != (heldFigures{}) || all.heldFigures != a || all.HoldAge() != 0 {
		t.Errorf("after FLUSHALL: %+v, %+v", a, all.heldFigures)
	}
}

// TestOldestHold: it is known as holds come and go.
func TestOldestHold(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock, o.Partitions = clock.now, 2 })
	var opened []time.Time
	for i := range 9 {
		wall, _ := clock.now()
		opened = append(opened, time.UnixMilli(wall))
		openHold(t, s, clock, fmt.Sprint("k", i%3), fmt.Sprint(i), 1)
		clock.advance(time.Second)
	}
	for i := range opened {
		if got := s.Stats().OldestHold; !got.Equal(opened[i]) {
			t.Errorf("the oldest hold is of %v, not %v", got, opened[i])
		}
		must(t, do(s, Op{Kind: CCancel, Key: fmt.Appendf(nil, "k%d", i%3), ID: fmt.Append(nil, i)}).Err)
	}
	if got := s.Stats().OldestHold; !got.IsZero() {
		t.Errorf("there is one of %v", got)
	}
}

// TestAges: spans of time find the oldest of many holds, in any order, and nearly as it is.
func TestAges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 1))
	var a ages
	var open []int64 // ascending
	now := int64(1_000_000)
	spread := int64(0) // the longest
	check := func() {
		if len(open) == 0 {
			if a.first() != 0 {
				t.Fatalf("none is open, and the oldest is of %d", a.first())
			}
			return
		}
		first := a.first()
		spread = max(spread, open[len(open)-1]-open[0])
		if late := open[0] - first; late < 0 || late > spread/(maxAges/2)+1 || len(a.spans) > maxAges {
			t.Fatalf("the oldest is of %d, not %d, within %d, in %d spans", first, open[0], spread, len(a.spans))
		}
	}
	add := func(opened int64) {
		a.add(opened)
		i, _ := slices.BinarySearch(open, opened)
		open = slices.Insert(open, i, opened)
	}
	for range 3000 { // a start finds them in any order
		add(now - rnd.Int64N(500_000))
		check()
	}
	for range 30_000 {
		if now += rnd.Int64N(20); rnd.IntN(2) == 0 {
			add(now)
		}
		if i := rnd.IntN(4); i < 2 && len(open) > 0 {
			i *= rnd.IntN(len(open)) // the oldest, or any
			a.remove(open[i])
			open = slices.Delete(open, i, i+1)
		}
		check()
	}
	for ; len(open) > 0; check() {
		a.remove(open[0])
		open = open[1:]
	}
}
