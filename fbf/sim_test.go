package fbf

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// sim drives a filter as its owner does, beside an exact window.
type sim struct {
	t     testing.TB
	f     *Filter
	now   int64
	rng   *rand.Rand
	grant func(uint64) bool
	ids   []stamped // remembered by the exact window, oldest first
	log   []step    // everything a replay needs, if keep
	keep  bool
	done  map[EventKind]int
	peak  uint64  // highest Bytes
	worst float64 // highest EffectiveFPP
}

// stamped is an inserted id and until when it must be recognised.
type stamped struct {
	h         uint64
	at, until int64
}

// step is one entry of the log: an insert, an event, or a change of policy.
type step struct {
	h     uint64
	now   int64
	event *Event
	alter *Options
}

func newSim(t testing.TB, o Options, seed uint64) *sim {
	t.Helper()
	f, err := New(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Release() })
	return &sim{t: t, f: f, rng: rand.New(rand.NewPCG(seed, 1)), grant: func(uint64) bool { return true },
		done: map[EventKind]int{}}
}

// plan carries out everything due.
func (s *sim) plan() {
	for n := 0; ; n++ {
		e, ok := s.f.Plan(s.now, s.grant)
		if !ok {
			break
		}
		s.apply(e)
		if n > 64 {
			s.t.Fatalf("Plan does not come to an end at %d: %+v", s.now, e)
		}
	}
	s.peak = max(s.peak, s.f.Bytes())
	s.worst = max(s.worst, s.f.EffectiveFPP())
}

func (s *sim) apply(e Event) {
	s.worst = max(s.worst, s.f.EffectiveFPP())
	if err := s.f.Apply(e); err != nil {
		s.t.Fatalf("Apply(%+v): %v", e, err)
	}
	if e.Kind == Rotate {
		s.cleanLane()
	}
	s.done[e.Kind]++
	if s.keep {
		s.log = append(s.log, step{event: &e, now: s.now})
	}
}

// insert adds one new random id now; false if the filter is full.
func (s *sim) insert() bool {
	if s.f.Due(s.now) {
		s.plan()
	}
	if s.f.Full() {
		return false
	}
	h := s.rng.Uint64()
	s.f.Insert(h, s.now)
	s.ids = append(s.ids, stamped{h, s.now, s.now + s.f.Options().Window})
	if s.keep {
		s.log = append(s.log, step{h: h, now: s.now})
	}
	return true
}

// idle lets time pass up to until without inserts, planning when due.
func (s *sim) idle(until int64) {
	for s.f.NextDue() <= until {
		s.now = max(s.now, s.f.NextDue())
		s.plan()
	}
	s.now = until
}

// run inserts at rate(now) ids per second up to until.
func (s *sim) run(until int64, rate func(now int64) float64) {
	owed := 0.0
	for ; s.now < until; s.now++ {
		for owed += rate(s.now) / 1000; owed >= 1; owed-- {
			s.insert()
		}
	}
}

// check looks for every id of the exact window, and forgets those past it.
func (s *sim) check() {
	s.t.Helper()
	s.ids = slices.DeleteFunc(s.ids, func(id stamped) bool { return id.until <= s.now })
	for _, id := range s.ids {
		if s.now < id.until && !s.f.Contains(id.h) {
			s.t.Fatalf("at %d: id to be remembered until %d is forgotten", s.now, id.until)
		}
	}
}

func steady(r float64) func(int64) float64 { return func(int64) float64 { return r } }

// cleanLane checks that the lane a rotation has just taken into use holds nothing yet.
func (s *sim) cleanLane() {
	s.t.Helper()
	seg := s.f.newest()
	l := (seg.head + uint8(seg.r) - 1) & 7
	for i := range seg.lines {
		if seg.lines[i][l] != 0 {
			s.t.Fatalf("at %d: lane %d taken into use with bits from before in line %d", s.now, l, i)
		}
	}
}
