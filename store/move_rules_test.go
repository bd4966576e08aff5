package store

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// sameTails brings a tail to several replicas and returns the last sequence.
func sameTails(t *testing.T, from *Store, partition uint16, out *Moving, ins ...*Incoming) (last uint64) {
	t.Helper()
	last, err := from.HandOver(partition, 7)
	must(t, err)
	for _, in := range ins {
		(&mover{t: t}).follow(out, in, 500)
	}
	return last
}

// receiveFile gives a file that a store has exported to another one.
func receiveFile(t *testing.T, fsFrom vfs.FS, out *Moving, to *Store, fsTo vfs.FS) *Incoming {
	t.Helper()
	must(t, fsTo.MkdirAll("aside", 0o755))
	must(t, copyBetween(fsFrom, "aside/"+out.Name, fsTo, "aside/"+out.Name))
	in, err := to.Receive(1, "aside/"+out.Name)
	must(t, err)
	must(t, fsTo.RemoveAll("aside"))
	return in
}

// receiveAndSay is receive; the log is told of each record when it has been redone, and before a
// view can have it.
func receiveAndSay(t *testing.T, s *Store, l *proposals, records [][]byte) {
	t.Helper()
	said := 0
	for _, r := range records {
		place, _, err := l.Log.Append(r)
		must(t, err)
		must(t, l.Log.Wait(place))
		must(t, s.Follow(r, func() {
			said++
			if p := s.partitions[1]; p.adopted == 0 || p.committed.upTo() == p.seq {
				t.Error("a view may have an entry before the log is told that it is applied")
			}
		}))
	}
	if said != len(records) {
		t.Errorf("of %d entries %d are said to be applied", len(records), said)
	}
}

// TestMoveReplicas: every replica of the target redoes the adoption and has the same then:
// one that has everything in memory, one that was started again since, and one that is started
// again behind it. One that has not received the partition, or less of it, cannot go on.
func TestMoveReplicas(t *testing.T) {
	clock := newFakeClock()
	fsA := vfs.NewMem()
	a, _ := testReplica(t, fsA, clock.now)
	must(t, a.Lead())
	key := keysIn(a)[1]
	count := func(s *Store, from, to int) {
		for i := from; i < to; i++ {
			must(t, cincr(s, fmt.Sprintf("{%s}%d", key, i%50), fmt.Sprint(i), 2).Err)
		}
	}
	must(t, do(a, Op{Kind: CMSInit, Key: []byte("{" + key + "}cms"),
		Object: &SketchOptions{Width: 5000, Depth: 2}}).Err)
	count(a, 0, 200)
	must(t, a.Snapshot())
	count(a, 200, 300)

	const replicas = 5 // the leader, one that follows, one started again, one with less, one with nothing
	var fs [replicas]*vfs.MemFS
	var b [replicas]*Store
	var l [replicas]*proposals
	for i := range b {
		fs[i] = vfs.NewMem()
		b[i], l[i] = testReplica(t, fs[i], clock.now)
	}
	must(t, b[0].Lead())
	must(t, b[0].Vacate(1, 0))
	logged, n := l[0].records(0)
	for i := 1; i < replicas; i++ {
		receive(t, b[i], l[i], logged)
	}
	out, err := a.Export(1, "aside", b[0].LastOf(1), 1<<30)
	must(t, err)
	defer out.Close()
	var ins []*Incoming
	for i := range replicas - 1 {
		ins = append(ins, receiveFile(t, fsA, out, b[i], fs[i]))
	}
	count(a, 300, 320)
	last := sameTails(t, a, 1, out, ins[:replicas-2]...)
	must(t, b[2].CloseNow())
	b[2], l[2] = testReplica(t, fs[2], clock.now)
	must(t, b[2].Snapshot())

	must(t, adopt(b[0], 1, out.To, last))
	must(t, adopt(b[0], 1, out.To, last)) // again
	count(b[0], 320, 350)
	logged, _ = l[0].records(n)
	receiveAndSay(t, b[1], l[1], logged)
	receive(t, b[2], l[2], logged)
	for i := 3; i < replicas; i++ {
		if err := b[i].Follow(logged[0], func() {
			t.Error("an adoption is said to be applied that was " +
				"not redone")
		}); !errors.Is(err, ErrNotReceived) {
			t.Errorf("replica %d, without all of it, goes on: %v", i, err)
		}
	}
	must(t, b[1].CloseNow())
	b[1], _ = testReplica(t, fs[1], clock.now)
	p := b[0].partitions[1]
	for i := 1; i <= 2; i++ {
		q := b[i].partitions[1]
		if q.seq != p.seq || q.at != p.at || q.digest() != p.digest() {
			t.Errorf("replica %d: entry %d, %+v; it should be %d, %+v", i, q.seq, q.at, p.seq, p.at)
		}
		if n := len(scanAll(t, b[i])); n != 51 {
			t.Errorf("replica %d has %d keys", i, n)
		}
		b[0].StopLeading(func() {})
		must(t, b[i].Lead())
		for id := range 350 {
			if op := cincr(b[i], fmt.Sprintf("{%s}%d", key, id%50), fmt.Sprint(id), 2); op.Err != nil ||
				op.Applied || op.Value != int64(2*(id/50+1)) {
				t.Fatalf("replica %d: id %d answers %d, applied %v, %v", i, id, op.Value, op.Applied, op.Err)
			}
		}
		// The files are kept until a checkpoint has all, and no longer.
		names := func() (moved []string) {
			all, err := fs[i].List("data/snapshots")
			must(t, err)
			for _, name := range all {
				if strings.Contains(name, ".moved") {
					moved = append(moved, name)
				}
			}
			return moved
		}
		if len(names()) != 2 {
			t.Errorf("before the checkpoint there are %v", names())
		}
		must(t, b[i].Snapshot())
		if len(names()) != 0 {
			t.Errorf("behind the checkpoint there are %v", names())
		}
	}
}

