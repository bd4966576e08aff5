package fbf

import (
	"math"
	"testing"
)

// TestGrowthFollowsTheRate: while the rate rises, and after a step from
// nothing, a filter takes no more than a small multiple of what its ids need,
// stays below the target, and does not run out of segments.
func TestGrowthFollowsTheRate(t *testing.T) {
	const w = minute
	for _, c := range []struct {
		name string
		most float64 // bytes per remembered id, at any time with more than 20,000
		rate func(windows float64) float64
	}{
		{"step", 20, func(float64) float64 { return 20_000 }},
		{"step to a lower rate", 20, func(float64) float64 { return 3000 }},
		{"ramp", 20, func(x float64) float64 { return 5000 * x }},
		{"doubling 16 times in a window", 20, func(x float64) float64 { return math.Exp2(min(x, 1)*16) / 4 }},
		{"doubling 32 times in a window", 20,
			func(x float64) float64 { return math.Exp2(min(x, 0.5)*32) / 4 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, Options{Window: w, Error: 1e-3}, 1)
			worst, owed := 0.0, 0.0
			for ; s.now < 5*w/4; s.now++ {
				for owed += c.rate(float64(s.now)/w) / 1000; owed >= 1; owed-- {
					if s.f.Due(s.now) {
						s.plan()
					}
					s.f.Insert(s.rng.Uint64(), s.now)
				}
				if n := s.f.Len(); s.now%100 == 0 && n > 20_000 {
					worst = max(worst, float64(s.f.Bytes())/float64(n))
				}
			}
			t.Logf("at most %.1f bytes per id, worst FPP %.3g, %v", worst, s.worst, s.done)
			if worst > c.most {
				t.Errorf("%.1f bytes per remembered id, want at most %.0f", worst, c.most)
			}
			if s.worst > 1e-3 || s.done[Deny] > 0 {
				t.Errorf("effective FPP reached %.3g, %d requests for memory denied", s.worst, s.done[Deny])
			}
		})
	}
}

// TestGrowthEndsAtTheLoad: what a new filter grows to under an even load fits
// that load, whatever its rate is: it is not replaced by another size afterwards, and all
// else has drained by the end of the second window.
func TestGrowthEndsAtTheLoad(t *testing.T) {
	const w = minute / 6
	for _, target := range []float64{1e-3, 1e-6} {
		most := map[float64]float64{1e-3: 32, 1e-6: 60}[target]
		for rate := 1000.0; rate < 60_000; rate *= 1.4 {
			s := newSim(t, Options{Window: w, Error: target}, 1)
			s.run(9*w/4, steady(rate))
			got := float64(s.f.Bytes()) * 8 / (rate * w / 1000)
			if len(s.f.segs) != 1 || got > most {
				t.Errorf("error %g, %.0f/s: %d segments, %.1f bits per id of the window, want at most %.0f",
					target, rate, len(s.f.segs), got, most)
			}
			if opened := s.f.Stats(s.now).Opened; opened != uint64(s.done[Open])+1 {
				t.Errorf("error %g, %.0f/s: %d segments opened by the figures, %d by the events", target,
					rate, opened, s.done[Open]+1)
			}
			if s.worst > target || s.done[Open] > 5 {
				t.Errorf("error %g, %.0f/s: effective FPP reached %.3g, %d segments opened", target, rate,
					s.worst, s.done[Open])
			}
		}
	}
}

// TestPauses: a load that halts for one to four seconds and then makes up for them, as
// open clients' does when the server stalls, asks for no more memory than the same load without.
func TestPauses(t *testing.T) {
	const w, rate = 50_000, 2000
	for _, target := range []float64{1e-3, 1e-6} {
		for seed := range uint64(8) {
			s := newSim(t, Options{Window: w, Error: target}, seed)
			s.run(5*w/2, steady(rate))
			before, owed, resumes := s.done[Open], 0.0, int64(0)
			for end := 10 * int64(w); s.now < end; s.now++ {
				owed += rate / 1000.0
				if s.now >= resumes && s.rng.Float64() < 1.0/12_000 {
					resumes = s.now + 1000 + s.rng.Int64N(3000)
				}
				for n := 0; s.now >= resumes && n < 3*rate/1000 && owed >= 1; n++ {
					s.insert()
					owed--
				}
			}
			s.check()
			if opened := s.done[Open] - before; opened > 0 || s.worst > target {
				t.Errorf("error %g, seed %d: %d segments opened; effective FPP up to %g", target, seed,
					opened, s.worst)
			}
		}
	}
}
