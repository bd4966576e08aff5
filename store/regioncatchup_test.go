package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestNotCaughtUp: until a region that joins others has taken their states, it refuses operations
// that it does not know, of which one of them may. Those that are gone it does not wait for.
func TestNotCaughtUp(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w := newTestRegionsWith(t, 1, false, 1, 4, 2)
		members := func(version uint64, joined ...uint64) (set RegionSet) {
			set = w.set(2)
			set.Version, set.Members = version, set.Members[:len(joined)]
			for i, n := range joined {
				set.Members[i].Joined = n
			}
			return set
		}
		learn := func(set RegionSet) {
			t.Helper()
			for i := range set.Members {
				set.Self = part.Region(i)
				must(t, w.r[i].s.SetRegions(set))
			}
		}
		refused := func(op Op, why string) {
			t.Helper()
			if !errors.Is(op.Err, ErrNotCaughtUp) || !strings.HasSuffix(op.Err.Error(), "("+why+")") ||
				op.Applied {
				t.Fatalf("%v, applied %v", op.Err, op.Applied)
			}
		}
		all, old, late := w.r, w.r[:2], w.r[2]
		w.r = old
		learn(members(1, 0, 1)) // the second one is a newcomer, too
		refused(cincr(old[1].s, "k", "early", 5), "region0")
		wantOp(t, cincr(old[0].s, "k", "x", 5), 5, true)
		wantOp(t, cincr(late.s, "own", "z", 1), 1, true) // it is alone
		w.drain()
		wantOp(t, cincr(old[1].s, "k", "early", 5), 10, true)
		w.drain()

		w.r = all
		learn(members(2, 0, 1, 2))
		wantOp(t, cincr(late.s, "own", "z", 1), 1, false) // known
		refused(cincr(late.s, "k", "x", 5), "region0")
		refused(do(late.s,
			Op{Kind: CIncrEx, Key: []byte("k"), ID: []byte("x"), Delta: 5, Deltas: []int64{0, 9}}), "region0")
		refused(do(late.s, Op{Kind: CMIncrBy, Keys: [][]byte{[]byte("k"), []byte("l")}, ID: []byte("x"),
			Deltas: []int64{1, 1}}), "region0")
		must(t, do(late.s, Op{Kind: IncrBy, Key: []byte("no opid"), Delta: 1}).Err)
		must(t, late.s.CreateTable(TableOptions{Name: "home", Prefix: "home:", Mode: Exact, Window: MinWindow,
			Regions: RegionsNone}))
		wantOp(t, cincr(late.s, "home:k", "x", 1), 1, true)
		wantOp(t, cincr(old[0].s, "k", "y", 1), 11, true) // was there before

		w.r = []*testRegion{old[0], late}
		w.drain()
		refused(cincr(late.s, "k", "new", 1), "region1")
		w.reopen(late)
		refused(cincr(late.s, "k", "new", 1), "region1")
		if gone {
			w.r = all
			set := members(2, 0, 1, 2)
			w.r = []*testRegion{old[0], late}
			set, err := set.Remove(0, 1)
			must(t, err)
			must(t, old[0].s.SetRegions(func() RegionSet { set.Self = 0; return set }()))
			set.Self = 2
			must(t, late.s.SetRegions(set))
		} else {
			w.r = []*testRegion{old[1], late}
			w.drain()
		}
		wantOp(t, cincr(late.s, "k", "x", 5), 5, false)
		for range 2 {
			for _, key := range []string{"k", "l", "m", "n"} { // in both partitions
				if op := cincr(late.s, key, fmt.Sprint("new", w.opids), 1); op.Err != nil || !op.Applied {
					t.Fatal(key, op.Err, op.Applied)
				}
			}
			w.opids++
			w.reopen(late) // and nobody is reached
		}
	}
}
