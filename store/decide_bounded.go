package store

import "math"

// Increments with bounds, an expiry or both: INCREX, and CINCRBY with an expiry. One
// that would take its counter out of bounds changes nothing and consumes no opid (G6),
// or is cut to what the bounds allow.

// checkBounds accepts no bounds, or two in order, and refuses all else.
func (op *Op) checkBounds() error {
	if n := len(op.Deltas); n != 0 && n != 2 || n == 2 && op.Deltas[0] > op.Deltas[1] {
		return ErrOption
	}
	return nil
}

// cIncrEx applies an idempotent bounded increment; its checks come in the
// order of cIncrBy's.
func (x *turn) cIncrEx(op *Op) error {
	r := &x.of(op)[0]
	if err := op.checkBounds(); err != nil {
		return err
	}
	r.judgeAgain(op.ID)
	if err := x.checkTime(op, r); err != nil {
		return err
	}
	if r.verdict != verdictNew {
		return x.duplicateEx(op, r)
	}
	if err := r.checkCaughtUp(); err != nil {
		return err
	}
	b, err := x.bounded(op, r)
	if err != nil {
		return err
	}
	if !b.applied {
		op.answer(b)
		return b.refusal
	}
	if err := x.makeRoom(r); err != nil {
		return err
	}
	x.expireFirst(r)
	e := x.applyEntry(op, r, op.Delta)
	e.setClipped(op.Delta, b)
	gone := x.expireEx(e, op, r)
	x.markReplaced(e, r)
	x.noteIncr(e, r, !gone && op.setsExpiry(r.c.expire))
	x.logApply(r, e)
	if gone {
		x.remove(r)
	}
	op.answer(b)
	r.t.figures.Applied++
	return nil
}

// withTTL makes the turn of an increment tell, if asked, how long its counter has left: now, also of a
// duplicate.
func withTTL(decide func(*turn, *Op) error) func(*turn, *Op) error {
	return func(x *turn, op *Op) error {
		err := decide(x, op)
		if err != nil || op.Flags&WithTTL == 0 {
			return err
		}
		left := int64(-1)
		if r := &x.of(op)[0]; r.c.expire != 0 && x.alive(r) {
			left = x.left(r)
		}
		op.Values = append(op.Values, left)
		return nil
	}
}

// duplicateEx answers a retry: in EXACT with the original value and increment,
// whatever the counter and the bounds are now. APPROX knows neither; what it
// remembers was within its bounds, so it answers the present value and the whole
// increment.
func (x *turn) duplicateEx(op *Op, r *ref) error {
	if err := x.duplicate(op, r); err != nil {
		return err
	}
	made := op.Delta
	if r.verdict == verdictSeen {
		made -= r.seen.Clip
	}
	op.Values = append(op.Values, made)
	return nil
}

// incrEx applies a bounded increment, every time.
func (x *turn) incrEx(op *Op) error {
	r := &x.of(op)[0]
	if err := op.checkBounds(); err != nil {
		return err
	}
	b, err := x.bounded(op, r)
	if err != nil {
		return err
	}
	op.answer(b)
	if !b.applied {
		return nil
	}
	x.expireFirst(r)
	e := entry{kind: entryIncr, key: r.key, c: r.c}
	e.setClipped(op.Delta, b)
	if x.expireEx(&e, op, r) {
		x.remove(r)
		return nil
	}
	x.markReplaced(&e, r)
	x.noteIncr(&e, r, op.setsExpiry(r.c.expire))
	x.log(r.p, &e)
	return nil
}

// boundedResult is what a bounded increment makes of a counter.
type boundedResult struct {
	value   int64 // of the counter afterwards
	made    int64 // the increment
	applied bool  // false: out of bounds, which leaves everything as it is
	refusal error // … and is an error, of an operation that is Strict
}

// setClipped fills in what a bounded increment was to add, and what it made.
func (e *entry) setClipped(delta int64, b boundedResult) {
	e.delta, e.value = delta, b.value
	if e.clip = delta - b.made; e.clip != 0 {
		e.flags |= flagClipped
	}
}

func (op *Op) answer(b boundedResult) {
	op.Value, op.Values, op.Applied = b.value, append(op.Values, b.made), b.applied
	op.Barred = !b.applied && op.Flags&Saturate == 0
}

// bounded computes what a bounded increment makes of a counter.
func (x *turn) bounded(op *Op, r *ref) (boundedResult, error) {
	if op.Flags&HasExpire != 0 {
		if err := r.refuseWhole(); err != nil {
			return boundedResult{}, err
		}
	}
	var value int64
	if x.alive(r) {
		if r.c.kind != TypeCounter {
			return boundedResult{}, ErrWrongType
		}
		value = r.c.value
	}
	if op.Flags&Strict != 0 || len(op.Deltas) == 0 {
		return x.strict(op, r, value)
	}
	own := op.ownBounds(0)
	if r.c.parts() != nil && (value < own.lower || value > own.upper) {
		r.p.beyond++
	}
	b := x.boundsFor(r, value, own, op.Flags&Saturate != 0)
	next, ok := within(value, op.Delta, b.lower, b.upper)
	if !ok && op.Flags&Saturate == 0 || b.lower > b.upper {
		return boundedResult{value: value}, nil
	}
	made := next - value
	if made >= 0 != (next >= value) {
		return boundedResult{}, ErrIncrementOverflow
	}
	if r.c.parts() != nil {
		if next, ok = x.total(r, made); !ok {
			return boundedResult{}, ErrOverflow
		}
	}
	if err := x.checkRights(r, made); err != nil {
		return boundedResult{}, err
	}
	return boundedResult{value: next, made: made, applied: true}, nil
}

// strict is bounded for an operation that an error refuses.
func (x *turn) strict(op *Op, r *ref, value int64) (boundedResult, error) {
	next, err := x.sumFor(r, op.Delta)
	if err != nil {
		return boundedResult{}, err
	}
	if err = x.checkBounds(r, next, op.ownBounds(0)); err == nil {
		if err := x.checkRights(r, op.Delta); err != nil {
			return boundedResult{}, err
		}
	}
	return boundedResult{value: next, made: op.Delta, applied: err == nil, refusal: err}, nil
}

// within adds delta to value; false if the sum is not within the bounds, or no
// 64-bit integer. It returns the sum, or the bound that it lies beyond.
func within(value, delta, lower, upper int64) (next int64, ok bool) {
	next, ok = sum(value, delta)
	switch {
	case ok:
	case delta > 0:
		next = math.MaxInt64
	default:
		next = math.MinInt64
	}
	if next < lower {
		return lower, false
	}
	if next > upper {
		return upper, false
	}
	return next, ok
}

// setsExpiry reports whether a bounded increment says itself when its counter expires, which
// expires at old.
func (op *Op) setsExpiry(old int64) bool {
	return op.Flags&NoExpire != 0 && old != 0 || op.Flags&HasExpire != 0 &&
		(op.Flags&IfNoExpire == 0 || old == 0)
}

// expireEx gives a post-image the expiry that a bounded increment asks for. It
// reports whether that is past already, so that the counter goes at once.
func (x *turn) expireEx(e *entry, op *Op, r *ref) (gone bool) {
	var old int64
	if x.alive(r) {
		old = r.c.expire
	}
	switch {
	case op.Flags&NoExpire != 0:
		return false
	case op.Flags&HasExpire == 0 || op.Flags&IfNoExpire != 0 && old != 0:
		e.setExpire(old)
		return false
	case op.ExpireAt <= x.wall:
		e.setExpire(old)
		return true
	}
	e.setExpire(op.ExpireAt)
	return false
}
