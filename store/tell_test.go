package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
)

// pulls are what the second of two regions asks the first for: all ranges.
func (w *testRegions) pulls() (qs []Pull) {
	a, b := w.r[0], w.r[1]
	ranges, err := b.s.PullRanges(0)
	must(w.t, err)
	for _, r := range ranges {
		after, acked, err := b.s.TakenOf(r.Own, r.Source)
		must(w.t, err)
		qs = append(qs, Pull{
			By: 1, Group: 77, Incarnation: a.s.Meta().Incarnation, Partition: r.Source.Partition,
			First: r.First, Last: r.Last, After: after, Acked: acked,
		})
	}
	return qs
}

// pullAll lets the second region send its pulls, and checks the answers. Some are lost.
func (w *testRegions) pullAll(qs []Pull, most int, lost func(i int) bool) (told int) {
	w.t.Helper()
	all, behind := w.r[0].s.PullAll(qs, most, most%2 == 0)
	bytes := 0
	for i, a := range all {
		must(w.t, a.Err)
		if a.Newest < qs[i].After {
			w.t.Fatalf("the newest entry is %d, after %d", a.Newest, qs[i].After)
		}
		if bytes += len(a.Data); a.Data == nil {
			continue
		}
		if told++; !lost(i) {
			_, err := w.r[1].s.Take(a.Data)
			must(w.t, err)
		}
	}
	if bytes > 2*most+len(all)*300 {
		w.t.Fatalf("%d bytes, where %d were asked for", bytes, most)
	}
	if (told == 0) != (len(behind) > 0) {
		w.t.Fatalf("%d ranges are told, and %d are to be waited for", told, len(behind))
	}
	return told
}

func never(int) bool { return false }

// TestPullAll: whatever is asked for together, and whatever is lost on the way, all arrives in
// the end, and no log has a gap, while files are given up.
func TestPullAll(t *testing.T) {
	for _, parts := range [][]int{{8, 2}, {2, 16}, {4, 4}} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			w := newTestRegions(t, 5, parts...)
			w.drain()
			a, b := w.r[0], w.r[1]
			want := make(map[string]int64)
			for i := range 400 {
				for range w.rnd.IntN(8) {
					key := fmt.Sprint("k", w.rnd.IntN(50))
					want[key]++
					w.do(a, Op{Kind: CIncrBy, Key: []byte(key), ID: fmt.Append(nil, i, ".", want[key]),
						Delta: 1})
				}
				if i%50 == 49 {
					must(t, a.s.Snapshot())
				}
				qs := w.pulls()
				switch w.rnd.IntN(8) {
				case 0: // some wait
					qs = slices.DeleteFunc(qs, func(Pull) bool { return w.rnd.IntN(2) == 0 })
				case 1: // one alone
					n := w.rnd.IntN(len(qs))
					qs = qs[n : n+1]
				}
				if len(qs) == 0 {
					continue
				}
				chance := []int{0, 0, 1, 5, 9}[w.rnd.IntN(5)]
				w.pullAll(qs, 1+w.rnd.IntN(1000), func(int) bool { return w.rnd.IntN(10) < chance })
			}
			for rounds := 0; w.pullAll(w.pulls(), 1000, never) > 0; rounds++ {
				if rounds > 1000 {
					t.Fatal("there is always something to be told")
				}
			}
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if v, _ := get(b.s, key); v != want[key] {
					t.Errorf("%s = %d instead of %d", key, v, want[key])
				}
			}
			if files, _ := a.s.db.Log().Sizes(); files > 5 {
				t.Errorf("%d files are kept of what was acknowledged", files)
			}
		})
	}
}

// TestPullAllOldestFirst: what is told first is what was done first, in whatever partition.
func TestPullAllOldestFirst(t *testing.T) {
	const keys = 200
	w := newTestRegions(t, 1, 8, 8)
	w.drain()
	a, b := w.r[0], w.r[1]
	for i := range keys {
		w.do(a, Op{Kind: IncrBy, Key: fmt.Append(nil, "k", i), Delta: 1})
	}
	rounds := 0
	for taken := 0; taken < keys; rounds++ {
		w.pullAll(w.pulls(), 500, never)
		before := taken
		for ; taken < keys; taken++ {
			if _, ok := get(b.s, fmt.Sprint("k", taken)); !ok {
				break
			}
		}
		for i := taken; i < keys; i++ {
			if _, ok := get(b.s, fmt.Sprint("k", i)); ok {
				t.Fatalf("operation %d is told before operation %d", i, taken)
			}
		}
		if taken == before {
			t.Fatalf("nothing is told behind operation %d", taken)
		}
	}
	if rounds < 5 {
		t.Errorf("only %d rounds", rounds)
	}
}

