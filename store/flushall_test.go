package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// scanOf lists what SCAN finds.
func scanOf(t *testing.T, s *Store) string {
	t.Helper()
	var keys []string
	for cursor := uint64(0); ; {
		next, err := s.Scan(cursor, 2, func(key []byte, _ Type) { keys = append(keys, string(key)) })
		must(t, err)
		if cursor = next; cursor == 0 {
			slices.Sort(keys)
			return strings.Join(slices.Compact(keys), " ")
		}
	}
}

// onDiskOf lists the keys whose rows are on disk.
func onDiskOf(t *testing.T, s *Store) string {
	t.Helper()
	var keys []string
	must(t, s.db.Rows(0, math.MaxUint64, func(k persistence.RowKey, _ []byte) bool {
		keys = append(keys, string(k.Key))
		return true
	}))
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// TestFlushedRowsDoNotCount: between FLUSHALL and the deletion of the rows these are on
// disk and nobody sees them: not GET, SCAN, DBSIZE, the expiry of keys, nor check; a
// crash before, between or behind the commits brings none of them back.
func TestFlushedRowsDoNotCount(t *testing.T) {
	mem := vfs.NewCrashableMem()
	clock := newFakeClock()
	with := func(fs vfs.FS) func(*Options) {
		return func(o *Options) { o.FS, o.Partitions, o.Clock, o.SnapshotInterval = fs, 1, clock.now, -1 }
	}
	s := testStore(t, with(mem))
	wall, _ := clock.now()
	set := func(s *Store, key string, value int64) {
		t.Helper()
		must(t, do(s, Op{Kind: Set, Key: []byte(key), Delta: value}).Err)
	}
	for _, k := range []string{"both", "old1", "old2", "expires"} {
		set(s, k, 1)
	}
	cincr(s, "old1", "id", 1)
	must(t, do(s, Op{Kind: ExpireAt, Key: []byte("expires"), ExpireAt: wall + 1000}).Err)
	must(t, s.Snapshot())
	must(t, s.Snapshot())
	judge := func(s *Store, step, want string) {
		t.Helper()
		if got := scanOf(t, s); got != want {
			t.Fatalf("%s: SCAN finds %q, want %q", step, got, want)
		}
		if n, err := s.DBSize(); err != nil || int(n) != len(strings.Fields(want)) {
			t.Fatalf("%s: DBSIZE is %d, %v", step, n, err)
		}
		for _, k := range []string{"both", "old1", "old2", "expires", "new"} {
			v, ok := get(s, k)
			if ok != slices.Contains(strings.Fields(want), k) || ok && v != 2 {
				t.Fatalf("%s: %s is %d, %v", step, k, v, ok)
			}
		}
		if do(s, Op{Kind: CSeen, Key: []byte("old1"), ID: []byte("id")}).Found {
			t.Fatalf("%s: an operation is remembered", step)
		}
	}
	crashes := func(step, want string) {
		t.Helper()
		for _, percent := range []int{0, 100} {
			clone := crashtest.Clone(mem, percent, rand.New(rand.NewPCG(1, 1)))
			checkSound(t, clone, "data")
			again := testStore(t, with(clone))
			judge(again, step+", crash", want)
			must(t, again.flushRows(again.partitions[0]))
			judge(again, step+", crash, rows", want)
			must(t, again.CloseNow())
			again = testStore(t, with(clone))
			judge(again, step+", crash, rows, start", want)
			must(t, again.Close())
			checkSound(t, clone, "data")
		}
	}
	if op := do(s, Op{Kind: FlushAll}); op.Err != nil {
		t.Fatal(op.Err)
	}
	if got := onDiskOf(t, s); got != "both expires old1 old2" {
		t.Fatalf("rows on disk: %q", got)
	}
	judge(s, "flushed", "")
	crashes("flushed", "")
	// Without the filter of rows they are read, and do not count.
	p := s.partitions[0]
	p.mu.Lock()
	p.hot.clear()
	p.rows = &rowFilter{tooBig: true}
	p.mu.Unlock()
	judge(s, "flushed, no filter", "")
	clock.advance(2e9)
	var b Batch
	before := s.expired.Load()
	s.expireDue(p, &b, nil)
	if n := s.expired.Load(); n != before {
		t.Fatalf("%d keys expired that are not there", n-before)
	}
	set(s, "both", 2)
	set(s, "new", 2)
	judge(s, "new keys", "both new")
	crashes("new keys", "both new")
	must(t, s.flushRows(p))
	if got := onDiskOf(t, s); got != "both new" {
		t.Fatalf("rows on disk after the first newer one: %q", got)
	}
	judge(s, "rows", "both new")
	crashes("rows", "both new")
	must(t, s.db.Flush()) // Pebble may do so at any time: the rows are ahead of the state
	crashes("rows flushed", "both new")
	must(t, s.checkpoint(p, false))
	judge(s, "checkpoint", "both new")
	crashes("checkpoint", "both new")
	must(t, s.checkpoint(p, true))
	crashes("two checkpoints", "both new")
	if got := onDiskOf(t, s); got != "both new" {
		t.Fatalf("a second deletion: %q are left", got)
	}
}

// TestFlushDeletesAtCheckpoint: a checkpoint after FLUSHALL deletes the rows although no
// newer one is written.
func TestFlushDeletesAtCheckpoint(t *testing.T) {
	s := testStore(t, func(o *Options) { o.FS, o.Partitions, o.SnapshotInterval = vfs.NewMem(), 1, -1 })
	p := s.partitions[0]
	cincr(s, "old", "id", 1)
	must(t, s.checkpoint(p, true))
	must(t, do(s, Op{Kind: FlushAll}).Err)
	must(t, s.checkpoint(p, true))
	if got := onDiskOf(t, s); got != "" || p.flushDue || p.saving.state.floor != p.floor || p.floor == 0 {
		t.Fatalf("rows %q, due %v, floor %d, in the state row %d", got, p.flushDue, p.floor,
			p.saving.state.floor)
	}
}

// TestFlushAmongWriteBacks writes rows, flushes Pebble, takes checkpoints, forgets
// everything and crashes, in random order, and compares with a map.
func TestFlushAmongWriteBacks(t *testing.T) {
	for seed := range uint64(30 / raced.Slowdown) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		mem := vfs.NewCrashableMem()
		with := func(o *Options) { o.FS, o.Partitions, o.HotCounters, o.SnapshotInterval = mem, 1, 8, -1 }
		s := testStore(t, with)
		want := make(map[string]int64)
		steps := ""
		for range 60 {
			p := s.partitions[0]
			step := rnd.IntN(11)
			steps += fmt.Sprint(step, " ")
			switch step {
			case 0:
				must(t, do(s, Op{Kind: FlushAll}).Err)
				clear(want)
			case 1, 2:
				must(t, s.flushRows(p))
			case 3:
				must(t, s.db.Flush())
			case 4:
				must(t, s.checkpoint(p, rnd.IntN(2) == 0))
			case 5:
				must(t, s.flushRecords(p, false))
			case 6:
				mem = crashtest.Clone(mem, rnd.IntN(2)*100, rnd)
				s.CloseNow()
				s = testStore(t, with)
			default:
				for range rnd.IntN(20) {
					k := fmt.Sprint("k", rnd.IntN(40))
					want[k]++
					wantOp(t, cincr(s, k, fmt.Sprint(steps, len(want), want[k]), 1), want[k], true)
				}
			}
			for range 5 {
				k := fmt.Sprint("k", rnd.IntN(40))
				if v, ok := get(s, k); v != want[k] || ok != (want[k] != 0) {
					t.Fatalf("seed %d, after %s: %s is %d, want %d", seed, steps, k, v, want[k])
				}
			}
			if n := len(strings.Fields(scanOf(t, s))); n != len(want) {
				t.Fatalf("seed %d, after %s: SCAN finds %d keys, there are %d", seed, steps, n, len(want))
			}
		}
		must(t, s.Close())
		checkSound(t, mem, "data")
	}
}
