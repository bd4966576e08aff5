package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// bothWays are two stores on one file system, between which partition 1 moves.
type bothWays struct {
	*mover
	clock *fakeClock
	s     [2]*Store
	l     [2]*proposals
	fs    [2]*vfs.MemFS
	key   string // in the partition, as is what begins with it
}

func newBothWays(t *testing.T) *bothWays {
	w := &bothWays{mover: newMover(t, nil), clock: newFakeClock()}
	for i := range w.s {
		w.fs[i] = vfs.NewMem()
		w.open(i)
	}
	w.key = "{" + keysIn(w.s[0])[1] + "}"
	must(t, w.s[1].Vacate(1, 0))
	return w
}

func (w *bothWays) open(i int) {
	w.t.Helper()
	w.s[i], w.l[i] = testReplica(w.t, w.fs[i], w.clock.now)
	must(w.t, w.s[i].Lead())
}

// begin exports the partition from a store, and lets the other one receive it.
func (w *bothWays) begin(from int) (*Moving, *Incoming) {
	w.t.Helper()
	to := 1 - from
	out, err := w.s[from].Export(1, "aside", w.s[to].LastOf(1), 1<<30)
	must(w.t, err)
	return out, receiveFile(w.t, w.fs[from], out, w.s[to], w.fs[to])
}

func (w *bothWays) move(from int) {
	w.t.Helper()
	out, in := w.begin(from)
	w.end(w.s[from], w.s[1-from], 1, out, in)
}

// TestMoveBack: a partition comes back to a store that has not saved since it went. Keys
// that were deleted meanwhile do not come back with it, nor pages, nor runs; no sequence is
// given twice.
func TestMoveBack(t *testing.T) {
	w := newBothWays(t)
	sketch := Op{Kind: CMSIncrBy, Key: []byte(w.key + "cms"), Keys: [][]byte{{1}}, Deltas: []int64{5}}
	must(t, do(w.s[0], Op{Kind: CMSInit, Key: sketch.Key, Object: &SketchOptions{Width: 5000, Depth: 2}}).Err)
	must(t, do(w.s[0], sketch).Err)
	for i := range 20 {
		must(t, cincr(w.s[0], fmt.Sprint(w.key, i), fmt.Sprint(i), 1).Err)
	}
	must(t, w.s[0].Snapshot())
	before := w.s[0].LastOf(1)
	w.move(0)
	if there := w.s[1].LastOf(1); there <= before {
		t.Errorf("entry %d follows %d", there, before)
	}
	must(t, do(w.s[1], Op{Kind: Del, Keys: [][]byte{[]byte(w.key + "3"), sketch.Key}}).Err)
	must(t, do(w.s[1], Op{Kind: CMSInit, Key: sketch.Key, Object: &SketchOptions{Width: 5000, Depth: 2}}).Err)
	must(t, w.s[1].Snapshot()) // the row of key 3 is gone, which no tail says
	there := w.s[1].LastOf(1)
	w.move(1)
	if again := w.s[0].LastOf(1); again <= there {
		t.Errorf("entry %d follows %d", again, there)
	}
	for range 2 {
		if _, ok := get(w.s[0], w.key+"3"); ok {
			t.Error("a key that was deleted is back")
		}
		if all := scanAll(t, w.s[0]); len(all) != 20 {
			t.Errorf("there are %d keys: %v", len(all), all)
		}
		for i := range 20 {
			wantOp(t, cincr(w.s[0], fmt.Sprint(w.key, i), fmt.Sprint(i), 1), 1, false)
		}
		query := do(w.s[0], Op{Kind: CMSQuery, Key: sketch.Key, Keys: sketch.Keys})
		if query.Err != nil || query.Values[0] != 0 {
			t.Errorf("the new sketch counts %v: %v", query.Values, query.Err)
		}
		must(t, w.s[0].Close())
		w.open(0)
	}
}

