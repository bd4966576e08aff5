package main

import "testing"

// TestAlarm lets the timer of an open loop ring for operations that are due far
// apart and close together, with a reply in between that wakes the thread for
// nothing: no operation waits for longer than a grain, none has a ring before it
// is due, and no more rings are set than that needs.
func TestAlarm(t *testing.T) {
	for _, tt := range []struct{ interval, rings int64 }{{1_000_000, 1000}, {50_000, 500}, {10_000, 100}} {
		s := schedule{start: sendGrain, interval: float64(tt.interval)}
		var a alarm
		var rings, worst int64
		for now := int64(0); s.next < 1000; {
			if n := s.due(now, 1000); n > 0 {
				worst = max(worst, now-s.at(s.next))
				s.take(n)
			}
			at, set := a.next(now, s.at(s.next))
			if set {
				rings++
			}
			if again, set := a.next(now+1, s.at(s.next)); set || again != at {
				t.Fatalf("every %d ns: set again at %d", tt.interval, now)
			}
			if at <= now || at < s.at(s.next) {
				t.Fatalf("every %d ns: at %d it rings at %d, before the next is due at %d", tt.interval, now, at, s.at(s.next))
			}
			now = at
		}
		if worst >= sendGrain || rings > tt.rings*11/10+2 {
			t.Errorf("every %d ns: an operation waited for %d ns, %d rings", tt.interval, worst, rings)
		}
	}
}
