package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// levelNode is a node of a cluster whose nodes run programs that read different format levels.
type levelNode struct {
	t      *testing.T
	member Member
	fs     *vfs.MemFS
	stable *Stable
	net    *Net
	meta   atomic.Pointer[Meta] // nil: it does not run
	log    *logged
	fatal  chan error // why the process would have ended
}

// startLevels starts a cluster of programs that read these levels.
func startLevels(t *testing.T, levels ...int) (all []*levelNode) {
	c := threeNodes()
	c.Version, c.Members = 1, nil
	for i, level := range levels {
		n := &levelNode{t: t, member: member(i + 1), fs: vfs.NewMem()}
		n.listen(level, "127.0.0.1:0")
		n.member.ClusterPort, n.member.Level = n.net.Addr().(*net.TCPAddr).Port, level
		all, c.Members = append(all, n), append(c.Members, n.member)
	}
	t.Cleanup(func() {
		for _, n := range all {
			n.stop()
		}
	})
	for i, n := range all {
		var found *Configuration
		if i == 0 {
			found = &c
		}
		must(t, n.start(found))
	}
	return all
}

// listen opens the cluster port of a program that reads up to a level.
func (n *levelNode) listen(level int, address string) {
	l, err := net.Listen("tcp", address)
	must(n.t, err)
	n.log, n.fatal = new(logged), make(chan error, 1)
	n.net, err = Listen(l, NetOptions{
		Self:   Identity{Cluster: id(1000), Node: n.member.ID, Format: uint16(level)},
		Level:  func() uint16 { return uint16(n.configuration().Format) },
		Secret: testSecret, Log: slog.New(slog.NewTextHandler(n.log, nil)),
	})
	must(n.t, err)
}

// start takes part in the meta group.
func (n *levelNode) start(found *Configuration) (err error) {
	n.stable, err = OpenStable(n.fs, "d")
	must(n.t, err)
	fatal := n.fatal
	meta, err := StartMeta(MetaOptions{ID: n.member.ID, Stable: n.stable, Net: n.net, Address: n.net.Addr().String(), Found: found,
		Timeout: testTimeout / 2, Logger: slog.New(slog.NewTextHandler(n.log, nil)), Fatal: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		}})
	n.meta.Store(meta)
	return err
}

// stop ends the process.
func (n *levelNode) stop() {
	if meta := n.meta.Swap(nil); meta != nil {
		must(n.t, errors.Join(meta.Close(), n.net.Close(), n.stable.Close()))
	}
}

// upgrade starts another program on the node's directory.
func (n *levelNode) upgrade(level int) {
	n.stop()
	n.listen(level, n.member.ClusterAddress())
	must(n.t, n.start(nil))
}

// configuration is the newest one that the node knows.
func (n *levelNode) configuration() (c Configuration) {
	if meta := n.meta.Load(); meta != nil {
		c = meta.Configuration()
	}
	return c
}

// settled waits until the leader of the meta group has nothing to do, and returns the configuration.
func settled(all []*levelNode) (c Configuration) {
	await(all[0].t, "the meta group is settled", func() bool {
		for _, n := range all {
			if n.meta.Load().Status().Settled {
				c = n.configuration()
				return c.Version > 0
			}
		}
		return false
	})
	return c
}

// TestLevelRises upgrades one node after the other. The cluster is at the new level when every program
// reads it, and not before; each node's log says so. An older program is refused from then on: one that is started
// again on its directory, one that dials, and one that is to be admitted.
func TestLevelRises(t *testing.T) {
	all := startLevels(t, 1, 1, 1)
	for i, n := range all {
		if c := settled(all); c.Format != 1 {
			t.Fatalf("%d of 3 programs read level 2, and the cluster is at level %d", i, c.Format)
		}
		n.upgrade(2)
		await(t, "the program's level is announced", func() bool {
			c := n.configuration()
			m := c.Member(n.member.ID)
			return m != nil && m.Level == 2
		})
	}
	for _, n := range all {
		await(t, "the cluster is at level 2", func() bool { return n.configuration().Format == 2 })
		n.log.until(t, "at a newer format level")
	}

	c, old := settled(all), all[1]
	old.stop()
	old.listen(1, old.member.ClusterAddress())
	err := old.start(nil) // Raft may hold what it does not read as a snapshot
	if err != nil && !errors.Is(err, ErrNewerLevel) {
		t.Errorf("an older program on a directory of level 2: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := old.net.Dial(ctx, all[0].member.ID, all[0].member.ClusterAddress(), KindMeta); err == nil ||
		!strings.Contains(err.Error(), "reads formats up to level 1") || !strings.Contains(err.Error(), "start this node with a newer program") {
		t.Errorf("an older program dials: %v", err)
	}
	all[0].log.until(t, "reads formats up to level 1, and the cluster writes level 2: it needs a newer program")
	if old.configuration().Format == 2 {
		t.Error("an older program goes by a configuration of level 2")
	}
	if old.meta.Load() == nil {
		must(t, errors.Join(old.net.Close(), old.stable.Close()))
	}
	fourth := member(4)
	if _, err := c.Changed(func(c *Configuration) error {
		c.Members = append(c.Members, fourth)
		return nil
	}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "reads format levels up to 1, and the cluster is at level 2") {
		t.Errorf("an older program is admitted: %v", err)
	}
}

// TestLevelIsRead has a cluster rise over the head of a node that has announced more than its program
// reads: what it cannot read ends the process, which does not go by it, and its directory says why when it is started again.
func TestLevelIsRead(t *testing.T) {
	all := startLevels(t, 2, 2, 1)
	c := settled(all)
	c.rise(3)
	if c.Format != 1 {
		t.Fatalf("the cluster rises to level %d, which a member does not read", c.Format)
	}
	c.Members = append([]Member(nil), c.Members...)
	c.Members[2].Level = 2 // as an earlier program of that node would have said
	if c.rise(1); c.Format != 1 {
		t.Errorf("the program of the leader reads level 1, and has the cluster rise to level %d", c.Format)
	}
	c.rise(2)
	await(t, "a leader has it", func() bool {
		for _, n := range all[:2] {
			c.Version = n.configuration().Version + 1
			if n.meta.Load().Status().Settled && n.meta.Load().apply(c) == nil {
				return true
			}
		}
		_ = all[2].meta.Load().raft.LeadershipTransfer() // if it is the leader
		return false
	})
	select {
	case err := <-all[2].fatal:
		if !errors.Is(err, ErrNewerLevel) || !strings.Contains(err.Error(), "level 2; this one reads up to 1") {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
	if all[2].configuration().Format == 2 {
		t.Error("it goes by what it does not read")
	}

	mem := vfs.NewMem()
	d, err := OpenDirectory(mem, "d")
	must(t, err)
	if err := d.Learn(c); !errors.Is(err, ErrNewerLevel) { // which a newer program would have kept as well
		t.Errorf("a configuration of level 2 is learnt: %v", err)
	}
	must(t, d.Close())
	if _, err := OpenDirectory(mem, "d"); !errors.Is(err, ErrNewerLevel) || !strings.Contains(err.Error(), "start this node with a newer program") {
		t.Errorf("a directory of a newer cluster is opened: %v", err)
	}
}
