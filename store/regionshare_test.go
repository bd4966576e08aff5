package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestUnheard: entries that another region does not take are given up beyond the backlog, and a later
// reader needs the state; or none is given up, and writes are refused until the region has taken them.
func TestUnheard(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprint(refuse), func(t *testing.T) {
			s := testStore(t, func(o *Options) { o.RegionBacklog, o.RegionRefuse = 64<<10, refuse })
			must(t, s.SetRegions(RegionSet{Group: 77, Members: []RegionMember{
				{Region: 0, Name: "here", Partitions: 4, Incarnation: s.Meta().Incarnation},
				{Region: 1, Name: "there", Partitions: 4, Incarnation: 5},
			}}))
			var since [4]uint64 // from where on its log tells others all
			for p := range since {
				since[p] = s.CommittedOf(uint16(p))
			}
			pull := func(p uint16, after uint64) error {
				first, last := slotRange(int(p), 4)
				_, err := s.Pull(Pull{By: 1, Group: 77, Incarnation: s.Meta().Incarnation, Partition: p,
					First: first, Last: last, After: after, Acked: after, Most: 1})
				return err
			}
			refused := error(nil)
			for i := 0; i < 6000 && refused == nil; i++ {
				op := do(s, Op{Kind: IncrBy,
					Key: fmt.Appendf(nil, "a key of some length that is number %d", i), Delta: 1})
				if refused = op.Err; i%1000 == 999 {
					must(t, s.Snapshot())
					s.checkUnheard()
				}
			}
			if !refuse {
				if err := pull(0, since[0]); refused != nil || !errors.Is(err, ErrGap) {
					t.Errorf("writes are refused: %v; the beginning of the log: %v", refused, err)
				}
				return
			}
			if !errors.Is(refused, ErrUnheard) {
				t.Fatalf("writes beyond the backlog: %v", refused)
			}
			if op := do(s,
				Op{Kind: Get, Key: []byte("a key of some length that is number 1")}); op.Err != nil ||
				op.Value != 1 {
				t.Errorf("a read: %d, %v", op.Value, op.Err)
			}
			var b Batch
			b.Atomic = true
			op := b.Add(regionMerge)
			op.Key, op.Object = []byte("k"), []Change{{Kind: ChangeAdd, Region: 1, Seq: 1, Delta: 5}}
			if s.Execute(&b); b.Ops[0].Err != nil {
				t.Errorf("what another region did is refused: %v", b.Ops[0].Err)
			}
			for p := range uint16(4) {
				must(t, pull(p, since[p])) // all of the log is there
				must(t, pull(p, s.CommittedOf(p)))
			}
			must(t, s.Snapshot())
			s.checkUnheard()
			if op := do(s, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}); op.Err != nil {
				t.Errorf("after it was taken: %v", op.Err)
			}
		})
	}
}

// TestUnread: a region that was restored or removed refuses what clients write, also after a start,
// and neither reads nor what another region did. One that was restored ends that as its members
// know it; one that was removed stays so.
func TestUnread(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS = fs }) }
	s := open()
	set := RegionSet{Group: 77,
		Members: []RegionMember{{Name: "here", Partitions: 4}, {Region: 1, Name: "there", Partitions: 4}}}
	expect := func(want error) {
		t.Helper()
		for range 2 {
			for _, o := range []Op{{Kind: IncrBy, Key: []byte("k"), Delta: 1},
				{Kind: CIncrBy, Key: []byte("k"), ID: []byte("a"), Delta: 1},
				{Kind: Persist, Key: []byte("none")}} {
				if op := do(s, o); !errors.Is(op.Err, want) {
					t.Errorf("a write: %v, not %v", op.Err, want)
				}
			}
			if op := do(s, Op{Kind: Get, Key: []byte("k")}); op.Err != nil || op.Value < 2 {
				t.Errorf("a read: %d, %v", op.Value, op.Err)
			}
			var b Batch
			op := b.Add(regionMerge)
			op.Key, op.Object = []byte("m"), []Change{{Kind: ChangeAdd, Region: 1, Seq: 1, Delta: 5}}
			if s.Execute(&b); b.Ops[0].Err != nil {
				t.Errorf("what another region did: %v", b.Ops[0].Err)
			}
			must(t, s.CloseNow())
			s = open()
		}
	}
	must(t, do(s, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}).Err)
	must(t, s.SetRegions(set))
	expect(nil)
	set.Version++
	set.Members[0].Incarnation++ // as if the directory had another one since
	must(t, s.SetRegions(set))
	expect(ErrRestored)
	set.Version++
	set.Members[0].Incarnation--
	must(t, s.SetRegions(set))
	expect(nil)
	set.Version, set.Removed = set.Version+1, true
	must(t, s.SetRegions(set))
	expect(ErrRemoved)
	set.Version, set.Removed = set.Version+1, false
	if err := s.SetRegions(set); !errors.Is(err, ErrRemoved) {
		t.Errorf("it is a region again: %v", err)
	}
	expect(ErrRemoved)
}

