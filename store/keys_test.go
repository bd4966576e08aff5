package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func incr(s *Store, key string, n int64) Op {
	return do(s, Op{Kind: IncrBy, Key: []byte(key), Delta: n})
}

// TestRefusalsConsumeNothing: a refused operation leaves no trace, and its opid
// can be used again (G6).
func TestRefusalsConsumeNothing(t *testing.T) {
	s := testStore(t, nil)
	incr(s, "max", math.MaxInt64)
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	for name, tc := range map[string]struct {
		op   Op
		want error
	}{
		"overflow":  {Op{Kind: CIncrBy, Key: []byte("max"), ID: []byte("a"), Delta: 1}, ErrOverflow},
		"type":      {Op{Kind: CIncrBy, Key: []byte("filter"), ID: []byte("a"), Delta: 1}, ErrWrongType},
		"opid":      {Op{Kind: CIncrBy, Key: []byte("k"), Delta: 1}, ErrOpIDSize},
		"long opid": {Op{Kind: CIncrBy, Key: []byte("k"), ID: make([]byte, 513), Delta: 1}, ErrOpIDSize},
		"key":       {Op{Kind: CIncrBy, ID: []byte("a"), Delta: 1}, ErrKeySize},
		"stale": {Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("a"), Delta: 1, Flags: HasAt, At: 1},
			ErrStale},
		"multi": {Op{Kind: CMIncrBy, Keys: [][]byte{[]byte("k"), []byte("max")}, Deltas: []int64{1, 1},
			ID: []byte("a")},
			ErrOverflow},
		"multi twice": {Op{Kind: CMIncrBy, Keys: [][]byte{[]byte("k"), []byte("k")}, Deltas: []int64{1, 1},
			ID: []byte("a")},
			ErrSameKeys},
	} {
		before := s.Stats().Entries
		if op := do(s, tc.op); !errors.Is(op.Err, tc.want) {
			t.Errorf("%s: %v, want %v", name, op.Err, tc.want)
		}
		if after := s.Stats().Entries; after != before {
			t.Errorf("%s: logged %d entries", name, after-before)
		}
	}
	wantOp(t, cincr(s, "k", "a", 1), 1, true)
	do(s, Op{Kind: Set, Key: []byte("max"), Delta: 1})
	wantOp(t, cincr(s, "max", "a", 1), 2, true)
}