// TestMoveTakenBack: an adoption that was decided, and never committed, has changed nothing;
// what was received is still there, and is adopted then (R1, R3).
func TestMoveTakenBack(t *testing.T) {
	clock := newFakeClock()
	fsA, fsB := vfs.NewMem(), vfs.NewMem()
	a, _ := testReplica(t, fsA, clock.now)
	b, l := testReplica(t, fsB, clock.now)
	must(t, a.Lead())
	must(t, b.Lead())
	key := keysIn(a)[1]
	for i := range 100 {
		cincr(a, fmt.Sprintf("{%s}%d", key, i%10), fmt.Sprint(i), 1)
	}
	must(t, b.Vacate(1, 0))
	out, err := a.Export(1, "aside", b.LastOf(1), 1<<30)
	must(t, err)
	in := receiveFile(t, fsA, out, b, fsB)
	last := sameTails(t, a, 1, out, in)
	before := b.LastOf(1)
	l.holdBack()
	adopted := make(chan error, 1)
	_, n := l.records(0)
	go func() { adopted <- adopt(b, 1, out.To, last) }()
	eventually(t, "the adoption is logged", func() bool { _, now := l.records(0); return now > n })
	b.partitions[1].lock()
	if op := b.partitions[1]; op.movedRows == nil || op.adopted != out.To {
		t.Error("it was not adopted")
	}
	b.partitions[1].mu.Unlock()
	if op := cincr(b, "{"+key+"}1", "1", 1); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("before its rows are there it answers %d, %v", op.Value, op.Err)
	}
	must(t, b.settle(b.partitions[1])) // which is not its time
	if rows := onDiskOf(t, b); rows != "" {
		t.Errorf("what is not committed is on disk: %q", rows)
	}
	b.StopLeading(func() {})
	l.cut()
	must(t, b.TakeBack(map[uint16]uint64{1: before + 1}))
	if err := <-adopted; !errors.Is(err, ErrNotLeader) {
		t.Errorf("the adoption ends with %v", err)
	}
	if !b.Vacant(1) || b.LastOf(1) != before {
		t.Errorf("vacant %v, entry %d; it was %d", b.Vacant(1), b.LastOf(1), before)
	}
	must(t, b.Lead())
	if err := adopt(b, 1, out.To, last); !errors.Is(err, ErrNotReceived) {
		t.Errorf("what was taken back is adopted: %v", err)
	}
	in, err = b.Resume(1, out.To)
	must(t, err)
	if in.Last() != last {
		t.Errorf("of %d entries %d are there", last, in.Last())
	}
	must(t, adopt(b, 1, out.To, last))
	for i := range 100 {
		wantOp(t, cincr(b, fmt.Sprintf("{%s}%d", key, i%10), fmt.Sprint(i), 1), int64(i/10+1), false)
	}
}

