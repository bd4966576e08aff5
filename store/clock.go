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

// Logged time is each partition's own: it continues where the partition's log ends, so
// that downtime and steps of the wall clock age nothing. A partition that another node
// takes over brings its logged time with it, and ages none of the others' ids.

// startClocks lets the partitions' logged time run on from the last one that each has
// logged; in a new directory it begins at the wall time.
func (s *Store) startClocks() {
	wall, running := s.clock()
	for _, p := range s.partitions {
		logged := p.at.logged
		if p.seq == 0 {
			logged = wall
		}
		p.ahead = logged + 1 - running
	}
}

// moment returns a partition's time at a reading of the clock.
func (p *partition) moment(wall, running int64) moment {
	return moment{logged: p.ahead + running, wall: wall}
}

// at is when the batch is decided in a partition.
func (x *decider) at(p *partition) moment { return p.moment(x.wall, x.running) }
