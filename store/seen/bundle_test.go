package seen

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// TestRecentFind adds records and asks for those before, seldom or often: each
// is found whether it is in the index or not, what was never added is not, and
// only who asks often makes an index.
func TestRecentFind(t *testing.T) {
	const n = 2*headPage + firstHeadPage + 1
	for _, tc := range []struct {
		name    string
		asks    func(i int) int // after the i-th record
		indexed bool
	}{
		{"after each", func(int) int { return 2 }, true},
		{"at the ends of pages", func(i int) int { return btoi(i%headPage <= firstHeadPage+1) }, true},
		{"at last, a few times", func(i int) int { return 8 * btoi(i == n-1) }, false},
		{"at last, often", func(i int) int { return 500 * btoi(i == n-1) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var rs Records
			key, ids, hashes := []byte("k"), make([][]byte, n), make([]uint64, n)
			for i := range n {
				ids[i], hashes[i] = fmt.Append(nil, "id", i), rng.Uint64()
				if i%100 == 1 { // heads do not tell these from those before
					hashes[i] = hashes[i-1] ^ 1
				}
				rs.Add(&Record{Table: 1, Hash: hashes[i], Seq: uint64(i), Key: key, ID: ids[i]})
				for range tc.asks(i) {
					for _, j := range [...]int{i, i &^ 1, rng.IntN(i + 1)} {
						if _, seq, _, ok := rs.Find(math.MinInt64, math.MaxInt64, hashes[j], key,
							ids[j]); !ok || seq != uint64(j) {
							t.Fatalf("after %d records: %d found %v, sequence %d", i+1, j, ok, seq)
						}
					}
					if _, _, _, ok := rs.Find(math.MinInt64, math.MaxInt64, hashes[i], key,
						[]byte("another")); ok {
						t.Fatal("an opid that was never added is found")
					}
				}
			}
			if x := &rs.bundles[0].index; x.count > 0 != tc.indexed {
				t.Errorf("%d of %d records are in the index", x.count, n)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestRecentIndexOverflows gives more records one place of the index than it has
// room behind its last: it grows until all are found.
func TestRecentIndexOverflows(t *testing.T) {
	var rs Records
	const n = 2 * overhang
	hash := func(i int) uint64 { return 0xff<<56 | uint64(i)<<48 }
	id := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	for i := range n {
		rs.Add(&Record{Table: 1, Hash: hash(i), Seq: uint64(i), Key: []byte("k"), ID: id(i)})
	}
	s := rs.bundles[0]
	s.index.update(s)
	if s.index.count != n {
		t.Fatalf("%d of %d records are in the index", s.index.count, n)
	}
	for i := range n {
		if b := s.index.find(s, hash(i), []byte("k"), id(i), new(int)); b == nil ||
			recordSeq(b) != uint64(i) {
			t.Errorf("record %d: found %x", i, b)
		}
	}
}

// TestRecentFindNewest: of the records of an opid that was used again after its
// window, the newest is found, in the index and outside.
func TestRecentFindNewest(t *testing.T) {
	for _, updates := range [][]int{{}, {3}, {1, 2, 3}, {1, 3}, {2}} {
		var rs Records
		for i := range 4 {
			for _, id := range []string{"a", "b", "c"} { // as if all had one hash
				rs.Add(&Record{Table: 1, Hash: 7 << 40, Seq: uint64(10*i) + uint64(id[0]), Key: []byte("k"),
					ID: []byte(id)})
			}
			if s := rs.bundles[0]; slices.Contains(updates, i) {
				s.index.update(s)
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			if _, seq, _, ok := rs.Find(math.MinInt64, math.MaxInt64, 7<<40, []byte("k"), []byte(id)); !ok ||
				seq != 30+uint64(id[0]) {
				t.Errorf("index updated after %v: %s found %v, sequence %d", updates, id, ok, seq)
			}
		}
	}
}

// TestRecentFindWithin: records of other times than those asked for are not looked
// through, those at its very ends are.
func TestRecentFindWithin(t *testing.T) {
	var rs Records
	for i := range int64(3) { // bundles of the times 10 to 12, 20 to 22, 30 to 32
		for j := range int64(3) {
			rs.Add(&Record{Table: 1, Hash: 7, Seq: uint64(10*i + j + 10), Logged: 10*i + j + 10,
				Key: []byte("k"), ID: []byte{byte(10*i + j + 10)}})
		}
		if i < 2 {
			rs.seal()
		}
	}
	for _, tc := range []struct {
		first, last int64
		id          byte
		found       bool
		asked       string
	}{
		{20, 22, 20, true, "010"}, {22, 22, 22, true, "010"}, {20, 20, 20, true, "010"},
		{13, 19, 12, false, "000"},
		{12, 30, 10, true, "111"}, {0, 10, 10, true, "100"}, {32, 99, 32, true, "001"},
		{0, 9, 10, false, "000"},
		{math.MaxInt64, math.MinInt64, 20, false, "000"}, {21, 21, 30, false, "010"},
	} {
		for _, s := range rs.bundles {
			s.index.scanned = 0
		}
		if _, _, _, ok := rs.Find(tc.first, tc.last, 7, []byte("k"), []byte{tc.id}); ok != tc.found {
			t.Errorf("%d to %d: record %d found %v", tc.first, tc.last, tc.id, ok)
		}
		asked := ""
		for _, s := range rs.bundles {
			asked += strconv.Itoa(min(s.index.scanned, 1))
		}
		if asked != tc.asked {
			t.Errorf("%d to %d: looked through %s, expected %s", tc.first, tc.last, asked, tc.asked)
		}
	}
}

// TestRecentFindSince: what was there before a mark is not found, all behind it is, in
// the bundle of the mark and in later ones, in the index or not.
func TestRecentFindSince(t *testing.T) {
	var rs Records
	marks := []mark{{}}
	for i := range 6 {
		rs.Add(&Record{Table: 1, Hash: 7, Seq: uint64(i), Key: []byte("k"), ID: []byte{byte(i)}})
		if i == 2 {
			s := rs.bundles[0]
			s.index.update(s)
			rs.seal()
		}
		rs.SetMark()
		marks = append(marks, rs.mark)
	}
	for n, m := range marks { // n records were there
		for i := range 6 {
			rs.mark = m
			if _, seq, _, ok := rs.FindSinceMark(7, []byte("k"), []byte{byte(i)}); ok != (i >= n) || ok &&
				seq != uint64(i) {
				t.Errorf("record %d, of those behind %d: found %v, sequence %d", i, n, ok, seq)
			}
		}
	}
}

// TestBundlesAreBounded: records that wait long for a run go on in another
// bundle before a location would no longer say where they are.
func TestBundlesAreBounded(t *testing.T) {
	var rs Records
	add := func(id string, seq uint64) {
		rs.Add(&Record{Table: 1, Hash: seq << 60, Seq: seq, Logged: int64(seq), Key: []byte("k"),
			ID: []byte(id)})
	}
	add("a", 1)
	full := rs.bundles[0]
	full.chunks = append(full.chunks, make([][]byte, maxChunks)...)
	add("b", 2)
	if len(rs.bundles) != 2 || full.count != 1 || full.lastSeq != 1 {
		t.Fatalf("%d bundles, of which the first holds %d records", len(rs.bundles), full.count)
	}
	for i, id := range []string{"a", "b"} {
		seq := uint64(i + 1)
		if _, got, _, ok := rs.Find(math.MinInt64, math.MaxInt64, seq<<60, []byte("k"), []byte(id)); !ok ||
			got != seq {
			t.Errorf("%s: found %v, sequence %d", id, ok, got)
		}
	}
	if sealed := rs.seal(); len(sealed) != 2 {
		t.Errorf("%d bundles are sealed", len(sealed))
	}
}

// BenchmarkRecents says what a record costs: to add, to enter the index, to look
// through its head, and to put it in the order of a run; of as many records as one
// of many partitions has, and one that has them all.
func BenchmarkRecents(b *testing.B) {
	for _, n := range []int{40_000, 800_000} {
		var rs Records
		r := Record{Table: 1, Packed: make([]byte, 36)}
		rng := rand.New(rand.NewPCG(1, 2))
		fill := func() {
			rs.seal()
			rs.release(len(rs.bundles))
			for i := range n {
				r.Hash, r.Seq = rng.Uint64(), uint64(1<<30+i)
				rs.Add(&r)
			}
		}
		run := func(what string, fn func()) {
			b.Run(fmt.Sprintf("%s/%d", what, n), func(b *testing.B) {
				for b.Loop() {
					fn()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
			})
		}
		fill()
		run("add", fill)
		run("index", func() {
			x := &rs.bundles[0].index
			x.recycle()
			x.update(rs.bundles[0])
		})
		run("scan", func() { rs.bundles[0].heads.findLast(0, 0, n) })
		scratch := new(Scratch)
		sealed := rs.seal()
		run("sort", func() {
			s := newSorter(scratch, sealed, 1, n)
			for entries, _ := s.next(); len(entries) > 0; {
				entries, _ = s.next()
			}
			s.close()
		})
	}
}
