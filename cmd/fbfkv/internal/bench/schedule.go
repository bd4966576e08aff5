package bench

import "math"

// schedule says when the operations of an open loop are due: at equal
// intervals, whether or not the server keeps up. Its zero value is a closed
// loop, in which the replies set the pace.
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
