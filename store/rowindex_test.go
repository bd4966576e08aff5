package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// littleMemory is a store with memory for few counters, whose indexes of rows are kept
// by the test alone.
func littleMemory(t *testing.T, change func(*Options)) *Store {
	t.Helper()
	s := testStore(t, func(o *Options) {
		o.HotCounters, o.Partitions, o.Fsync = 128, 2, No
		if change != nil {
			change(o)
		}
	})
	s.indexing.Lock()
	t.Cleanup(s.indexing.Unlock) // before the store is closed
	return s
}

// indexedStore is such a store with keys, all with rows, and indexes of them.
func indexedStore(t *testing.T, keys int, change func(*Options)) *Store {
	t.Helper()
	s := littleMemory(t, change)
	setKeys(s, 0, keys)
	flushAllRows(t, s)
	for _, p := range s.partitions {
		fillNow(t, s, p)
	}
	return s
}

// fillNow makes the partition's index anew.
func fillNow(t *testing.T, s *Store, p *partition) {
	t.Helper()
	p.index.fillRows = 100 // so that many runs are merged
	p.mu.Lock()
	rows := p.size
	p.mu.Unlock()
	if s.fillRowIndex(p, rows); !p.index.set.whole {
		t.Fatal("the index is not whole")
	}
}

// setKeys sets the keys k<from> to k<to-1>, each to its number.
func setKeys(s *Store, from, to int) {
	var b Batch
	for i := from; i < to; i++ {
		op := b.Add(Set)
		op.Key, op.Delta = []byte("k"+strconv.Itoa(i)), int64(i)
	}
	s.Execute(&b)
}

// wantKeys expects them as setKeys set them.
func wantKeys(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if v, ok := get(s, "k"+strconv.Itoa(i)); !ok || v != int64(i) {
			t.Fatalf("k%d = %d, %v", i, v, ok)
		}
	}
}

// wantModel expects keys as a model has them.
func wantModel(t *testing.T, s *Store, model map[string]int64, keys ...string) {
	t.Helper()
	for _, k := range keys {
		want, ok := model[k]
		if v, found := get(s, k); v != want || found != ok {
			t.Fatalf("%s = %d, %v, not %d, %v", k, v, found, want, ok)
		}
	}
}

// flushAllRows writes back all rows; the indexes pay.
func flushAllRows(t *testing.T, s *Store) {
	t.Helper()
	for _, p := range s.partitions {
		p.index.asked.Store(1 << 30)
		must(t, s.flushRows(p))
	}
}

// lookUpRow asks the partition's index; it fails the test if there is none.
func lookUpRow(t *testing.T, p *partition, key string) (row, bool) {
	t.Helper()
	set := p.index.acquire()
	if set == nil {
		t.Fatal("there is no index")
	}
	defer set.release()
	hash := hotHash([]byte(key))
	var mask [1]uint64
	set.screen([]uint64{hash}, mask[:])
	r, ok, err := set.find(hash, mask[0], []byte(key), new(persistence.Entries))
	must(t, err)
	return r, ok
}

// indexHoldsRows compares indexes and rows: each has what the other has, of the keys
// given at least.
func indexHoldsRows(t *testing.T, s *Store, keys []string) {
	t.Helper()
	rows := make(map[string]row)
	for _, p := range s.partitions {
		from, to := p.rowRange()
		must(t, s.db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
			r, err := decodeRow(value)
			must(t, err)
			rows[string(k.Key)] = r
			if got, ok := lookUpRow(t, p, string(k.Key)); !ok || got != r {
				t.Errorf("the index has %v, %+v for %s, whose row is %+v", ok, got, k.Key, r)
			}
			return true
		}))
	}
	for _, k := range keys {
		if _, ok := rows[k]; ok {
			continue
		}
		if r, ok := lookUpRow(t, s.partitions[Slot([]byte(k))>>s.shift], k); ok {
			t.Errorf("the index has %+v for %s, which has no row", r, k)
		}
	}
}

// manyNames are names of counters, some too long to be kept inside them.
func manyNames(n int) (names []string) {
	for i := range n {
		names = append(names, "k"+strconv.Itoa(i)+strings.Repeat("x", i%7*10))
	}
	return names
}

