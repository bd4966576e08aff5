package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
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
		{"lose", 1, func(_ *World, m *Machine) { s.change(m, func(r *region) { s.loseOne(r, true) }) }},
		{"hours-ahead", 1, func(_ *World, m *Machine) { s.of(m).leap() }},
		{"put-back", 1, func(_ *World, m *Machine) { s.putBack(s.of(m)) }},
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
			func(_ *World, m *Machine) { s.change(m, func(r *region) { s.loseOne(r, false) }) }},
		// "Clocks that leap":
		{"days-ahead", 0, func(_ *World, m *Machine) { m.TurnClock(48 * time.Hour) }},
		// "Drained twins": from now on clients send an operation to two regions.
		{"drained-twins", 0, func(*World, *Machine) { s.drainTwins.Store(true) }},
	}
}

// leap sets the clock of a region ahead, once, if its client expects that: beyond what others set to expire,
// but not by a window.
func (r *region) leap() {
	if !r.load.Leaps || r.leapt.Swap(true) {
		return
	}
	for _, m := range r.machines {
		m.TurnClock(12 * time.Hour)
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
	if r := s.of(m); s.mayChange() {
		s.w.Go(func() {
			defer s.changes.Store(false)
			do(r)
		})
	}
}

// mayChange reports whether the regions may change now, and keeps others from it, until changes is false.
func (s *regionsWorld) mayChange() bool {
	s.mu.Lock()
	made := s.made
	s.mu.Unlock()
	return made < maxRegions && !s.changes.Swap(true)
}

// forget lets no client choose a region any more.
func (s *regionsWorld) forget(r *region) {
	r.follower.ended.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regions = slices.DeleteFunc(slices.Clone(s.regions), func(o *region) bool { return o == r })
}

// remove removes a region, and lets another server be the next one. If it is lost, so is what it
// has told nobody. Otherwise the others have it. As `fbfkv region` does, the operator waits until
// the heir has all, and the next one has caught up, if it is to wait.
func (s *regionsWorld) remove(r *region, lost, waits bool) {
	o, drained := s.operator(), false
	if lost {
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
	s.mu.Unlock()
	s.forget(r)
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

// loseOne removes a region that is lost, unless another one may have a part of its state: see "Lost in the
// middle" in docs/design/regions.md.
func (s *regionsWorld) loseOne(r *region, waits bool) {
	if !s.tellsState(r) {
		s.remove(r, true, waits)
	}
}

// lose ends all servers of a region for ever.
func (r *region) lose() {
	for _, m := range r.machines {
		m.Off(true)
		m.PowerOff(m.Life(), 0)
	}
}

// putBack starts a region again from older copies of all its directories, of which at least one other region
// knows more. It can reach the others, so it must refuse writes before it has acknowledged any. Then it is
// removed.
func (s *regionsWorld) putBack(r *region) {
	if !s.mayChange() {
		return
	}
	defer s.changes.Store(false)
	if s.soothe(); s.w.Failure() != "" {
		return
	}
	was, others := make([]*crashtest.Disk, len(r.machines)), s.but(r)
	for i, m := range r.machines {
		was[i] = m.Disk.Copy(100, s.w)
	}
	s.cut(r, others[:1], s.w.Mean(2*time.Second)) // this one may know less than the next one
	c, mark := s.connect(), s.history.New(fmt.Sprint("mark-", r, "-", s.w.Now()), "x")
	s.await(time.Minute, fmt.Sprint(others[1], " has read ", r), func() error {
		if _, ok := c.count(mark, r, time.Second); !ok || c.read(mark.Key, others[1]) != 1 {
			return errors.New("it has not")
		}
		return nil
	})
	time.Sleep(s.w.Mean(time.Second))
	s.forget(r)
	r.rest()
	r.lose()
	if s.w.Soothe(); s.w.Failure() != "" {
		return
	}
	time.Sleep(underWay) // no client waits for it any more
	for i, m := range r.machines {
		s.w.Say("the directory of machine %d goes back in time", m.Index())
		m.Disk.PutBack(was[i])
		m.Off(false)
		m.Start()
	}
	s.await(time.Minute, fmt.Sprint(r, " sees that it has older copies"), func() error {
		reply, ok, _ := c.do(r, mark.Key, time.Second, "CINCRBY", mark.Key, "y", "1")
		if ok {
			s.w.Fail("%s went back in time, and acknowledges %v", r, reply)
		}
		for _, m := range r.machines {
			if st, err := s.operator().status(m); err == nil && st.Restored {
				return nil
			}
		}
		return errors.New("it does not")
	})
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
