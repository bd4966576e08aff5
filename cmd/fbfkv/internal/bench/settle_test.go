package bench

import (
	"testing"
	"time"
)

// TestSettled: a server has settled when it neither works nor has finished anything.
func TestSettled(t *testing.T) {
	before := settling{cpu: 10, at: time.Unix(100, 0), activity: activity{flushes: 5, compactions: 2, snapshots: 1}}
	for _, tc := range []struct {
		name                      string
		cpu, flushes, compactions float64
		want                      bool
	}{
		{"idle", 10.05, 5, 2, true},
		{"compacts", 12, 5, 2, false},
		{"has flushed", 10, 6, 2, false},
		{"has compacted", 10, 5, 3, false},
	} {
		now := settling{cpu: tc.cpu, at: before.at.Add(settleLook), activity: activity{flushes: tc.flushes, compactions: tc.compactions, snapshots: 1}}
		if got := now.settledSince(before); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