// TestLeave: a region that leaves refuses writes of clients, also those that had begun before, but
// neither reads nor operations of other regions. It says where its logs ended then, until it no
// longer leaves.
func TestLeave(t *testing.T) {
	s := testStore(t, func(*Options) {})
	must(t, s.SetRegions(RegionSet{Group: 77,
		Members: []RegionMember{{Name: "here", Partitions: 4}, {Region: 1, Name: "there", Partitions: 4}}}))
	write := Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("a"), Delta: 1}
	must(t, do(s, write).Err)
	write.ID = []byte("b")
	var began Batch
	*began.Add(write.Kind) = write
	began.execution.begin(s, &began)
	leave := func(yes bool) []uint64 {
		ends, err := s.Leave(yes)
		must(t, err)
		return ends
	}
	ends := leave(true)
	began.execution.commitShares()
	began.execution.giveBackRoom()
	if err := began.Ops[0].Err; !errors.Is(err, ErrLeaving) {
		t.Errorf("a write that had begun: %v", err)
	}
	if op := do(s, write); !errors.Is(op.Err, ErrLeaving) || !s.Leaving() {
		t.Errorf("a write: %v", op.Err)
	}
	if op := do(s, Op{Kind: Get, Key: []byte("k")}); op.Err != nil || op.Value != 1 {
		t.Errorf("a read: %d, %v", op.Value, op.Err)
	}
	p := s.partitionOf("k").id
	if s.LastOf(p) != ends[p] {
		t.Errorf("the log goes on to %d behind %d", s.LastOf(p), ends[p])
	}
	var b Batch
	op := b.Add(regionMerge)
	op.Key, op.Object = []byte("k"), []Change{{Kind: ChangeAdd, Region: 1, Seq: 1, Delta: 5}}
	if s.Execute(&b); b.Ops[0].Err != nil || s.LastOf(p) == ends[p] {
		t.Errorf("what another region did: %v", b.Ops[0].Err)
	}
	if again := leave(true); again[p] != ends[p] {
		t.Errorf("it began to leave at %d, and says %d", ends[p], again[p])
	}
	leave(false)
	if op := do(s, write); op.Err != nil || s.Leaving() {
		t.Errorf("a write behind that: %v", op.Err)
	}
	if again := leave(true); again[p] != s.LastOf(p) {
		t.Errorf("it leaves at %d, and the log ends at %d", again[p], s.LastOf(p))
	}
}

// TestLeavingOutlivesRestarts: a region that leaves refuses writes also when it has started again, else what
// it counts then is lost with it. A change of the members is no end of it, nor does it count what another
// region tells of itself.
func TestLeavingOutlivesRestarts(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store {
		s, err := Open(Options{Dir: "data", FS: fs, Partitions: 4})
		must(t, err)
		return s
	}
	set := RegionSet{Group: 77, Leaving: true,
		Members: []RegionMember{{Name: "here", Partitions: 4}, {Region: 1, Name: "there", Partitions: 4}}}
	s, writes := open(), 0
	check := func(leaves bool) {
		t.Helper()
		writes++
		op := cincr(s, "k", fmt.Sprint(writes), 1)
		if errors.Is(op.Err, ErrLeaving) != leaves || op.Err != nil != leaves || s.Leaving() != leaves {
			t.Errorf("write %d: %v", writes, op.Err)
		}
	}
	restart := func() {
		must(t, s.Close())
		s = open()
	}
	must(t, s.SetRegions(set))
	check(false)
	_, err := s.Leave(true)
	must(t, err)
	restart()
	check(true)
	set.Version, set.Leaving = 1, false
	must(t, s.SetRegions(set))
	restart()
	check(true)
	ends, err := s.Leave(true)
	must(t, err)
	for p := range ends {
		if ends[p] != s.LastOf(uint16(p)) {
			t.Errorf("partition %d ends at %d, and says %d", p, s.LastOf(uint16(p)), ends[p])
		}
	}
	_, err = s.Leave(false)
	must(t, err)
	check(false)
	restart()
	check(false)
	must(t, s.Close())
}

