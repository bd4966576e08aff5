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

// Logged time is each partition's own: it continues where the partition's log ends, so
// that downtime and steps of the wall clock age nothing. A partition that another node
// takes over brings its logged time with it, and ages none of the others' ids.

// startClock makes a partition ready to decide. Its logged time runs on from the last one that
// it has logged, or begins at the wall time. Wall time becomes no lower than the partition's
// last logged one. The partition is locked, or nobody else knows it yet.
func (s *Store) startClock(p *partition) {
	s.notBefore(p.at.wall)
	wall, running := s.look()
	logged := p.at.logged
	if p.seq == 0 {
		logged = wall
	}
	p.ahead = logged + 1 - running
}

// look reads the clock. Where wall time goes back, it returns the highest one that was read or
// logged, until the clock is there again: STALE operations stay STALE (G7), and expired keys do
// not come back. So a clock that was an hour ahead is followed by an
// hour in which no key expires, and in which operations with the right time are STALE.
func (s *Store) look() (wall, running int64) {
	wall, running = s.opts.Clock()
	return s.notBefore(wall), running
}

// notBefore makes wall time at least so high from now on, and returns what it is.
func (s *Store) notBefore(wall int64) int64 {
	for {
		highest := s.wall.Load()
		if wall <= highest {
			return highest
		}
		if s.wall.CompareAndSwap(highest, wall) {
			return wall
		}
	}
}

// isBehind is how far behind the highest wall time the clock must be to be told of, ms.
const isBehind = 1000

// checkClock tells when the clock was set back behind the highest wall time, and when it is
// there again. It is called now and then.
func (s *Store) checkClock(told *bool) {
	wall, _ := s.opts.Clock()
	behind := s.notBefore(wall) - wall
	switch late := behind > isBehind; {
	case late && !*told:
		s.log.Warn("the clock was set back to before times in the data: until it has caught up, no key "+
			"expires, and operations with its time are STALE",
			"behind_ms", behind, "until", time.UnixMilli(wall+behind).UTC())
	case !late && *told:
		s.log.Warn("the clock has caught up with the time at which it was set back")
	}
	*told = behind > isBehind
}

// WallTime returns the wall time by which operations are decided, in unix milliseconds.
// It never goes back: after the clock was set back, it stops until the clock is there again.
func (s *Store) WallTime() int64 {
	wall, _ := s.look()
	return wall
}
