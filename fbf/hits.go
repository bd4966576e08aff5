package fbf

// The inner loops of a check: one AND over lines per lane answers for all eight
// generations. They are unrolled because that is worth a third of the
// time; segment.match is the same in plain form, and the tests compare the two.

// hits2 is the set of lanes in which all of 2 lines have all their bits.
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

// hits3 is the set of lanes in which all of 3 lines have all their bits.
func hits3(l0, l1, l2 *line, m0, m1, m2 uint64) (r uint8) {
	if (l0[0]|m0)&(l1[0]|m1)&(l2[0]|m2) == all {
		r |= 1 << 0
	}
	if (l0[1]|m0)&(l1[1]|m1)&(l2[1]|m2) == all {
		r |= 1 << 1
	}
	if (l0[2]|m0)&(l1[2]|m1)&(l2[2]|m2) == all {
		r |= 1 << 2
	}
	if (l0[3]|m0)&(l1[3]|m1)&(l2[3]|m2) == all {
		r |= 1 << 3
	}
	if (l0[4]|m0)&(l1[4]|m1)&(l2[4]|m2) == all {
		r |= 1 << 4
	}
	if (l0[5]|m0)&(l1[5]|m1)&(l2[5]|m2) == all {
		r |= 1 << 5
	}
	if (l0[6]|m0)&(l1[6]|m1)&(l2[6]|m2) == all {
		r |= 1 << 6
	}
	if (l0[7]|m0)&(l1[7]|m1)&(l2[7]|m2) == all {
		r |= 1 << 7
	}
	return r
}

// hits4 is the set of lanes in which all of 4 lines have all their bits.
func hits4(l0, l1, l2, l3 *line, m0, m1, m2, m3 uint64) (r uint8) {
	if (l0[0]|m0)&(l1[0]|m1)&(l2[0]|m2)&(l3[0]|m3) == all {
		r |= 1 << 0
	}
	if (l0[1]|m0)&(l1[1]|m1)&(l2[1]|m2)&(l3[1]|m3) == all {
		r |= 1 << 1
	}
	if (l0[2]|m0)&(l1[2]|m1)&(l2[2]|m2)&(l3[2]|m3) == all {
		r |= 1 << 2
	}
	if (l0[3]|m0)&(l1[3]|m1)&(l2[3]|m2)&(l3[3]|m3) == all {
		r |= 1 << 3
	}
	if (l0[4]|m0)&(l1[4]|m1)&(l2[4]|m2)&(l3[4]|m3) == all {
		r |= 1 << 4
	}
	if (l0[5]|m0)&(l1[5]|m1)&(l2[5]|m2)&(l3[5]|m3) == all {
		r |= 1 << 5
	}
	if (l0[6]|m0)&(l1[6]|m1)&(l2[6]|m2)&(l3[6]|m3) == all {
		r |= 1 << 6
	}
	if (l0[7]|m0)&(l1[7]|m1)&(l2[7]|m2)&(l3[7]|m3) == all {
		r |= 1 << 7
	}
	return r
}

// located is the set of generations that contain an id already located. It is
// match by groups of two to four lines, unrolled; two roles take match itself.
func (s *segment) located(p *probes) uint8 {
	if s.r == 2 {
		return s.match(p)
	}
	switch s.s {
	case 2:
		return s.two(p, 0) & s.query
	case 3:
		return s.three(p, 0) & s.query
	case 4:
		return s.four(p, 0) & s.query
	case 5:
		return s.three(p, 0) & s.two(p, 3) & s.query
	case 6:
		return s.three(p, 0) & s.three(p, 3) & s.query
	case 7:
		return s.four(p, 0) & s.three(p, 4) & s.query
	case 8:
		return s.four(p, 0) & s.four(p, 4) & s.query
	}
	return s.match(p)
}

// two is the set of lanes that have all bits of lines i and i+1 of p; i is at most 4 here and below.
func (s *segment) two(p *probes, i int) uint8 {
	at, m := p.at[i&7:], p.mask[i&7:]
	_, _ = at[1], m[1]
	return hits2(&s.lines[at[0]], &s.lines[at[1]], m[0], m[1])
}

func (s *segment) three(p *probes, i int) uint8 {
	at, m := p.at[i&7:], p.mask[i&7:]
	_, _ = at[2], m[2]
	return hits3(&s.lines[at[0]], &s.lines[at[1]], &s.lines[at[2]], m[0], m[1], m[2])
}

func (s *segment) four(p *probes, i int) uint8 {
	at, m := p.at[i&7:], p.mask[i&7:]
	_, _ = at[3], m[3]
	return hits4(&s.lines[at[0]], &s.lines[at[1]], &s.lines[at[2]], &s.lines[at[3]], m[0], m[1], m[2], m[3])
}
