package fbf

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestEffectiveFPP compares the block model on real counts with what unknown
// ids really meet, at several loads, within a binomial bound.
func TestEffectiveFPP(t *testing.T) {
	for _, c := range []struct {
		target float64
		roles  int
		probes int
	}{{3e-2, 1, 300_000}, {1e-2, 2, 300_000}, {1e-3, 1, 1_000_000}, {1e-3, 2, 1_000_000},
		{2e-5, 1, 3_000_000}, {1e-6, 1, 4_000_000}} {
		for _, load := range []float64{0.5, 1} {
			t.Run(fmt.Sprintf("%g/r=%d/%g", c.target, c.roles, load), func(t *testing.T) {
				t.Parallel()
				o := Options{Window: minute, Error: c.target, Roles: c.roles, Capacity: 60_000}
				s := newSim(t, o, 7)
				s.run(minute+minute/20, steady(1000*load))
				want, got := s.f.EffectiveFPP(), 0
				for range c.probes {
					if s.f.Contains(s.rng.Uint64()) {
						got++
					}
				}
				mean := want * float64(c.probes)
				slack := 5*math.Sqrt(mean) + 0.04*mean + 3
				t.Logf("effective FPP %.3g, measured %.3g (%d)", want, float64(got)/float64(c.probes), got)
				if math.Abs(float64(got)-mean) > slack {
					t.Errorf("%d false positives in %d, model says %.1f +- %.1f", got, c.probes, mean, slack)
				}
				if want > c.target {
					t.Errorf("effective FPP %g above target", want)
				}
			})
		}
	}
}

// TestFillMatchesPopcount: the reported fill of every generation is what is in its lane.
func TestFillMatchesPopcount(t *testing.T) {
	for roles := 1; roles <= 2; roles++ {
		s := newSim(t, Options{Window: minute, Error: 1e-4, Roles: roles, Capacity: 60_000}, 3)
		s.run(minute, steady(900))
		for _, g := range s.f.Stats(s.now).Generations {
			seg := s.f.newest()
			set := 0
			for i := range seg.lines {
				l := g.Lane
				if roles == 2 && i < len(seg.lines)/2 {
					l = (l + 1) & 7 // as the future's probes
				}
				set += bits.OnesCount64(seg.lines[i][l])
			}
			if got := float64(set) / float64(64*len(seg.lines)); math.Abs(got-g.Fill) > 0.01 {
				t.Errorf("r=%d generation %d: fill %.4f, counted %.4f", roles, g.Lane, g.Fill, got)
			}
		}
	}
}

// TestRho checks the block model against random lines.
func TestRho(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, j := range []int{4, 5} {
		for _, mu := range []float64{0.5, 3, 8, 20} {
			sum := 0.0
			const n = 100_000
			for range n {
				var w uint64
				for c := poisson(rng, mu); c > 0; c-- {
					w |= ^without(rng.Uint64(), map[int]uint64{4: 0, 5: 24}[j])
				}
				sum += math.Pow(float64(bits.OnesCount64(w))/64, float64(j))
			}
			if got, want := sum/n, rho(j, mu); math.Abs(got/want-1) > 0.06 {
				t.Errorf("rho(%d, %g) = %g, sampled %g", j, mu, want, got)
			}
			if m := meanForRho(j, rho(j, mu)); math.Abs(m-mu) > 1e-6 {
				t.Errorf("meanForRho(%d, rho(%g)) = %g", j, mu, m)
			}
		}
	}
}

func poisson(rng *rand.Rand, mu float64) (n int) {
	for p := rng.ExpFloat64(); p < mu; p += rng.ExpFloat64() {
		n++
	}
	return n
}
