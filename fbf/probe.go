package fbf

// probes are the lines of one id in one segment, and its bits in each,
// complemented (all other bits set).
type probes struct {
	at   [maxProbes]uint64
	mask [maxProbes]uint64
}

// The probe hash of strip i is one 64-bit word: the upper 32 bits choose the
// line by multiply-shift, the lower 30 hold five bit positions of six bits.
const (
	lineShift = 32
)

// all is a lane word whose every probed bit is set.
const all = ^uint64(0)

// probeHash is the probe hash of h in strip i.
func probeHash(h uint64, i int) uint64 {
	k := &probeKeys[i&(maxProbes-1)]
	return mum(h^k[0], k[1])
}

// place is the line chosen within a strip.
func place(x, strip uint64) uint64 { return (x >> lineShift) * strip >> lineShift }

// without is the complement of the bits of x. The fifth position is read at
// shift fifth: 24, or for J = 4 it is 0, which repeats the first.
func without(x uint64, fifth uint8) uint64 {
	return ^(1<<(x&63) | 1<<(x>>6&63) | 1<<(x>>12&63) | 1<<(x>>18&63) | 1<<(x>>(fifth&63)&63))
}

// locate finds the lines and bits of h.
func (s *segment) locate(h uint64, p *probes) {
	base := uint64(0)
	for i := 0; i < s.s && i < maxProbes; i++ {
		x := probeHash(h, i)
		p.at[i] = base + place(x, s.strip)
		p.mask[i] = without(x, s.fifth)
		base += s.strip
	}
}

// probe locates h and returns the generations that contain it. All S lines
// are read whatever they hold: a branch on the data of one before the others are
// requested would serialise the cache misses. The paths by S are locate and
// located in one, which is worth a tenth of the time.
func (s *segment) probe(h uint64, p *probes) uint8 {
	if s.r == 2 {
		s.locate(h, p)
		return s.match(p)
	}
	switch s.s {
	case 2:
		return s.probe2(h, p, 0) & s.query
	case 3:
		return s.probe3(h, p, 0) & s.query
	case 4:
		return s.probe4(h, p, 0) & s.query
	case 5:
		return s.probe3(h, p, 0) & s.probe2(h, p, 3) & s.query
	case 6:
		return s.probe3(h, p, 0) & s.probe3(h, p, 3) & s.query
	case 7:
		return s.probe4(h, p, 0) & s.probe3(h, p, 4) & s.query
	case 8:
		return s.probe4(h, p, 0) & s.probe4(h, p, 4) & s.query
	}
	s.locate(h, p)
	return s.match(p)
}

// probe2 is probe for the 2 strips from the i-th on.
func (s *segment) probe2(h uint64, p *probes, i int) uint8 {
	k, at, mask := probeKeys[i:], p.at[i:], p.mask[i:]
	_, _, _ = k[1], at[1], mask[1]
	strip, fifth, lines := s.strip, s.fifth, s.lines
	base := uint64(i) * strip
	x0, x1 := mum(h^k[0][0], k[0][1]), mum(h^k[1][0], k[1][1])
	at[0] = base + place(x0, strip)
	at[1] = base + strip + place(x1, strip)
	m0, m1 := without(x0, fifth), without(x1, fifth)
	mask[0], mask[1] = m0, m1
	return hits2(&lines[at[0]], &lines[at[1]], m0, m1)
}

// probe3 is probe for the 3 strips from the i-th on.
func (s *segment) probe3(h uint64, p *probes, i int) uint8 {
	k, at, mask := probeKeys[i:], p.at[i:], p.mask[i:]
	_, _, _ = k[2], at[2], mask[2]
	strip, fifth, lines := s.strip, s.fifth, s.lines
	base := uint64(i) * strip
	x0, x1, x2 := mum(h^k[0][0], k[0][1]), mum(h^k[1][0], k[1][1]), mum(h^k[2][0], k[2][1])
	at[0] = base + place(x0, strip)
	at[1] = base + strip + place(x1, strip)
	at[2] = base + 2*strip + place(x2, strip)
	m0, m1, m2 := without(x0, fifth), without(x1, fifth), without(x2, fifth)
	mask[0], mask[1], mask[2] = m0, m1, m2
	return hits3(&lines[at[0]], &lines[at[1]], &lines[at[2]], m0, m1, m2)
}

// probe4 is probe for the 4 strips from the i-th on.
func (s *segment) probe4(h uint64, p *probes, i int) uint8 {
	k, at, mask := probeKeys[i:], p.at[i:], p.mask[i:]
	_, _, _ = k[3], at[3], mask[3]
	strip, fifth, lines := s.strip, s.fifth, s.lines
	base := uint64(i) * strip
	x0, x1, x2, x3 := mum(h^k[0][0], k[0][1]), mum(h^k[1][0], k[1][1]), mum(h^k[2][0], k[2][1]), mum(h^k[3][0], k[3][1])
	at[0] = base + place(x0, strip)
	at[1] = base + strip + place(x1, strip)
	at[2] = base + 2*strip + place(x2, strip)
	at[3] = base + 3*strip + place(x3, strip)
	m0, m1, m2, m3 := without(x0, fifth), without(x1, fifth), without(x2, fifth), without(x3, fifth)
	mask[0], mask[1], mask[2], mask[3] = m0, m1, m2, m3
	if s.cached {
		// A new id is nearly always told by two lines, and no miss is serialised.
		r := hits2(&lines[at[0]], &lines[at[1]], m0, m1)
		if r != 0 {
			r &= hits2(&lines[at[2]], &lines[at[3]], m2, m3)
		}
		return r
	}
	return hits4(&lines[at[0]], &lines[at[1]], &lines[at[2]], &lines[at[3]], m0, m1, m2, m3)
}
