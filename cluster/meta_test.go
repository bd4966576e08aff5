package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
)

// metaGroup is the meta group of a test: nodes without stores.
type metaGroup struct {
	t      *testing.T
	faults faults
	nodes  []*metaNode
}

// metaNode is one of them.
type metaNode struct {
	g      *metaGroup
	id     string
	fs     *vfs.MemFS
	port   int
	stable *raftgroup.Stable
	net    *Net
	meta   *Meta                // nil: it does not run
	newest atomic.Pointer[Meta] // the last one, for net
	level  int                  // the newest format level that its program reads; 0: FormatLevel
	log    logged
	fatal  func(error)                   // why the process would end; nil: it may not
	gate   atomic.Pointer[chan struct{}] // not nil: no fsync of the disk ends before it is closed
}

// newMetaGroup makes a cluster of so many nodes, all of which vote.
func newMetaGroup(t *testing.T, nodes int) *metaGroup {
	g := &metaGroup{t: t}
	for i := range nodes {
		g.nodes = append(g.nodes, &metaNode{g: g, id: id(i + 1), fs: vfs.NewCrashableMem()})
	}
	t.Cleanup(func() {
		for _, n := range g.nodes {
			if t.Failed() && n.meta != nil {
				c := n.meta.Configuration()
				t.Logf("node %s: %v\nits configuration: %+v\nits log:\n%s", n.id[39:], n.meta.raft.Stats(), c,
					n.log.text.String())
			}
			n.stop()
		}
	})
	for _, n := range g.nodes { // each has a port before the first one must know it
		n.listen()
	}
	for i, n := range g.nodes {
		if n.start(i == 0); i == 0 {
			await(t, "the cluster begins", func() bool { return n.meta.Configuration().Version > 0 })
		}
		g.configure(g.nodes[0], func(c *Configuration) error { return g.admit(c, n) })
	}
	g.awaitSettled()
	return g
}

// admit adds a node to a configuration, with a vote.
func (g *metaGroup) admit(c *Configuration, n *metaNode) error {
	if c.Member(n.id) == nil {
		m := member(0)
		m.ID, m.Port, m.ClusterPort, m.Level = n.id, 7000+len(c.Members), n.port, cmp.Or(n.level, FormatLevel)
		c.Members = append(c.Members, m)
	}
	return nil
}

// listen opens the node's cluster port.
func (n *metaNode) listen() {
	l := n.g.faults.listen(n.port)
	n.port = l.address.Port
	var err error
	n.g.faults.listens(l.Addr().String(), n.id)
	n.net, err = Listen(l, NetOptions{
		Self:   Identity{Cluster: testID("c"), Node: n.id, Format: uint16(cmp.Or(n.level, FormatLevel))},
		Secret: testSecret, Dial: n.g.faults.dialer(n.id), Log: slog.New(slog.NewTextHandler(&n.log, nil)),
		Level: func() (level uint16) {
			if m := n.newest.Load(); m != nil {
				level = uint16(m.Configuration().Format)
			}
			return level
		},
	})
	must(n.g.t, err)
}

// start takes part, as the founder or not.
func (n *metaNode) start(founds bool) {
	n.g.t.Helper()
	var err error
	n.stable, err = raftgroup.OpenStable(errorfs.Wrap(n.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if gate := n.gate.Load(); gate != nil &&
			(op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			<-*gate
		}
		return nil
	})), "d")
	must(n.g.t, err)
	o := MetaOptions{ID: n.id, Stable: n.stable, Net: n.net, Address: n.net.Addr().String(),
		Timeout: testTimeout / 2, Lost: 3 * time.Second,
		Fatal: n.fatal}
	if n.fatal == nil {
		o.Fatal = func(err error) { n.g.t.Errorf("node %s ends: %v", n.id[39:], err) }
	}
	var lines io.Writer = &n.log
	if testing.Verbose() {
		lines = io.MultiWriter(lines, n.g.t.Output())
	}
	o.Logger = slog.New(slog.NewTextHandler(lines, nil)).With("node", n.id[39:])
	if founds {
		c := threeNodes()
		c.Version, c.Members = 1, nil
		_ = n.g.admit(&c, n)
		o.Found = &c
	}
	n.meta, err = StartMeta(o)
	must(n.g.t, err)
	n.newest.Store(n.meta)
}

