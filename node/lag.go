package node

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
)

// hasAllUntil notes until when this node has had all that was committed: until the oldest entry was
// committed that it has not applied, and no longer than a leader has said what is committed, or
// than it led itself.
func (n *member) hasAllUntil(s cluster.Status) {
	until := s.Heard.At
	if s.Leads {
		n.led = time.Now()
	}
	if n.led.After(until) {
		until = n.led
	}
	if until.IsZero() {
		until = n.opened
	}
	if lag := n.commits.since(s.Applied); lag > 0 && time.Since(until) < lag {
		until = time.Now().Add(-lag)
	}
	n.hadAll.Store(&until)
	if s.Leads || s.Heard.Begun && s.Applied >= s.Heard.Commit {
		n.hadOnce.Store(true)
	}
}

// behind returns for how long this node has not had all that was committed, as a replica; 0: it leads.
func (n *member) behind() time.Duration {
	until := n.hadAll.Load()
	if node := n.node.Load(); until == nil || node == nil || node.Leads() {
		return 0
	}
	return time.Since(*until)
}

// lacks is behind for reads. When this node has not had everything since its start, nobody knows how old
// its values are: nothing says when it was stopped.
func (n *member) lacks() time.Duration {
	if node := n.node.Load(); !n.hadOnce.Load() && (node == nil || !node.Leads()) {
		return math.MaxInt64
	}
	return n.behind()
}

// commitTimes remembers when how much was committed, so that one can tell since when a
// replica lacks something.
type commitTimes struct {
	mu sync.Mutex
	at []commitTime // the oldest first
}

type commitTime struct {
	index uint64
	at    time.Time
}

// maxCommitTimes is how many looks are remembered: a replica that lacks more is said to be that
// far behind.
const maxCommitTimes = 7200

// note notes how much is committed.
func (c *commitTimes) note(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.at); n > 0 && c.at[n-1].index >= index {
		return
	}
	c.at = append(c.at, commitTime{index, time.Now()})
	c.at = slices.Delete(c.at, 0, max(len(c.at)-maxCommitTimes, 0))
}

// since returns for how long there has been something committed behind an index; 0: there is
// nothing, as far as is known.
func (c *commitTimes) since(index uint64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.at, index+1, func(t commitTime, index uint64) int {
		return cmp.Compare(t.index, index)
	})
	if i == len(c.at) {
		return 0
	}
	return time.Since(c.at[i].at)
}
