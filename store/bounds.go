package store

import (
	"fmt"
	"math"
)

// Bounds. An operation has bounds of its own (LBOUND, UBOUND), and its table may have some (MIN, MAX).
// Both are judged on the value that the counter would have. A refusal changes nothing, and consumes no
// opid (G6).
//
// A table's bounds are judged in the direction of the change alone: the upper one if the value rises,
// the lower one if it falls. So a counter that ALTER has left outside of them can come back.

// Bound is a bound of all counters of a table. The zero value is none.
type Bound struct {
	N   int64
	Set bool
}

// BoundError says that an operation would have taken a counter beyond a bound. It is ErrBound.
type BoundError struct {
	Key          string
	Value, Bound int64
	Above        bool // the bound is an upper one
}

// Error names the key and the bound.
func (b *BoundError) Error() string {
	side := "below"
	if b.Above {
		side = "above"
	}
	return fmt.Sprintf("key %q would become %d, %s %d", b.Key, b.Value, side, b.Bound)
}

// Is makes errors.Is find ErrBound.
func (b *BoundError) Is(target error) bool { return target == ErrBound }

// bounds are two bounds, the lower and the upper one.
type bounds struct{ lower, upper int64 }

var noBounds = bounds{math.MinInt64, math.MaxInt64}

// check reports whether a value lies within bounds: nil or a BoundError.
func (b bounds) check(key []byte, value int64) error {
	switch {
	case value < b.lower:
		return &BoundError{Key: string(key), Value: value, Bound: b.lower}
	case value > b.upper:
		return &BoundError{Key: string(key), Value: value, Bound: b.upper, Above: true}
	}
	return nil
}

// boundsOfTable returns the bounds that the table of a key sets to a change of its counter's value. A bound
// beyond which the value lies already does not bind a change that brings it nearer.
func (r *ref) boundsOfTable(value int64) bounds {
	b := noBounds
	if !r.p.catalog.bounded {
		return b
	}
	d := r.p.catalog.find(r.key)
	if d.Min.Set {
		b.lower = min(d.Min.N, value)
	}
	if d.Max.Set {
		b.upper = max(d.Max.N, value)
	}
	return b
}

// ownBounds returns the bounds of the i-th key of an operation.
func (op *Op) ownBounds(i int) bounds {
	switch n := len(op.Deltas); {
	case op.Kind == CMIncrBy && n == 3*len(op.Keys):
		return bounds{op.Deltas[len(op.Keys)+2*i], op.Deltas[len(op.Keys)+2*i+1]}
	case op.Kind != CMIncrBy && n == 2:
		return bounds{op.Deltas[0], op.Deltas[1]}
	}
	return noBounds
}

// valueOf returns the value of the counter that the ref is about: 0 if there is none.
func (x *turn) valueOf(r *ref) int64 {
	if r.c.kind != TypeCounter || !r.c.alive(x.wall) {
		return 0
	}
	return r.c.value
}

// checkBounds refuses to give a counter another value if that is beyond a bound of its table, or beyond
// own ones, the operation's.
func (x *turn) checkBounds(r *ref, next int64, own bounds) error {
	if own != noBounds {
		if err := own.check(r.key, next); err != nil {
			return err
		}
	}
	if !r.p.catalog.bounded {
		return nil
	}
	err := r.boundsOfTable(x.valueOf(r)).check(r.key, next)
	if b, beyond := err.(*BoundError); beyond { // the counter may lie outside of the table's
		d := r.p.catalog.find(r.key)
		if b.Bound = d.Min.N; b.Above {
			b.Bound = d.Max.N
		}
	}
	return err
}