// TestRowIndex: while keys are made, changed and deleted and their rows written
// back, in any order with filling, merging and letting go of the index, the index
// says what the rows say, and the counters are what a map says.
func TestRowIndex(t *testing.T) {
	names := manyNames(3000)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			s := littleMemory(t, nil)
			for _, p := range s.partitions {
				fillNow(t, s, p)
			}
			model := make(map[string]int64)
			merges := 0
			for round := range 60 {
				for range 400 {
					k := names[rnd.IntN(len(names))]
					switch n := rnd.IntN(10); {
					case n < 6:
						model[k] += int64(n)
						wantOp(t, cincr(s, k, fmt.Sprint(round, rnd.Uint64()), int64(n)), model[k], true)
					case n < 8:
						delete(model, k)
						do(s, Op{Kind: Del, Keys: [][]byte{[]byte(k)}})
					default:
						wantModel(t, s, model, k)
					}
				}
				flushAllRows(t, s)
				p := s.partitions[rnd.IntN(2)]
				switch rnd.IntN(8) {
				case 0:
					fillNow(t, s, p)
				case 1, 2, 3:
					before := len(p.index.set.readers)
					if s.mergeRowIndex(p); len(p.index.set.readers) < before {
						merges++
					}
				}
				if round%6 == 0 {
					indexHoldsRows(t, s, names)
				}
			}
			if merges == 0 {
				t.Error("nothing was merged")
			}
			wantModel(t, s, model, names...)
		})
	}
}

// TestRowIndexBegins: an index is begun once look-ups of rows on disk have cost
// enough, serves those that follow, and is let go for a while when rows are written
// and nobody asks any more.
func TestRowIndexBegins(t *testing.T) {
	const keys = 20_000
	s := littleMemory(t, func(o *Options) { o.Partitions = 1 })
	p := s.partitions[0]
	setKeys(s, 0, keys)
	must(t, s.flushRows(p))
	forgetRowFilter(p) // as after a start: it says nothing
	for i := range keys {
		get(s, "none"+strconv.Itoa(i))
	}
	if s.keepRowIndex(p); p.index.on() != 0 {
		t.Fatal("there is an index although no row was found")
	}
	wantKeys(t, s, 0, 2*keys/fillAfter) // some are in memory
	loads := p.index.loads.Load()
	if s.keepRowIndex(p); p.index.on() == 0 {
		t.Fatalf("there is no index after %d look-ups", loads)
	}
	wantKeys(t, s, 0, keys)
	if n := p.index.loads.Load(); n != 0 {
		t.Errorf("%d rows were read from Pebble", n)
	}
	for i := 0; p.index.on() != 0; i++ {
		if i == 20 {
			t.Fatal("the index stays though nobody asks it")
		}
		setKeys(s, keys+i*keys, keys+(i+1)*keys)
		must(t, s.flushRows(p))
		s.keepRowIndex(p)
	}
	noScratchRuns(t, s)
	wantKeys(t, s, 0, keys)
	if s.keepRowIndex(p); p.index.on() != 0 {
		t.Error("the index is begun again at once")
	}
}

// forgetRowFilter makes the filter of a partition's rows say nothing.
func forgetRowFilter(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows = newRowFilter(p.count)
}

// scratchRuns lists the files of indexes of rows.
func scratchRuns(t *testing.T, s *Store) (names []string) {
	t.Helper()
	all, err := s.opts.FS.List("data/runs")
	must(t, err)
	for _, name := range all {
		if isRowFile(name) {
			names = append(names, name)
		}
	}
	return names
}

func isRowFile(path string) bool { return strings.Contains(path, "-t4294967295-") }

func noScratchRuns(t *testing.T, s *Store) {
	t.Helper()
	if runs := scratchRuns(t, s); len(runs) > 0 {
		t.Errorf("left of the index: %v", runs)
	}
}

