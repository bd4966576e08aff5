//go:build !amd64 || purego

package fbf

// hasKernel: there is none for this processor.
const hasKernel = false

// probe locates h and returns the generations that contain it.
func (s *segment) probe(h uint64, p *probes) uint8 { return s.probePlain(h, p) }

// request locates h and asks for its lines, without waiting for them.
func (s *segment) request(h uint64, p *probes) { s.requestPlain(h, p) }

// located returns the generations that contain an id already located.
func (s *segment) located(p *probes) uint8 { return s.match(p) }

// screen returns a bit for each of at most screenMost segments which the first
// two lines of h do not show to be without it (G1: one that contains it is among them).
func screen(segs []*segment, h uint64) uint64 { return screenPlain(segs, h) }

// touch asks for the lines that the check and the insert of a new h need, without
// waiting for them: the first two of every segment, and all of the newest.
func touch(segs []*segment, h uint64) { touchPlain(segs, h) }