// TestMoveAgesNothing: the target's empty partition has another logged time than the source's,
// and its clock is behind. An id is remembered for its window, neither shorter nor for ever;
// wall time does not go back (G1, G7, R6).
func TestMoveAgesNothing(t *testing.T) {
	here, there := newFakeClock(), newFakeClock()
	fs := vfs.NewMem()
	a, _ := testReplica(t, fs, here.now)
	b, _ := testReplica(t, vfs.NewMem(), there.now)
	must(t, a.Lead())
	must(t, b.Lead())
	must(t, b.Vacate(1, 0))
	there.step(-3 * time.Hour)
	there.advance(2 * time.Hour)
	key := keysIn(a)[1]
	must(t, cincr(a, key, "early", 1).Err)
	pass := func(s *Store, clock *fakeClock, d time.Duration) {
		clock.advance(d)
		s.look()
	}
	pass(a, here, 60*time.Second)
	must(t, cincr(a, key, "late", 1).Err)
	wall := a.WallTime()
	out, err := a.Export(1, "aside", b.LastOf(1), 1<<30)
	must(t, err)
	in := receiveFile(t, fs, out, b, b.opts.FS)
	last := sameTails(t, a, 1, out, in)
	out.Close()
	must(t, adopt(b, 1, out.To, last))
	must(t, a.Vacate(1, 7))
	if got := b.WallTime(); got < wall {
		t.Errorf("wall time went back from %d to %d", wall, got)
	}
	pass(b, there, 62*time.Second)
	b.refreshDue(b.partitions[1])
	must(t, b.Snapshot())
	wantOp(t, cincr(b, key, "early", 1), 1, false)
	pass(b, there, 60*time.Second) // of 120 s and the skew of 5 s
	b.refreshDue(b.partitions[1])
	must(t, b.Snapshot())
	wantOp(t, cincr(b, key, "late", 1), 2, false)
	for range 10 {
		pass(b, there, 20*time.Second)
		b.refreshDue(b.partitions[1])
		must(t, b.Snapshot())
	}
	if op := cincr(b, key, "late", 1); op.Err != nil || !op.Applied {
		t.Errorf("an id is remembered for ever: %d, %v", op.Value, op.Err)
	}
}

// TestMoveHold: what is asked of a partition that is handed over is refused, reads too; all
// that was decided before is committed, and comes before the last sequence.
func TestMoveHold(t *testing.T) {
	s, _ := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	keys := keysIn(s)
	var stop atomic.Bool
	var load sync.WaitGroup
	var highest atomic.Int64
	for n := range 4 {
		load.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if op := cincr(s, keys[1], fmt.Sprint(n, "-", i), 1); op.Err == nil {
					highest.Store(max(highest.Load(), op.Value))
				}
			}
		})
	}
	eventually(t, "it counts", func() bool { return highest.Load() > 100 })
	last, err := s.HandOver(1, 7)
	must(t, err)
	if again, err := s.HandOver(1, 7); again != last || err != nil {
		t.Errorf("again: %d, %v", again, err)
	}
	if number, at := s.Handed(1); number != 7 || at != last || s.partitions[1].committed.upTo() != last ||
		s.LastOf(1) != last {
		t.Errorf("handed over under %d at %d, returned %d, at %d, committed %d", number, at, last,
			s.LastOf(1), s.partitions[1].committed.upTo())
	}
	for _, op := range []Op{{Kind: Get, Key: []byte(keys[1])},
		{Kind: Del, Keys: [][]byte{[]byte(keys[0]), []byte(keys[1])}}, {Kind: FlushAll}} {
		if op = do(s, op); !errors.Is(op.Err, ErrNotLeader) {
			t.Errorf("kind %d of a held partition answers %v", op.Kind, op.Err)
		}
	}
	must(t, cincr(s, keys[0], "other", 1).Err)
	s.StopLeading(func() {})
	must(t, s.Lead())
	if op := cincr(s, keys[1], "again", 1); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("led again, it answers %d, %v", op.Value, op.Err)
	}
	if s.LastOf(1) != last {
		t.Errorf("at entry %d behind %d", s.LastOf(1), last)
	}
	stop.Store(true)
	load.Wait()
	must(t, s.Release(1, 7))
	must(t, cincr(s, keys[1], "again", 1).Err)
	must(t, s.Vacate(1, 0))
	must(t, do(s, Op{Kind: FlushAll}).Err) // an empty partition is not in the way
	must(t, s.CreateTable(TableOptions{Name: "new", Prefix: "new:"}))
	if op := do(s, Op{Kind: Get, Key: []byte(keys[1])}); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("a vacant partition answers %v", op.Err)
	}
}

