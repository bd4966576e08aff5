package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// checkLoads sends again what clients sent to one region only, and compares that and the others
// with it. A region that has been removed has left its counters to the others.
func (s *regionsWorld) checkLoads() {
	all := s.living()
	for _, l := range s.left {
		l.leave(func() Sender { return newRouter(s.w, all[0].machines) })
	}
	loads := slices.Clone(s.left)
	for _, r := range all {
		loads = append(loads, r.load)
	}
	for _, l := range loads {
		l.Again()
	}
	time.Sleep(underWay)
	for i, l := range loads {
		facts := l.Facts()
		shared := slices.DeleteFunc(slices.Clone(facts), func(f Fact) bool {
			// its heir has set the expiry again, by its own clock
			again := i < len(s.left) && f.Query[0] == "PEXPIRETIME" && !strings.HasPrefix(f.Answer, "-")
			return again || !strings.HasSuffix(f.Query[1], l.Suffix)
		})
		for _, r := range all {
			for _, m := range r.machines {
				if n := i - len(s.left); n >= 0 && r == all[n] {
					s.w.compare(m, facts)
				} else {
					s.w.compare(m, shared)
				}
			}
			l.elsewhere(newRouter(s.w, r.machines))
		}
	}
}

// check sends every operation again, and compares the regions with each other and with the sent
// operations.
func (s *regionsWorld) check() {
	if s.checkLoads(); s.w.Failure() != "" {
		return
	}
	// what one region has lost, another one has
	s.again(func(i int) []*region { all := s.living(); return all[i%len(all):][:1] })
	s.drainsAgain()
	totals := s.history.Totals()
	c := s.connect()
	shown := func() {
		for _, at := range s.living() {
			for _, key := range slices.Sorted(maps.Keys(totals)) {
				// what expires does so by any clock
				s.await(time.Minute+s.w.apart(), fmt.Sprint(at, " shows the sum of ", key), func() error {
					if n := c.read(key, at); n != totals[key] {
						return fmt.Errorf("it is %d, and %d operations were sent", n, totals[key])
					}
					return nil
				})
				if s.w.Failure() != "" {
					s.explain(key)
					return
				}
			}
		}
	}
	shown()
	o := s.operator()
	for _, at := range s.living() {
		s.await(time.Minute, fmt.Sprint(at, " agrees with the others"), func() error { return o.verify(at) })
		s.await(time.Minute, fmt.Sprint(at, " is well"), func() error { return o.well(at) })
	}
	s.await(time.Minute+s.w.apart(), "regions show the same of every counter", func() error {
		return c.alike(s.looseFacts())
	})
	answers := s.again(func(int) []*region { return s.living() })
	for op, values := range answers {
		s.history.Last(op, values[0], values[1:])
	}
	shown()
	for _, at := range s.living() {
		at.follower.check(func() []Fact { return c.followed(at, slices.Collect(maps.Keys(totals))) })
		for _, m := range at.machines {
			if s.w.Failure() == "" && at.cluster == nil {
				s.examine(m)
			}
		}
	}
}

// followed returns what a region shows of some counters, of those that its follower has, and of loose ones.
func (c *regionClient) followed(at *region, keys []string) (facts []Fact) {
	for _, f := range c.looseFacts() {
		keys = append(keys, f.Query[1])
	}
	for _, key := range slices.AppendSeq(keys, maps.Keys(at.follower.now.values)) {
		reply, ok, _ := c.do(at, key, time.Second, "CGET", key)
		if !ok {
			reply = "no answer"
		}
		facts = append(facts, Fact{[]string{"CGET", key}, fmt.Sprint(reply)})
	}
	return facts
}

// explain writes to the log of the run what regions say of a counter, and in which operations they differ.
func (s *regionsWorld) explain(key string) {
	c := s.connect()
	for _, at := range s.living() {
		shares, _, _ := c.do(at, key, time.Second, "CGET", key, "REGIONS")
		s.w.Say("%s has %s as %v", at, key, shares)
	}
	for _, o := range append(s.history.Ops(), s.history.Drains()...) {
		if o.Key != key {
			continue
		}
		var all []string
		for _, at := range s.living() {
			seen, _, _ := c.do(at, key, time.Second, "CSEEN", o.Key, o.ID)
			all = append(all, fmt.Sprint(seen))
		}
		s.w.Say("%s %s: %q; %q", o.Key, o.ID, all, o.past)
	}
}

// again sends every operation again to some regions, until it is answered, and returns the answers.
func (s *regionsWorld) again(to func(i int) []*region) map[*RegionOp][]int64 {
	answers := make(map[*RegionOp][]int64)
	var mu sync.Mutex
	var running sync.WaitGroup
	ops := s.history.Ops()
	for worker := range clients {
		running.Go(func() {
			c := s.connect()
			for i := worker; i < len(ops) && s.w.Failure() == ""; i += clients {
				for _, at := range to(i) {
					s.await(time.Minute, fmt.Sprintf("%s %s is answered by %s although all is well",
						ops[i].Key, ops[i].ID, at), func() error {
						value, ok := c.count(ops[i], at, time.Second)
						if !ok {
							return fmt.Errorf("it is not")
						}
						mu.Lock()
						defer mu.Unlock()
						answers[ops[i]] = append(answers[ops[i]], value)
						return nil
					})
				}
			}
		})
	}
	running.Wait()
	return answers
}

// examine ends a server in one of the ways in which servers end, and checks the directory that it
// leaves, as `fbfkv check` does.
func (s *regionsWorld) examine(m *Machine) {
	m.Off(true)
	switch l := m.Life(); s.w.Intn(3) {
	case 0:
		m.Stop(l)
	case 1:
		m.Kill(l)
	default:
		m.PowerOff(l, s.w.Intn(3)*50)
	}
	r, err := store.Check(store.CheckOptions{Dir: "d", FS: m.Disk.Files()})
	if err != nil || len(r.Problems) > 0 {
		s.w.Fail("machine %d: its directory is damaged: %v %v", m.Index(), err, r.Problems)
	}
}