// TestMoveTwice: a partition comes, goes and comes again, and a replica has saved none of it: a
// start redoes both adoptions. It is flushed in one shard on its way, and in the other one behind.
func TestMoveTwice(t *testing.T) {
	w := newBothWays(t)
	fs := vfs.NewMem()
	c, l := testReplica(t, fs, w.clock.now) // of the second shard
	come := func(out *Moving, in *Incoming) {
		t.Helper()
		w.follow(out, receiveFile(t, w.fs[0], out, c, fs), 1<<20)
		w.end(w.s[0], w.s[1], 1, out, in)
	}
	count := func(s *Store, n, want int64) {
		t.Helper()
		for i := range 20 {
			if op := cincr(s, fmt.Sprint(w.key, i), fmt.Sprint(n), 1); op.Err != nil || !op.Applied ||
				op.Value != want {
				t.Fatalf("%d, applied %v, %v; it should be %d", op.Value, op.Applied, op.Err, want)
			}
		}
	}
	again := func(i int) {
		t.Helper()
		must(t, w.s[i].CloseNow())
		w.open(i)
	}
	count(w.s[0], 1, 1)
	out, in := w.begin(0)
	count(w.s[0], 2, 2)
	must(t, do(w.s[0], Op{Kind: FlushAll}).Err)
	count(w.s[0], 3, 1)
	last, err := w.s[0].HandOver(1, 7)
	must(t, err)
	come(out, in)
	records, n := w.l[1].records(0)
	receive(t, c, l, records)
	count(w.s[1], 4, 2)
	w.move(1)
	records, n2 := w.l[1].records(n)
	receive(t, c, l, records)
	count(w.s[0], 5, 3)
	out, in = w.begin(0)
	_, err = w.s[0].HandOver(1, 7)
	must(t, err)
	come(out, in)
	count(w.s[1], 6, 4)
	records, _ = w.l[1].records(n2)
	receive(t, c, l, records)
	must(t, c.CloseNow())
	c, _ = testReplica(t, fs, w.clock.now)
	if left, err := fs.List("data/tmp"); err != nil || len(left) > 0 {
		t.Errorf("a start leaves %v: %v", left, err)
	}
	if p, q := c.partitions[1], w.s[1].partitions[1]; p.seq != q.seq || p.digest() != q.digest() ||
		p.seq < last {
		t.Errorf("the replica is at entry %d, and should be at %d", p.seq, q.seq)
	}
	must(t, c.Lead())
	for i := range 20 {
		wantOp(t, cincr(c, fmt.Sprint(w.key, i), "6", 1), 4, false)
	}
	again(0)
	again(1)
	count(w.s[1], 7, 5)
	if all := scanAll(t, w.s[1]); len(all) != 20 || len(scanAll(t, w.s[0])) != 0 {
		t.Errorf("there are %d keys", len(all))
	}
	for i := range 20 {
		wantOp(t, cincr(w.s[1], fmt.Sprint(w.key, i), "3", 1), 1, false)
	}
	must(t, do(w.s[1], Op{Kind: FlushAll}).Err)
	count(w.s[1], 8, 1)
	again(1)
	count(w.s[1], 9, 2)
	must(t, w.s[1].Snapshot())
	again(1)
	count(w.s[1], 10, 3)
}

// TestMoveIsWatched: a key that was missing was made and deleted where the partition was
// meanwhile: its watchers are told.
func TestMoveIsWatched(t *testing.T) {
	w := newBothWays(t)
	notes := watchKeys(w.s[0], w.key)
	w.move(0)
	must(t, cincr(w.s[1], w.key, "1", 1).Err)
	must(t, do(w.s[1], Op{Kind: Del, Keys: [][]byte{[]byte(w.key)}}).Err)
	must(t, w.s[1].Snapshot())
	w.move(1)
	if same, _ := ifUnchanged(w.s[0], []string{w.key}, notes,
		Op{Kind: Set, Key: []byte(w.key), Delta: 1}); same {
		t.Error("it is told that nothing has changed")
	}
}