// TestMoveTables: a partition's tables become the shard's, and nothing is forgotten. The
// leader dies before that; the next one repeats the adoption.
func TestMoveTables(t *testing.T) {
	clock, fsA, fsB := newFakeClock(), vfs.NewMem(), vfs.NewMem()
	a, _ := testReplica(t, fsA, clock.now)
	b, _ := testReplica(t, fsB, clock.now)
	must(t, a.Lead())
	must(t, b.Lead())
	for _, o := range []TableOptions{{Name: "gone", Prefix: "gone:"}, {Name: "other", Prefix: "other:",
		Window: time.Minute}} {
		must(t, a.CreateTable(o))
	}
	for _, o := range []TableOptions{{Name: "other", Prefix: "other:", Window: time.Hour}, {Name: "more",
		Prefix: "more:"}} {
		must(t, b.CreateTable(o))
	}
	tag := "{" + keysIn(a)[1] + "}"
	keys := []string{"gone:" + tag, "other:" + tag, "more:" + tag, tag}
	for _, key := range keys {
		must(t, cincr(a, key, "1", 4).Err)
	}
	must(t, b.Vacate(1, 0))
	out, err := a.Export(1, "aside", 0, 1<<30)
	must(t, err)
	in := receiveFile(t, fsA, out, b, fsB)
	last := sameTails(t, a, 1, out, in)
	x := b.internal(b.partitions[1])
	x.lock()
	must(t, x.adopt(b.partitions[1], out.To, last, 7))
	must(t, x.finish())
	must(t, b.CloseNow())
	b, _ = testReplica(t, fsB, clock.now)
	must(t, b.Lead())
	must(t, adopt(b, 1, b.Adopted(1), 0))
	if p, q := b.partitions[0], b.partitions[1]; !p.catalog.set().Equal(q.catalog.set()) {
		t.Errorf("the tables are %s, and of the others %s", q.catalog.encode(), p.catalog.encode())
	}
	for _, key := range keys {
		wantOp(t, cincr(b, key, "1", 4), 4, false)
	}
}

// moveToTry is a file of partition 1 and its tail, and an empty store that may receive them.
type moveToTry struct {
	a, b     *Store
	bLog     *proposals
	fsA, fsB *vfs.MemFS
	key      string // in the partition
	out      *Moving
	path     string // of the file
	piece    []byte // of the tail
	last     uint64
}

