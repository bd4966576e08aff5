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

// Bound is a bound of all counters of a table, in steps of its scale. The zero value means that there is no
// bound.
type Bound struct {
	N   int64
	Set bool
	// Points, of a TableChange, say how N was written: Apply makes steps of it.
	Points Points `json:"-"`
}

// toSteps makes steps of a bound as it was written.
func (b *Bound) toSteps(scale uint8) (err error) {
	if b.Set {
		b.N, err = toSteps(b.N, b.Points, scale)
	}
	b.Points = 0
	return err
}

// BoundError says that an operation would have taken a counter beyond a bound. It is ErrBound.
type BoundError struct {
	Key          string
	Value, Bound int64
	Above        bool  // the bound is an upper one
	Scale        uint8 // of the key's table
}

// Error names the key and the bound.
func (b *BoundError) Error() string {
	side := "below"
	if b.Above {
		side = "above"
	}
	return fmt.Sprintf("key %q would become %s, %s %s", b.Key, decimal(b.Value, b.Scale), side,
		decimal(b.Bound, b.Scale))
}

// Is makes errors.Is find ErrBound.
func (b *BoundError) Is(target error) bool { return target == ErrBound }

// bounds are two bounds, the lower and the upper one.
type bounds struct{ lower, upper int64 }

var noBounds = bounds{math.MinInt64, math.MaxInt64}

// check refuses a value below the lower bound, and one above the upper bound.
func (b bounds) check(r *ref, low, high int64) error {
	e := BoundError{Value: low, Bound: b.lower}
	switch {
	case low < b.lower:
	case high > b.upper:
		e = BoundError{Value: high, Bound: b.upper, Above: true}
	default:
		return nil
	}
	e.Key, e.Scale = string(r.key), r.p.scaleOf(r.key)
	return &e
}

// side returns the bound that a change is judged by: the upper one if the value rises.
func (b bounds) side(rises bool) bounds {
	if rises {
		return bounds{math.MinInt64, b.upper}
	}
	return bounds{b.lower, math.MaxInt64}
}

// tableBounds returns the bounds of the table of a key.
func (p *machine) tableBounds(key []byte) bounds {
	b := noBounds
	if !p.catalog.bounded {
		return b
	}
	d := p.catalog.find(key)
	if d.Min.Set {
		b.lower = d.Min.N
	}
	if d.Max.Set {
		b.upper = d.Max.N
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
	if r.c.kind != TypeCounter || !x.alive(r) {
		return 0
	}
	return r.c.value
}

// heldOf returns what open holds set aside of a counter: more of it, and less.
func (x *turn) heldOf(r *ref) (up, down int64) {
	x.endDue(r.p)
	return r.p.holds.of(r.key)
}

// checkBounds refuses to change the value of a counter if that leads beyond a bound of its table, or beyond
// own ones, the operation's. Open holds count as if all of them were settled in full.
func (x *turn) checkBounds(r *ref, next int64, own bounds) error {
	table := r.p.tableBounds(r.key)
	if own == noBounds && table == noBounds {
		return nil
	}
	up, down := x.heldOf(r)
	low, high := addSaturated(next, down), addSaturated(next, up)
	if err := own.check(r, low, high); err != nil {
		return err
	}
	if value := x.valueOf(r); next != value {
		return table.side(next > value).check(r, low, high)
	}
	return nil
}

// checkValue refuses to overwrite the value of a counter with one that leads beyond a bound of its table.
// Holds do not count.
func (x *turn) checkValue(r *ref, next int64) error {
	if value := x.valueOf(r); next != value {
		return r.p.tableBounds(r.key).side(next > value).check(r, next, next)
	}
	return nil
}

// checkSide refuses what would be left of a counter with its holds, if it is beyond a bound on one side:
// of its table, or own ones.
func (x *turn) checkSide(r *ref, left int64, rises bool, own bounds) error {
	if err := own.side(rises).check(r, left, left); err != nil {
		return err
	}
	return r.p.tableBounds(r.key).side(rises).check(r, left, left)
}

// boundsFor returns the least and the largest value that an INCREX may give a counter. One that clips to
// bounds must not go back: holds take at most what is between the counter and the bound.
func (x *turn) boundsFor(r *ref, value int64, own bounds, clips bool) bounds {
	table := r.p.tableBounds(r.key)
	if own == noBounds && table == noBounds {
		return noBounds
	}
	up, down := x.heldOf(r)
	held := own.without(down, up)
	if clips {
		held.lower = max(own.lower, min(held.lower, value))
		held.upper = min(own.upper, max(held.upper, value))
	}
	table = table.without(down, up)
	return bounds{max(held.lower, min(table.lower, value)), min(held.upper, max(table.upper, value))}
}

// without returns bounds of the value alone, of which holds take a part: none stay none.
func (b bounds) without(down, up int64) bounds {
	if b.lower != math.MinInt64 {
		if down == math.MinInt64 { // which has no opposite
			b.lower, down = addSaturated(b.lower, 1), -math.MaxInt64
		}
		b.lower = addSaturated(b.lower, -down)
	}
	if b.upper != math.MaxInt64 {
		b.upper = addSaturated(b.upper, -up)
	}
	return b
}

// addSaturated adds two integers; a sum out of range is the nearest that there is.
func addSaturated(a, b int64) int64 {
	switch n, ok := sum(a, b); {
	case ok:
		return n
	case b > 0:
		return math.MaxInt64
	}
	return math.MinInt64
}
