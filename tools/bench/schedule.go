package main

import "math"

// schedule says when the operations of an open loop are due: at equal intervals, whether or not the
// server keeps up. Its zero value is a closed loop, in which the replies set the pace.
type schedule struct {
	start    int64   // when operation 0 is due, ns of the run's clock
	interval float64 // ns between two operations; 0 for a closed loop
	next     int64   // the first operation not yet sent
}

func (s *schedule) open() bool { return s.interval > 0 }

// at is when an operation is due.
func (s *schedule) at(i int64) int64 { return s.start + int64(float64(i)*s.interval) }

// due is how many operations are due and not sent, at most limit.
func (s *schedule) due(now int64, limit int) int {
	n := int64(math.Floor(float64(now-s.start)/s.interval)) + 1 - s.next
	return int(min(max(n, 0), int64(limit)))
}

// take hands out the places of n operations and returns the first.
func (s *schedule) take(n int) int64 {
	s.next += int64(n)
	return s.next - int64(n)
}

// sendGrain is the shortest time between two rings of an open loop's timer, ns. Each ring costs a switch to the generator's
// thread, several times what the operation costs that it is for, and takes that time from the server if both share a
// processor. Operations that fall due within a grain are sent together at its end, or with what a reply wakes the
// thread for; their latencies count from when they were due.
const sendGrain = 100_000