// stop ends the node in order.
func (n *metaNode) stop() {
	if n.meta != nil {
		must(n.g.t, errors.Join(n.meta.Close(), n.net.Close(), n.stable.Close()))
		n.meta = nil
	}
}

// lose ends the node as a power loss does.
func (n *metaNode) lose(r *rand.Rand) {
	for _, o := range n.g.nodes {
		if o != n {
			n.g.faults.isolate(n.id, o.id)
		}
	}
	n.meta.stopped.Store(true)
	must(n.g.t, errors.Join(n.meta.raft.Shutdown().Error(), n.net.Close()))
	close(n.meta.stop)
	n.meta.running.Wait()
	n.fs = n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: r})
	n.meta = nil
	for _, o := range n.g.nodes {
		if o != n {
			n.g.faults.reconnect(n.id, o.id)
		}
	}
}

// configure changes the configuration from a node, however often that takes.
func (g *metaGroup) configure(n *metaNode, fn func(*Configuration) error) {
	g.t.Helper()
	await(g.t, "a change", func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second) // else again
		defer cancel()
		return n.meta.Configure(ctx, fn) == nil
	})
}

// rename gives a member another name, which says which change it was.
func rename(id, name string) func(*Configuration) error {
	return func(c *Configuration) error {
		c.Member(id).Hostname = name
		return nil
	}
}

// leader returns the node that leads, once there is one.
func (g *metaGroup) leader() (leader *metaNode) {
	g.t.Helper()
	await(g.t, "a leader", func() bool {
		i := slices.IndexFunc(g.nodes, func(n *metaNode) bool {
			return n.meta != nil && n.meta.raft.State() == raft.Leader
		})
		if i >= 0 {
			leader = g.nodes[i]
		}
		return i >= 0
	})
	return leader
}

// awaitSettled waits until the group is as the configuration says.
func (g *metaGroup) awaitSettled() {
	g.t.Helper()
	await(g.t, "the group is as it should be", func() bool {
		return slices.ContainsFunc(g.nodes, func(n *metaNode) bool {
			return n.meta != nil && n.meta.Status().Settled
		})
	})
}

// awaitSame waits until all that run know the same configuration, in which a member has a name.
func (g *metaGroup) awaitSame(id, name string) {
	g.t.Helper()
	await(g.t, "all know "+name, func() bool {
		return !slices.ContainsFunc(g.nodes, func(n *metaNode) bool {
			if n.meta == nil {
				return false
			}
			c := n.meta.Configuration()
			m := c.Member(id)
			return m == nil || m.Hostname != name
		})
	})
}

// TestMetaGroup changes the configuration from each node, while nodes lose power and are cut off.
func TestMetaGroup(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		r := rand.New(rand.NewPCG(1, 2))
		for i, n := range g.nodes {
			name := fmt.Sprint("from", i)
			g.configure(n, rename(id(1), name))
			if c := n.meta.Configuration(); c.Member(id(1)).Hostname != name {
				t.Errorf("node %d does not know its own change: %+v", i, c)
			}
			g.awaitSame(id(1), name)
		}
		lost := g.leader()
		lost.lose(r)
		other := g.nodes[0]
		if other == lost {
			other = g.nodes[1]
		}
		g.configure(other, rename(id(1), "without"))
		lost.listen()
		lost.start(false)
		g.awaitSame(id(1), "without")

		cut := g.leader()
		for _, n := range g.nodes {
			if n != cut {
				g.faults.isolate(cut.id, n.id)
				other = n
			}
		}
		g.configure(other, rename(id(1), "connected"))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := cut.meta.Configure(ctx, rename(id(1), "cut")); !errors.Is(err, errNoMeta) {
			t.Errorf("a node that is cut off has changed the configuration: %v", err)
		}
		for _, n := range g.nodes {
			if n != cut {
				g.faults.reconnect(cut.id, n.id)
			}
		}
		g.awaitSame(id(1), "connected")
		for _, n := range g.nodes {
			n.lose(r)
		}
		for _, n := range g.nodes {
			n.listen()
			n.start(n == g.nodes[0]) // a founder that has not noted yet that it has begun
		}
		g.awaitSame(id(1), "connected")
	})
}

