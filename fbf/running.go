package fbf

import (
	"sync/atomic"
	"time"
)

const (
	// LongestStep is the most by which one look at the clock advances a RunningTime.
	LongestStep = time.Second
	// LookPeriod is how often an owner looks at its clock at least, so that ids age
	// as fast in a filter that nobody uses as in a busy one.
	LookPeriod = LongestStep / 4
)

// RunningTime turns readings of a monotonic clock into the time for which the process
// has been running. The process did not run (SIGSTOP, a frozen container, a suspended
// machine) in a gap of more than LongestStep between two looks, or was too busy to tell:
// retries waited in its sockets, and their ids must not age. A RunningTime is safe for
// concurrent use; its zero value begins at 0.
type RunningTime struct {
	latest atomic.Int64 // what was told last
	lost   atomic.Int64 // how far the running time is behind the readings
}

// Look reads the clock, in ms since any moment before the first look, and returns the
// running time in ms, which never goes back.
func (r *RunningTime) Look(read func() int64) int64 {
	for {
		lost := r.lost.Load()
		reading := read()
		latest := r.latest.Load()
		running := reading - lost
		switch gap := running - latest - LongestStep.Milliseconds(); {
		case lost != r.lost.Load(): // somebody has found a gap meanwhile
		case running <= latest:
			return latest
		case gap > 0:
			r.lost.CompareAndSwap(lost, lost+gap)
		case r.latest.CompareAndSwap(latest, running):
			return running
		}
	}
}
