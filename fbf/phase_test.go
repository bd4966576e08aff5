package fbf

import (
	"math/rand/v2"
	"testing"
)

// TestPhases: filters that are filled evenly grow at the same moment, unless their
// phases are apart.
func TestPhases(t *testing.T) {
	const filters, large = 16, 1 << 20 // bytes
	for _, c := range []struct {
		span float64
		most int // filters that grow in the same millisecond
	}{{0, filters}, {1, 2}} {
		fs := make([]*Filter, filters)
		for i := range fs {
			var err error
			if fs[i], err = New(Options{Window: 600_000, Error: 1e-3}, 0); err != nil {
				t.Fatal(err)
			}
			fs[i].SetPhase(c.span * float64(i) / filters)
		}
		rnd := rand.New(rand.NewPCG(1, 1))
		opened, most := 0, 0
		for now := range int64(30_000) {
			together := 0
			for _, f := range fs {
				for range 10 {
					for f.Due(now) {
						e, ok := f.Plan(now, func(uint64) bool { return true })
						if !ok {
							break
						}
						if e.Kind == Open && e.Lines*lineBytes >= large {
							together++
						}
						if err := f.Apply(e); err != nil {
							t.Fatal(err)
						}
					}
					f.Insert(rnd.Uint64(), now)
				}
			}
			opened, most = opened+together, max(most, together)
		}
		if opened < filters/2 || most > c.most || c.span == 0 && most < filters {
			t.Errorf("span %v: %d large segments, up to %d at a time", c.span, opened, most)
		}
		t.Logf("span %v: %d large segments, up to %d at a time", c.span, opened, most)
	}
}
