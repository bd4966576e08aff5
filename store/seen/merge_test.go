package seen

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fbfkv/fbfkv/persistence"
)

// sliceSource yields entries from memory, some at a time, and then fails if it is to.
// The next call overwrites the yielded entries, as a file does.
type sliceSource struct {
	rest  []persistence.RunEntry
	some  int
	fail  error
	given []persistence.RunEntry
}

func (s *sliceSource) next() ([]persistence.RunEntry, error) {
	clear(s.given)
	if len(s.rest) == 0 {
		return nil, s.fail
	}
	n := min(s.some, len(s.rest))
	s.given = append(s.given[:0], s.rest[:n]...)
	s.rest = s.rest[n:]
	return s.given, nil
}

func (s *sliceSource) close() {}

func compareEntries(a, b persistence.RunEntry) int {
	return compareRecords(a.Hash, a.Seq, b.Hash, b.Seq)
}

// testMerge merges lists of (hash, seq), which it sorts first, and compares with what
// sorting all of them together yields. The first source that has an entry (failHash, seq)
// fails instead of going on behind it, if any has.
func testMerge(t *testing.T, lists [][][2]uint64, some int, failHash *uint64) {
	t.Helper()
	broken := errors.New("broken")
	var sources []source
	var want []persistence.RunEntry
	fails := false
	var failAt persistence.RunEntry
	for _, list := range lists {
		s := &sliceSource{some: some}
		for _, x := range list {
			s.rest = append(s.rest,
				persistence.RunEntry{Hash: x[0], Seq: x[1], Value: fmt.Appendf(nil, "%d/%d", x[0], x[1])})
		}
		slices.SortFunc(s.rest, compareEntries)
		s.rest = slices.CompactFunc(s.rest, func(a, b persistence.RunEntry) bool {
			return compareEntries(a, b) == 0
		})
		want = append(want, s.rest...)
		if at := slices.IndexFunc(s.rest, func(e persistence.RunEntry) bool {
			return failHash != nil && e.Hash == *failHash
		}); at >= 0 && !fails {
			fails, failAt, s.rest, s.fail = true, s.rest[at], s.rest[:at+1], broken
		}
		sources = append(sources, s)
	}
	slices.SortFunc(want, compareEntries)
	want = slices.CompactFunc(want, func(a, b persistence.RunEntry) bool { return compareEntries(a, b) == 0 })
	if fails { // nothing behind the last entry that all sources are known to have passed
		want = slices.DeleteFunc(want, func(e persistence.RunEntry) bool {
			return compareEntries(e, failAt) > 0
		})
	}
	n := 0
	err := mergeSources(sources, nil, func(hash, seq uint64, value []byte) error {
		if n == len(want) || want[n].Hash != hash || want[n].Seq != seq ||
			string(want[n].Value) != string(value) {
			t.Fatalf("entry %d: (%x, %d) %s", n, hash, seq, value)
		}
		n++
		return nil
	})
	if n != len(want) || errors.Is(err, broken) != fails || err != nil && !fails {
		t.Fatalf("%d entries instead of %d, %v", n, len(want), err)
	}
}

func TestMergeSources(t *testing.T) {
	none := [][2]uint64(nil)
	ends := [][2]uint64{{0, 0}, {0, math.MaxUint64}, {math.MaxUint64, 0}, {math.MaxUint64, math.MaxUint64}}
	for name, lists := range map[string][][][2]uint64{
		"no source":        nil,
		"empty":            {none, none},
		"one":              {ends},
		"the same twice":   {ends, ends},
		"empty among them": {none, ends, none, {{1, 1}}, none},
		"equal hashes":     {{{7, 1}, {7, 5}}, {{7, 2}, {7, 4}}, {{7, 3}, {7, 6}}},
		"one after another": {
			{{5, 1}, {6, 1}}, {{3, 1}, {4, 1}}, {{1, 1}, {2, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for some := 1; some <= 3; some++ {
				testMerge(t, lists, some, nil)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, hashes := range []uint64{1, 3, 100, math.MaxUint64} {
		for sources := range 34 {
			lists := make([][][2]uint64, sources)
			var fail uint64
			for i := range lists {
				for range rng.IntN(60) {
					fail = rng.Uint64N(hashes)
					lists[i] = append(lists[i], [2]uint64{fail, rng.Uint64N(50)})
				}
			}
			testMerge(t, lists, 1+rng.IntN(8), nil)
			testMerge(t, lists, 1+rng.IntN(8), &fail)
		}
	}
}

// TestMergeSourcesFails has the writer fail, and a source that has yielded nothing:
// the error is the merge's.
func TestMergeSourcesFails(t *testing.T) {
	full := errors.New("full")
	s := &sliceSource{some: 1, rest: []persistence.RunEntry{{Hash: 1}, {Hash: 2}, {Hash: 3}}}
	err := mergeSources([]source{s}, nil, func(hash, seq uint64, value []byte) error {
		if hash == 2 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || len(s.rest) != 1 {
		t.Fatal(err, len(s.rest))
	}
	none := func(hash, seq uint64, value []byte) error { t.Fatal("an entry"); return nil }
	if err := mergeSources([]source{s, &sliceSource{fail: full}}, nil, none); !errors.Is(err, full) {
		t.Fatal(err)
	}
}

// FuzzMergeSources makes sources of few hashes and sequences, so that many are equal.
func FuzzMergeSources(f *testing.F) {
	f.Add([]byte("\x00\x11\x22\x33\x11\x12"), byte(3), byte(1), false)
	f.Add([]byte("\xff\xff\x00\x00\x00\xff"), byte(17), byte(2), true)
	f.Fuzz(func(t *testing.T, b []byte, sources, some byte, fails bool) {
		lists := make([][][2]uint64, 1+sources%40)
		var fail *uint64
		for i, x := range b {
			hash := uint64(x>>4) * (math.MaxUint64 / 15)
			at := &lists[(i*i+int(x))%len(lists)]
			*at = append(*at, [2]uint64{hash, uint64(x & 15)})
			if fails {
				fail = &hash
			}
		}
		testMerge(t, lists, 1+int(some%9), fail)
	})
}
