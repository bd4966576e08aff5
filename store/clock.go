package store

import "time"

// A Clock tells the wall time, in unix milliseconds, and a monotonic time, in
// milliseconds since any fixed moment. The wall time may step; only STALE,
// EXPIRE and AT look at it.
type Clock func() (wall, mono int64)

// SystemClock returns the clock of the machine.
func SystemClock() Clock {
	start := time.Now()
	return func() (int64, int64) {
		now := time.Now()
		return now.UnixMilli(), now.Sub(start).Milliseconds()
	}
}

// moment is the time at which a batch is decided. It is written into the log,
// so that redoing needs no clock.
type moment struct {
	logged int64 // logged time, ms: ages ids; advances only while the server runs
	wall   int64 // unix ms
}

// loggedClock turns monotonic time into logged time: it continues where the
// log ends, so that downtime and steps of the wall clock age nothing.
type loggedClock struct {
	clock Clock
	base  int64 // logged time minus monotonic time
}

// startAt makes the present moment continue logged time at logged.
func (c *loggedClock) startAt(logged int64) {
	_, mono := c.clock()
	c.base = logged - mono
}

func (c *loggedClock) now() moment {
	wall, mono := c.clock()
	return moment{logged: c.base + mono, wall: wall}
}
