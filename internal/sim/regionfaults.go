package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/regions"
)

// faults returns the faults that regions can meet.
func (s *regionsWorld) faults() []Fault {
	clustered := 0
	if s.options.Shards > 0 {
		clustered = 1
	}
	return []Fault{
		{"region-cut", 3,
			func(w *World, m *Machine) { s.cut(s.of(m), s.but(s.of(m)), w.Mean(2*time.Second)) }},
		{"region-cut-long", 1, func(w *World, m *Machine) { // some need the state then
			s.cut(s.of(m), s.but(s.of(m)), w.Between(5*time.Second, 2*briefWindow))
		}},
		{"regions-apart", 3,
			func(w *World, m *Machine) { s.cut(s.of(m), s.but(s.of(m))[:1], w.Mean(3*time.Second)) }},
		{"pause", 2, func(w *World, m *Machine) { w.Go(func() { s.pause(s.of(m)) }) }},
		// it may not be able to
		{"verify", 1, func(w *World, m *Machine) { w.Go(func() { _ = s.operator().verify(s.of(m)) }) }},
		{"remove", 1,
			func(_ *World, m *Machine) { s.change(m, func(r *region) { s.remove(r, false, true) }) }},
		{"lose", 1, func(_ *World, m *Machine) { s.change(m, func(r *region) { s.remove(r, true, true) }) }},
		{"leave", 1, func(_ *World, m *Machine) { s.change(m, s.leave) }},
		{"hand-over", 6 * clustered, func(w *World, m *Machine) {
			s.inCluster(m, func(c *clusterWorld, m *Machine) { c.strikeHandOver(m) })
		}},
		{"replace", 2 * clustered, func(_ *World, m *Machine) {
			s.inCluster(m, func(c *clusterWorld, m *Machine) {
				s.change(m, func(*region) { c.replace(c.administrator(), m) })
			})
		}},
		// These have no weight until that is mended which they show: see "What does not hold yet" in
		// docs/design/regions.md. "Removals at once":
		{"remove-at-once", 0,
			func(_ *World, m *Machine) { s.change(m, func(r *region) { s.remove(r, false, false) }) }},
		{"lose-at-once", 0,
			func(_ *World, m *Machine) { s.change(m, func(r *region) { s.remove(r, true, false) }) }},
		// "Repeated positions":
		{"put-back", 0, func(_ *World, m *Machine) { s.change(m, s.putBack) }},
		// "Clocks ahead":
		{"days-ahead", 0, func(_ *World, m *Machine) { m.TurnClock(48 * time.Hour) }},
		// "Drained twins": from now on clients send an operation to two regions.
		{"drained-twins", 0, func(*World, *Machine) { s.drainTwins.Store(true) }},
	}
}

// inCluster lets a fault strike a node of a region that is a cluster, if there is one.
func (s *regionsWorld) inCluster(m *Machine, strike func(c *clusterWorld, m *Machine)) {
	for _, r := range append([]*region{s.of(m)}, s.but(s.of(m))...) {
		if r.cluster != nil {
			strike(r.cluster, r.cluster.target())
			return
		}
	}
}

// leave lets a region refuse writes until the others have all of it, as before it is removed, and
// then take them again.
func (s *regionsWorld) leave(r *region) {
	o := s.operator()
	if o.drain(r) {
		s.history.Inherit(r, s.but(r))
	}
	o.insist(fmt.Sprint(r, " takes writes again"), func() error {
		all, err := o.readers(r)
		for m := range all {
			_, failed := o.ask(m, "LEAVE", "NO")
			err = errors.Join(err, failed)
		}
		return err
	})
}

// of returns the region of a machine; one at random: it is of none now.
func (s *regionsWorld) of(m *Machine) *region {
	all := s.living()
	for _, r := range all {
		for _, o := range r.machines {
			if o == m {
				return r
			}
		}
	}
	return all[s.w.Intn(len(all))]
}

// cut cuts the links between a region and others for a while, in one direction or both.
func (s *regionsWorld) cut(r *region, others []*region, length time.Duration) {
	to, from := true, true
	switch s.w.Intn(4) {
	case 0:
		to = false
	case 1:
		from = false
	}
	do := func(change func(from, to *Machine)) {
		for _, other := range others {
			if to {
				each(other, r, change)
			}
			if from {
				each(r, other, change)
			}
		}
	}
	do(s.w.Network.Cut)
	s.w.Undo(length, func() { do(s.w.Network.Heal) })
}