// TestMetaSnapshotWithinTheLog: a leader whose own log is short gives a snapshot to a node that has
// the next entry already, and another leader goes on behind that entry: the node has it still.
func TestMetaSnapshotWithinTheLog(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		leader := g.leader()
		node := g.nodes[0]
		if node == leader {
			node = g.nodes[1]
		}
		var last uint64
		for i := 0; ; i++ {
			g.configure(leader, rename(id(1), fmt.Sprint("before", i)))
			g.awaitSame(id(1), fmt.Sprint("before", i))
			await(t, "both have the same log", func() bool {
				last = leader.meta.raft.LastIndex()
				return node.meta.raft.LastIndex() == last && node.meta.raft.AppliedIndex() == last &&
					leader.meta.raft.AppliedIndex() == last
			})
			own, err := node.stable.Meta().Last()
			must(t, err)
			if own != nil && own.Index < last && last-own.Index < metaSnapshotEvery {
				break // it takes no newer one by itself
			}
		}
		var newest raft.Log
		must(t, node.meta.log.GetLog(last, &newest))
		c := leader.meta.Configuration()
		state, err := c.Encode()
		must(t, err)
		from, to := leader.meta.transport, raft.ServerAddress(net.JoinHostPort("127.0.0.1",
			strconv.Itoa(node.port)))
		header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.id),
			Addr: from.EncodePeer(raft.ServerID(leader.id), from.LocalAddr())}
		var installed raft.InstallSnapshotResponse
		must(t, from.InstallSnapshot(raft.ServerID(node.id), to, &raft.InstallSnapshotRequest{
			RPCHeader: header, SnapshotVersion: raft.SnapshotVersionMax, Term: newest.Term,
			Leader: header.Addr, LastLogIndex: last - 1, LastLogTerm: newest.Term,
			Configuration:      raft.EncodeConfiguration(leader.meta.raft.GetConfiguration().Configuration()),
			ConfigurationIndex: 1, Size: int64(len(state)),
		}, &installed, bytes.NewReader(state)))
		var appended raft.AppendEntriesResponse
		must(t, from.AppendEntries(raft.ServerID(node.id), to, &raft.AppendEntriesRequest{
			RPCHeader: header, Term: newest.Term, Leader: header.Addr, PrevLogEntry: last,
			PrevLogTerm:       newest.Term,
			Entries:           []*raft.Log{{Index: last + 1, Term: newest.Term, Type: raft.LogNoop}},
			LeaderCommitIndex: last + 1,
		}, &appended))
		if !installed.Success || !appended.Success {
			t.Errorf("snapshot: %+v, entry: %+v", installed, appended)
		}
	})
}

