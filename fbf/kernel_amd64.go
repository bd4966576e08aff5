//go:build !purego

package fbf

import "golang.org/x/sys/cpu"

// hasKernel reports whether this processor can run the kernels below: they do what
// probePlain, requestPlain, match, screenPlain and touchPlain do, for all eight
// lanes at once, and locate four lines at once. They must agree bit for bit, for an
// encoding may be read by another processor (G1).
var hasKernel = cpu.X86.HasAVX2 && cpu.X86.HasBMI2

// probeAVX2 is locate and match, without the mask of s.query.
//
//go:noescape
func probeAVX2(s *segment, h uint64, p *probes) uint8

// requestAVX2 is locate and prefetch.
//
//go:noescape
func requestAVX2(s *segment, h uint64, p *probes)

// locatedAVX2 is match, without the mask of s.query.
//
//go:noescape
func locatedAVX2(s *segment, p *probes) uint8

// probe locates h and returns the generations that contain it.
func (s *segment) probe(h uint64, p *probes) uint8 {
	if s.kernel {
		return probeAVX2(s, h, p) & s.query
	}
	return s.probePlain(h, p)
}

// request locates h and asks for its lines, without waiting for them.
func (s *segment) request(h uint64, p *probes) {
	if s.kernel {
		requestAVX2(s, h, p)
		return
	}
	s.requestPlain(h, p)
}

// located returns the generations that contain an id already located.
func (s *segment) located(p *probes) uint8 {
	if s.kernel {
		return locatedAVX2(s, p) & s.query
	}
	return s.match(p)
}

// screenAVX2 is screen.
//
//go:noescape
func screenAVX2(segs []*segment, h uint64) uint64

// touchBMI2 is touch.
//
//go:noescape
func touchBMI2(segs []*segment, h uint64)

// screen returns a bit for each of at most screenMost segments which the first
// two lines of h do not show to be without it (G1: one that contains it is among them).
func screen(segs []*segment, h uint64) uint64 {
	if hasKernel {
		return screenAVX2(segs, h)
	}
	return screenPlain(segs, h)
}

// touch asks for the lines that the check and the insert of a new h need, without
// waiting for them: the first two of every segment, and all of the newest.
func touch(segs []*segment, h uint64) {
	if hasKernel {
		touchBMI2(segs, h)
		return
	}
	touchPlain(segs, h)
}