// pause lets a region read another one no more for a while.
func (s *regionsWorld) pause(r *region) {
	o := s.operator()
	o.pause(r, s.but(r)[0])
	time.Sleep(s.w.Mean(2 * time.Second))
	o.insist("no region pauses", o.resume)
}

// change lets an operator change who is a region, one change at a time, and as often as there are numbers.
func (s *regionsWorld) change(m *Machine, do func(r *region)) {
	r := s.of(m)
	s.mu.Lock()
	made := s.made
	s.mu.Unlock()
	if made >= maxRegions || s.changes.Swap(true) {
		return
	}
	s.w.Go(func() {
		defer s.changes.Store(false)
		do(r)
	})
}

// remove removes a region, and lets another server be the next one. If it is lost, so is what it
// has told nobody. Otherwise the others have it. As `fbfkv region` does, the operator waits until
// the heir has all, and the next one has caught up, if it is to wait.
func (s *regionsWorld) remove(r *region, lost, waits bool) {
	o, drained := s.operator(), false
	if lost {
		// "Lost in the middle" of docs/design/regions.md
		if s.tellsState(r) {
			return
		}
		r.lose()
	} else if drained = o.drain(r); s.w.Failure() != "" {
		return
	}
	r.rest()
	others := s.but(r)
	heir := others[s.w.Intn(len(others))]
	s.w.Say("%s is removed (lost %v, drained %v), and %s is its heir", r, lost, drained, heir)
	if !o.insist(fmt.Sprint(r, " is removed"), func() error {
		_, err := o.decide(others[s.w.Intn(len(others))], "REMOVE", heir.name, r.name)
		return err
	}) {
		return
	}
	if drained {
		s.history.Inherit(r, others)
	}
	s.mu.Lock()
	s.removed++
	if drained {
		s.left = append(s.left, r.load)
	} else {
		s.history.Lost()
	}
	clear(s.drainers)
	s.regions = slices.DeleteFunc(slices.Clone(s.regions), func(o *region) bool { return o == r })
	s.mu.Unlock()
	if s.w.Chance(0.5) { // else it goes on, and nobody reads it
		r.lose()
	}
	if waits && !o.insist(fmt.Sprint(r, " is inherited"), func() error { return o.inherited(r.name) }) {
		return
	}
	next := s.build(0)
	if o.add(next, waits) && !s.ended.Load() {
		next.work()
	}
}

// lose ends all servers of a region for ever.
func (r *region) lose() {
	for _, m := range r.machines {
		m.Off(true)
		m.PowerOff(m.Life(), 0)
	}
}

// putBack starts a region again from an older copy of its directory, which the others are to
// refuse. It is removed then.
func (s *regionsWorld) putBack(r *region) {
	m := r.machines[0]
	was := m.Disk.Copy(100, s.w)
	time.Sleep(s.w.Mean(2 * time.Second))
	m.Off(true)
	m.PowerOff(m.Life(), 0)
	m.Disk.PutBack(was)
	m.Off(false)
	m.Start()
	time.Sleep(s.w.Mean(2 * time.Second))
	s.remove(r, true, true)
}

// tellsState reports whether another region takes the state of a region, or may have taken a part of it: its
// process has not heard yet whether the log goes on where it ends there.
func (s *regionsWorld) tellsState(of *region) bool {
	for _, at := range s.but(of) {
		for _, m := range at.machines {
			p, _ := m.Running()
			if p == nil || p.(*serverProcess).Regions() == nil {
				return true
			}
			mesh := p.(*serverProcess).Regions().Mesh()
			if mesh == nil && at.cluster != nil { // it does not lead
				continue
			}
			if mesh == nil || mayTakeState(mesh.Status(), of.name) {
				return true
			}
		}
	}
	return false
}

// mayTakeState reports whether one that reads other regions may have a part of the state of one of them.
func mayTakeState(all []regions.Status, of string) bool {
	read := false
	for i := range all {
		st := &all[i]
		if st.Name != of {
			continue
		}
		read = true
		if st.LastAnswer.IsZero() || slices.ContainsFunc(st.Ranges, func(r regions.RangeStatus) bool {
			return r.State != ""
		}) {
			return true
		}
	}
	return !read
}
