package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// trimLogs has each running node keep few entries of its log for those that are behind, and
// give up the others now.
func (s *shard) trimLogs() {
	s.t.Helper()
	for _, m := range s.members {
		n := m.running()
		if n == nil {
			continue
		}
		r := n.raft.ReloadableConfig()
		r.TrailingLogs = 5
		if err := n.raft.ReloadConfig(r); err != nil {
			s.t.Fatal(err)
		}
		if err := n.raft.Snapshot().Error(); err != nil && err != raft.ErrNothingNewToSnapshot {
			s.t.Fatal(err)
		}
	}
}

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this has not come: " + what)
		}
	}
}

// TestRejoin: a node that comes back when the log does not reach back to what it has takes the
// leader's files, under load, and has the same as the others afterwards.
func TestRejoin(t *testing.T) {
	s := newShard(t, 3)
	l := startLoad(s, 4, 20)
	l.more(300)
	leader := s.leader()
	away := s.members[0]
	if away == leader {
		away = s.members[1]
	}
	away.stop()
	l.more(300)
	s.trimLogs()
	last := leader.running().log.Applied()
	l.more(300)
	s.trimLogs()
	if first, _ := leader.running().log.EntryBounds(); first+5 < last {
		t.Fatalf("the log begins with %d, and %d was applied long ago", first, last)
	}
	away.start()
	await(t, "the node has the leader's files", func() bool { return away.restarted.Load() > 0 })
	l.more(300)
	l.finish()
}
