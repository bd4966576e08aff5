package main

import (
	"context"
	"fmt"
	"strconv"
)

// Verification compares counters with acknowledgements.
type Verification struct {
	Counters     int64
	Acknowledged int64  // operations that must have been counted once
	Wrong        int64  // counters that are not what they must be
	Over         int64  // counted too often, in all
	Under        int64  // not counted, in all
	Example      string // of a wrong counter
}

// Err says what is wrong, or returns nil.
func (v *Verification) Err() error {
	if v.Wrong == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d counters are wrong: %d operations counted too often, %d acknowledged and not counted; %s",
		v.Wrong, v.Counters, v.Over, v.Under, v.Example)
}

// readBatch is how many counters are read at once.
const readBatch = 1000

// readCounters reads every counter of the run; one that does not exist is 0.
func readCounters(ctx context.Context, o *options) ([]int64, error) {
	c := o.Target.client()
	defer c.Close()
	n := int(o.keys.count())
	digits := digitsFor(o.keys.count())
	all := make([]int64, n)
	for from := 0; from < n; from += readBatch {
		names := make([]string, min(readBatch, n-from))
		for i := range names {
			names[i] = keyName(o.KeyPrefix, uint32(from+i), digits)
		}
		values, err := c.MGet(ctx, names...).Result()
		if err != nil {
			return nil, fmt.Errorf("reading the counters: %w", err)
		}
		for i, v := range values {
			text, ok := v.(string)
			if !ok {
				continue
			}
			if all[from+i], err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, fmt.Errorf("%s is no counter: %w", names[i], err)
			}
		}
	}
	return all, nil
}

// verify reads the counters again and compares how far each went with the acknowledged operations.
func verify(ctx context.Context, o *options, before []int64, w *worker) (*Verification, error) {
	after, err := readCounters(ctx, o)
	if err != nil {
		return nil, err
	}
	v := &Verification{Counters: int64(len(after))}
	digits := digitsFor(o.keys.count())
	for i := range after {
		acked := int64(w.acked[i])
		v.Acknowledged += acked
		counted := after[i] - before[i]
		over, under := max(counted-acked, 0), max(acked-counted, 0)
		if over == 0 && under == 0 {
			continue
		}
		v.Wrong++
		v.Over += over
		v.Under += under
		v.Example = fmt.Sprintf("%s went from %d to %d; %d operations were acknowledged",
			keyName(o.KeyPrefix, uint32(i), digits), before[i], after[i], acked)
	}
	return v, nil
}
