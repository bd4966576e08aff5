package store

import (
	"math"
	"testing"
	"time"
)

// openHold opens a hold that lasts a minute.
func openHold(t *testing.T, s *Store, clock *fakeClock, key, id string, amount int64) {
	t.Helper()
	wall, _ := clock.now()
	if op := do(s, Op{Kind: CHold, Key: []byte(key), ID: []byte(id), Delta: amount,
		ExpireAt: wall + time.Minute.Milliseconds()}); op.Err != nil {
		t.Fatalf("hold %s of %s: %v", id, key, op.Err)
	}
}

// TestHoldsMeetINCREX: holds narrow the bounds of INCREX up to the ends of the integers, and an increment
// that is clipped to them never goes back.
func TestHoldsMeetINCREX(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	for _, c := range []struct {
		key           string
		value, held   int64
		delta         int64
		bounds        [2]int64
		flags         Flags
		want, changed int64
	}{
		{"all that a decrement can take is held", 0, math.MinInt64, -1, [2]int64{-10, 10}, 0, 0, 0},
		{"the same, clipped", 0, math.MinInt64, -1, [2]int64{-10, 10}, Saturate, 0, 0},
		{"all that can be added is held", 0, math.MaxInt64, 1, [2]int64{-10, 10}, 0, 0, 0},
		{"down, and less is left than is held", 3, -5, -1, [2]int64{0, 100}, Saturate, 3, 0},
		{"up, and less is left than is held", 3, -5, 1, [2]int64{0, 100}, Saturate, 4, 1},
		{"up, and there is less room than is held", 3, 5, 1, [2]int64{0, 5}, Saturate, 3, 0},
		{"down, and there is less room than is held", 3, 5, -1, [2]int64{0, 5}, Saturate, 2, -1},
		{"up to what is held", 3, 5, 9, [2]int64{0, 10}, Saturate, 5, 2},
		{"down to what is held", 9, -5, -9, [2]int64{0, 10}, Saturate, 5, -4},
		{"beyond the bound itself", 7, 5, 1, [2]int64{0, 5}, Saturate, 5, -2},
	} {
		must(t, do(s, Op{Kind: Set, Key: []byte(c.key), Delta: c.value}).Err)
		openHold(t, s, clock, c.key, "hold", c.held)
		op := do(s, Op{Kind: IncrEx, Key: []byte(c.key), Delta: c.delta, Deltas: c.bounds[:], Flags: c.flags})
		if op.Err != nil || op.Value != c.want || len(op.Values) != 1 || op.Values[0] != c.changed {
			t.Errorf("%s: %d, %v, %v; want %d, [%d]", c.key, op.Value, op.Values, op.Err, c.want, c.changed)
		}
	}
}
