package store

import (
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// closeKeys are pairs of keys of one slot whose hashes begin with the same 39
// bits; those of the first pair have the same 48.
var closeKeys = [][2]string{
	{"{tag}1459089", "{tag}3776221"},
	{"{tag}357463", "{tag}1402209"},
	{"{tag}2034405", "{tag}2130334"},
	{"{tag}1420838", "{tag}2341602"},
	{"{tag}100412", "{tag}2570620"},
	{"{tag}281808", "{tag}3123449"},
}

// TestScanCursors: a cursor fits into the 53 bits of a double, and keys that
// share one come in one page, wherever they are.
func TestScanCursors(t *testing.T) {
	s := testStore(t, nil)
	for _, pair := range closeKeys {
		a, b := []byte(pair[0]), []byte(pair[1])
		if Slot(a) != Slot(b) || keyHash(a)>>9 != keyHash(b)>>9 {
			t.Fatal("the hash has changed: find other pairs than", pair)
		}
	}
	pages := func() {
		t.Helper()
		visited := 0
		for cursor, calls := uint64(0), 0; ; calls++ {
			page := map[string]bool{}
			next, err := s.Scan(cursor, 1, func(key []byte, _ Type) { page[string(key)] = true })
			must(t, err)
			visited += len(page)
			for _, pair := range closeKeys {
				if page[pair[0]] != page[pair[1]] {
					t.Fatalf("of %v one was visited alone", pair)
				}
			}
			if next == 0 {
				break
			}
			if next <= cursor || next > MaxCursor || calls > 2*len(closeKeys)+len(s.partitions) {
				t.Fatalf("cursor %d follows %d in call %d", next, cursor, calls)
			}
			cursor = next
		}
		if visited != 2*len(closeKeys)+1 {
			t.Fatalf("%d keys were visited", visited)
		}
	}
	last := "k" // of the last slots
	for i := 0; Slot([]byte(last)) < slots-4; i++ {
		last = "k" + strconv.Itoa(i)
	}
	some := func(which int) {
		for i, pair := range closeKeys {
			incr(s, pair[(i+which)%2], 1)
		}
	}
	incr(s, last, 1)
	some(0)
	must(t, s.Snapshot()) // those have a row now
	some(1)
	pages()
	must(t, s.Snapshot())
	pages()
	do(s, Op{Kind: FlushAll})
	incr(s, last, 1)
	some(0)
	some(1)
	pages()
	if next, err := s.Scan(MaxCursor, 1, func(key []byte, _ Type) { t.Errorf("%s is visited last", key) }); next != 0 || err != nil {
		t.Errorf("after the last cursor: %d, %v", next, err)
	}
}

// TestScanOverRebuild: SCAN does not return a key that it found before a rebuild took it
// back (G3).
func TestScanOverRebuild(t *testing.T) {
	s, l := proposingStore(t, vfs.NewMem(), func(o *Options) { o.Partitions = 1 })
	must(t, do(s, Op{Kind: Set, Key: []byte("kept"), Delta: 1}).Err)
	p := s.partitions[0]
	upTo := p.seq
	l.holdBack()
	var waiting sync.WaitGroup
	waiting.Go(func() { do(s, Op{Kind: Set, Key: []byte("taken back"), Delta: 1}) })
	var found []scanned
	for len(found) < 2 {
		var err error
		found, _, err = s.collect(p, 0, 10, p.lock)
		must(t, err)
	}
	life := p.committed.life.Load()
	l.cut()
	must(t, s.rebuild(cut{p, upTo}))
	waiting.Wait()
	if live, ok, err := s.stillLive(p, life, found); ok || err != nil {
		t.Errorf("of %v there are %v (%v)", found, live, err)
	}
	if got := scanOf(t, s); got != "kept" {
		t.Errorf("SCAN finds %q", got)
	}
}
