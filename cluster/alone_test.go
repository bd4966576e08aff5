package cluster

import (
	"testing"
	"time"
)

// TestLeadsAlone has the only voter of a shard and of the meta group lead without the wait for an election
// timeout, when it begins and when it starts again. A node that has other voters waits.
func TestLeadsAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		at := time.Now()
		s := newShard(t, 1)
		within := func(what string, least, most float64) {
			t.Helper()
			if took := time.Since(at); took < time.Duration(least*float64(testTimeout)) ||
				took >= time.Duration(most*float64(testTimeout)) {
				t.Errorf("%s leads after %v", what, took)
			}
		}
		within("a node that begins a shard", 0, electionPart)
		m := s.members[0]
		m.stop()
		at = time.Now()
		m.start()
		await(t, "it leads", m.node.Leads)
		within("a node that starts again", 0, electionPart)
		at = time.Now()
		g := newMetaGroup(t, 1)
		within("a node that begins a cluster", 0, metaElectionPart/2.0)
		g.nodes[0].stop()
		at = time.Now()
		g.nodes[0].start(false)
		g.awaitSettled()
		within("a node of the meta group that starts again", 0, metaElectionPart/2.0)

		three := newShard(t, 3)
		for _, m := range three.members {
			m.stop()
		}
		at = time.Now()
		for _, m := range three.members {
			m.start()
		}
		three.onLeader("lead", func(*Node) error { return nil })
		within("one of three nodes", electionPart, 10)
	})
}