// TestTableRegions: nothing of a table's keys is told if its option says so, nor does it cost them
// parts; and what others were not told once they cannot be told later.
func TestTableRegions(t *testing.T) {
	w := newTestRegions(t, 1, 2, 2)
	a, b := w.r[0], w.r[1]
	must(t, a.s.CreateTable(TableOptions{Name: "local", Prefix: "l:", Regions: RegionsNone}))
	must(t, a.s.CreateTable(TableOptions{Name: "approx", Prefix: "x:", Mode: Approx}))
	for _, key := range []string{"l:k", "x:k", "k"} {
		for _, op := range []Op{
			{Kind: Set, Key: []byte(key), Delta: 3},
			{Kind: CIncrBy, Key: []byte(key), ID: []byte("op"), Delta: 4},
			{Kind: ExpireAt, Key: []byte(key), ExpireAt: 1 << 50},
		} {
			w.do(a, op)
		}
		p := a.s.partitions[Slot([]byte(key))>>a.s.shift]
		p.lock()
		if c := p.hot.peek(key); c == nil || (c.parts() != nil) != (key == "k") {
			t.Errorf("%s has parts, or none: %+v", key, c)
		}
		p.mu.Unlock()
	}
	w.drain()
	for key, want := range map[string]int64{"l:k": 0, "x:k": 0, "k": 7} {
		if v, _ := get(b.s, key); v != want {
			t.Errorf("the other region has %s = %d, want %d", key, v, want)
		}
		if v, _ := get(a.s, key); v != 7 {
			t.Errorf("%s = %d", key, v)
		}
	}
	all, none, approx, exact := RegionsAll, RegionsNone, Approx, Exact
	for what, err := range map[string]error{
		"cannot come under":  a.s.AlterTable("local", TableChange{Regions: &all}),
		"by the mode":        a.s.AlterTable("approx", TableChange{Mode: &exact}),
		"dropped":            a.s.DropTable("local"),
		"some of them":       a.s.CreateTable(TableOptions{Name: "inner", Prefix: "l:m"}),
		"through an old one": a.s.CreateTable(TableOptions{Name: "outer", Prefix: "l"}),
	} {
		if want := what != "through an old one"; errors.Is(err, ErrTableRegions) != want || !want &&
			err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := a.s.CreateTable(TableOptions{Name: "both", Prefix: "b:", Mode: approx,
		Regions: all}); !errors.Is(err, ErrOption) {
		t.Errorf("an APPROX table that is told: %v", err)
	}
	must(t, a.s.AlterTable(DefaultTable, TableChange{Regions: &none}))
	must(t, a.s.DropTable("outer"))
	must(t, a.s.DropTable("local")) // nothing is told either way
}

// TestTableRegionsDiffer: a region whose table is NONE takes what others tell of its keys, and tells them
// nothing: it has more than they have, also operations that both applied and deletions, and digests show it.
func TestTableRegionsDiffer(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	must(t, a.s.CreateTable(TableOptions{Name: "local", Prefix: "l:", Regions: RegionsNone}))
	shows := func(step string, here, there int64) {
		t.Helper()
		w.drain()
		for _, key := range []string{"l:first", "l:later"} {
			for r, want := range map[*testRegion]int64{a: here, b: there} {
				if key == "l:later" && r == a && step == "counted" {
					want -= 4 // it knows the winner, and has taken its own back
				}
				if v, ok := get(r.s, key); v != want || ok != (want != 0) {
					t.Errorf("%s: region %d has %s = %d, %v, and not %d", step, r.n, key, v, ok, want)
				}
			}
		}
		if differ, _ := w.compared(a, b, 0, slots-1); len(differ) == 0 {
			t.Errorf("%s: they do not differ", step)
		}
	}
	here, _ := a.clock.now()
	there, _ := b.clock.now()
	a.clock.step(time.Duration(max(here, there)-here) * time.Millisecond)
	b.clock.step(time.Duration(max(here, there)+10-there) * time.Millisecond)
	cincr(a.s, "l:first", "op", 4)
	a.clock.step(20 * time.Millisecond)
	for _, key := range []string{"l:first", "l:later"} {
		cincr(b.s, key, "op", 4)
		cincr(b.s, key, "other", 1)
		cincr(a.s, key, "mine", 10)
	}
	cincr(a.s, "l:later", "op", 4)
	shows("counted", 4+10+5, 5)
	for _, key := range []string{"l:first", "l:later"} {
		must(t, do(a.s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}}).Err)
	}
	shows("deleted", 0, 5)
	for _, key := range []string{"l:first", "l:later"} {
		cincr(b.s, key, "last", 2)
	}
	shows("counted again", 2, 7)
}