func newMoveToTry(t testing.TB) *moveToTry {
	clock := newFakeClock()
	m := &moveToTry{fsA: vfs.NewMem(), fsB: vfs.NewMem()}
	m.a, _ = testReplica(t, m.fsA, clock.now)
	m.b, m.bLog = testReplica(t, m.fsB, clock.now)
	must(t, m.a.Lead())
	must(t, m.b.Lead())
	must(t, m.b.Vacate(1, 0))
	m.key = keysIn(m.a)[1]
	must(t, do(m.a, Op{Kind: BFAdd, Key: []byte("{" + m.key + "}bf"), Keys: [][]byte{{1}},
		Object: &BloomOptions{Error: 0.01, Capacity: 10, Expansion: 2}}).Err)
	for i := range 30 {
		must(t, cincr(m.a, fmt.Sprintf("{%s}%d", m.key, i), fmt.Sprint(i), 1).Err)
	}
	must(t, do(m.a, Op{Kind: ExpireAt, Key: fmt.Appendf(nil, "{%s}%d", m.key, 3), ExpireAt: m.a.WallTime() +
		1e6}).Err)
	var err error
	m.out, err = m.a.Export(1, "aside", 0, 1<<30)
	must(t, err)
	must(t, cincr(m.a, "{"+m.key+"}tail", "tail", 1).Err)
	m.piece, m.last, err = m.out.Tail(m.out.From, 1<<20)
	must(t, err)
	m.path = "aside/" + m.out.Name
	must(t, m.fsB.MkdirAll("aside", 0o755))
	m.give(t, m.path)
	return m
}

// give gives the target the file under a name.
func (m *moveToTry) give(t testing.TB, name string) {
	t.Helper()
	must(t, copyBetween(m.fsA, m.path, m.fsB, name))
}

// receive receives a file, and forgets it.
func (m *moveToTry) receive(t *testing.T, name string) error {
	t.Helper()
	in, err := m.b.Receive(1, name)
	if err == nil {
		must(t, in.Discard())
	}
	for _, dir := range []string{"data/tmp", "data/runs", "data/snapshots"} {
		left, _ := m.fsB.List(dir)
		for _, file := range left {
			if dir != "data/snapshots" || strings.Contains(file, ".moved") {
				t.Errorf("%s leaves %s/%s", name, dir, file)
			}
		}
	}
	return err
}

// TestMoveDamage: a file that is damaged anywhere is refused, and leaves nothing.
func TestMoveDamage(t *testing.T) {
	m := newMoveToTry(t)
	must(t, m.receive(t, m.path))
	info, err := m.fsA.Stat(m.path)
	must(t, err)
	for at := int64(0); at < info.Size(); at += 1 + at/50 {
		m.give(t, m.path)
		must(t, crashtest.Flip(m.fsB, m.path, at))
		if err := m.receive(t, m.path); !errors.Is(err, persistence.ErrCorrupt) {
			t.Errorf("damaged at byte %d of %d: %v", at, info.Size(), err)
		}
	}
}

