package main

import (
	"fmt"
	"strings"
	"time"
)

// tries is how often a smaller world may pass before it counts as sound.
const tries = 3

// shrinker makes a world smaller that fails.
type shrinker struct {
	*runner
	until time.Duration // no world is begun once the runner has spent so much CPU time
	world world
	res   result
}

// take takes a smaller world if it fails, too, in one of a few tries.
func (s *shrinker) take(less world) bool {
	for range tries {
		if time.Duration(s.spent.Load()) > s.until {
			return false
		}
		if res := s.run(less, false); res.verdict == failed {
			s.world, s.res = less, res
			fmt.Printf("  it fails with %d faults of %d kinds, too\n", less.faults, len(res.kinds))
			return true
		}
	}
	return false
}

// shrink lets fewer faults strike, then fewer kinds of them, and lets clients do less, as long as the world fails.
func (s *shrinker) shrink() {
	if s.res.struck > 0 && s.res.struck < s.world.faults {
		s.world.faults = s.res.struck
	}
	for by := s.world.faults / 2; by > 0; by /= 2 {
		for s.world.faults > by {
			less := s.world
			if less.faults -= by; !s.take(less) {
				break
			}
		}
	}
	s.fewerKinds()
	for names := strings.Split(s.res.work, ","); len(names) > 1; names = names[:len(names)-1] { // the first one always counts
		less := s.world
		less.work = strings.Join(names[:len(names)-1], ",")
		if !s.take(less) {
			break
		}
	}
}

// fewerKinds leaves out kinds of faults: half of them at a time, and then fewer.
func (s *shrinker) fewerKinds() {
	for some := (len(s.res.kinds) + 1) / 2; some > 0; some /= 2 {
		for at := 0; at < len(s.res.kinds) && some < len(s.res.kinds); {
			kinds := append([]string(nil), s.res.kinds[:at]...)
			kinds = append(kinds, s.res.kinds[min(at+some, len(s.res.kinds)):]...)
			less := s.world
			less.swarm, less.only = false, strings.Join(kinds, ",")
			if less.work == "" {
				less.work = s.res.work
			}
			if len(kinds) == 0 || !s.take(less) {
				at += some
			}
		}
	}
}
