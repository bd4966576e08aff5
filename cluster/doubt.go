package cluster

import (
	"fmt"
	"time"
)

// The word of one other node that this node's directory is older is no evidence: the other one may
// remember what never was, or what all others have lost. But it may be right, and alone in knowing.
// So this node doubts itself. It sends nothing of Raft and gives no vote, which could make a leader
// of a node that lacks what this one has lost. It follows a leader: if something of the leader's
// term is committed here, this node has everything that was committed before, and the doubt ends.
// It stands aside when most of the others say the same.

// doubtPeriod is how often a node that doubts itself looks whether it follows a leader.
const doubtPeriod = 50 * time.Millisecond

// Voters has f say how many nodes vote in this node's shard.
func (n *Net) Voters(f func() int) { n.voters.Store(&f) }

// Doubt has this node doubt itself, since another node says that its directory is older. It waits
// for nothing.
func (n *Net) Doubt(from string) {
	needed := 2
	if f := n.voters.Load(); f != nil {
		voters := (*f)()
		needed = max(1, min(voters/2+1, voters-1))
	}
	n.mu.Lock()
	first := len(n.says) == 0
	n.says[from] = struct{}{}
	all := len(n.says) >= needed
	if !all {
		err := fmt.Errorf("the node %.8s says that this node's directory is older than one it ran with "+
			"before. This node gives no vote until it follows a leader again; "+
			"if it never does, replace the node (fbfkv cluster replace)", from)
		n.doubt.CompareAndSwap(nil, &err)
	}
	f := n.onAside
	n.mu.Unlock()
	switch {
	case all:
		go n.StandAside(errOlder) // which ends also the connection that the word came by
	case first:
		n.o.Log.Warn("this node may have an old directory, and gives no vote", "reason", n.Doubts())
		if f != nil {
			f()
		}
		go n.endDoubt()
	}
}

// endDoubt waits until this node is one of a majority that works.
func (n *Net) endDoubt() {
	tick := time.NewTicker(doubtPeriod)
	defer tick.Stop()
	for !n.isOfMajority() {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
	}
	n.mu.Lock()
	clear(n.says)
	n.doubt.Store(nil)
	n.mu.Unlock()
	n.o.Log.Info("this node has everything that was committed, and votes again")
}

// Doubts returns why this node stands aside, or doubts itself; nil: it does neither.
func (n *Net) Doubts() error {
	if reason := n.doubt.Load(); reason != nil && n.aside.Load() == nil {
		return *reason
	}
	return n.Aside()
}
