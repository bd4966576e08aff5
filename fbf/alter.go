package fbf

import "fmt"

// maxPolicies bounds the segments that changes of policy may leave draining.
const maxPolicies = 64

// Alter puts a new policy in force at logged time now. It is deterministic:
// given the same filter state and arguments it does the same everywhere. A new
// segment is opened when the target, the roles, the tag or a Capacity hint ask for it.
// Every id stays remembered for the longer of the old and the new window, counted from
// its insertion (G1).
func (f *Filter) Alter(o Options, now int64) error {
	g, strip, err := f.planAlter(&o)
	if err != nil {
		return err
	}
	old := f.opts
	f.opts = o
	if strip > 0 {
		mu := g.meanFor(laneBudget(f.budget(nil, false)))
		if err := f.open(g, strip, limitFor(strip, mu), now); err != nil {
			f.opts = old
			return err
		}
	}
	f.clock = max(f.clock, now)
	f.extend()
	f.deny = denial{}
	f.dropEmpty()
	f.schedule()
	return nil
}

// AlterBytes is the memory that Alter would take, or the reason why it would refuse.
// Ask before you log the change, since a logged Alter must not fail.
func (f *Filter) AlterBytes(o Options) (uint64, error) {
	g, strip, err := f.planAlter(&o)
	if err != nil || strip == 0 {
		return 0, err
	}
	return g.lines(strip) * lineBytes, nil
}

// planAlter fills in o's defaults and sizes the segment to open; strip is 0 if
// none is. It is for the Capacity hint if that is new, else for as many ids as
// the newest segment takes.
func (f *Filter) planAlter(o *Options) (g geometry, strip uint64, err error) {
	if err := o.Validate(); err != nil {
		return g, 0, err
	}
	*o = o.withDefaults()
	old := f.opts
	sized := o.Capacity != old.Capacity && o.Capacity != 0
	if o.Error == old.Error && o.Roles == old.Roles && o.Tag == old.Tag && !sized {
		return g, 0, nil
	}
	if len(f.segs) >= maxPolicies {
		return g, 0, fmt.Errorf("%w: %d earlier policies still draining", ErrOptions, len(f.segs))
	}
	g = geometryFor(o.Error, o.Roles)
	strip = g.stripFor(float64(f.newest().limit), g.meanFor(laneBudget(f.share(o.Error, nil, false))), 1)
	if sized {
		strip = o.initialStrip(g)
	}
	if o.MaxMemory > 0 {
		strip = min(strip, max(g.minStrip(), o.MaxMemory/lineBytes/uint64(g.s)))
	}
	return g, strip, nil
}

// extend stretches what is remembered to the window in force, never shortens it.
func (f *Filter) extend() {
	for _, s := range f.segs {
		for l := range s.lanes {
			if s.lanes[l].count > 0 {
				e := s.lanes[l].newest + f.opts.Window
				s.lanes[l].expire = max(s.lanes[l].expire, e)
				if s.r == 2 {
					n := &s.lanes[(l+1)&7]
					n.expire = max(n.expire, e)
				}
			}
		}
	}
}
