package fbf

import (
	"fmt"
	"math"
	"testing"
)

const minute = 60_000

// TestSteadyState: bits per remembered id once sized to the load, headroom included.
func TestSteadyState(t *testing.T) {
	for _, c := range []struct {
		target float64
		roles  int
		most   float64
	}{{1e-2, 1, 30}, {1e-3, 1, 38}, {1e-6, 1, 66}, {1e-9, 1, 90}, {1e-12, 1, 130}, {1e-3, 2, 48},
		{1e-6, 2, 82}} {
		for _, rate := range []float64{211, 500, 777, 1500} {
			s := newSim(t, Options{Window: minute, Error: c.target, Roles: c.roles}, 1)
			s.run(6*minute, steady(rate))
			sum, n := 0.0, 0
			for s.now < 8*minute {
				s.run(s.now+minute/24, steady(rate))
				sum += float64(s.f.Bytes()) * 8 / float64(s.f.Len())
				n++
			}
			s.check()
			t.Logf("error %g, r=%d, %.0f/s: %.1f bits per remembered id, worst FPP %.3g", c.target, c.roles,
				rate, sum/float64(n), s.worst)
			if mean := sum / float64(n); mean > c.most {
				t.Errorf("error %g, r=%d, %.0f/s: %.1f bits per id, want at most %.0f", c.target, c.roles,
					rate, mean, c.most)
			}
			if s.worst > c.target {
				t.Errorf("error %g: effective FPP reached %g", c.target, s.worst)
			}
		}
	}
}

// TestSurges: loads of all shapes never cross the target, lose nothing, and
// leave the memory that fits the load two windows after they are over.
func TestSurges(t *testing.T) {
	const base, begin, w = 40.0, 5 * minute, minute
	during := func(from, to int64, rate float64) func(int64) float64 {
		return func(now int64) float64 {
			if now >= from && now < to {
				return rate
			}
			return base
		}
	}
	for _, c := range []struct {
		name string
		end  int64
		rate func(int64) float64
	}{
		{"10x", begin + 2*w, during(begin, begin+2*w, 10*base)},
		{"100x", begin + w, during(begin, begin+w, 100*base)},
		{"500x", begin + w/3, during(begin, begin+w/3, 500*base)},
		{"bursts", begin + 3*w, func(now int64) float64 {
			if now >= begin && now < begin+3*w && now%20_000 < 1000 {
				return 50 * base
			}
			return base
		}},
		{"ramp", begin + 3*w, func(now int64) float64 {
			if now < begin || now >= begin+3*w {
				return base
			}
			return base * (1 + 30*float64(now-begin)/float64(3*w))
		}},
		{"doubling", begin + 2*w, func(now int64) float64 {
			if now < begin || now >= begin+2*w {
				return base
			}
			return base * math.Exp2(float64(now-begin)/15_000)
		}},
		{"cliff", begin, func(now int64) float64 {
			if now < begin {
				return 20 * base
			}
			return base
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for roles := 1; roles <= 2; roles++ {
				s := newSim(t, Options{Window: w, Error: 1e-4, Roles: roles}, 1)
				// with a future filter all takes a generation longer
				settled := c.end + 2*w + int64(roles-1)*w/2
				for s.now < settled {
					s.run(s.now+w/4, c.rate)
					s.check()
				}
				bits := float64(s.f.Bytes()) * 8 / float64(s.f.Len())
				t.Logf("r=%d: worst FPP %.3g, peak %d bytes, after two windows %d bytes in %d segments, "+
					"%.1f bits per id, %v", roles, s.worst, s.peak, s.f.Bytes(), len(s.f.segs), bits, s.done)
				if s.worst > 1e-4 {
					t.Errorf("r=%d: effective FPP reached %g", roles, s.worst)
				}
				if len(s.f.segs) != 1 || bits > 66 {
					t.Errorf("r=%d: %d segments, %.1f bits per id two windows after", roles, len(s.f.segs),
						bits)
				}
			}
		})
	}
}

// TestScales: from a few operations an hour to many a millisecond, windows from one second to thirty days.
func TestScales(t *testing.T) {
	const day = 24 * 60 * minute
	for _, c := range []struct {
		window int64
		gap    float64 // ms between inserts
	}{{1000, 0.02}, {1000, 400}, {minute, 2}, {day, 7 * minute}, {30 * day, 20 * minute},
		{30 * day, 100 * minute}} {
		t.Run(fmt.Sprintf("%d/%g", c.window, c.gap), func(t *testing.T) {
			s := newSim(t, Options{Window: c.window, Error: 1e-6}, 1)
			at := 0.0
			for n := 0; at < float64(4*c.window); n++ {
				s.now = int64(at)
				s.insert()
				if n%2003 == 0 {
					s.check()
				}
				at += c.gap * 2 * s.rng.Float64()
			}
			s.check()
			if s.worst > 1e-6 {
				t.Errorf("effective FPP reached %g", s.worst)
			}
			if over := s.f.Len(); float64(over) > 1.6*float64(len(s.ids))+10 {
				t.Errorf("%d ids remembered, %d in the window", over, len(s.ids))
			}
		})
	}
}

