package fbf

// A filter of several segments checks nearly every new id by two lines of each:
// screen tells which segments those do not rule out, and only these are
// probed. The first two probe hashes are the same in all segments, so that
// a further segment costs little more than its two lines. Only the newest
// segment, which is going to be written, has all of its lines requested.

const (
	// screenLines is how many lines of a segment are looked at first. One generation in
	// some hundreds to thousands has all bits of an id in two lines by chance.
	screenLines = 2
	// screenMost is how many segments screen has bits for.
	screenMost = 64
)

// screenPlain is screen without a kernel.
func screenPlain(segs []*segment, h uint64) (suspects uint64) {
	x0, x1 := probeHash(h, 0), probeHash(h, 1)
	for i, s := range segs {
		if !s.screened || hits2(&s.lines[place(x0, s.strip)], &s.lines[s.strip+place(x1, s.strip)],
			without(x0, s.fifth), without(x1, s.fifth))&s.query != 0 {
			suspects |= 1 << (i & (screenMost - 1))
		}
	}
	return suspects
}

// touchPlain is touch without a kernel.
func touchPlain(segs []*segment, h uint64) {
	var p probes
	for i, s := range segs {
		n := s.s
		if s.screened && i < len(segs)-1 {
			n = screenLines
		}
		s.locateFirst(h, n, &p)
		s.prefetch(&p, n)
	}
}

// suspects returns a bit for each segment that may contain h. Of more segments than
// there are bits for, which only changes of policy leave behind, all may.
func (f *Filter) suspects(h uint64) uint64 {
	if len(f.segs) > screenMost {
		return all
	}
	return screen(f.segs, h)
}

// suspected reports whether segment i is among the suspects.
func suspected(suspects uint64, i int) bool { return suspects>>min(i, screenMost-1)&1 != 0 }

// confirm reports whether one of the suspects contains h, newest first: a
// retry follows its original soon.
func (f *Filter) confirm(h, suspects uint64) bool {
	var p probes
	for i := len(f.segs) - 1; i >= 0; i-- {
		if suspected(suspects, i) && f.segs[i].probe(h, &p) != 0 {
			return true
		}
	}
	return false
}