// TestMetaChangesAtOnce makes changes from all nodes at the same time: each counts once.
func TestMetaChangesAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		g.configure(g.nodes[0], rename(id(1), "before"))
		g.awaitSame(id(1), "before")
		before := g.nodes[0].meta.Configuration()
		const each = 20
		var changing sync.WaitGroup
		// a bit for each change, which may be asked for again when a leader is lost
		all := before.Shards[0].Epoch
		for i := range g.nodes {
			for k := range each {
				all |= 1 << (3 + i*each + k)
			}
			changing.Go(func() {
				for k := range each {
					err := g.nodes[i].meta.Configure(t.Context(), func(c *Configuration) error {
						c.Shards[0].Epoch |= 1 << (3 + i*each + k)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		changing.Wait()
		for _, n := range g.nodes {
			await(t, "all changes are known", func() bool {
				c := n.meta.Configuration()
				return c.Shards[0].Epoch == all && c.Version == before.Version+3*each
			})
			await(t, "the log is short", func() bool {
				first, err := n.meta.log.FirstIndex()
				last, err2 := n.meta.log.LastIndex()
				must(t, errors.Join(err, err2))
				return last-first < 4*metaSnapshotEvery
			})
		}
	})
}

// TestMetaChangeOfWhatIsNew asks a node for a change that rests on one that another node has made,
// and of which it has not heard yet.
func TestMetaChangeOfWhatIsNew(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		g.configure(g.nodes[0], rename(id(3), "first"))
		must(t, g.nodes[1].meta.Configure(t.Context(), func(c *Configuration) error {
			if name := c.Member(id(3)).Hostname; name != "first" && name != "second" {
				return errors.New("it is not so yet")
			}
			c.Member(id(3)).Hostname = "second"
			return nil
		}))
		g.awaitSame(id(3), "second")
		refused := errors.New("it is never so")
		if err := g.nodes[1].meta.Configure(t.Context(),
			func(*Configuration) error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a change that cannot be made: %v", err)
		}
	})
}

// TestMetaAddressIsTakenOver has a node begin anew, with another directory at its old address.
func TestMetaAddressIsTakenOver(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		old := g.nodes[2]
		old.stop()
		fresh := &metaNode{g: g, id: id(9), fs: vfs.NewCrashableMem(), port: old.port}
		g.nodes[2] = fresh
		fresh.listen()
		fresh.start(false)
		g.configure(g.nodes[0], func(c *Configuration) error {
			c.Members = slices.DeleteFunc(c.Members, func(m Member) bool { return m.ID == old.id })
			return g.admit(c, fresh)
		})
		g.awaitSettled()
		g.configure(fresh, rename(id(1), "changed"))
		g.awaitSame(id(1), "changed")
	})
}

// TestMetaVoterIsReplaced: who is removed votes no more, and another node does instead of one that is
// silent for long.
func TestMetaVoterIsReplaced(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 4)
		voters := func() []string { return g.leader().meta.Status().Voters }
		if v := voters(); len(v) != 3 {
			t.Fatalf("%d of four nodes vote", len(v))
		}
		leader := g.leader()
		gone := slices.IndexFunc(g.nodes, func(n *metaNode) bool {
			return n != leader && slices.Contains(voters(), n.id)
		})
		g.nodes[gone].stop()
		await(t, "another one votes in its place", func() bool {
			v := voters()
			return len(v) == 3 && !slices.Contains(v, g.nodes[gone].id)
		})

		// The leader is removed: it leaves that to another one.
		leader = g.leader()
		other := slices.IndexFunc(g.nodes, func(n *metaNode) bool { return n != leader && n.meta != nil })
		g.configure(g.nodes[other], func(c *Configuration) error {
			c.Members = slices.DeleteFunc(c.Members, func(m Member) bool { return m.ID == leader.id })
			return nil
		})
		await(t, "the group is without it", func() bool {
			return !slices.ContainsFunc(g.leader().meta.raft.GetConfiguration().Configuration().Servers,
				func(s raft.Server) bool { return string(s.ID) == leader.id })
		})
	})
}

// TestMetaVoterIsRemoved: a voter that is removed has stopped or stops at once, and another node votes in its
// place without waiting for it as for one that may come back.
func TestMetaVoterIsRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, leads := range []bool{false, true} {
			g := newMetaGroup(t, 4)
			leader, voters := g.leader(), g.leader().meta.Status().Voters
			gone := g.nodes[slices.IndexFunc(g.nodes, func(n *metaNode) bool {
				return (n == leader) == leads && slices.Contains(voters, n.id)
			})]
			if !leads { // it is removed because it is lost
				gone.stop()
			}
			began := time.Now()
			g.configure(leader, func(c *Configuration) error {
				c.Members = slices.DeleteFunc(c.Members, func(m Member) bool { return m.ID == gone.id })
				return nil
			})
			gone.stop()
			await(t, "three others vote, and it is done", func() bool {
				s := g.leader().meta.Status()
				return s.Settled && len(s.Voters) == 3 && !slices.Contains(s.Voters, gone.id)
			})
			if took := time.Since(began); took > voterSilence*testTimeout/4 {
				t.Errorf("a voter is removed, which leads: %v. It took %v", leads, took)
			}
		}
	})
}

