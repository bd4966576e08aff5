package store

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/fbf"
)

// neighbours returns pairs of keys of one slot that share a cursor, which the seed decides.
func neighbours(t *testing.T, s *Store) (pairs [][2]string) {
	t.Helper()
	at := map[uint64]string{}
	for i := range 40_000 {
		key := "{tag}" + strconv.Itoa(i)
		cursor := cursorAt(s.hashes.position([]byte(key)))
		if other, ok := at[cursor]; ok {
			pairs = append(pairs, [2]string{other, key})
		}
		at[cursor] = key
	}
	if len(pairs) < 3 {
		t.Fatal("too few neighbours: choose another seed")
	}
	return pairs
}

// TestScanCursors: a cursor fits into the 53 bits of a double, and keys that
// share one come in one page, wherever they are.
func TestScanCursors(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Seed = [16]byte{7} })
	closeKeys := neighbours(t, s)
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
	if next, err := s.Scan(MaxCursor, 1,
		func(key []byte, _ Type) { t.Errorf("%s is visited last", key) }); next != 0 || err != nil {
		t.Errorf("after the last cursor: %d, %v", next, err)
	}
}

// crowdKey is a key of a crowd: all have one position if the secrets of the hash are known,
// as here, where they are zeros. A word of zeros takes the one beside it out of the sum.
func crowdKey(i int) string {
	return string(binary.BigEndian.AppendUint64([]byte("{tag}-----------\x00\x00\x00\x00\x00\x00\x00\x00"),
		uint64(i)))
}

// TestScanCrowd: pages are bounded, and no key that stays is passed over, where thousands of keys
// share a cursor, also while keys of theirs are deleted.
func TestScanCrowd(t *testing.T) {
	const crowd = 2000
	for _, count := range []int{1, 10, 300, 5000} {
		s := testStore(t, func(o *Options) { o.Partitions = 2 })
		s.hashes.rows = new(fbf.Hasher)
		if s.hashes.position([]byte(crowdKey(0))) != s.hashes.position([]byte(crowdKey(crowd))) {
			t.Fatal("this is no crowd")
		}
		want := map[string]bool{}
		for i := range crowd {
			if i == crowd/2 {
				must(t, s.Snapshot()) // those have a row now
			}
			for _, key := range []string{crowdKey(i), "{tag}" + strconv.Itoa(i%300), strconv.Itoa(i)} {
				incr(s, key, 1)
				want[key] = true
			}
		}
		seen := map[string]bool{}
		cursors := map[uint64]bool{}
		for cursor := uint64(0); ; {
			if cursors[cursor] || cursor > MaxCursor {
				t.Fatalf("COUNT %d: cursor %d comes again, or is none", count, cursor)
			}
			cursors[cursor] = true
			page := 0
			next, err := s.Scan(cursor, count, func(key []byte, _ Type) {
				seen[string(key)], page = true, page+1
			})
			must(t, err)
			if page > 2*(count+maxNeighbours+1) {
				t.Fatalf("COUNT %d: a page of %d keys", count, page)
			}
			if cursor = next; cursor == 0 {
				break
			}
			if cursor&maxRest == 0 {
				continue
			}
			for key := range seen { // of those that were visited some go, and some others
				if want[key] && rand.IntN(10) == 0 {
					do(s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}})
					delete(want, key)
				}
			}
			gone := crowdKey(rand.IntN(crowd))
			do(s, Op{Kind: Del, Keys: [][]byte{[]byte(gone)}})
			delete(want, gone)
		}
		for key := range want {
			if !seen[key] {
				t.Fatalf("COUNT %d: %q was not visited", count, key)
			}
		}
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
	var found []walked
	for len(found) < 2 {
		var err error
		found, _, err = s.collect(p, 0, position(slots, 0), 10, p.lock)
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
