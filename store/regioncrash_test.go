package store

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// TestRegionCrash: wherever a region loses its power while it takes what another one did, and while what
// it has taken comes to disk, it has of each answer all or nothing, and its cursor says which: when it has
// taken the rest, each operation counts once, also those that it had applied itself, and a retry gets
// the result of the one that counts.
func TestRegionCrash(t *testing.T) {
	var disk crashable
	clock := newFakeClock()
	open := func(fs vfs.FS) *Store {
		return testStore(t, func(o *Options) {
			o.FS, o.Partitions = fs, 1
			o.Seed, o.Clock = [16]byte{2}, clock.now
			o.SnapshotInterval, o.HotCounters = -1, 16
		})
	}
	w := &flushWorld{t: t}
	w.s[0] = testStore(t, func(o *Options) {
		o.FS, o.Partitions, o.Seed, o.Clock = vfs.NewMem(), 1, [16]byte{1}, clock.now
	})
	w.s[1] = open(disk.fs())
	w.join()
	const keys, rounds = 12, 4
	for round := range rounds {
		for i := range keys {
			key, id := fmt.Sprint("k", i), fmt.Sprint("op", round)
			cincr(w.s[0], key, id, 2)
			must(t, do(w.s[0], Op{Kind: IncrBy, Key: []byte(key), Delta: 10}).Err)
		}
	}
	must(t, do(w.s[0], Op{Kind: Del, Keys: [][]byte{[]byte("k0")}}).Err)
	clock.advance(1e9)
	for i := range keys {
		must(t, cincr(w.s[1], fmt.Sprint("k", i), "op1", 2).Err) // the other one was first
		must(t, cincr(w.s[1], fmt.Sprint("k", i), "own", 100).Err)
	}
	must(t, w.s[1].Snapshot())
	all := func() {
		t.Helper()
		for before := ^uint64(0); before != w.s[1].CommittedOf(0); {
			before = w.s[1].CommittedOf(0)
			w.take(1, w.ask(1), nil)
		}
	}
	judge := func(step string) {
		t.Helper()
		for i := range keys {
			key, want := fmt.Sprint("k", i), int64(100+rounds*(2+10))
			if i == 0 {
				want = 100
			}
			if v, _ := get(w.s[1], key); v != want {
				t.Fatalf("%s: %s = %d, want %d", step, key, v, want)
			}
			for round := range rounds {
				want := do(w.s[0], Op{Kind: CSeen, Key: []byte(key), ID: fmt.Append(nil, "op", round)})
				if op := cincr(w.s[1], key, fmt.Sprint("op", round), 2); op.Applied ||
					op.Value != want.Seen.Result {
					t.Fatalf("%s: retry of op%d of %s: %+v, want %+v", step, round, key, op, want.Seen)
				}
			}
		}
	}
	disk.watches(true)
	for range 3 { // what was taken is on its way to disk in several states
		w.take(1, w.askMost(1, 2000), nil)
		must(t, w.s[1].flushRows(w.s[1].partitions[0]))
		w.take(1, w.askMost(1, 1), nil)
		must(t, w.s[1].checkpoint(w.s[1].partitions[0], false))
	}
	all()
	disk.watches(false)
	judge("without a crash")
	live := w.s[1]
	const most = 24 / raced.Slowdown
	for i := range most {
		n := i * len(disk.during) / most
		step := fmt.Sprintf("crash %d of %d", n, len(disk.during))
		checkSound(t, disk.during[n], "data")
		w.s[1] = open(disk.during[n])
		all()
		judge(step)
		must(t, w.s[1].Close())
	}
	w.s[1] = live
}