// TestDeleteForgetsNoID: a late retry must not resurrect a deleted counter.
func TestDeleteForgetsNoID(t *testing.T) {
	s := testStore(t, nil)
	cincr(s, "k", "1", 5)
	do(s, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
	wantOp(t, cincr(s, "k", "1", 5), 5, false)
	if _, ok := get(s, "k"); ok {
		t.Fatal("the retry resurrected the counter")
	}
	wantOp(t, cincr(s, "k", "2", 1), 1, true)
}

func TestMultiKey(t *testing.T) {
	s := testStore(t, nil)
	op := Op{Kind: CMIncrBy, ID: []byte("m"), Keys: [][]byte{[]byte("a"), []byte("b"), []byte("c")},
		Deltas: []int64{1, 2, -3}}
	for i := range 2 {
		got := do(s, op)
		if got.Err != nil || got.Applied != (i == 0) || fmt.Sprint(got.Values) != "[1 2 -3]" {
			t.Fatalf("%+v", got)
		}
		incr(s, "a", 10)
	}
	op.Deltas = []int64{1, 2, 3}
	if got := do(s, op); !errors.Is(got.Err, ErrMismatch) {
		t.Fatalf("other delta: %+v", got)
	}
	op.Keys[2] = []byte("d")
	if got := do(s, op); !errors.Is(got.Err, ErrPartlySeen) {
		t.Fatalf("known in part: %+v", got)
	}
	if _, ok := get(s, "d"); ok {
		t.Fatal("applied in part")
	}
}

// TestPipelineSeesItself: within a batch, operations see what came before, and
// a twin is a duplicate.
func TestPipelineSeesItself(t *testing.T) {
	s := testStore(t, nil)
	for i := range 3 {
		var b Batch
		for range 2 {
			op := b.Add(CIncrBy)
			op.Key, op.ID, op.Delta = []byte("k"), []byte(strconv.Itoa(i)), 1
		}
		b.Add(Get).Key = []byte("k")
		flush := b.Add(FlushAll)
		b.Add(Get).Key = []byte("k")
		for range 2 {
			again := b.Add(CIncrBy)
			again.Key, again.ID, again.Delta = []byte("k"), []byte(strconv.Itoa(i)), 1
		}
		s.Execute(&b)
		o := b.Ops
		if !o[0].Applied || o[1].Applied || o[2].Value != int64(1+min(i, 1)) || flush.Err != nil ||
			o[4].Found || !o[5].Applied || o[5].Value != 1 || o[6].Applied || o[6].Value != 1 {
			t.Fatalf("round %d: %+v", i, o)
		}
	}
}

func TestExpiry(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	wall, _ := clock.now()
	for i := range 40 {
		key := "k" + strconv.Itoa(i)
		incr(s, key, 1)
		if i%2 == 0 {
			do(s, Op{Kind: ExpireAt, Key: []byte(key), ExpireAt: wall + 10_000})
		}
		if i == 20 {
			must(t, s.Snapshot()) // some are in the index on disk, some in memory only
		}
	}
	do(s, Op{Kind: Persist, Key: []byte("k0")})
	do(s, Op{Kind: ExpireAt, Key: []byte("k2"), ExpireAt: wall + 3_600_000})
	s.CloseNow()
	s = testStore(t, with)
	clock.advance(11 * time.Second)
	if _, ok := get(s, "k4"); ok {
		t.Fatal("expired key is read")
	}
	if op := incr(s, "k4", 1); op.Value != 1 {
		t.Fatalf("increment of an expired key: %d", op.Value)
	}
	var b Batch
	for range 3 {
		s.expireAllDue(&b)
	}
	if n, _ := s.DBSize(); n != 23 { // 20 odd ones, k0, k2, k4
		t.Fatalf("DBSIZE %d", n)
	}
	if n := s.Stats().Expired; n != 17 { // k4 began anew before its turn came
		t.Errorf("%d keys expired", n)
	}
	for key, want := range map[string]bool{"k0": true, "k1": true, "k2": true, "k4": true, "k6": false,
		"k30": false} {
		if _, ok := get(s, key); ok != want {
			t.Errorf("%s exists: %v", key, ok)
		}
	}
}

func TestFilterKeys(t *testing.T) {
	for name, opts := range map[string]FilterOptions{
		"adaptive": {Window: 10 * time.Second},
		"fixed":    {Fixed: true, Bits: 1 << 14, Hashes: 5, Refresh: 5 * time.Second, Past: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newFakeClock()
			with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
			s := testStore(t, with)
			if op := do(s, Op{Kind: FBFReserve, Key: []byte("f"), Object: &opts}); op.Err != nil {
				t.Fatal(op.Err)
			}
			if op := do(s, Op{Kind: FBFReserve, Key: []byte("f")}); !errors.Is(op.Err, ErrFilterExists) {
				t.Fatal(op.Err)
			}
			add := func(items ...string) []bool {
				op := Op{Kind: FBFAdd, Key: []byte("f")}
				for _, i := range items {
					op.Keys = append(op.Keys, []byte(i))
				}
				op = do(s, op)
				must(t, op.Err)
				return op.Founds
			}
			if got := add("a", "b", "a"); fmt.Sprint(got) != "[false false true]" {
				t.Fatal(got)
			}
			for _, snapshot := range []bool{false, true} {
				if snapshot {
					must(t, s.Snapshot())
				}
				s.CloseNow()
				s = testStore(t, with)
				if got := add("a", "b", "c"); fmt.Sprint(got) != fmt.Sprint([]bool{true, true, snapshot}) {
					t.Fatal(got)
				}
			}
			if op := do(s, Op{Kind: FBFCard, Key: []byte("f")}); op.Value != 3 {
				t.Fatalf("card %d", op.Value)
			}
			if op := do(s, Op{Kind: Get, Key: []byte("f")}); !errors.Is(op.Err, ErrWrongType) {
				t.Fatal(op.Err)
			}
			for range 40 {
				clock.advance(time.Second)
				for _, p := range s.partitions {
					s.refreshDue(p)
				}
			}
			if got := add("a"); fmt.Sprint(got) != "[false]" {
				t.Fatal("never forgotten")
			}
			do(s, Op{Kind: Del, Keys: [][]byte{[]byte("f")}})
			if got := add("a"); fmt.Sprint(got) != "[false]" {
				t.Fatal("remembered by a deleted filter")
			}
		})
	}
}

