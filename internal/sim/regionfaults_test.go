package sim

import (
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/regions"
)

// TestMayTakeState: a process that has not heard from a region since it started may find a part of that
// region's state in its directory. If the region is lost then, what was sent to it counts twice.
func TestMayTakeState(t *testing.T) {
	log, state := []regions.RangeStatus{{}}, []regions.RangeStatus{{}, {State: "keys 40%"}}
	now := time.Now()
	for _, c := range []struct {
		may bool
		all []regions.Status
	}{
		{true, nil},
		{true, []regions.Status{{Name: "r0", LastAnswer: now, Ranges: log}}},
		{true, []regions.Status{{Name: "r1", Ranges: log}}},
		{true, []regions.Status{{Name: "r1", LastAnswer: now, Ranges: state}}},
		{true, []regions.Status{{Name: "r1", LastAnswer: now, Ranges: log}, {Name: "r1", Ranges: log}}},
		{false, []regions.Status{{Name: "r0", Ranges: state}, {Name: "r1", LastAnswer: now, Ranges: log}}},
	} {
		if may := mayTakeState(c.all, "r1"); may != c.may {
			t.Errorf("%+v: %v", c.all, may)
		}
	}
}
