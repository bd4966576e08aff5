package fbf

import "fmt"

// Apply executes an event, live and in redo alike. An error means that the
// event does not fit this filter; the filter is then unchanged.
func (f *Filter) Apply(e Event) error {
	if err := e.validate(); err != nil {
		return err
	}
	var err error
	switch e.Kind {
	case Expire:
		f.expire(e.Time)
	case Rotate:
		err = f.applyRotate(e)
	case Open:
		err = f.applyOpen(e)
	case Deny:
		f.applyDeny(e)
	}
	if err != nil {
		return err
	}
	f.clock = max(f.clock, e.Time)
	f.schedule()
	return nil
}

// expire masks what is over and drops drained segments. A generation goes only
// when its newest id is a window old (G1).
func (f *Filter) expire(now int64) {
	for i, s := range f.segs {
		s.expireAt(now, i == len(f.segs)-1)
	}
	f.drop(func(s *segment) bool { return s.live == 0 })
}

// dropEmpty drops older segments that never took an id they still hold.
func (f *Filter) dropEmpty() {
	f.drop(func(s *segment) bool { return !s.holds() })
}

// drop gives back the segments that are over; the newest never is.
func (f *Filter) drop(over func(*segment) bool) {
	keep := f.segs[:0]
	for i, s := range f.segs {
		if i == len(f.segs)-1 || !over(s) {
			keep = append(keep, s)
			continue
		}
		f.bytes -= s.bytes()
		s.release()
	}
	clear(f.segs[len(keep):])
	f.segs = keep
}

func (f *Filter) applyRotate(e Event) error {
	s := f.newest()
	if e.Segment != s.id || s.live&bit(s.spare()) != 0 {
		return fmt.Errorf("%w: rotate of segment %d, newest is %d", ErrEvent, e.Segment, s.id)
	}
	s.rotate(e.Limit)
	f.refreshes++
	f.deny.until, f.deny.times = 0, 0
	return nil
}

func (f *Filter) applyOpen(e Event) error {
	g := geometryFor(f.opts.Error, f.opts.Roles)
	strip := e.Lines / uint64(g.s)
	if e.Segment != f.nextID || g.lines(strip) != e.Lines || strip < g.minStrip() || strip > maxStrip {
		return fmt.Errorf("%w: open of segment %d with %d lines", ErrEvent, e.Segment, e.Lines)
	}
	if err := f.open(g, strip, e.Limit, e.Time); err != nil {
		return err
	}
	f.newest().used = true
	f.refreshes++
	f.dropEmpty()
	return nil
}

func (f *Filter) applyDeny(e Event) {
	if e.Shrink {
		f.deny.shrinkUntil = e.Until
		return
	}
	f.deny.until = e.Until
	if f.deny.times < 16 {
		f.deny.times++
	}
}