// TestMoveBehind: the target's partition is at a higher sequence than the source's.
func TestMoveBehind(t *testing.T) {
	w := newBothWays(t)
	must(t, cincr(w.s[0], w.key, "1", 7).Err)
	x := w.s[1].internal(w.s[1].partitions[1])
	x.lock()
	x.log(&w.s[1].partitions[1].machine, &entry{kind: entryJump, delta: int64(w.s[1].Meta().Incarnation),
		value: 1<<40 + 5})
	must(t, x.finish())
	before := w.s[1].LastOf(1)
	w.move(0)
	if after := w.s[1].LastOf(1); after <= before {
		t.Errorf("entry %d follows %d", after, before)
	}
	wantOp(t, cincr(w.s[1], w.key, "1", 7), 7, false)
}

// TestMoveBackup: a copy that is made between an adoption and the checkpoint behind it has all
// of the partition (G4).
func TestMoveBackup(t *testing.T) {
	w := newBothWays(t)
	for i := range 30 {
		must(t, cincr(w.s[0], fmt.Sprint(w.key, i%10), fmt.Sprint(i), 1).Err)
	}
	out, in := w.begin(0)
	must(t, cincr(w.s[0], w.key, "tail", 1).Err)
	w.end(w.s[0], w.s[1], 1, out, in)
	must(t, cincr(w.s[1], w.key, "behind", 1).Err)
	must(t, w.s[1].Cut())
	fs := vfs.NewMem()
	_, err := vfs.Clone(w.fs[1], fs, w.s[1].CutDir(), "data")
	must(t, err)
	s, _ := testReplica(t, fs, w.clock.now)
	must(t, s.Lead())
	for i := range 30 {
		wantOp(t, cincr(s, fmt.Sprint(w.key, i%10), fmt.Sprint(i), 1), int64(i/10+1), false)
	}
	wantOp(t, cincr(s, w.key, "tail", 1), 1, false)
	wantOp(t, cincr(s, w.key, "behind", 1), 2, false)
}

// TestMoveOldSnapshot: the first snapshot behind an adoption is damaged. The one before, of
// the empty partition, does not replace it: the filters are rebuilt from the
// records.
func TestMoveOldSnapshot(t *testing.T) {
	w := newBothWays(t)
	for i := range 30 {
		must(t, cincr(w.s[0], fmt.Sprint(w.key, i%10), fmt.Sprint(i), 1).Err)
	}
	must(t, w.s[1].Snapshot())
	w.move(0)
	must(t, w.s[1].Snapshot())
	must(t, cincr(w.s[1], w.key, "behind", 1).Err)
	list, err := w.s[1].db.Snapshots(1)
	must(t, err)
	must(t, w.s[1].CloseNow())
	must(t, crashtest.Flip(w.fs[1], list[0].Path, 100))
	w.open(1)
	if r := w.s[1].recovery; r.Rebuilt != 1 || r.Older != 0 {
		t.Errorf("%d partitions were rebuilt, %d have older snapshots: %v", r.Rebuilt, r.Older, r.Problems)
	}
	for i := range 30 {
		wantOp(t, cincr(w.s[1], fmt.Sprint(w.key, i%10), fmt.Sprint(i), 1), int64(i/10+1), false)
	}
	wantOp(t, cincr(w.s[1], w.key, "behind", 1), 1, false)
}

