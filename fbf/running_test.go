package fbf

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestOneStepALook has many look at a clock at the same time while it jumps: its
// running time never goes back for any of them, and a jump advances it by one step.
func TestOneStepALook(t *testing.T) {
	var r RunningTime
	var clock atomic.Int64
	var looking sync.WaitGroup
	var done atomic.Bool
	defer looking.Wait()
	defer done.Store(true)
	for range 4 {
		looking.Go(func() {
			for last := int64(0); !done.Load(); {
				running := r.Look(clock.Load)
				if running < last {
					t.Errorf("the running time went back from %d to %d", last, running)
					return
				}
				last = running
			}
		})
	}
	before := r.Look(clock.Load)
	for n := range 100_000 {
		jump := []int64{100, 1100, 1500, 900, 1900, 6000, 1 << 30}[n%7]
		clock.Add(jump)
		after := r.Look(clock.Load)
		if want := min(jump, LongestStep.Milliseconds()); after-before != want {
			t.Fatalf("jump %d of %d ms advanced the running time by %d, want %d", n, jump, after-before, want)
		}
		before = after
	}
	clock.Add(-1 << 30)
	if after := r.Look(clock.Load); after != before {
		t.Errorf("a clock that goes back moved the running time from %d to %d", before, after)
	}
}

// TestGapIsFoundOnce: who read the clock before a gap was found, and goes on after
// it, does not make a second step of it.
func TestGapIsFoundOnce(t *testing.T) {
	var r RunningTime
	const reading = 1900
	running := r.Look(func() int64 {
		r.Look(func() int64 { return reading })
		return reading
	})
	if want := LongestStep.Milliseconds(); running != want {
		t.Errorf("two looks at a gap of %d ms advanced the running time by %d ms, want %d", reading, running,
			want)
	}
}
