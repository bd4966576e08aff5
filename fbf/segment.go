package fbf

import "math/bits"

// line is one cache line: eight generations, one 64-bit word each.
type line = [lanes]uint64

// lane is what is known of one generation of one segment.
type lane struct {
	count  uint64 // ids inserted while it was the present
	start  int64  // logged time of the first
	newest int64  // of the newest
	expire int64  // the lane is needed until then: max of (time + window in force) over its inserts
}

// segment is one array of lines with its eight lanes. Only the newest segment
// of a filter takes inserts; the others answer checks until they have drained.
type segment struct {
	geometry
	id       uint32
	tag      uint8
	strip    uint64
	fifth    uint64 // shift of the fifth bit position in a probe hash; 0 when J is 4
	kernel   bool   // served by the kernels in assembly
	screened bool   // two of its lines can tell that an id is not in it
	opened   int64
	used     bool // opened by the controller or in use since, not merely for a Capacity hint
	mem      memory
	lines    []line

	head  uint8  // lane of the present
	live  uint8  // lanes that may answer yes
	dirty uint8  // lanes no longer live and not yet cleared
	query uint8  // lanes whose ids can be found: live, and with two roles, the next one is live too
	limit uint64 // ids after which the present generation must be sealed

	clearAt   uint64 // next line to be cleared in the lowest dirty lane
	clearStep uint64 // lines cleared per insert
	lanes     [lanes]lane
}

func bit(l uint8) uint8 { return 1 << (l & 7) }

func next(l uint8) uint8 { return (l + 1) & 7 }

func newSegment(g geometry, id uint32, tag uint8, strip, limit uint64, now int64) (*segment, error) {
	s := &segment{geometry: g, id: id, tag: tag, strip: strip, limit: limit, opened: now}
	var err error
	if s.mem, err = newMemory(g.lines(strip)); err != nil {
		return nil, err
	}
	s.lines = s.mem.lines
	s.live = bit(0)
	if g.r == 2 {
		s.live |= bit(1)
	}
	s.derive()
	return s, nil
}

// setQuery derives the lanes that may answer. With two roles an id of the
// period of lane p is in lane p as the present and in lane p+1 as what was
// then the future; the future has no period of its own yet.
func (s *segment) setQuery() {
	s.query = s.live
	if s.r == 2 {
		s.query = s.live & bits.RotateLeft8(s.live, -1) &^ bit(s.head+1)
	}
}

// derive sets what follows from the other fields.
func (s *segment) derive() {
	if s.fifth = 0; s.j == 5 {
		s.fifth = 24
	}
	s.kernel = hasKernel && s.r == 1
	s.screened = s.r == 1 && s.s >= screenLines
	s.setQuery()
	s.setClearStep()
}

// setClearStep spreads the clearing of a lane over a quarter of a generation's inserts.
func (s *segment) setClearStep() {
	n := s.geometry.lines(s.strip)
	s.clearStep = 4*n/max(1, s.limit) + 1
}

func (s *segment) bytes() uint64 { return s.geometry.lines(s.strip) * lineBytes }

// begin notes that the first insert of the present is at now.
func (s *segment) begin(now int64) {
	l := &s.lanes[s.head&7]
	l.start, l.newest = now, now
}

// note records an insert at now that must be recognised until expire.
func (s *segment) note(now, expire int64) {
	l := &s.lanes[s.head&7]
	l.count++
	l.newest = max(l.newest, now)
	l.expire = max(l.expire, expire)
	if s.r == 2 {
		f := &s.lanes[next(s.head)]
		f.expire = max(f.expire, expire)
	}
}

// clearSome clears up to n lines of dirty lanes. A large lane takes tens of milliseconds to clear at once.
func (s *segment) clearSome(n uint64) {
	for n > 0 && s.dirty != 0 {
		l := bits.TrailingZeros8(s.dirty)
		end := min(uint64(len(s.lines)), s.clearAt+n)
		part := s.lines[s.clearAt:end]
		for i := range part {
			part[i][l&7] = 0
		}
		n -= uint64(len(part))
		if s.clearAt = end; end == uint64(len(s.lines)) {
			s.dirty &^= 1 << l
			s.clearAt = 0
		}
	}
}

// clearLane makes lane l clean now.
func (s *segment) clearLane(l uint8) {
	if s.dirty&bit(l) == 0 {
		return
	}
	if bits.TrailingZeros8(s.dirty) == int(l) {
		s.clearAt = 0
	}
	for i := range s.lines {
		s.lines[i][l&7] = 0
	}
	s.dirty &^= bit(l)
}

// spare is the lane the next rotation needs: the next present with one role, the next future with two.
func (s *segment) spare() uint8 { return (s.head + uint8(s.r)) & 7 }

// expireAt masks the lanes that nobody needs any more at now; the present and
// the future stay. It reports whether there were any.
func (s *segment) expireAt(now int64, newest bool) {
	for l := range uint8(lanes) {
		if s.live&bit(l) != 0 && s.expired(l, now, newest) {
			s.live &^= bit(l)
			if s.lanes[l].count > 0 || s.r == 2 {
				if s.dirty != 0 && uint8(bits.TrailingZeros8(s.dirty)) > l {
					s.clearAt = 0 // the lowest dirty lane changes: its clearing starts over
				}
				s.dirty |= bit(l)
			}
			s.lanes[l] = lane{}
		}
	}
	s.setQuery()
}

// expired reports whether live lane l is no longer needed at now. The lanes
// that take inserts never are.
func (s *segment) expired(l uint8, now int64, newest bool) bool {
	if newest && (l == s.head || s.r == 2 && l == next(s.head)) {
		return false
	}
	return s.lanes[l].expire <= now
}

// rotate seals the present and makes the next lane the present.
func (s *segment) rotate(limit uint64) {
	l := s.spare()
	s.clearLane(l)
	s.lanes[l] = lane{}
	s.live |= bit(l)
	s.head = next(s.head)
	s.used = true
	s.limit = limit
	s.setQuery()
	s.setClearStep()
}

// holds reports whether a live generation of s holds an id.
func (s *segment) holds() bool {
	for l := range uint8(lanes) {
		if s.query&bit(l) != 0 && s.lanes[l].count > 0 {
			return true
		}
	}
	return false
}

func (s *segment) release() {
	s.mem.release()
	s.lines = nil
}
