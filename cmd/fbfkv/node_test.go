package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
)

// TestHasAllUntil: a replica has had all that was committed until the oldest entry was committed that it lacks, and for no longer
// than its leader has said what is committed. One that takes in everything a moment later is not behind.
func TestHasAllUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := clusterNode{opened: time.Now()}
		heard, behind := uint64(0), func() time.Duration { return time.Since(*n.hadAll.Load()).Round(time.Second) }
		look := func(committed, applied uint64, hears bool) {
			time.Sleep(time.Second)
			s := cluster.Status{Committed: committed, Applied: applied}
			if heard = max(heard, committed); hears {
				s.Heard = cluster.Heard{At: time.Now(), Commit: heard}
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
			n.hasAllUntil(cluster.Status{Committed: 119, Applied: 119, Heard: cluster.Heard{At: said, Commit: 119}})
		}
		if got := behind(); got != 10*time.Second {
			t.Errorf("%v behind without a leader, want 10 s", got)
		}
	})
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
			newest: 0, newest + 5: 0, newest - 1: time.Second, newest - 10: time.Second, newest - 11: 2 * time.Second,
			0: maxCommitTimes * time.Second, // as far as is known
		} {
			if got := c.since(index); got != want {
				t.Errorf("index %d: %v, want %v", index, got, want)
			}
		}
	})
}
