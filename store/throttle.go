package store

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store/seen"
)

// Throttle: the generic cell rate algorithm (GCRA), as in ITU-T I.371 and redis-cell. The counter holds the
// theoretical arrival time (TAT), unix microseconds, at which the rate is used up to no degree any more, and
// expires at the full second behind it. An operation moves it by its quantity of intervals, unless it would
// then be farther ahead of the clock than the burst allows.

// The refusals of a throttle.
var (
	ErrThrottleNumbers = errors.New("max_burst and quantity must be at least 0, count and period at least 1")
	ErrThrottleRate    = errors.New("count must be at most 1000000 for each second of period")
	ErrThrottleBurst   = errors.New("max_burst is too large for this rate")
	ErrThrottlePeriod  = errors.New("period is too long: at most 4611686018427 seconds for each of count")
	ErrThrottleTable   = errors.New("a throttle keeps a time, which has no SCALE, no MIN or MAX can bound, and no " +
		"region can add to its own: use a table without SCALE, MIN and MAX, in regions one with REGIONS NONE")
)

// micros is a second in microseconds.
const micros = 1_000_000

// throttle is the rate of a CThrottle; times are microseconds.
type throttle struct {
	interval  int64 // between two permits at the steady rate
	tolerance int64 // how far the TAT may be ahead of the clock
	limit     int64 // permits at once
	quantity  int64 // that the operation asks for
	print     int64 // a fingerprint of the rate, not 0
}

// throttleOf reads the numbers of a CThrottle.
func throttleOf(op *Op) (t throttle, err error) {
	if len(op.Deltas) != 4 {
		return t, ErrOption
	}
	burst, count, period, quantity := op.Deltas[0], op.Deltas[1], op.Deltas[2], op.Deltas[3]
	switch {
	case burst < 0 || count < 1 || period < 1 || quantity < 0:
		return t, ErrThrottleNumbers
	case period > math.MaxInt64/micros-1:
		return t, ErrThrottlePeriod
	case count > period*micros:
		return t, ErrThrottleRate
	}
	t.interval, t.limit, t.quantity = (period*micros-1)/count+1, burst+1, quantity
	const most = 1 << 62
	switch {
	case t.interval > most:
		return t, ErrThrottlePeriod
	case burst >= most/t.interval:
		return t, ErrThrottleBurst
	}
	t.tolerance = t.interval * t.limit
	var b [24]byte
	for i, n := range op.Deltas[:3] {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(n))
	}
	t.print = int64(xxhash.Sum64(b[:]) | 1)
	return t, nil
}

// spend returns the TAT behind the quantity, from another one and the clock, and whether that is let in.
func (t *throttle) spend(tat, now int64) (next int64, ok bool) {
	tat = max(tat, now)
	if t.quantity > t.limit {
		return tat, false
	}
	next = addSaturated(tat, t.interval*t.quantity)
	return next, next <= addSaturated(now, t.tolerance)
}

// reply answers five numbers at a TAT: whether it is limited, the limit, how many permits remain, and in how
// many seconds a retry can succeed and all permits are there again.
func (t *throttle) reply(op *Op, tat, now int64, limited bool) {
	full := max(tat-now, 0)
	answer := [5]int64{0, t.limit, max(t.tolerance-full, 0) / t.interval, -1, seconds(full)}
	if limited {
		answer[0] = 1
		if t.quantity <= t.limit {
			answer[3] = seconds(addSaturated(full, t.interval*t.quantity) - t.tolerance)
		}
	}
	op.Values = append(op.Values, answer[:]...)
}

// seconds rounds up.
func seconds(us int64) int64 { return (us + micros - 1) / micros }

// cThrottle lets an operation in, or not. A limited one changes nothing, and uses up no opid (G6).
func (x *turn) cThrottle(op *Op) error {
	r, now := &x.of(op)[0], x.wall*1000
	t, err := throttleOf(op)
	if err != nil {
		return err
	}
	if op.Kind == CThrottle {
		if known, err := x.knownThrottle(op, r, &t); known || err != nil {
			return err
		}
	}
	if r.p.tableBounds(r.key) != noBounds || r.p.scaleOf(r.key) > 0 || r.isShared() {
		return ErrThrottleTable
	}
	if err := x.checkType(r); err != nil {
		return err
	}
	tat := x.valueOf(r)
	next, ok := t.spend(tat, now)
	if !ok || t.quantity == 0 {
		t.reply(op, tat, now, !ok)
		return nil
	}
	e := &x.entry
	*e = entry{kind: entrySet, key: r.key, c: r.c}
	if op.Kind == CThrottle {
		if err := x.makeRoom(r); err != nil {
			return err
		}
		e = x.applyEntry(op, r, t.quantity)
		e.kind, e.clip, e.flags = entryThrottle, t.print, flagClipped
	}
	e.value = next
	e.setExpire(seconds(next) * 1000) // at a full second, so that it changes seldom
	x.markReplaced(e, r)
	if op.Kind == CThrottle {
		x.logApply(r, e)
		r.t.figures.Applied++
	} else {
		x.logKept(r.p, e)
	}
	t.reply(op, next, now, false)
	op.Applied = true
	return nil
}

// knownThrottle answers a retry of an operation that was let in as the first try was answered: the record has
// the TAT and the time.
// An APPROX table has no record, and answers what remains now.
func (x *turn) knownThrottle(op *Op, r *ref, t *throttle) (known bool, err error) {
	r.judgeAgain(op.ID)
	if err := x.checkTime(op, r); err != nil {
		return false, err
	}
	switch r.verdict {
	case verdictNew:
		return false, r.checkCaughtUp()
	case verdictSeen:
		r.t.figures.Duplicates++
		switch {
		case !r.seen.Is(seen.Throttle):
			return true, r.usedBy()
		case r.seen.Clip != t.print || r.seen.Delta != t.quantity:
			return true, ErrOtherThrottle
		}
		t.reply(op, r.seen.Result, r.seen.UnixMs*1000, false)
	default:
		r.t.figures.Duplicates++
		t.reply(op, x.valueOf(r), x.wall*1000, false)
	}
	return true, nil
}