// TestMoveElsewhere: a partition goes only where it belongs, into a place that is empty.
func TestMoveElsewhere(t *testing.T) {
	m := newMoveToTry(t)
	two := "aside/" + persistence.MovedFile(2, m.out.To)
	m.give(t, two)
	for _, name := range []string{two, "aside/other"} {
		if err := m.receive(t, name); !errors.Is(err, ErrMove) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.a.Receive(1, m.path); !errors.Is(err, ErrMove) {
		t.Errorf("into a partition that is not empty: %v", err)
	}
	for name, change := range map[string]func(*Options){
		"another seed":    func(o *Options) { o.Seed = [16]byte{8} },
		"more partitions": func(o *Options) { o.Partitions, o.Seed = 8, [16]byte{7} },
		"a fresh place":   func(o *Options) { o.Seed = [16]byte{7} },
	} {
		fs := vfs.NewMem()
		s := testStore(t, func(o *Options) { o.FS = fs; change(o) })
		must(t, fs.MkdirAll("aside", 0o755))
		must(t, copyBetween(m.fsA, m.path, fs, m.path))
		in, err := s.Receive(1, m.path)
		if name != "a fresh place" {
			if !errors.Is(err, ErrMove) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		must(t, err)
		must(t, cincr(s, m.key, "meanwhile", 1).Err)
		must(t, in.Append(m.piece))
		if err := adopt(s, 1, m.out.To, m.last); !errors.Is(err, ErrMove) {
			t.Errorf("it takes the place of a partition that counts: %v", err)
		}
	}
}

// TestMoveTailIsChecked: what is no tail of the partition is neither redone nor kept, and
// without the tail nothing is adopted.
func TestMoveTailIsChecked(t *testing.T) {
	m := newMoveToTry(t)
	section := func(partition uint16, seq uint64, e entry) []byte {
		return persistence.AppendSum(oplog.AppendSection(nil, partition, seq,
			e.appendTo(beginSection(nil, moment{logged: 1, wall: 1}))))
	}
	key, other, from := []byte(m.key), []byte(keysIn(m.a)[2]), m.out.From
	for name, bad := range map[string][]byte{
		"nothing":                        {},
		"a bad sum":                      append(bytes.Clone(m.piece), 0),
		"a gap":                          section(1, from+2, entry{kind: entrySet, key: key}),
		"another partition's section":    section(2, from+1, entry{kind: entrySet, key: key}),
		"another partition's key":        section(1, from+1, entry{kind: entrySet, key: other}),
		"an adoption":                    section(1, from+1, entry{kind: entryAdopt, value: 1 << 40}),
		"that it was vacated":            section(1, from+1, entry{kind: entryVacate}),
		"a jump behind where it goes on": section(1, from+1, entry{kind: entryJump, value: int64(m.out.To)}),
		"an unknown kind":                section(1, from+1, entry{kind: 99}),
	} {
		in, err := m.b.Receive(1, m.path)
		must(t, err)
		if err := in.Append(bad); err == nil {
			t.Errorf("%s is redone", name)
		}
		m.b.partitions[1].abandonComing()
		if in, err = m.b.Resume(1, m.out.To); err != nil || in.Last() != from {
			t.Fatalf("%s is kept: %v", name, err)
		}
		must(t, in.Discard())
	}
	in, err := m.b.Receive(1, m.path)
	must(t, err)
	if _, err := m.b.Receive(1, m.path); !errors.Is(err, ErrMove) {
		t.Errorf("it comes twice: %v", err)
	}
	if err := adopt(m.b, 1, m.out.To, m.last); !errors.Is(err, ErrNotReceived) {
		t.Errorf("without its tail: %v", err)
	}
	must(t, in.Append(m.piece))
	must(t, in.Append(m.piece)) // known
	for _, err := range []error{adopt(m.b, 1, m.out.To, m.last+1), adopt(m.b, 1, m.out.To+moveStep, m.last),
		adopt(m.b, 2, m.out.To, m.last)} {
		if !errors.Is(err, ErrNotReceived) {
			t.Errorf("something else than what has come: %v", err)
		}
	}
	must(t, adopt(m.b, 1, m.out.To, m.last))
	must(t, in.Discard()) // too late
	wantOp(t, cincr(m.b, "{"+m.key+"}tail", "tail", 1), 1, false)
}

// TestMoveTailIsHeld: the log of a partition that moves is kept while others trim, up to a
// limit; a move whose log is gone says so.
func TestMoveTailIsHeld(t *testing.T) {
	s, _ := testReplica(t, vfs.NewMem(), newFakeClock().now)
	must(t, s.Lead())
	round := func(from int) {
		for i := range 2 {
			for _, key := range keysIn(s) { // a quiet partition would keep the log, too
				for n := range 100 {
					must(t, cincr(s, key, fmt.Sprint(from+n, i), 1).Err)
				}
			}
			must(t, s.Snapshot())
		}
	}
	round(0)
	short, err := s.Export(1, "short", 0, 1)
	must(t, err)
	for i := range 5 {
		round(1000 * (i + 1))
	}
	if piece, _, err := short.Tail(short.From, 1<<20); !errors.Is(err, ErrMove) {
		t.Errorf("%d bytes of a log that was trimmed: %v", len(piece), err)
	}
	long, err := s.Export(1, "long", 0, 1<<30)
	must(t, err)
	defer long.Close()
	for i := range 5 {
		round(10000 * (i + 1))
	}
	at := long.From
	for {
		piece, last, err := long.Tail(at, 3000)
		must(t, err)
		if piece == nil {
			break
		}
		at = last
	}
	if at != s.LastOf(1) {
		t.Errorf("the tail ends at %d of %d", at, s.LastOf(1))
	}
}