// TestScan visits every key that exists throughout, whether its row is written
// or not, with any COUNT, while others come and go.
func TestScan(t *testing.T) {
	s := testStore(t, nil)
	want := make(map[string]bool)
	for i := range 2000 {
		key := "k" + strconv.Itoa(i)
		incr(s, key, 1)
		want[key] = true
		if i%500 == 499 {
			must(t, s.Snapshot())
		}
	}
	do(s, Op{Kind: FBFReserve, Key: []byte("f")})
	want["f"] = true
	for i := range 100 {
		key := "k" + strconv.Itoa(i*3)
		do(s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}})
		delete(want, key)
	}
	for _, count := range []int{1, 3, 10, 100, 5000} {
		seen := make(map[string]bool)
		calls := 0
		for cursor := uint64(0); ; calls++ {
			next, err := s.Scan(cursor, count, func(k []byte, _ Type) { seen[string(k)] = true })
			must(t, err)
			incr(s, "new"+strconv.Itoa(rand.IntN(1000)), 1)
			if calls%50 == 0 {
				must(t, s.checkpoint(s.partitions[calls%4], false))
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
		for k := range want {
			if !seen[k] {
				t.Fatalf("COUNT %d: %s was not visited", count, k)
			}
		}
		for k := range seen {
			if k[0] == 'k' && !want[k] {
				t.Fatalf("COUNT %d: deleted %s was visited", count, k)
			}
		}
		if count == 10 && calls > 1000 {
			t.Errorf("%d calls", calls)
		}
	}
}

// TestEviction works on many more keys than may stay in memory, with
// checkpoints in between, against a map.
func TestEviction(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters = 256 })
	want := make(map[string]int64)
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		var b Batch
		for range 100 {
			key := "k" + strconv.Itoa(rnd.IntN(3000))
			op := b.Add(IncrBy)
			op.Key, op.Delta = []byte(key), 1
			want[key]++
		}
		s.Execute(&b)
		must(t, s.checkpoint(s.partitions[round%4], false))
	}
	if n := s.Stats().HotCounters; n > 2000 {
		t.Errorf("%d keys in memory", n)
	}
	for k, v := range want {
		if got, _ := get(s, k); got != v {
			t.Fatalf("%s = %d, want %d", k, got, v)
		}
	}
}

func TestFlushAll(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	for round := range 3 {
		for i := range 200 {
			wantOp(t, cincr(s, "k"+strconv.Itoa(i), "id", 1), 1, true)
			if i == 100 {
				must(t, s.Snapshot())
			}
		}
		do(s, Op{Kind: FBFReserve, Key: []byte("f")})
		if op := do(s, Op{Kind: FlushAll}); op.Err != nil {
			t.Fatal(op.Err)
		}
		if round == 1 {
			s.CloseNow()
			s = testStore(t, func(o *Options) { o.FS = fs })
		}
		if n, _ := s.DBSize(); n != 0 {
			t.Fatalf("DBSIZE %d", n)
		}
		if _, ok := get(s, "k5"); ok {
			t.Fatal("key is back")
		}
	}
}

// longID is an opid of 500 bytes that cannot be compressed.
func longID(n int) string {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(n))
	id := make([]byte, 500)
	rand.NewChaCha8(seed).Read(id)
	return string(id)
}

