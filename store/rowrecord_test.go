package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestRowMerger: of the entries of a key the last one stays, of keys whose hashes are
// the same each has its own, and deletions go where nothing older is left.
func TestRowMerger(t *testing.T) {
	type entry struct {
		hash, seq uint64
		row       rowRecord
	}
	at := func(hash, seq uint64, key string, value int64) entry {
		return entry{hash, seq, rowRecord{key: []byte(key), value: value, expire: value * 2}}
	}
	gone := func(hash, seq uint64, key string) entry {
		return entry{hash, seq, rowRecord{key: []byte(key), deleted: true}}
	}
	for _, c := range []struct {
		name   string
		in     []entry
		oldest bool
		want   string
	}{
		{"nothing", nil, false, ""},
		{"distinct", []entry{at(0, 1, "a", 1), at(2, 1, "b", -2)}, false, "0:1 a=1 2:1 b=-2"},
		{"overridden", []entry{at(5, 1, "a", 1), at(5, 3, "a", 2), at(5, 9, "a", 3), at(6, 2, "b", 1)}, false, "5:9 a=3 6:2 b=1"},
		{"twice the same", []entry{at(5, 1, "a", 1), at(5, 1, "a", 1)}, false, "5:1 a=1"},
		{"one hash", []entry{at(5, 1, "a", 1), at(5, 2, "b", 2), at(5, 3, "a", 3), at(5, 4, "c", 4)}, false, "5:2 b=2 5:3 a=3 5:4 c=4"},
		{"deleted", []entry{at(5, 1, "a", 1), gone(5, 2, "a"), at(6, 1, "b", 1)}, false, "5:2 a- 6:1 b=1"},
		{"deleted for good", []entry{at(5, 1, "a", 1), gone(5, 2, "a"), at(6, 1, "b", 1), gone(7, 1, "c")}, true, "6:1 b=1"},
		{"made again", []entry{gone(5, 2, "a"), at(5, 3, "a", 7)}, true, "5:3 a=7"},
		{"the empty key", []entry{at(5, 1, "", 1), at(5, 2, "x", 1)}, false, "5:1 =1 5:2 x=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			m := rowMerger{oldest: c.oldest, add: func(hash, seq uint64, value []byte) error {
				r, err := decodeRowRecord(value)
				must(t, err)
				text := fmt.Sprintf("%d:%d %s=%d", hash, seq, r.key, r.value)
				if r.deleted {
					text = fmt.Sprintf("%d:%d %s-", hash, seq, r.key)
				} else if r.expire != 2*r.value {
					t.Errorf("%s expires at %d", text, r.expire)
				}
				got = append(got, text)
				return nil
			}}
			value := make([]byte, 0, 64)
			for _, e := range c.in {
				value = e.row.appendTo(value[:0]) // the memory of the one before
				must(t, m.next(e.hash, e.seq, value))
			}
			must(t, m.flush())
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s, not %s", s, c.want)
			}
		})
	}
	m := rowMerger{}
	if err := m.next(1, 1, []byte{0, 2}); err == nil {
		err = m.flush()
		if err == nil {
			t.Error("half a row is merged")
		}
	}
}

// TestRowMergeRange: runs of one size are merged by fours, all once the younger ones
// have become half as much as the oldest, and their number stays small.
func TestRowMergeRange(t *testing.T) {
	for _, c := range []struct {
		counts   []uint64
		from, to int
	}{
		{nil, 0, 0},
		{[]uint64{100}, 0, 0},
		{[]uint64{100, 90}, 0, 0},
		{[]uint64{100, 30, 30}, 0, 0},
		{[]uint64{100, 30, 30, 30}, 0, 4},
		{[]uint64{10000, 30, 30, 30}, 0, 0},
		{[]uint64{10000, 30, 30, 30, 30}, 1, 5},
		{[]uint64{10000, 500, 30, 30, 30, 30}, 2, 6},
		{[]uint64{10000, 500, 400, 500, 30, 30, 30, 30}, 4, 8},
		{[]uint64{10000, 40, 30, 20, 30}, 1, 5},
		{[]uint64{10000, 300, 1, 300, 1, 300, 1}, 1, 6},
		{[]uint64{10000, 120, 120, 120, 30, 30, 30, 30}, 1, 8},
		{[]uint64{1000, 500, 300}, 0, 0},
	} {
		var runs []persistence.Run
		for _, n := range c.counts {
			runs = append(runs, persistence.Run{Count: n})
		}
		if from, to := rowMergeRange(runs); from != c.from || to != c.to {
			t.Errorf("%v: %d to %d, not %d to %d", c.counts, from, to, c.from, c.to)
		}
	}
	runs := []persistence.Run{{Count: 1 << 20}}
	most, rewritten := 0, uint64(0)
	const added = 2000
	for range added {
		runs = append(runs, persistence.Run{Count: 4096})
		for from, to := rowMergeRange(runs); from < to; from, to = rowMergeRange(runs) {
			sum := uint64(0)
			for _, r := range runs[from:to] {
				sum += r.Count
			}
			if from == 0 {
				sum = 1 << 20 // all keys are known: what is merged overrides
			}
			rewritten += sum
			runs = slices.Replace(runs, from, to, persistence.Run{Count: sum})
		}
		most = max(most, len(runs))
	}
	if most > 4*rowMergeFan || rewritten > 8*added*4096 {
		t.Errorf("%d runs, each row rewritten %.1f times", most, float64(rewritten)/(added*4096))
	}
}