// TestSilence: with days of logged time and nothing to do everything is
// forgotten and the memory given back; the first id afterwards is remembered.
func TestSilence(t *testing.T) {
	for roles := 1; roles <= 2; roles++ {
		s := newSim(t, Options{Window: minute, Error: 1e-6, Roles: roles}, 1)
		s.run(minute, steady(3000))
		s.check()
		s.idle(s.now + 20*24*60*minute)
		if s.f.Len() != 0 || s.f.Bytes() > 16<<10 || s.f.NextDue() != math.MaxInt64 {
			t.Fatalf("after silence: %d ids, %d bytes, next due %d", s.f.Len(), s.f.Bytes(), s.f.NextDue())
		}
		s.insert()
		s.now += minute - 1
		s.plan()
		s.check()
	}
	// The same without anybody asking during the silence.
	s := newSim(t, Options{Window: minute, Error: 1e-6}, 1)
	s.run(minute, steady(3000))
	s.now += 20 * 24 * 60 * minute
	s.insert()
	s.check()
	if s.f.Len() != 1 || s.f.Bytes() > 16<<10 {
		t.Fatalf("after silence: %d ids, %d bytes", s.f.Len(), s.f.Bytes())
	}
}

// TestSmallest: an idle filter is small, for every target.
func TestSmallest(t *testing.T) {
	for e := MinError; e < MaxError; e *= 3 {
		for roles := 1; roles <= 2; roles++ {
			o := Options{Window: minute, Error: e, Roles: roles}
			s := newSim(t, o, 1)
			if s.f.Bytes() > 8<<10 || s.f.Bytes() != o.InitialBytes() {
				t.Errorf("error %g: %d bytes, InitialBytes %d", e, s.f.Bytes(), o.InitialBytes())
			}
		}
	}
}

// TestMemoryCap: at the cap Refuse keeps the target and Degrade keeps
// accepting; neither forgets early; both recover.
func TestMemoryCap(t *testing.T) {
	for _, overload := range []Overload{Refuse, Degrade} {
		s := newSim(t, Options{Window: minute, Error: 1e-4, MaxMemory: 200_000, Overload: overload}, 1)
		refused := 0
		for range 60_000 {
			s.now += 2
			for range 4 {
				if !s.insert() {
					refused++
				}
			}
			if s.now%30_000 == 0 {
				s.check()
			}
		}
		s.check()
		if s.peak > 200_000 || s.done[Deny] == 0 {
			t.Errorf("overload %d: %d bytes, %v", overload, s.peak, s.done)
		}
		if s.done[Deny] > 2000 {
			t.Errorf("overload %d: %d denials for %d inserts: no back-off", overload, s.done[Deny], 240_000)
		}
		if overload == Refuse && (refused == 0 || s.worst > 1e-4) {
			t.Errorf("Refuse: %d refused, effective FPP %g", refused, s.worst)
		}
		if overload == Degrade && (refused != 0 || s.worst < 1e-4) {
			t.Errorf("Degrade: %d refused, effective FPP %g", refused, s.worst)
		}
		s.run(s.now+3*minute, steady(20))
		if !s.insert() || s.f.EffectiveFPP() > 1e-4 {
			t.Errorf("overload %d: not recovered: %g", overload, s.f.EffectiveFPP())
		}
	}
}

// TestDeniedGrant: a denial by the server-wide pool is an outcome, is not asked for again at
// once, and is overcome when the pool has memory again.
func TestDeniedGrant(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3}, 1)
	asked := 0
	s.grant = func(uint64) bool { asked++; return false }
	s.run(20_000, steady(2000))
	if !s.f.Full() || asked == 0 || asked > 200 {
		t.Fatalf("full %v after %d requests", s.f.Full(), asked)
	}
	s.grant = func(uint64) bool { return true }
	s.run(25_000, steady(2000))
	if s.f.Full() || s.f.Stats(s.now).Full {
		t.Fatal("still full although there is memory")
	}
	s.check()
}

// TestAlter: what is remembered lives for the longer of both windows, also when the window shrinks.
func TestAlter(t *testing.T) {
	for _, to := range []int64{minute / 4, 4 * minute} {
		s := newSim(t, Options{Window: minute, Error: 1e-4}, 1)
		s.run(minute, steady(200))
		s.alter(Options{Window: to, Error: 1e-7, Tag: 3})
		for range 16 {
			s.run(s.now+minute/3, steady(100))
			s.check()
		}
		if s.f.Options().Error != 1e-7 || s.f.EffectiveFPP() > 1e-7 {
			t.Errorf("window %d: effective FPP %g", to, s.f.EffectiveFPP())
		}
		if m, ok := s.f.Match(s.ids[len(s.ids)-1].h); !ok || m.Tags != 3 {
			t.Errorf("tags %d, want 3", m.Tags)
		}
	}
}

// TestSealForgetsNothing: sealing again and again stops when no generation is free.
func TestSealForgetsNothing(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-4}, 1)
	for range 40 {
		s.run(s.now+100, steady(20))
		s.seal()
		s.check()
	}
	if got := s.done[Rotate]; got != lanes-1 {
		t.Errorf("%d generations sealed, want %d", got, lanes-1)
	}
}

// TestSegmentBound: when only small segments are granted they do not pile up
// without end, and the target is kept however many there are.
func TestSegmentBound(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3}, 1)
	s.grant = func(n uint64) bool { return n <= 20_000 }
	refused, most := 0, 0
	for s.now < 2*minute {
		s.now++
		if !s.insert() {
			refused++
		}
		most = max(most, len(s.f.segs))
	}
	s.check()
	if most != maxSegments || refused == 0 || s.worst > 1e-3 {
		t.Errorf("%d segments at most, %d refused, effective FPP %g", most, refused, s.worst)
	}
}
