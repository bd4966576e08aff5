package store

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestConflicts: regions that applied the same operations tell of the same conflicts, each once, in whatever
// order they hear of them; the last ones are remembered.
func TestConflicts(t *testing.T) {
	w := newTestRegions(t, 1, 1, 2, 1)
	w.drain() // from now on they read each other's log
	long := strings.Repeat("k", 300)
	for _, key := range []string{"k", long} {
		for i, r := range w.r[:2] {
			wantOp(t, cincr(r.s, key, "twin", int64(5+i)), int64(5+i), true)
			cincr(r.s, key, fmt.Sprint("only here ", i), 1)
		}
	}
	w.drain()
	for _, r := range w.r {
		all := r.s.Conflicts()
		info, err := r.s.TableInfo(DefaultTable)
		must(t, err)
		if len(all) != 2 || info.Twins != 2 {
			t.Fatalf("region %d: %+v, and %d in the table", r.n, all, info.Twins)
		}
		for _, c := range all {
			if c.Winner+c.Loser != 1 || c.Delta != 5+int64(c.Loser) || c.ID != "twin" || c.Applied == 0 ||
				c.Met == 0 || c.Key != "k" && c.Key != long[:maxConflictKey]+"…" {
				t.Errorf("region %d: %+v", r.n, c)
			}
			if v, _ := get(r.s, "k"); v != 2+5+int64(c.Winner) {
				t.Errorf("region %d takes back %d, and k is %d", r.n, c.Delta, v)
			}
			if first := w.r[0].s.Conflicts()[0]; first.Winner != c.Winner {
				t.Errorf("%+v for one region, and %+v for another", first, c)
			}
		}
	}
	var ring conflicts
	for i := range 25 {
		ring.add(MaxConflicts/10, Conflict{Delta: int64(i)})
	}
	var last []int64
	for i := range ring.ring {
		last = append(last, ring.ring[(ring.next+i)%len(ring.ring)].Delta)
	}
	if want := []int64{15, 16, 17, 18, 19, 20, 21, 22, 23, 24}; !reflect.DeepEqual(last, want) {
		t.Errorf("%v are remembered, and not %v", last, want)
	}
}