// TestMaxDisk refuses new operations while the records of a table fill its
// share of the disk, and takes them again once records have expired.
func TestMaxDisk(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock, o.Partitions = clock.now, 1 })
	must(t, s.AlterTable(DefaultTable,
		TableChange{MaxDisk: ptr(uint64(MinTableDisk)), Window: ptr(10 * time.Second)}))
	n := 0
	for range 10 {
		for range 1000 {
			n++
			if op := cincr(s, "k", longID(n), 1); errors.Is(op.Err, ErrOutOfMemory) {
				if n < 1500 || n > 3500 || !strings.Contains(op.Err.Error(), "MAXDISK") {
					t.Fatalf("refused operation %d", n)
				}
				wantOp(t, cincr(s, "k", longID(1), 1), 1, false) // duplicates are still answered
				clock.advance(time.Hour)
				cincr(s, "x", "tick", 0) // logs time
				must(t, s.checkpoint(s.partitions[0], true))
				if op := cincr(s, "k", longID(n), 1); !op.Applied {
					t.Fatalf("after expiry: %v", op.Err)
				}
				return
			}
		}
		must(t, s.checkpoint(s.partitions[0], false))
	}
	t.Fatal("never refused")
}

// TestHugeBatch commits one operation that is larger than half a memtable,
// which Pebble treats in a way of its own.
func TestHugeBatch(t *testing.T) {
	s := testStore(t, nil)
	op := Op{Kind: CMIncrBy, ID: []byte("huge")}
	for i := range 700 {
		op.Keys = append(op.Keys, []byte(fmt.Sprintf("%060000d", i)))
		op.Deltas = append(op.Deltas, 1)
	}
	for i := range 2 {
		if got := do(s, op); got.Err != nil || got.Applied != (i == 0) {
			t.Fatalf("%v, applied %v", got.Err, got.Applied)
		}
	}
	wantOp(t, cincr(s, "k", "1", 1), 1, true)
}

// TestColdBatchesMakeProgress: batches much larger than what may stay in memory
// evict each other's keys and still come to an end.
func TestColdBatchesMakeProgress(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions, o.Fsync = 64, 1, No })
	const keys = 20_000
	var b Batch
	for i := range keys {
		op := b.Add(Set)
		op.Key, op.Delta = []byte("k"+strconv.Itoa(i)), int64(i)
	}
	s.Execute(&b)
	must(t, s.Snapshot())
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			var b Batch
			for range 5 {
				b.Reset()
				for range 1000 {
					b.Add(Get).Key = []byte("k" + strconv.Itoa(rnd.IntN(keys)))
				}
				s.Execute(&b)
				for i := range b.Ops {
					if op := &b.Ops[i]; "k"+strconv.FormatInt(op.Value, 10) != string(op.Key) {
						t.Errorf("%s = %d (%v)", op.Key, op.Value, op.Err)
						return
					}
				}
			}
		})
	}
	clients.Wait()
}

// TestFilterAtTheCap adds many more items at once than the memory allows: those
// without room are refused one by one, and ERROR holds for the others (G5).
func TestFilterAtTheCap(t *testing.T) {
	s := testStore(t, func(o *Options) { o.FilterMaxMemory = 3 << 20 })
	op := Op{Kind: FBFAdd, Key: []byte("f")}
	for i := range MaxKeys {
		op.Keys = append(op.Keys, []byte("item"+strconv.Itoa(i)))
	}
	refused, wrong := 0, 0
	for n := range 12 {
		for i := range op.Keys {
			op.Keys[i] = []byte(fmt.Sprint("item", n, "-", i))
		}
		got := do(s, op)
		must(t, got.Err)
		for i := range got.Founds {
			if got.Fulls[i] {
				refused++
			} else if got.Founds[i] {
				wrong++
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	if wrong > 8 { // below one is expected of 786,432
		t.Errorf("%d new items were taken for old ones", wrong)
	}
	info := do(s, Op{Kind: FBFInfo, Key: []byte("f")}).Object.(*FilterInfo)
	if info.EffectiveFPP > 1e-6 {
		t.Errorf("effective FPP %g", info.EffectiveFPP)
	}
}
