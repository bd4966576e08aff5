package fbf

import "math/bits"

// probes are the lines of one id in one segment, and its bits in each,
// complemented (all other bits set). The first S of each are meant.
type probes struct {
	at   [maxProbes]uint64
	mask [maxProbes]uint64
}

// all is a lane word whose every probed bit is set.
const all = ^uint64(0)

// probeHash is the probe hash of h in strip i: the upper 32 bits choose the
// line by multiply-shift, the lower 30 hold five bit positions of six bits.
func probeHash(h uint64, i int) uint64 {
	k := &probeKeys[i&(maxProbes-1)]
	return mum(h^k[0], k[1])
}

// place is the line that probe hash x chooses within a strip.
func place(x, strip uint64) uint64 { return (x >> 32) * strip >> 32 }

// without is the complement of the bits of probe hash x. The fifth position is
// read at shift fifth: 24, or for J = 4 it is 0, which repeats the first.
func without(x, fifth uint64) uint64 {
	return ^(1<<(x&63) | 1<<(x>>6&63) | 1<<(x>>12&63) | 1<<(x>>18&63) | 1<<(x>>(fifth&63)&63))
}

// locate finds the lines and bits of h.
func (s *segment) locate(h uint64, p *probes) { s.locateFirst(h, s.s, p) }

// locateFirst is locate for the first n strips.
func (s *segment) locateFirst(h uint64, n int, p *probes) {
	base := uint64(0)
	for i := 0; i < n && i < maxProbes; i++ {
		x := probeHash(h, i)
		p.at[i] = base + place(x, s.strip)
		p.mask[i] = without(x, s.fifth)
		base += s.strip
	}
}

// requestPlain is request without a kernel.
func (s *segment) requestPlain(h uint64, p *probes) {
	s.locate(h, p)
	s.prefetch(p, s.s)
}

// probePlain is probe without a kernel. It asks for all S lines before it looks into any,
// for a branch on the data of one would serialise the cache misses.
func (s *segment) probePlain(h uint64, p *probes) uint8 {
	s.requestPlain(h, p)
	return s.match(p)
}

// match is located without a kernel. With two roles the first half of the lines is
// the future's, the second the present's.
func (s *segment) match(p *probes) uint8 {
	if s.r == 1 {
		return s.hits(p, 0, s.s) & s.query
	}
	future, present := s.hits(p, 0, s.s/2), s.hits(p, s.s/2, s.s)
	return present & bits.RotateLeft8(future, -1) & s.query
}

// hits is the set of lanes in which all lines from..to-1 of p have all their bits.
// Two lines nearly always tell a new id.
func (s *segment) hits(p *probes, from, to int) uint8 {
	r := ^uint8(0)
	for i := from; i < to && r != 0; i += 2 {
		j := min(i+1, to-1) // an odd last line is taken twice
		r &= hits2(&s.lines[p.at[i&7]], &s.lines[p.at[j&7]], p.mask[i&7], p.mask[j&7])
	}
	return r
}

// hits2 is the set of lanes in which both lines have all their bits: one AND
// per lane. It is unrolled because that is worth a third of the time.
func hits2(l0, l1 *line, m0, m1 uint64) (r uint8) {
	if (l0[0]|m0)&(l1[0]|m1) == all {
		r |= 1 << 0
	}
	if (l0[1]|m0)&(l1[1]|m1) == all {
		r |= 1 << 1
	}
	if (l0[2]|m0)&(l1[2]|m1) == all {
		r |= 1 << 2
	}
	if (l0[3]|m0)&(l1[3]|m1) == all {
		r |= 1 << 3
	}
	if (l0[4]|m0)&(l1[4]|m1) == all {
		r |= 1 << 4
	}
	if (l0[5]|m0)&(l1[5]|m1) == all {
		r |= 1 << 5
	}
	if (l0[6]|m0)&(l1[6]|m1) == all {
		r |= 1 << 6
	}
	if (l0[7]|m0)&(l1[7]|m1) == all {
		r |= 1 << 7
	}
	return r
}

// set writes the id into the present, and with two roles into the future. Each
// word is read anew when it is written: storing back what an earlier test
// read would lose bits.
func (s *segment) set(p *probes) {
	present := 0
	if s.r == 2 {
		present = s.s / 2
		s.write(p, 0, present, next(s.head))
	}
	s.write(p, present, s.s, s.head)
}

// write sets the bits of lines from..to-1 of p in one lane.
func (s *segment) write(p *probes, from, to int, lane uint8) {
	lines := s.lines
	for i := from; i < to; i++ {
		lines[p.at[i&7]][lane&7] |= ^p.mask[i&7]
	}
}
