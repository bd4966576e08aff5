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
