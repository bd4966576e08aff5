package fbf

import "fmt"

// maxPolicies bounds the segments that changes of policy may leave draining.
const maxPolicies = 64

// Alter puts a new policy in force at logged time now. It is deterministic:
// given the same filter state and arguments it does the same everywhere. A new
// segment is opened when the target, the roles, the tag or a Capacity hint ask for it.
// Everything remembered lives on for the longer of its old promise and the
// new window, counted from its insertion (G1).
func (f *Filter) Alter(o Options, now int64) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o = o.withDefaults()
	old, s := f.opts, f.newest()
	reopen := o.Error != old.Error || o.Roles != old.Roles || o.Tag != old.Tag ||
		o.Capacity != old.Capacity && o.Capacity != 0
	if reopen && len(f.segs) >= maxPolicies {
		return fmt.Errorf("%w: %d earlier policies still draining", ErrOptions, len(f.segs))
	}
	f.opts = o
	if reopen {
		if err := f.reopen(s, o.Capacity != old.Capacity && o.Capacity != 0, now); err != nil {
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

// reopen opens a segment under the new policy, for the Capacity hint if it is
// new, else for as many ids as s takes.
func (f *Filter) reopen(s *segment, sized bool, now int64) error {
	g := geometryFor(f.opts.Error, f.opts.Roles)
	mu := g.meanFor(laneBudget(f.budget(nil)))
	strip := g.stripFor(float64(s.limit), mu, 1)
	if sized {
		strip = f.opts.initialStrip(g)
	}
	if f.opts.MaxMemory > 0 {
		strip = min(strip, max(g.minStrip(), f.opts.MaxMemory/lineBytes/uint64(g.s)))
	}
	return f.open(g, strip, limitFor(strip, mu), now)
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
