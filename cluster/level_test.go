package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// upgrade starts the node with another program, and waits until the others know which level it reads.
func (n *metaNode) upgrade(level int) {
	n.g.t.Helper()
	n.stop()
	n.level = level
	n.listen()
	n.start(false)
	await(n.g.t, "the level is announced", func() bool {
		c := n.meta.Configuration()
		m := c.Member(n.id)
		return m != nil && m.Level == level
	})
	n.g.awaitSettled()
}

// TestLevelRises upgrades one node after the other. The cluster is at the new level when every
// program reads it, and not before; each node's log says so. An older program is refused from then
// on: one that dials with a member's directory, one that does not know the level and is dialed, and
// one that asks to be admitted.
func TestLevelRises(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		for i, n := range g.nodes {
			if c := g.leader().meta.Configuration(); c.Format != 1 {
				t.Fatalf("%d of 3 programs read level 2, and the cluster is at level %d", i, c.Format)
			}
			n.upgrade(2)
		}
		for _, n := range g.nodes {
			await(t, "the cluster is at level 2", func() bool {
				c := n.meta.Configuration()
				return c.Format == 2
			})
			n.log.until(t, "at a newer format level")
		}

		present, old, other := g.nodes[0].meta.Configuration(), g.nodes[1], g.nodes[0]
		old.stop()
		old.level = 1
		old.newest.Store(nil)
		old.listen()
		defer func() { must(t, old.net.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), testwait.Limit)
		defer cancel()
		const advice = "start this node with a newer program"
		if _, err := old.net.Dial(ctx, other.id, present.Member(other.id).ClusterAddress(),
			KindMeta); err == nil ||
			!strings.Contains(err.Error(), "reads formats up to level 1") ||
			!strings.Contains(err.Error(), advice) {
			t.Errorf("an older program dials: %v", err)
		}
		old.log.until(t, advice)
		other.log.until(t, "reads formats up to level 1, and the cluster writes level 2: it needs a "+
			"newer program")
		old.net.Handle(KindMeta, func(c net.Conn, _ Identity) { c.Close() })
		if _, err := other.net.Dial(ctx, old.id, present.Member(old.id).ClusterAddress(),
			KindMeta); err == nil || !strings.Contains(err.Error(), "needs a newer program") {
			t.Errorf("an older program is dialed: %v", err)
		}
		if _, err := present.Changed(func(c *Configuration) error {
			c.Members = append(c.Members, member(4))
			return nil
		}); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), "reads format levels up to 1, and the cluster is at level 2") {
			t.Errorf("an older program is admitted: %v", err)
		}
	})
}

// TestLevelIsRead has a cluster rise over the head of a node that has announced more than its
// program reads: what it cannot read ends the process, which does not go by it, and its directory
// says why when it is started again.
func TestLevelIsRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		old, ended := g.nodes[2], make(chan error, 10)
		old.fatal = func(err error) { ended <- err }
		for i, level := range []int{2, 2, 1} {
			g.nodes[i].upgrade(level)
		}
		for _, n := range g.nodes {
			n.newest.Store(nil) // no connection is refused for its level: it is the entry that it hears of
		}
		c := g.leader().meta.Configuration()
		c.rise(3)
		if c.Format != 1 {
			t.Fatalf("the cluster rises to level %d, which a member does not read", c.Format)
		}
		c.Members = slices.Clone(c.Members)
		c.Member(old.id).Level = 2 // as an earlier program of that node would have said
		if c.rise(1); c.Format != 1 {
			t.Errorf("the program of the leader reads level 1, and has the cluster rise to level %d",
				c.Format)
		}
		c.rise(2)
		await(t, "a leader has it", func() bool {
			for _, n := range g.nodes[:2] {
				c.Version = n.meta.Configuration().Version + 1
				if n.meta.Status().Settled && n.meta.apply(c) == nil {
					return true
				}
			}
			_ = old.meta.raft.LeadershipTransfer() // if it is the leader
			return false
		})
		select {
		case err := <-ended:
			if !errors.Is(err, ErrNewerLevel) ||
				!strings.Contains(err.Error(), "level 2; this one reads up to 1") {
				t.Errorf("it ends with %v", err)
			}
		case <-time.After(testwait.Limit):
			t.Error("it goes on")
		}
		if c := old.meta.Configuration(); c.Format == 2 {
			t.Error("it goes by what it does not read")
		}

		mem := vfs.NewMem()
		d, err := OpenDirectory(mem, "d")
		must(t, err)
		// which a newer program would have kept as well
		if err := d.Learn(c); !errors.Is(err, ErrNewerLevel) {
			t.Errorf("a configuration of level 2 is learnt: %v", err)
		}
		must(t, d.Close())
		if _, err := OpenDirectory(mem, "d"); !errors.Is(err, ErrNewerLevel) ||
			!strings.Contains(err.Error(), "start this node with a newer program") {
			t.Errorf("a directory of a newer cluster is opened: %v", err)
		}
	})
}
