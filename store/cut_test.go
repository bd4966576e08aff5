package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCutForReplica: a replica that was away for longer than ids are remembered gets a cut of
// another, made under load, in the place of its files, and redoes what follows. It forgets no
// id that the other remembers, remembers none that the other forgot, and has the same
// counters.
func TestCutForReplica(t *testing.T) {
	const window = 3 * time.Second
	clock := newFakeClock()
	fsA, fsB := vfs.NewMem(), vfs.NewMem()
	a, la := testReplica(t, fsA, clock.now)
	b, lb := testReplica(t, fsB, clock.now)
	must(t, a.Lead())
	for name, mode := range map[string]Mode{"exact": Exact, "approx": Approx} {
		must(t, a.CreateTable(TableOptions{Name: name, Prefix: name + ":", Mode: mode, Window: window,
			Skew: 1}))
	}
	var ids []asked
	rounds := 0
	round := func() {
		rounds++
		clock.advance(window / 6) // before: the replica knows the time of the last entry
		for i := range 60 {
			for _, table := range []string{"exact", "approx"} {
				q := asked{fmt.Sprint(table, ":k", i%7), fmt.Sprint("id", rounds, "-", i)}
				must(t, cincr(a, q.key, q.id, int64(i)).Err)
				ids = append(ids, q)
			}
		}
		must(t, do(a,
			Op{Kind: FBFAdd, Key: fmt.Append(nil, "set", rounds), Keys: [][]byte{[]byte("item")}}).Err)
		if rounds == 1 {
			must(t, do(a,
				Op{Kind: CMSInit, Key: []byte("sketch"), Object: &SketchOptions{Width: 5000, Depth: 2}}).Err)
		}
		must(t, do(a,
			Op{Kind: CMSIncrBy, Key: []byte("sketch"), Keys: [][]byte{fmt.Append(nil, "item", rounds%5)},
				Deltas: []int64{7}}).Err)
		if rounds%4 == 0 {
			must(t, a.Snapshot()) // runs and rows
		}
	}
	round()
	early, _ := la.records(0)
	receive(t, b, lb, early)
	must(t, b.Close())
	for rounds < 20 {
		round()
	}

	var stop atomic.Bool
	var load sync.WaitGroup
	load.Go(func() {
		for n := 0; !stop.Load(); n++ {
			cincr(a, fmt.Sprint("exact:busy", n%5), fmt.Sprint(n), 1)
			cincr(a, fmt.Sprint("approx:busy", n%5), fmt.Sprint(n), 1)
		}
	})
	must(t, a.Cut())
	stop.Store(true)
	load.Wait()
	for range 3 {
		round()
	}

	must(t, fsB.RemoveAll("data"))
	_, err := vfs.Clone(fsA, fsB, a.CutDir(), "data")
	must(t, err)
	must(t, a.RemoveCut())
	b, _ = testReplica(t, fsB, clock.now)
	if b.Meta() != a.Meta() {
		t.Errorf("META is %+v, not %+v", b.Meta(), a.Meta())
	}
	began := make([]uint64, len(b.partitions))
	for i, p := range b.partitions {
		if began[i] = p.recovered; began[i] == 0 || began[i] >= a.partitions[i].seq {
			t.Errorf("partition %d begins with %d of %d", i, began[i], a.partitions[i].seq)
		}
	}
	all, _ := la.records(0)
	for _, r := range all {
		must(t, b.Follow(r, nil))
	}
	for i, p := range b.partitions {
		if q := a.partitions[i]; p.seq != q.seq || p.size != q.size || p.at != q.at || p.floor != q.floor {
			t.Errorf("partition %d: sequence %d, %d keys, %+v; it should be %d, %d, %+v", i, p.seq, p.size,
				p.at, q.seq, q.size, q.at)
		}
	}
	compareReplica(t, a, b, ids)
	// And it can lead: no sequence was lost on the way.
	a.StopLeading(func() {})
	must(t, b.Lead())
	last := ids[len(ids)-1]
	if op := cincr(b, last.key, last.id, 59); op.Err != nil || op.Applied {
		t.Errorf("a retry is applied %v: %v", op.Applied, op.Err)
	}
}

// asked is an operation that was asked for.
type asked struct{ key, id string }

// compareReplica compares what two replicas remember of operations, their counters and
// sketches.
func compareReplica(t *testing.T, a, b *Store, ids []asked) {
	t.Helper()
	ask := func(s *Store, q asked) Op {
		op := doReplica(s, Op{Kind: CSeen, Key: []byte(q.key), ID: []byte(q.id)})
		must(t, op.Err)
		return op
	}
	known := 0
	for _, q := range ids {
		x, y := ask(a, q), ask(b, q)
		if x.Found != y.Found || x.Seen != y.Seen {
			t.Errorf("%s %s: %v %+v, and the replica has %v %+v", q.key, q.id, x.Found, x.Seen, y.Found,
				y.Seen)
		}
		if x.Found {
			known++
		}
		if v, err := replicaGet(b, q.key); err != nil {
			t.Fatal(err)
		} else if w, _ := replicaGet(a, q.key); v != w {
			t.Errorf("%s is %d, not %d", q.key, v, w)
		}
	}
	if known == 0 || known == len(ids) {
		t.Errorf("%d of %d ids are known: nothing was forgotten, or everything", known, len(ids))
	}
	for i := range 5 {
		q := Op{Kind: CMSQuery, Key: []byte("sketch"), Keys: [][]byte{fmt.Append(nil, "item", i)}}
		if x, y := doReplica(a, q), doReplica(b, q); x.Err != nil || y.Err != nil || x.Values[0] == 0 ||
			x.Values[0] != y.Values[0] {
			t.Errorf("the sketch counts %v (%v), and %v (%v) in the replica", x.Values, x.Err, y.Values,
				y.Err)
		}
	}
}

// doReplica asks a replica.
func doReplica(s *Store, op Op) Op {
	b := Batch{Replica: true}
	*b.Add(op.Kind) = op
	s.Execute(&b)
	return b.Ops[0]
}
