package cluster

import (
	"slices"
	"testing"

	nodes "github.com/fbfkv/fbfkv/cluster"
)

// TestLevelHeld: during an upgrade status names the nodes that the format level waits for.
func TestLevelHeld(t *testing.T) {
	node := func(port, level int) nodes.Member {
		return nodes.Member{Host: "10.0.0.1", Port: port, Level: level}
	}
	for _, tt := range []struct {
		members []nodes.Member
		want    []string
	}{
		{[]nodes.Member{node(7001, 2), node(7002, 2)}, nil}, // it is about to rise
		{[]nodes.Member{node(7001, 3), node(7002, 1), node(7003, 2)},
			[]string{"the format level rises to 3 once a newer program runs on 10.0.0.1:7002, 10.0.0.1:7003"}},
	} {
		if got := levelHeld(&nodes.Configuration{Format: 1, Members: tt.members}); !slices.Equal(got,
			tt.want) {
			t.Errorf("%v: %q, want %q", tt.members, got, tt.want)
		}
	}
}

// TestIllMembers: status names a node that stands aside, or has lacked something for long, with the reason.
func TestIllMembers(t *testing.T) {
	m := nodes.Member{ID: "a", Voter: true}
	for want, state := range map[string]nodes.State{
		"": {Role: "follower", Leader: "b", Behind: 4000},
		"has lacked committed entries for 12s: its disk is full; it does not count for the majority": {Role: "follower", Leader: "b", Behind: 12_000, DiskFull: true},
		"takes no part: it is older": {Role: "follower", Leader: "b", Aside: "it is older"},
	} {
		a := asked{Info: nodes.Info{Cluster: "c", Self: m, State: &state}}
		if _, got := judgeMember(m, a, &nodes.Configuration{Cluster: "c"}, true); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSpans(t *testing.T) {
	for want, list := range map[string][]int{"3": {3}, "0-2 4 6-7": {0, 1, 2, 4, 6, 7}, "": nil} {
		if got := spans(nodes.Ranges(list)); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
