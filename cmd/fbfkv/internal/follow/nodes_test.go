package follow

import (
	"slices"
	"testing"
	"time"
)

// TestFailedNodes: a node that has failed is asked last, and for a while only: it may lead again.
func TestFailedNodes(t *testing.T) {
	n := nodes{failed: map[string]time.Time{"long ago": time.Now().Add(-failPeriod)}}
	shard := []string{"now", "other"}
	if !n.next(shard) || !slices.Equal(shard, []string{"other", "now"}) || n.next([]string{"now"}) {
		t.Errorf("which is asked next: %q", shard)
	}
	for addr, want := range map[string]bool{"now": true, "long ago": false, "never": false} {
		if n.fails(addr) != want {
			t.Errorf("a node that failed %s is asked last: %v", addr, !want)
		}
	}
}
