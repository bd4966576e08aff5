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
