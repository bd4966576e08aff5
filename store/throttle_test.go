package store

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// gcra is the reference: the algorithm in its usual words, in exact numbers of any size.
type gcra struct{ tat *big.Int }

func (g *gcra) ask(now, burst, count, period, quantity int64) [5]int64 {
	n := func(v int64) *big.Int { return big.NewInt(v) }
	up := func(a, b *big.Int) *big.Int {
		return new(big.Int).Div(new(big.Int).Add(a, new(big.Int).Sub(b, n(1))), b)
	}
	interval := up(new(big.Int).Mul(n(period), n(1e6)), n(count))
	tolerance := new(big.Int).Mul(interval, n(burst+1))
	increment := new(big.Int).Mul(interval, n(quantity))
	tat := n(now)
	if g.tat != nil && g.tat.Cmp(tat) > 0 {
		tat = g.tat
	}
	next := new(big.Int).Add(tat, increment)
	allowAt := new(big.Int).Sub(next, tolerance)
	limited, retry, left := int64(0), int64(-1), new(big.Int).Sub(next, n(now))
	if allowAt.Cmp(n(now)) > 0 {
		limited, left = 1, new(big.Int).Sub(tat, n(now))
		if increment.Cmp(tolerance) <= 0 {
			retry = up(new(big.Int).Sub(allowAt, n(now)), n(1e6)).Int64()
		}
	} else if quantity > 0 {
		g.tat = next
	}
	remaining := new(big.Int).Div(new(big.Int).Sub(tolerance, left), interval)
	if remaining.Sign() < 0 {
		remaining = n(0)
	}
	return [5]int64{limited, burst + 1, remaining.Int64(), retry, up(left, n(1e6)).Int64()}
}

func throttled(key, id string, numbers ...int64) Op {
	op := Op{Kind: Throttle, Key: []byte(key), Deltas: numbers}
	if id != "" {
		op.Kind, op.ID = CThrottle, []byte(id)
	}
	return op
}

// TestThrottleVectors compares 100,000 random steps with the reference, some under ids, whose retries spend
// nothing and get their first answer; also across starts.
func TestThrottleVectors(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(24 * time.Hour), IDTime: ptr(IDTimeNone)}))
	rnd := rand.New(rand.NewPCG(3, 1))
	models, answers := make([]gcra, 30), map[string][]int64{}
	sent := map[string]Op{}
	var ids []string
	rates := [][3]int64{{0, 1, 1}, {2, 30, 60}, {9, 1000000, 1}, {3, 7, 60}, {1 << 40, 1, 1}, {5, 1, 3600}}
	for i := range 100_000 {
		k := rnd.IntN(len(models))
		rate := rates[k%len(rates)]
		wall, _ := clock.now()
		switch rnd.IntN(40) {
		case 0:
			clock.advance(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		case 1:
			if i%1000 == 0 {
				must(t, s.Close())
				s = testStore(t, with)
			}
		case 2, 3:
			if len(ids) > 0 {
				id := ids[rnd.IntN(len(ids))]
				op := do(s, sent[id])
				if op.Err != nil || op.Applied || !slices.Equal(op.Values, answers[id]) {
					t.Fatalf("a retry: %v, %v; want %v", op.Values, op.Err, answers[id])
				}
			}
		default:
			quantity, id := int64(rnd.IntN(4)), ""
			if rnd.IntN(3) == 0 {
				id = fmt.Sprint(i)
			}
			op := throttled(fmt.Sprint("k", k), id, rate[0], rate[1], rate[2], quantity)
			got := do(s, op)
			want := models[k].ask(wall*1000, rate[0], rate[1], rate[2], quantity)
			if got.Err != nil || !slices.Equal(got.Values, want[:]) {
				t.Fatalf("step %d, %v: %v, %v; want %v", i, op.Deltas, got.Values, got.Err, want)
			}
			if got.Applied && id != "" {
				ids, sent[id], answers[id] = append(ids, id), op, got.Values
			}
		}
	}
}

// TestThrottleExpires: the counter stays until its time has come, and goes at the next full second.
func TestThrottleExpires(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	clock.wall = 1_700_000_000_900
	for i, want := range []int64{1_700_000_001_000, 1_700_000_001_000, 1_700_000_002_000} {
		must(t, do(s, throttled("k", fmt.Sprint(i), 9, 20, 1, 1)).Err)
		if got := do(s, Op{Kind: ExpireTime, Key: []byte("k")}).Value; got != want {
			t.Errorf("after request %d it expires at %d, not %d", i, got, want)
		}
	}
}

// TestThrottleRefusals: what no throttle can be, and what its opid cannot be.
func TestThrottleRefusals(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, s.CreateTable(TableOptions{Name: "b", Prefix: "b:", Max: boundAt(1)}))
	must(t, s.CreateTable(TableOptions{Name: "own", Prefix: "own:", Regions: RegionsNone}))
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	must(t, do(s, throttled("k", "1", 1, 1, 60, 1)).Err)
	must(t, do(s, Op{Kind: Set, Key: []byte("most"), Delta: math.MaxInt64}).Err)
	for name, tc := range map[string]struct {
		op   Op
		want error
	}{
		"another rate":      {throttled("k", "1", 2, 1, 60, 1), ErrOtherThrottle},
		"an increment":      {Op{Kind: CIncrBy, Key: []byte("k"), ID: []byte("1"), Delta: 1}, ErrMismatch},
		"negative":          {throttled("k", "", -1, 1, 1, 1), ErrThrottleNumbers},
		"no count":          {throttled("k", "", 1, 0, 1, 1), ErrThrottleNumbers},
		"a rate too high":   {throttled("k", "", 1, 1000001, 1, 1), ErrThrottleRate},
		"a burst too large": {throttled("k", "", math.MaxInt64, 1, 1, 1), ErrThrottleBurst},
		"a long period":     {throttled("k", "", 1, 1, math.MaxInt64, 1), ErrThrottlePeriod},
		"a long interval":   {throttled("k", "", 0, 1, 1<<62/micros+1, 1), ErrThrottlePeriod},
		"bounds":            {throttled("b:k", "", 1, 1, 1, 1), ErrThrottleTable},
		"type":              {throttled("filter", "", 1, 1, 1, 1), ErrWrongType},
		"the last time":     {throttled("most", "", 1, 1, 1, 1), nil},
		"never":             {throttled("k", "", 1, 1, 1, math.MaxInt64), nil},
	} {
		before := s.Stats().Entries
		if op := do(s, tc.op); !errors.Is(op.Err, tc.want) {
			t.Errorf("%s: %v, %v, want %v", name, op.Values, op.Err, tc.want)
		}
		if after := s.Stats().Entries; after != before {
			t.Errorf("%s: logged %d entries", name, after-before)
		}
	}
	must(t, s.DropTable("b"))
	must(t, s.SetRegions(regionSet(true)))
	if err := do(s, throttled("k", "", 1, 1, 1, 1)).Err; !errors.Is(err, ErrThrottleTable) {
		t.Error(err)
	}
	must(t, do(s, throttled("own:k", "", 1, 1, 1, 1)).Err)
}
