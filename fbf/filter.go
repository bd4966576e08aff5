package fbf

import (
	"fmt"
	"math"
)

// headroom is by how much a new segment's generations exceed the present need.
const headroom = 1.1

// Filter is a Forgetful Bloom Filter. It is not safe for concurrent use: its
// owner holds one lock per batch of operations.
type Filter struct {
	opts   Options
	segs   []*segment // oldest first; the last takes the inserts
	nextID uint32
	bytes  uint64

	clock     int64  // newest logged time seen
	inserted  uint64 // ids inserted since New
	refreshes uint64 // generations sealed since New

	deny  denial
	asked int64   // newest time Plan was asked about; a hint only, not part of the state
	phase float64 // see SetPhase; not part of the state either
	dueAt int64   // logged time at which Plan may have something to do
	room  uint64  // inserts after which it has
	sized sizing
	// of the id being checked and inserted; kept here because clearing one on the stack costs as
	// much as a probe
	p probes
}

// New makes a filter whose first segment is sized for o.Capacity. now is the
// logged time in ms, at least 0.
func New(o Options, now int64) (*Filter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if now < 0 {
		return nil, fmt.Errorf("%w: logged time %d, want at least 0", ErrOptions, now)
	}
	f := &Filter{opts: o.withDefaults(), clock: now, asked: now, nextID: 1}
	g := geometryFor(f.opts.Error, f.opts.Roles)
	strip := f.opts.initialStrip(g)
	limit := limitFor(strip, g.meanFor(laneBudget(f.opts.Error*lastShare)))
	if err := f.open(g, strip, limit, now); err != nil {
		return nil, err
	}
	f.schedule()
	return f, nil
}

// open adds a segment that takes the inserts from now on.
func (f *Filter) open(g geometry, strip, limit uint64, now int64) error {
	s, err := newSegment(g, f.nextID, f.opts.Tag, strip, limit, now)
	if err != nil {
		return err
	}
	f.nextID++
	f.segs = append(f.segs, s)
	f.bytes += s.bytes()
	f.deny = denial{}
	return nil
}

// newest is the segment that takes the inserts.
func (f *Filter) newest() *segment { return f.segs[len(f.segs)-1] }

// Release gives the filter's memory back to the system. The filter must not be
// used afterwards; encoders still reading from it emit empty generations.
func (f *Filter) Release() {
	for _, s := range f.segs {
		s.release()
	}
	f.segs, f.bytes = nil, 0
}

// Contains reports whether h may have been inserted. It never says no for an
// id inserted less than Window ago (G1).
func (f *Filter) Contains(h uint64) bool {
	if len(f.segs) == 1 {
		var p probes
		return f.segs[0].probe(h, &p) != 0
	}
	suspects := f.suspects(h)
	return suspects != 0 && f.confirm(h, suspects)
}

// Match is where Contains found an id.
type Match struct {
	Tags uint8 // union of the tags of the segments that contain it
	// logged times spanned by the matching generations: an insert of it, if real, happened in
	// [First, Last]
	First, Last int64
	Generations int // how many generations contain it
}

// Match is Contains with the generations that answered yes. It is slower.
func (f *Filter) Match(h uint64) (Match, bool) {
	suspects := f.suspects(h)
	if suspects == 0 {
		return Match{}, false
	}
	return f.match(h, suspects)
}

// match asks the suspects for the generations that contain h.
func (f *Filter) match(h, suspects uint64) (Match, bool) {
	var p probes
	m := Match{First: math.MaxInt64, Last: math.MinInt64}
	for i, s := range f.segs {
		if !suspected(suspects, i) {
			continue
		}
		found := s.probe(h, &p)
		if found == 0 {
			continue
		}
		m.Tags |= s.tag
		for l := range uint8(lanes) {
			if found&bit(l) != 0 {
				m.Generations++
				m.First = min(m.First, s.lanes[l].start)
				m.Last = max(m.Last, s.lanes[l].newest)
			}
		}
	}
	if m.Generations == 0 {
		return Match{}, false
	}
	return m, true
}

// Insert records h at logged time now, which must not go back. Call Plan
// first whenever Due(now), and do not insert new ids while Full.
func (f *Filter) Insert(h uint64, now int64) {
	s := f.newest()
	s.request(h, &f.p)
	f.insert(s, &f.p, now)
}

// insert keeps the promise of the window (G1): the generation written lives
// until its newest id is Window old.
func (f *Filter) insert(s *segment, p *probes, now int64) {
	s.set(p)
	if s.lanes[s.head&7].count == 0 {
		f.begin(s, now)
	}
	s.note(now, now+f.opts.Window)
	f.inserted++
	if f.room > 0 {
		f.room--
	}
	f.clock = max(f.clock, now)
	if s.dirty != 0 {
		s.clearSome(s.clearStep)
	}
}

// begin starts the present's period with its first insert. It is apart from
// insert, where its copy of the options would cost every insert a larger stack frame.
//
//go:noinline
func (f *Filter) begin(s *segment, now int64) {
	s.begin(now)
	f.dueAt = min(f.dueAt, now+f.opts.refresh())
}

// CheckAndInsert reports whether h may have been inserted before, and inserts
// it if not. It is the test-and-set that makes an operation apply at most once. A check
// and a later insert are not, unless the owner holds its lock throughout.
func (f *Filter) CheckAndInsert(h uint64, now int64) (present bool) {
	if len(f.segs) > 1 {
		if f.Contains(h) {
			return true
		}
		f.Insert(h, now)
		return false
	}
	s := f.segs[0]
	if s.probe(h, &f.p) != 0 {
		return true
	}
	f.insert(s, &f.p, now)
	return false
}

// Full reports whether the filter is at its memory cap and would exceed its target.
// Under Refuse the owner must then refuse new ids, which may be retried, until Plan finds
// room.
func (f *Filter) Full() bool {
	if f.opts.Overload != Refuse || f.deny.until == 0 {
		return false
	}
	s := f.newest()
	return s.lanes[s.head&7].count >= s.limit
}

// Bytes is the memory of all segments.
func (f *Filter) Bytes() uint64 { return f.bytes }

// Options is the policy in force, defaults filled in.
func (f *Filter) Options() Options { return f.opts }

// Len is the number of ids remembered now, including those past their window in
// generations that still live.
func (f *Filter) Len() uint64 {
	var n uint64
	for _, s := range f.segs {
		for l := range uint8(lanes) {
			if s.query&bit(l) != 0 {
				n += s.lanes[l].count
			}
		}
	}
	return n
}
