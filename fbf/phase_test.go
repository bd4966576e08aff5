package fbf

import "testing"

// TestPhases: filters that are filled evenly grow at the same moment, unless their
// phases are apart.
func TestPhases(t *testing.T) {
	const filters, large = 16, 1 << 20 // bytes
	for _, c := range []struct {
		span float64
		most int // filters that grow in the same millisecond
	}{{0, filters}, {1, 2}} {
		opened, together, most := 0, 0, 0
		sims := make([]*sim, filters)
		for i := range sims {
			sims[i] = newSim(t, Options{Window: 600_000, Error: 1e-3}, uint64(i))
			sims[i].f.SetPhase(c.span * float64(i) / filters)
			sims[i].grant = func(bytes uint64) bool {
				if bytes >= large {
					together++
				}
				return true
			}
		}
		for now := range int64(30_000) {
			together = 0
			for _, s := range sims {
				for s.now = now; s.f.inserted < 10*uint64(now+1); s.f.Insert(s.rng.Uint64(), now) {
					if s.f.Due(now) {
						s.plan()
					}
				}
			}
			opened, most = opened+together, max(most, together)
		}
		if opened < filters/2 || most > c.most || c.span == 0 && most < filters {
			t.Errorf("span %v: %d large segments, up to %d at a time", c.span, opened, most)
		}
	}
}
