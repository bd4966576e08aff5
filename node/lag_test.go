package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cluster/raftgroup"
)

// TestHasAllUntil: a replica has had all that was committed until the oldest entry was committed
// that it lacks, and for no longer than its leader has said what is committed. One that takes in
// everything a moment later is not behind.
func TestHasAllUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := member{opened: time.Now()}
		heard, behind := uint64(0), func() time.Duration {
			return time.Since(*n.hadAll.Load()).Round(time.Second)
		}
		look := func(committed, applied uint64, hears bool) {
			time.Sleep(time.Second)
			s := cluster.Status{Committed: committed, Applied: applied}
			if heard = max(heard, committed); hears {
				s.Heard = raftgroup.Heard{At: time.Now(), Commit: heard}
			}
			n.commits.note(max(s.Committed, s.Heard.Commit))
			n.hasAllUntil(s)
		}
		for i := range uint64(30) { // one entry behind at each look
			look(i+1, i, true)
		}
		if got := behind(); got > time.Second {
			t.Errorf("%v behind while it keeps up", got)
		}
		for i := range uint64(20) { // the disk is full, and the leader goes on
			heard = 100 + i
			look(30, 30, true)
		}
		if got := behind(); got != 19*time.Second {
			t.Errorf("%v behind, want 19 s", got)
		}
		look(119, 119, true)
		if got := behind(); got != 0 {
			t.Errorf("%v behind with everything", got)
		}
		said := time.Now()
		for range 10 { // nobody says what is committed
			time.Sleep(time.Second)
			n.hasAllUntil(cluster.Status{Committed: 119, Applied: 119,
				Heard: raftgroup.Heard{At: said, Commit: 119}})
		}
		if got := behind(); got != 10*time.Second {
			t.Errorf("%v behind without a leader, want 10 s", got)
		}
	})
}

// TestStartedReplica: a replica that was just started answers no reads until it has had, at one
// look, all that its leader knows to be committed, and the leader knows everything. Its start may
// have come long after its stop.
func TestStartedReplica(t *testing.T) {
	for _, c := range []struct {
		name   string
		status cluster.Status
		serves bool
	}{
		{"nothing was heard", cluster.Status{Applied: 50}, false},
		{"it lacks something", cluster.Status{Applied: 50, Heard: raftgroup.Heard{Commit: 51, Begun: true}},
			false},
		{"its leader was just started as well",
			cluster.Status{Applied: 50, Heard: raftgroup.Heard{Commit: 20}}, false},
		{"it has everything", cluster.Status{Applied: 51, Heard: raftgroup.Heard{Commit: 51, Begun: true}},
			true},
		{"it led", cluster.Status{Applied: 51, Leads: true}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := member{opened: time.Now()}
			n.node.Store(new(cluster.Node))
			if n.lacks() < time.Hour {
				t.Error("it serves reads before the first look")
			}
			if c.status.Heard != (raftgroup.Heard{}) {
				c.status.Heard.At = time.Now()
			}
			n.commits.note(c.status.Heard.Commit)
			n.hasAllUntil(c.status)
			if got := n.lacks(); got > time.Second == c.serves || !c.serves && got < 24*time.Hour {
				t.Errorf("%s: it counts as %v behind", c.name, got)
			}
			time.Sleep(3 * time.Second)
			c.status.Leads = false
			n.hasAllUntil(c.status)
			if got := n.lacks(); c.serves && got != 3*time.Second {
				t.Errorf("%s: then it counts as %v behind, want 3 s", c.name, got)
			}
		})
	}
}

// TestCommitTimes: since when a replica lacks something that is committed.
func TestCommitTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c commitTimes
		for i := range uint64(2 * maxCommitTimes) {
			c.note(10 * i)
			c.note(10 * i)
			time.Sleep(time.Second)
		}
		newest := uint64(10 * (2*maxCommitTimes - 1))
		for index, want := range map[uint64]time.Duration{
			newest: 0, newest + 5: 0, newest - 1: time.Second, newest - 10: time.Second,
			newest - 11: 2 * time.Second,
			0:           maxCommitTimes * time.Second, // as far as is known
		} {
			if got := c.since(index); got != want {
				t.Errorf("index %d: %v, want %v", index, got, want)
			}
		}
	})
}
