package region

import (
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/regions"
)

// TestLacks: a region may be removed once one that stays has read all of it, and has inherited
// what was removed before.
func TestLacks(t *testing.T) {
	ends := map[uint16]uint64{0: 10, 1: 7}
	for name, tt := range map[string]struct {
		change func(*regions.NodeStatus)
		lag    uint64
		want   string // of the error; "": there is none
	}{
		"has all":       {change: func(*regions.NodeStatus) {}},
		"lacks entries": {func(s *regions.NodeStatus) { s.Peers[0].Ranges[1].Taken = 4 }, 3, "still lacks 3 entries"},
		"reads a part": {func(s *regions.NodeStatus) { s.Peers[0].Ranges = s.Peers[0].Ranges[:1] }, 0,
			"does not read all"},
		"does not read": {func(s *regions.NodeStatus) { s.Peers[0].Paused = true }, 0, "does not read eu"},
		"is another":    {func(s *regions.NodeStatus) { s.Peers[0].Number = 4 }, 0, "does not read eu"},
		"does not know": {func(s *regions.NodeStatus) { s.Peers = nil }, 0, "does not read eu"},
		"has another count": {func(s *regions.NodeStatus) { s.Peers[0].Partitions = 4 }, 0,
			"reported 2 of its 4 partitions"},
		"was removed before": {func(s *regions.NodeStatus) {
			s.Removals = []regions.RemovalStatus{{Name: "ap", Done: true}, {Name: "sa",
				State: "the heir waits"}}
		}, 0, "sa was removed before"},
		"was inherited": {change: func(s *regions.NodeStatus) {
			s.Removals = []regions.RemovalStatus{{Name: "ap", Done: true}}
		}},
	} {
		st := regions.NodeStatus{Peers: []regions.PeerStatus{{Name: "eu", Number: 2, Partitions: 2,
			Connected: true,
			Ranges:    []regions.RangePlace{{Partition: 0, Taken: 10}, {Partition: 1, Taken: 7}}}}}
		tt.change(&st)
		lag, err := lacks(&st, "us", "eu", 2, ends)
		if lag != tt.lag || (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d, %v", name, lag, err)
		}
	}
}