// stoppedFill begins to fill the index of a partition and stops after the first rows
// until go on is called, which returns when it has ended.
func stoppedFill(t *testing.T, s *Store, p *partition, stop *atomic.Pointer[chan bool]) (goOn func()) {
	t.Helper()
	p.index.drop(0, 0)
	p.index.fillRows = 100
	gate, done := make(chan bool), make(chan bool)
	stop.Store(&gate)
	go func() {
		defer close(done)
		s.fillRowIndex(p, p.size)
	}()
	gate <- true // it has come to its first file
	return func() {
		close(gate)
		<-done
	}
}

// gatedFS is a file system on which the first such operation while there is a gate
// waits for it.
func gatedFS(stop *atomic.Pointer[chan bool], such func(errorfs.Op) bool) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if such(op) {
			if gate := stop.Swap(nil); gate != nil {
				<-*gate
				<-*gate
			}
		}
		return nil
	}))
}

// createsRowFile: a file of an index of rows is created.
func createsRowFile(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && isRowFile(op.Path) }

// TestRowIndexIsFilledMeanwhile: what is made, changed and deleted, and leaves memory,
// while an index is filled is in it, or not, as it should be.
func TestRowIndexIsFilledMeanwhile(t *testing.T) {
	const keys = 2000
	var stop atomic.Pointer[chan bool]
	s := indexedStore(t, keys, func(o *Options) { o.FS, o.Partitions = gatedFS(&stop, createsRowFile), 1 })
	p := s.partitions[0]
	goOn := stoppedFill(t, s, p, &stop)
	model := make(map[string]int64)
	var names []string
	for i := range keys + 500 {
		k := "k" + strconv.Itoa(i)
		names = append(names, k)
		if i < keys {
			model[k] = int64(i)
		}
		switch i % 5 {
		case 0:
			model[k]++
			wantOp(t, cincr(s, k, "id", 1), model[k], true)
		case 1:
			delete(model, k)
			do(s, Op{Kind: Del, Keys: [][]byte{[]byte(k)}})
		}
		if i%300 == 0 {
			flushAllRows(t, s)
		}
	}
	flushAllRows(t, s)
	goOn()
	indexHoldsRows(t, s, names)
	s.mergeRowIndex(p)
	indexHoldsRows(t, s, names)
	wantModel(t, s, model, names...)
}

// TestRowsAreIndexedBeforeTheyLeave: counters whose rows have just been written stay in
// memory until the index has them: it would say what they were before.
func TestRowsAreIndexedBeforeTheyLeave(t *testing.T) {
	const keys = 2000
	var stop atomic.Pointer[chan bool]
	s := indexedStore(t, keys, func(o *Options) { o.FS, o.Partitions = gatedFS(&stop, createsRowFile), 1 })
	p := s.partitions[0]
	model := make(map[string]int64)
	var changed []string
	for i := range 10 {
		k := "k" + strconv.Itoa(i)
		changed, model[k] = append(changed, k), int64(i)+1
		wantOp(t, cincr(s, k, "id", 1), model[k], true)
	}
	gate, done := make(chan bool), make(chan error)
	stop.Store(&gate)
	go func() { done <- s.flushRows(p) }()
	gate <- true             // their rows are in Pebble
	wantKeys(t, s, 10, keys) // all that can leaves memory
	wantModel(t, s, model, changed...)
	close(gate)
	must(t, <-done)
	wantKeys(t, s, 10, keys)
	wantModel(t, s, model, changed...)
}

