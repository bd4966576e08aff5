package store

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Decimals. A counter of a table with SCALE n counts steps of 10^-n. All that the log, rows and records hold
// of it are steps, and so are the numbers of an Op once its turn has begun. Before, they are as they were
// written, since the parser does not know the table: an integer, and how many of its digits are behind the
// point.

// MaxScale is the largest SCALE of a table.
const MaxScale = 9

// Points says how a number was written: how many of its digits are behind the point, perhaps with Decimal.
// The zero value is of an integer as Redis writes it, which tables of every scale take.
type Points uint8

// Decimal marks a number that only a table with SCALE takes. More digits behind the point than MaxScale are
// MaxScale+1, and the number does not matter.
const Decimal Points = 1 << 7

// The refusals of decimals.
var (
	ErrNoDecimals = errors.New("value is not an integer or out of range: decimals need a table with SCALE " +
		"(CTABLE CREATE)")
	ErrNoFloat = errors.New("a counter holds a signed 64-bit integer only: in a table with SCALE it counts " +
		"decimals exactly (CTABLE CREATE)")
	ErrNotInteger  = errors.New("value is not an integer or out of range")
	ErrOutOfRange  = errors.New("value is out of range")
	ErrBoundsCross = errors.New("LBOUND can't be greater than UBOUND")
)

// pow10 are the powers of 10.
var pow10 = [MaxScale + 1]int64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// toSteps returns a number in steps of a scale.
func toSteps(n int64, points Points, scale uint8) (int64, error) {
	digits := uint8(points &^ Decimal)
	switch {
	case scale == 0 && points == Decimal: // such as 007, which Redis refuses
		return 0, ErrNotInteger
	case scale == 0 && points != 0:
		return 0, ErrNoDecimals
	case digits > scale:
		return 0, tooManyDecimals(scale)
	}
	f := pow10[scale-digits]
	if n > math.MaxInt64/f || n < math.MinInt64/f {
		return 0, fmt.Errorf("%w: with SCALE %d it is at most %s", ErrOutOfRange, scale,
			decimal(math.MaxInt64, scale))
	}
	return n * f, nil
}

func tooManyDecimals(scale uint8) error {
	if scale == 1 {
		return errors.New("at most 1 decimal")
	}
	return fmt.Errorf("at most %d decimals", scale)
}

// AppendDecimal appends a number of steps of a scale, without trailing zeros behind the point.
func AppendDecimal(dst []byte, steps int64, scale uint8) []byte {
	if scale == 0 {
		return strconv.AppendInt(dst, steps, 10)
	}
	n := uint64(steps)
	if steps < 0 {
		dst, n = append(dst, '-'), -n
	}
	f := uint64(pow10[scale])
	dst = strconv.AppendUint(dst, n/f, 10)
	rest := n % f
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.')
	for rest > 0 {
		f /= 10
		dst, rest = append(dst, byte('0'+rest/f)), rest%f
	}
	return dst
}

// decimal is AppendDecimal for a text.
func decimal(steps int64, scale uint8) string { return string(AppendDecimal(nil, steps, scale)) }

// scaleOf returns the SCALE of the table of a key.
func (p *machine) scaleOf(key []byte) uint8 {
	if !p.catalog.scaled {
		return 0
	}
	return p.catalog.find(key).Scale
}

// isScaled reports whether a table has a scale, or is about to change so that keys may not be written.
func (p *machine) isScaled() bool {
	return p.searched != nil || p.catalog != nil && (p.catalog.scaled || p.catalog.Coming != nil)
}

// scale makes the numbers of an operation steps of its tables' scales, which its reply is written in. It
// refuses a write to a key whose table is being changed (tablechange.go).
func (x *turn) scale(op *Op) error {
	if op.Kind.internal() {
		return nil
	}
	refs := x.of(op)
	for i := range refs {
		if r := &refs[i]; op.Kind.Write() && r.p.refuses(r.key) {
			return ErrTableChanging
		}
	}
	switch {
	case op.Kind == MGet || op.Kind == CMIncrBy || op.Kind == MSet:
		return op.scaleMany(refs)
	case len(refs) == 1:
		return op.scaleOne(refs[0].p.scaleOf(refs[0].key))
	}
	return nil
}

// scaleOne is scale of an operation on one counter.
func (op *Op) scaleOne(scale uint8) (err error) {
	op.Scale = scale
	if !op.Kind.has(amounts) {
		return nil
	}
	if scale == 0 && op.Flags&Float != 0 {
		return ErrNoFloat
	}
	if op.Delta, err = toSteps(op.Delta, op.Points[0], scale); err != nil || len(op.Deltas) != 2 {
		return err
	}
	return scaleBounds(op.Deltas, op.Points[1:], scale)
}

// scaleBounds makes two bounds steps. One that is not there stays so.
func scaleBounds(b []int64, points []Points, scale uint8) (err error) {
	if b[0] != math.MinInt64 {
		if b[0], err = toSteps(b[0], points[0], scale); err != nil {
			return err
		}
	}
	if b[1] != math.MaxInt64 {
		if b[1], err = toSteps(b[1], points[1], scale); err != nil {
			return err
		}
	}
	if b[0] > b[1] {
		return ErrBoundsCross
	}
	return nil
}

// scaleMany is scale of an operation on several counters, which may be of several tables.
func (op *Op) scaleMany(refs []ref) (err error) {
	of, _ := op.Object.([]Points)
	if n := len(refs); op.Kind != MGet && len(op.Deltas) != n && len(op.Deltas) != 3*n ||
		of != nil && len(of) != len(op.Deltas) {
		return ErrOption
	}
	if of == nil {
		of = make([]Points, len(op.Deltas))
	}
	scales := make([]uint8, len(refs))
	for i := range refs {
		s := refs[i].p.scaleOf(refs[i].key)
		if scales[i] = s; op.Kind == MGet {
			continue
		}
		if op.Deltas[i], err = toSteps(op.Deltas[i], of[i], s); err != nil {
			return err
		}
		if at := len(refs) + 2*i; len(op.Deltas) > len(refs) {
			if err = scaleBounds(op.Deltas[at:at+2], of[at:at+2], s); err != nil {
				return err
			}
		}
	}
	op.Object = scales
	return nil
}

// ScaleOf returns the scale of the i-th value of a reply about several counters.
func (op *Op) ScaleOf(i int) uint8 {
	if scales, ok := op.Object.([]uint8); ok {
		return scales[i]
	}
	return 0
}
