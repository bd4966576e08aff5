package store

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestRowFilter: nothing that was added is missing, little else is there, and a
// filter that would grow too large says nothing any more.
func TestRowFilter(t *testing.T) {
	f := newRowFilter(16)
	f.whole = true
	rnd := rand.New(rand.NewPCG(1, 2))
	const keys = 200_000
	var added []uint64
	for range keys {
		// As those of one partition: the upper bits are alike.
		pos := 5<<58 | rnd.Uint64N(1<<58)
		f.add(pos)
		added = append(added, pos)
	}
	for _, pos := range added {
		if f.lacks(pos) {
			t.Fatalf("%x is missing", pos)
		}
	}
	wrong := 0
	for range keys {
		if !f.lacks(5<<58 | rnd.Uint64N(1<<58)) {
			wrong++
		}
	}
	if share := float64(wrong) / keys; share > 0.015 {
		t.Errorf("%.3f of what was not added is there", share)
	}
	if perKey := float64(f.bytes()) / keys; perKey > 6 {
		t.Errorf("%.2f bytes per key", perKey)
	}
	small := rowFilter{whole: true, limit: 4 * firstLayer * 64}
	for _, pos := range added {
		small.add(pos)
	}
	if small.bytes() > small.limit || small.lacks(1) || small.scanDue(1) {
		t.Error("a filter that is too small for its keys speaks")
	}
}

// holdsEveryRow fails the test if a partition's filter lacks a row.
func holdsEveryRow(t *testing.T, s *Store) (rows int) {
	t.Helper()
	for _, p := range s.partitions {
		from, to := p.rowRange()
		must(t, s.db.Rows(from, to, func(k persistence.RowKey, _ []byte) bool {
			rows++
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.rows.lacks(k.Position()) {
				t.Errorf("the filter lacks the row of %s", k.Key)
			}
			return true
		}))
	}
	return rows
}

// TestRowScan: the filters of a directory that is opened with rows are filled
// once they pay, while keys come and go; from then on they lack none.
func TestRowScan(t *testing.T) {
	const keys = 20_000
	var slow atomic.Bool // reads, so that a scan takes long enough to be watched
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && slow.Load() {
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
	open := func() *Store {
		return testStore(t, func(o *Options) { o.FS, o.HotCounters, o.Partitions, o.Fsync = fs, 128, 2, No })
	}
	s := open()
	whole := func() (n int) {
		for _, p := range s.partitions {
			p.mu.Lock()
			if p.rows.whole {
				n++
			}
			p.mu.Unlock()
		}
		return n
	}
	setKeys(s, 0, keys)
	if whole() != 2 {
		t.Fatal("the filters of a new directory say nothing")
	}
	must(t, s.Close())
	s = open()
	setKeys(s, 0, keys/2) // they are there
	for _, p := range s.partitions {
		if s.scanRowsIfDue(p); s.scanning.Load() {
			t.Fatal("rows are scanned although every key was found")
		}
	}
	setKeys(s, keys, 2*keys)
	slow.Store(true)
	var work sync.WaitGroup
	work.Go(func() {
		for i := 2 * keys; i < 3*keys; i += 100 {
			setKeys(s, i, i+100)
			for _, p := range s.partitions {
				must(t, s.flushRows(p))
			}
		}
	})
	work.Go(func() {
		for i := 0; whole() < 2 || s.scanning.Load(); i += 1009 {
			if key := "k" + strconv.Itoa(keys/2+i%(keys/2)); do(s,
				Op{Kind: Exists, Keys: [][]byte{[]byte(key)}}).Value != 1 {
				t.Errorf("%s is missing while rows are scanned", key)
				return
			}
		}
	})
	for whole() < 2 || s.scanning.Load() {
		for _, p := range s.partitions {
			s.scanRowsIfDue(p)
		}
	}
	work.Wait()
	slow.Store(false)
	must(t, s.Snapshot())
	if rows := holdsEveryRow(t, s); rows != 3*keys {
		t.Fatalf("%d rows", rows)
	}
	wantKeys(t, s, 0, 3*keys)
	do(s, Op{Kind: FlushAll})
	setKeys(s, 0, 10)
	must(t, s.Snapshot())
	if rows := holdsEveryRow(t, s); rows != 10 || whole() != 2 {
		t.Fatalf("%d rows after FLUSHALL, %d filters are whole", rows, whole())
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
