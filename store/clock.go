package store

import (
	"sync/atomic"
	"time"
)

// A Clock returns the wall time, in unix milliseconds, and the running time: for how
// many milliseconds the process has been running since some fixed moment. The wall
// time may step; only STALE, EXPIRE and AT use it. The running time ages ids.
type Clock func() (wall, running int64)

// SystemClock returns the clock of the machine.
func SystemClock() Clock {
	start := time.Now()
	return withoutPauses(func() (int64, int64) {
		now := time.Now()
		return now.UnixMilli(), now.Sub(start).Milliseconds()
	})
}

const (
	// longestStep is the most by which one look advances the running time, in
	// milliseconds. Who looks after a longer gap finds a process that did not run
	// meanwhile (SIGSTOP, a frozen container, a suspended machine), or one that was
	// too busy to tell: retries waited in its sockets, and their ids must not age.
	longestStep = 1000
	// lookPeriod is how often the store looks at its clock at least, so that an
	// idle one ages its ids as a busy one does.
	lookPeriod = 250 * time.Millisecond
)

// withoutPauses returns a clock whose running time advances with the given one's by
// at most longestStep a look, and never goes back, whoever looks at the same time.
func withoutPauses(clock Clock) Clock {
	var lost atomic.Int64   // how far the running time is behind the given one's
	var latest atomic.Int64 // what was told last
	_, first := clock()
	latest.Store(first)
	return func() (int64, int64) {
		for {
			behind := lost.Load()
			wall, time := clock()
			before := latest.Load()
			running := time - behind
			switch gap := running - before - longestStep; {
			case behind != lost.Load(): // somebody has found a gap meanwhile
			case running <= before:
				return wall, before
			case gap > 0:
				lost.CompareAndSwap(behind, behind+gap)
			case latest.CompareAndSwap(before, running):
				return wall, running
			}
		}
	}
}

// moment is the time at which a batch is decided. It is written into the log,
// so that redoing needs no clock.
type moment struct {
	logged int64 // logged time, ms: ages ids; advances only while the server runs
	wall   int64 // unix ms
}

// loggedClock turns running time into logged time: it continues where the
// log ends, so that downtime and steps of the wall clock age nothing.
type loggedClock struct {
	clock Clock
	base  int64 // logged time minus running time
}

// startAt makes the present moment continue logged time at logged.
func (c *loggedClock) startAt(logged int64) {
	_, running := c.clock()
	c.base = logged - running
}

func (c *loggedClock) now() moment {
	wall, running := c.clock()
	return moment{logged: c.base + running, wall: wall}
}
