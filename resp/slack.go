package resp

// The sizes of the buffers of a connection, in bytes. Ten thousand idle clients
// hold minBuffer each; maxBuffer takes a pipeline of several hundred commands
// at once and is the most that a connection keeps after a larger request or
// reply.
const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10
)

// slack decides when a buffer gives memory back: at once when it is beyond
// maxBuffer, otherwise when slackRounds rounds in a row used less than a
// quarter of it, so that a steady load never allocates.
type slack struct {
	rounds int // since the last decision
	peak   int // most bytes used in one of them
}

// slackRounds is how long a buffer of moderate size may be larger than needed.
const slackRounds = 64

// fit returns the size that a buffer of the given size should have after a
// round in which used bytes of it were used.
func (s *slack) fit(size, used int) int {
	if size > maxBuffer {
		*s = slack{}
		return maxBuffer
	}
	s.peak = max(s.peak, used)
	if s.rounds++; s.rounds < slackRounds {
		return size
	}
	peak := s.peak
	*s = slack{}
	for size > minBuffer && peak < size/4 {
		size /= 2
	}
	return size
}