// TestMoveHeld: between the hand-over and Release a partition is held in both shards, over a start
// and whichever replica leads. A late release or vacating, for a move that was taken back,
// changes nothing of the next one (G1, G2).
func TestMoveHeld(t *testing.T) {
	w := newBothWays(t)
	refuses := func(i int) {
		t.Helper()
		for range 2 {
			if op := cincr(w.s[i], w.key, "refused", 1); !errors.Is(op.Err, ErrNotLeader) {
				t.Errorf("store %d answers %d, %v", i, op.Value, op.Err)
			}
			w.s[i].StopLeading(func() {})
			must(t, w.s[i].Lead())
		}
	}
	held := func(i int, want uint64) {
		t.Helper()
		if number, _ := w.s[i].Handed(1); number != want {
			t.Errorf("store %d holds it under %d, want %d", i, number, want)
		}
	}
	wantOp(t, cincr(w.s[0], w.key, "1", 1), 1, true)
	out, in := w.begin(0)
	last, err := w.s[0].HandOver(1, 5)
	must(t, err)
	w.follow(out, in, 1<<20)
	must(t, w.s[1].Adopt(1, out.To, last, 5))
	refuses(0)
	refuses(1)
	must(t, w.s[1].CloseNow())
	w.open(1)
	refuses(1)
	held(1, 5)
	must(t, w.s[1].Snapshot())
	must(t, w.s[1].CloseNow())
	w.open(1)
	refuses(1)

	// It is taken back.
	must(t, w.s[0].Release(1, 4))
	held(0, 5)
	must(t, w.s[0].Release(1, 5))
	wantOp(t, cincr(w.s[0], w.key, "2", 1), 2, true)
	if err := w.s[1].Vacate(1, 4); !errors.Is(err, ErrMove) {
		t.Errorf("what is held under another number is vacated: %v", err)
	}
	must(t, w.s[1].Vacate(1, 5))

	// And moves after all.
	out, in = w.begin(0)
	_, err = w.s[0].HandOver(1, 5) // by a caller that does not know that
	must(t, err)
	last, err = w.s[0].HandOver(1, 9)
	must(t, err)
	must(t, w.s[0].Release(1, 5))
	if _, err := w.s[0].HandOver(1, 5); !errors.Is(err, ErrMove) {
		t.Errorf("it is handed over for an earlier move: %v", err)
	}
	refuses(0)
	held(0, 9)
	w.follow(out, in, 1<<20)
	must(t, w.s[1].Adopt(1, out.To, last, 9))
	if err := w.s[1].Vacate(1, 5); !errors.Is(err, ErrMove) {
		t.Errorf("what has come is vacated for an earlier move: %v", err)
	}
	must(t, w.s[1].Release(1, 5))
	refuses(1)
	must(t, w.s[1].Release(1, 9))
	must(t, w.s[0].Vacate(1, 9))
	wantOp(t, cincr(w.s[1], w.key, "1", 1), 1, false)
	wantOp(t, cincr(w.s[1], w.key, "2", 1), 2, false)
	wantOp(t, cincr(w.s[1], w.key, "refused", 1), 3, true)
}

// TestMoveOfBefore: a partition went and came back. A caller that knows only of the first move, as
// right behind a start, begins nothing of it again: by the state of then the partition would be
// deleted here, and there by the present state (G2).
func TestMoveOfBefore(t *testing.T) {
	w := newBothWays(t)
	move := func(from int, number uint64) {
		t.Helper()
		out, in := w.begin(from)
		last, err := w.s[from].HandOver(1, number)
		must(t, err)
		w.follow(out, in, 1<<20)
		must(t, w.s[1-from].Adopt(1, out.To, last, number))
		must(t, w.s[1-from].Release(1, number))
		must(t, w.s[from].Vacate(1, number))
	}
	wantOp(t, cincr(w.s[0], w.key, "0", 1), 1, true)
	move(0, 7)
	move(1, 9)
	again := func(save bool) {
		t.Helper()
		for i, s := range w.s {
			if save {
				must(t, s.Snapshot())
			}
			must(t, s.CloseNow())
			w.open(i)
		}
	}
	for i, save := range []bool{false, false, true} {
		if i > 0 {
			again(save)
		}
		if _, err := w.s[0].HandOver(1, 8); !errors.Is(err, ErrMove) {
			t.Errorf("it is handed over for a move of before: %v", err)
		}
		wantOp(t, cincr(w.s[0], w.key, fmt.Sprint(i+1), 1), int64(i+2), true)
	}
	out, in := w.begin(0)
	last, err := w.s[0].HandOver(1, 9)
	must(t, err)
	w.follow(out, in, 1<<20)
	if err := w.s[1].Adopt(1, out.To, last, 8); !errors.Is(err, ErrMove) {
		t.Errorf("it is adopted for a move of before: %v", err)
	}
	must(t, w.s[1].Adopt(1, out.To, last, 9))
	must(t, w.s[1].Release(1, 9))
	again(true)
	if _, err := w.s[1].HandOver(1, 8); !errors.Is(err, ErrMove) {
		t.Errorf("what was adopted is handed over for a move of before: %v", err)
	}
	wantOp(t, cincr(w.s[1], w.key, "0", 1), 1, false)
}

