package store

import (
	"time"

	"github.com/fbfkv/fbfkv/fbf"
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

// withoutPauses returns a clock whose running time leaves out the gaps in which the
// process did not run.
func withoutPauses(clock Clock) Clock {
	var running fbf.RunningTime
	return func() (wall, ran int64) {
		ran = running.Look(func() (reading int64) {
			wall, reading = clock()
			return reading
		})
		return wall, ran
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
