package fbf

import "testing"

func TestSmoke(t *testing.T) {
	for _, e := range []float64{1e-3, 1e-4, 1e-6, 1e-9} {
		for r := 1; r <= 2; r++ {
			s := newSim(t, Options{Window: 60000, Error: e, Roles: r}, 1)
			for w := range 12 {
				rate := 500.0
				if w == 4 {
					rate *= 50
				}
				s.run(s.now+60000, steady(rate))
				s.check()
				t.Logf("e=%g r=%d w=%d bytes=%d len=%d bits=%.1f fpp=%.3g worst=%.3g segs=%d %v", e, r, w, s.f.Bytes(), s.f.Len(), float64(s.f.Bytes())*8/float64(s.f.Len()), s.f.EffectiveFPP(), s.worst, len(s.f.segs), s.done)
			}
			s.idle(s.now + 10*60000)
			t.Logf("idle: %d bytes %d segs %v due %v", s.f.Bytes(), len(s.f.segs), s.done, s.f.NextDue()-s.now)
		}
	}
}