// TestMoveUnderLoad: clients count in all partitions, each id until it is acknowledged, while
// one partition moves to and fro. Each counter ends where it should (G1, G2).
func TestMoveUnderLoad(t *testing.T) {
	w := newBothWays(t)
	for p := range uint16(4) {
		if p != 1 {
			must(t, w.s[1].Vacate(p, 0))
		}
	}
	keys := keysIn(w.s[0])
	var stop atomic.Bool
	var load sync.WaitGroup
	var counts [4]atomic.Int64
	for n := range 4 {
		load.Go(func() {
			for i := 0; !stop.Load(); i++ {
				key, id := keys[(n+i)%4], fmt.Sprint(n, "-", i)
				for try := i; ; try++ {
					op := cincr(w.s[try%2], key, id, 1)
					if op.Err == nil {
						if !op.Applied {
							t.Errorf("%s of %s was applied before", id, key)
						}
						counts[(n+i)%4].Add(1)
						break
					}
					if !errors.Is(op.Err, ErrNotLeader) {
						t.Error(op.Err)
						return
					}
				}
			}
		})
	}
	for i := range 6 {
		for p, before := range []int64{counts[0].Load(), counts[1].Load()} {
			eventually(t, "it counts", func() bool { return counts[p].Load() > before })
		}
		w.move(i % 2)
		must(t, w.s[i%2].Snapshot())
	}
	stop.Store(true)
	load.Wait()
	for i, key := range keys {
		if v, _ := get(w.s[0], key); v != counts[i].Load() {
			t.Errorf("%s is %d, and %d were acknowledged", key, v, counts[i].Load())
		}
	}
}

// TestMoveDiskFull: the disk is full when the rows of an adopted partition must be ingested.
// No client is told that its keys are missing, a request leaves nothing behind, and the partition
// does not go on to another shard without them; it is served once there is space.
func TestMoveDiskFull(t *testing.T) {
	fault := new(crashtest.Fault)
	w := newBothWays(t)
	w.fs[1] = vfs.NewMem()
	s, _ := testReplica(t, errorfs.Wrap(w.fs[1], fault), w.clock.now)
	must(t, s.Lead())
	must(t, s.Snapshot()) // of an empty partition
	w.s[1] = s
	must(t, cincr(w.s[0], w.key, "1", 7).Err)
	must(t, w.s[0].Snapshot())
	out, in := w.begin(0)
	last := sameTails(t, w.s[0], 1, out, in)
	full := func(op errorfs.Op) bool {
		return crashtest.On("data/tmp/", errorfs.OpLink)(op) || crashtest.On("data/db/", errorfs.OpCreate)(op)
	}
	fault.Arm(syscall.ENOSPC, full)
	if err := adopt(s, 1, out.To, last); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("without space the adoption ends with %v", err)
	}
	if op := do(s, Op{Kind: Get, Key: []byte(w.key)}); !errors.Is(op.Err, ErrNotLeader) {
		t.Errorf("before its rows are there it answers %d, %v, %v", op.Value, op.Found, op.Err)
	}
	if _, err := s.Export(1, "onwards", 0, 1<<30); !errors.Is(err, ErrMove) {
		t.Errorf("before its rows are there it is exported: %v", err)
	}
	fault.Arm(nil, full)
	eventually(t, "its rows are there", func() bool { return s.Release(1, 7) == nil })
	must(t, adopt(s, 1, out.To, last))
	if v, _ := get(s, w.key); v != 7 {
		t.Errorf("who asked before the rows were there has made the key %d", v)
	}
	wantOp(t, cincr(s, w.key, "1", 7), 7, false)
}