// TestPullAllOneBehind: one range that has to begin anew does not keep the others from going on.
func TestPullAllOneBehind(t *testing.T) {
	w := newTestRegions(t, 1, 8, 8)
	w.drain()
	a, b := w.r[0], w.r[1]
	write := func(n int) {
		for i := range n {
			w.do(a, Op{Kind: IncrBy, Key: fmt.Append(nil, "k", i%100), Delta: 1})
		}
	}
	write(1000)
	slow := 3 // it takes nothing
	for w.pullAll(slices.Delete(w.pulls(), slow, slow+1), 1000, never) > 0 {
	}
	write(100)
	for range 100 {
		if qs := w.pulls(); w.pullAll(qs, 300,
			func(i int) bool { return i == slow && w.rnd.IntN(4) > 0 }) == 0 {
			break
		}
	}
	for i, q := range w.pulls() {
		if newest := a.s.CommittedOf(q.Partition); q.After != newest {
			t.Errorf("range %d is taken up to %d of %d", i, q.After, newest)
		}
	}
	for i := range 100 {
		if v, _ := get(b.s, fmt.Sprint("k", i)); v != 11 {
			t.Fatalf("k%d = %d", i, v)
		}
	}
	// The acknowledged entries are gone. It says so if it is asked for them, and the others go on.
	must(t, a.s.Snapshot())
	w.pullAll(w.pulls(), 1000, never)
	for range 20 { // new files
		write(100)
		for w.pullAll(w.pulls(), 1000, never) > 0 {
		}
		must(t, a.s.Snapshot())
	}
	write(100)
	qs := w.pulls()
	p := a.s.partitions[qs[slow].Partition]
	p.lock()
	since := p.regions.since // so that it is the log that does not reach back
	p.mu.Unlock()
	if qs[slow].After == since {
		t.Fatal("nothing was taken")
	}
	qs[slow].After, qs[slow].Acked = since, since
	all, _ := a.s.PullAll(qs, 1<<20, false)
	for i, got := range all {
		if errors.Is(got.Err, ErrGap) != (i == slow) || i != slow && (got.Data == nil || got.Err != nil) {
			t.Errorf("range %d: %d bytes, %v", i, len(got.Data), got.Err)
		}
	}
}

// aPull is an answer to a pull, as it was encoded.
func aPull(t testing.TB, ops int) []byte {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	set := RegionSet{Group: 77, Members: []RegionMember{
		{Name: "a", Partitions: 1, Incarnation: s.Meta().Incarnation},
		{Region: 1, Name: "b", Partitions: 1, Incarnation: 1},
	}}
	must(t, s.SetRegions(set))
	since := s.CommittedOf(0)
	for i := range ops {
		must(t, cincr(s, fmt.Sprint("k", i%7), fmt.Sprint("op", i), 1).Err)
	}
	must(t, do(s, Op{Kind: Set, Key: []byte("k1"), Delta: 5}).Err)
	must(t, do(s, Op{Kind: Del, Keys: [][]byte{[]byte("k2")}}).Err)
	b, err := s.Pull(Pull{By: 1, Group: 77, Incarnation: s.Meta().Incarnation, Last: slots - 1, After: since})
	must(t, err)
	plain, err := Unpack(nil, b)
	must(t, err)
	return plain
}

// TestPacked: what is worth it travels packed, and comes out as it was; what says that it is far larger
// than what arrived is refused before memory is taken for it.
func TestPacked(t *testing.T) {
	plain := aPull(t, 200)
	packed := Pack(plain)
	if len(packed) > len(plain)*2/3 {
		t.Errorf("%d bytes are packed as %d", len(plain), len(packed))
	}
	for _, b := range [][]byte{plain, packed, Pack(plain[:20]), Pack(make([]byte, 1<<20))} {
		again, err := Unpack(nil, b)
		if err != nil || b[0] == packedVersion && !bytes.Equal(again, plain) {
			t.Errorf("%d bytes come out as %d, %v", len(b), len(again), err)
		}
	}
	if b := Pack(make([]byte, 1<<20)); b[0] == packedVersion {
		t.Errorf("a megabyte is packed as %d bytes", len(b))
	}
	for _, b := range [][]byte{
		{packedVersion}, packed[:len(packed)-1],
		append([]byte{packedVersion}, s2.Encode(nil, make([]byte, 1<<20))...),
		append([]byte{packedVersion}, s2.Encode(nil, packed)...), // packed twice
	} {
		if _, err := decodePulled(b, new(pulledMemory)); !errors.Is(err, ErrPulled) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	bomb := binary.AppendUvarint([]byte{packedVersion}, maxPulled)
	bomb = append(bomb, make([]byte, 1000)...)
	if n := testing.AllocsPerRun(10, func() { _, _ = Unpack(nil, bomb) }); n > 0 {
		t.Errorf("%v allocations for what cannot be", n)
	}
}

// FuzzPulled: whatever a region answers is refused, or is encoded as this region would.
func FuzzPulled(f *testing.F) {
	plain := aPull(f, 20)
	f.Add(plain)
	f.Add(Pack(plain))
	for _, page := range takePages(f) {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodePulled(b, new(pulledMemory))
		if err != nil {
			if !errors.Is(err, ErrPulled) {
				t.Fatal(err)
			}
			return
		}
		if b, err = Unpack(nil, b); err != nil || !bytes.Equal(d.appendTo(nil), b) {
			t.Fatalf("%x is read, and is written as %x: %v", b, d.appendTo(nil), err)
		}
	})
}

// TestEntriesBetween: a jump of sequences, as an heir's, is not as many entries.
func TestEntriesBetween(t *testing.T) {
	const jump = 1 << incarnationBits
	for _, c := range [][3]uint64{{0, 0, 0}, {3, 9, 6}, {9, 3, 0}, {jump - 1, jump, 1}, {5, jump, 1}, {5,
		jump + 7, 7}, {jump + 3, jump + 7, 4}} {
		if got := EntriesBetween(c[0], c[1]); got != c[2] {
			t.Errorf("between %d and %d there are %d, and not %d", c[0], c[1], got, c[2])
		}
	}
}