// TestRowIndexWaitsForWriteBack: an index is not begun amid a write-back, whose rows
// neither its scan would see nor the write-back would add.
func TestRowIndexWaitsForWriteBack(t *testing.T) {
	const keys = 500
	var stop atomic.Pointer[chan bool]
	fs := gatedFS(&stop, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "/db/")
	})
	s := indexedStore(t, keys, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	p := s.partitions[0]
	p.index.drop(0, 0)
	for i := range keys {
		cincr(s, "k"+strconv.Itoa(i), "id", 1)
	}
	gate, written, filled := make(chan bool), make(chan error), make(chan bool)
	stop.Store(&gate)
	go func() { written <- s.flushRows(p) }()
	gate <- true // it is about to commit
	go func() {
		s.fillRowIndex(p, keys)
		close(filled)
	}()
	select {
	case <-filled:
		t.Error("the index was filled amid a write-back")
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	must(t, <-written)
	<-filled
	indexHoldsRows(t, s, nil)
}

// TestRowIndexUnderLoad: counters count while their indexes are filled, merged and
// let go.
func TestRowIndexUnderLoad(t *testing.T) {
	const keys = 4000
	s := indexedStore(t, keys, nil)
	var done atomic.Bool
	var work sync.WaitGroup
	values := make([]int64, keys)
	for w := range 2 {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 3))
			for n := 0; !done.Load(); n++ {
				i := 2*rnd.IntN(keys/2) + w // each key is one goroutine's
				values[i]++
				if v := cincr(s, "k"+strconv.Itoa(i), fmt.Sprint(w, n), 1).Value; v != int64(i)+values[i] {
					t.Errorf("k%d = %d instead of %d", i, v, int64(i)+values[i])
					return
				}
				if n%300 == 0 {
					s.partitions[w].index.asked.Store(1 << 30)
					if err := s.flushRows(s.partitions[w]); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for round := range 20 {
		for _, p := range s.partitions {
			if round%4 == 0 {
				p.index.drop(0, 0)
				fillNow(t, s, p)
			}
			s.mergeRowIndex(p)
		}
	}
	done.Store(true)
	work.Wait()
	flushAllRows(t, s)
	indexHoldsRows(t, s, nil)
}

// TestRowIndexIsForgottenByFlushAll: no row of before comes back, also if the index
// is just being filled.
func TestRowIndexIsForgottenByFlushAll(t *testing.T) {
	const keys = 2000
	for _, filling := range []bool{false, true} {
		t.Run(fmt.Sprint("filling ", filling), func(t *testing.T) {
			var stop atomic.Pointer[chan bool]
			s := indexedStore(t, keys, func(o *Options) { o.FS, o.Partitions = gatedFS(&stop, createsRowFile), 1 })
			p := s.partitions[0]
			goOn := func() {}
			if filling {
				goOn = stoppedFill(t, s, p, &stop)
			}
			do(s, Op{Kind: FlushAll})
			goOn()
			if p.index.on() != 0 {
				t.Error("there still is an index")
			}
			forgetRowFilter(p) // which else would answer for the index
			for i := range keys {
				if v, ok := get(s, "k"+strconv.Itoa(i)); ok {
					t.Fatalf("k%d = %d after FLUSHALL", i, v)
				}
			}
			s.keepRowIndex(p)
			noScratchRuns(t, s)
		})
	}
}

// TestRowIndexLeavesNothing: an index ends with the process, also when that does not
// end in order.
func TestRowIndexLeavesNothing(t *testing.T) {
	s := indexedStore(t, 2000, nil)
	if len(scratchRuns(t, s)) < 2 {
		t.Fatal("there are no files")
	}
	must(t, s.Close())
	noScratchRuns(t, s)
	mem := vfs.NewCrashableMem()
	indexedStore(t, 2000, func(o *Options) { o.FS = mem })
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	if names, err := killed.List("data/runs"); err != nil || !slices.ContainsFunc(names, isRowFile) {
		t.Fatalf("there are no files: %v, %v", names, err)
	}
	again := littleMemory(t, func(o *Options) { o.FS = killed })
	noScratchRuns(t, again)
	wantKeys(t, again, 0, 2000)
}

// TestManyRowRuns: an index with more runs than are screened finds every row.
func TestManyRowRuns(t *testing.T) {
	s := indexedStore(t, 1000, nil)
	for i := range 3 * maxScreened {
		setKeys(s, 1000+i, 1002+i)
		flushAllRows(t, s)
	}
	if n := len(s.partitions[0].index.set.readers); n <= maxScreened {
		t.Fatalf("%d runs", n)
	}
	indexHoldsRows(t, s, []string{"none"})
	before := slices.Clone(s.partitions[0].index.set.runs())
	s.mergeRowIndex(s.partitions[0])
	s.mergeRowIndex(s.partitions[1])
	if n := len(s.partitions[0].index.set.readers); n >= len(before)/4 {
		t.Errorf("%d runs of %d are left", n, len(before))
	}
	indexHoldsRows(t, s, []string{"none"})
}