// TestMetaVoters: who is to vote.
func TestMetaVoters(t *testing.T) {
	for _, tt := range []struct {
		hosts        string // of the members; a small letter: it does not vote in its shard
		votes, lost  string // numbers of members
		want, reason string
	}{
		{hosts: "A", want: "0"},
		{hosts: "AB", want: "01"},
		{hosts: "ABc", want: "01", reason: "one that catches up does not count"},
		{hosts: "ABC", want: "012"},
		{hosts: "ABCD", want: "012", reason: "four survive no more than three do"},
		{hosts: "ABCDEF", want: "01234"},
		{hosts: "AAABBBCCC", want: "01346", reason: "each host in turn"},
		{hosts: "AAABBBCCC", votes: "25", want: "02356", reason: "who votes stays"},
		{hosts: "AABC", votes: "01", want: "023", reason: "on three hosts, though another one votes"},
		{hosts: "ABCD", votes: "012", lost: "1", want: "023"},
		{hosts: "ABC", votes: "012", lost: "1", want: "012", reason: "there is no other"},
	} {
		c, is := Configuration{}, func(list string) func(string) bool {
			return func(node string) bool {
				return strings.ContainsFunc(list, func(r rune) bool { return id(int(r-'0')) == node })
			}
		}
		for i, host := range tt.hosts {
			c.Members = append(c.Members,
				Member{ID: id(i), Host: strings.ToLower(string(host)), Voter: host < 'a'})
		}
		var got []string
		for _, voter := range metaVoters(&c, is(tt.votes), is(tt.lost)) {
			got = append(got, strconv.Itoa(slices.IndexFunc(c.Members, func(m Member) bool {
				return m.ID == voter
			})))
		}
		slices.Sort(got)
		if strings.Join(got, "") != tt.want {
			t.Errorf("%s, of whom %q vote and %q are lost: %v, want %s: %s", tt.hosts, tt.votes, tt.lost, got,
				tt.want, tt.reason)
		}
	}
}

// TestChangeIsReadWithDistrust: a peer that sends what is no configuration changes nothing.
func TestChangeIsReadWithDistrust(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 2)
		g.configure(g.nodes[0], rename(id(1), "before"))
		g.awaitSame(id(1), "before")
		leader := g.leader()
		other := g.nodes[0]
		if other == leader {
			other = g.nodes[1]
		}
		before := leader.meta.Configuration()
		stranger := before
		stranger.Version, stranger.Cluster = before.Version+1, id(7)
		later := before
		later.Version = before.Version + 9 // also if the leader is a new one, and did not know the newest yet
		for _, c := range []Configuration{stranger, later} {
			if err := other.meta.propose(t.Context(), c); err == nil {
				t.Errorf("accepted: %+v", c)
			}
		}
		for _, b := range []string{"", "{}", string(make([]byte, maxConfiguration+1))} {
			if _, err := other.net.Ask(t.Context(), leader.id, leader.net.Addr().String(),
				wire.Ask{Verb: verbChange, Bytes: []byte(b), Within: time.Minute}); err == nil {
				t.Errorf("%d bytes are accepted", len(b))
			}
		}
		g.configure(other, rename(id(1), "well"))
		g.awaitSame(id(1), "well")
		if c := leader.meta.Configuration(); c.Version != before.Version+1 {
			t.Errorf("the configuration has changed: %+v", c)
		}
	})
}

// TestMetaWaitsForTheLog: a node that has not been there yet gets no vote.
func TestMetaWaitsForTheLog(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 2)
		late := &metaNode{g: g, id: id(9), fs: vfs.NewCrashableMem()}
		late.listen()
		g.configure(g.nodes[0], func(c *Configuration) error { return g.admit(c, late) })
		await(t, "it is known", func() bool {
			return slices.ContainsFunc(g.leader().meta.raft.GetConfiguration().Configuration().Servers,
				func(s raft.Server) bool { return string(s.ID) == late.id })
		})
		for range 20 { // some rounds of the leader's
			if v := g.leader().meta.Status(); len(v.Voters) != 2 || v.Settled {
				t.Fatalf("%+v", v)
			}
			time.Sleep(metaHurry)
		}
		g.nodes = append(g.nodes, late)
		late.start(false)
		await(t, "it votes", func() bool { return len(g.leader().meta.Status().Voters) == 3 })
	})
}
