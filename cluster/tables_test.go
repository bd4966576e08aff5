package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// tableNode is a shard of one node, in a cluster of several.
type tableNode struct {
	*metaNode
	node    *Node
	keeper  *TableKeeper
	leaders *Leaders
	shard   string
}

// newTableShards makes a cluster of three shards, of which the last has no partitions.
func newTableShards(t *testing.T) (g *metaGroup, nodes []*tableNode) {
	g = newMetaGroup(t, 3)
	g.configure(g.nodes[0], func(c *Configuration) error {
		if len(c.Shards) > 1 {
			return nil // it is asked again
		}
		c.Shards[0].Partitions = []Range{{0, 7}}
		for i, r := range [][]Range{{{8, 15}}, nil} {
			c.Shards = append(c.Shards,
				Shard{ID: id(100 + i), Epoch: 1, Founder: g.nodes[1+i].id, Partitions: r})
			c.Members[1+i].Shard = id(100 + i)
		}
		return nil
	})
	var telling sync.WaitGroup
	done := make(chan struct{})
	for i, m := range g.nodes {
		await(t, "the shards are known", func() bool { return len(m.meta.Configuration().Shards) == 3 })
		n := &tableNode{metaNode: m}
		stable, err := raftgroup.OpenStable(m.fs, "store")
		must(t, err)
		n.node, err = Start(Options{
			ID: m.id, Stable: stable, Net: m.net, Address: m.net.Addr().String(), Timeout: testTimeout / 2,
			FS: m.fs, Dir: "store", Found: true,
			Fatal: func(err error) { t.Errorf("node %d ends: %v", i, err) },
			Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
				return store.Open(store.Options{Dir: "store", FS: m.fs, Partitions: 16,
					Seed: threeNodes().Seed, Replicated: replicated, Sections: Sections,
					MinFreeDisk: -1})
			},
		})
		must(t, err)
		shard := m.meta.Configuration().Shards[i].ID
		leaders := NewLeaders(m.net, m.meta.Configuration, testTimeout, func() {})
		n.leaders, n.shard = leaders, shard
		n.keeper = KeepTables(n.node, m.meta, leaders, shard, func() {})
		telling.Go(func() {
			for {
				own := Leader{Shard: shard, Node: m.id}
				if own.Tables, own.Refusal = n.keeper.Kept(); n.node.Leads() {
					own.Term = n.node.Status().Term
				}
				leaders.Tell(own)
				select {
				case <-time.After(5 * time.Millisecond):
				case <-done:
					leaders.Close()
					return
				}
			}
		})
		nodes = append(nodes, n)
	}
	t.Cleanup(func() {
		close(done)
		telling.Wait()
		for _, n := range nodes {
			must(t, n.node.Close())
		}
	})
	return g, nodes
}

// wantTables expects tables, of these names, of every shard.
func wantTables(t *testing.T, nodes []*tableNode, names ...string) {
	t.Helper()
	for i, n := range nodes {
		var got []string
		for _, o := range n.node.st.Tables() {
			got = append(got, o.Name)
		}
		want := append([]string{store.DefaultTable}, names...)
		if slices.Sort(want); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("shard %d has the tables %q, want %q", i, got, want)
		}
	}
}

// settled tries a change until it need not be tried again.
func settled(t *testing.T, change func() error) (err error) {
	t.Helper()
	await(t, "all shards have the tables", func() bool {
		err = change()
		return !errors.Is(err, store.ErrUndecided)
	})
	return err
}

// TestTablesReachAllShards: what any node has answered for holds in all shards, and every other
// node knows it.
func TestTablesReachAllShards(t *testing.T) {
	virtual(t, func(t *testing.T) {
		_, nodes := newTableShards(t)
		for i, n := range nodes {
			other := nodes[(i+1)%len(nodes)]
			table := store.TableOptions{Name: "z", Prefix: "z:", Window: time.Hour}
			for range 3 {
				must(t, settled(t, func() error { return n.keeper.CreateTable(table) }))
				wantTables(t, nodes, "z")
				must(t, settled(t, func() error { return other.keeper.CreateTable(table) }))
				err := settled(t, func() error {
					return other.keeper.CreateTable(store.TableOptions{Name: "z"})
				})
				if !errors.Is(err, store.ErrTableExists) {
					t.Errorf("another one of that name: %v", err)
				}
				window := 2 * time.Hour
				must(t, settled(t, func() error {
					return other.keeper.AlterTable("z", store.TableChange{Window: &window})
				}))
				must(t, settled(t, func() error { return n.keeper.DropTable("z") }))
				wantTables(t, nodes)
				// it may be asked again
				must(t, settled(t, func() error { return other.keeper.DropTable("z") }))
				if err := settled(t, func() error { return other.keeper.DropTable("y") }); !errors.Is(err,
					store.ErrNoTable) {
					t.Errorf("another one: %v", err)
				}
			}
		}
		var changing sync.WaitGroup
		var names []string
		for i, n := range nodes {
			for j := range 5 {
				name := fmt.Sprint("t", i, j)
				names = append(names, name)
				changing.Go(func() {
					must(t, settled(t, func() error {
						return n.keeper.CreateTable(store.TableOptions{Name: name, Prefix: name})
					}))
				})
			}
		}
		changing.Wait()
		wantTables(t, nodes, names...)
	})
}

// TestTablesWaitForEveryShard: a shard that is gone, or has no room, keeps the answer back; the others have
// the tables, and it gets them as soon as it can.
func TestTablesWaitForEveryShard(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, nodes := newTableShards(t)
		a, b := nodes[0], nodes[1]
		large := store.TableOptions{Name: "a", Prefix: "a:"}
		b.node.st.SetFilterMaxMemory(1)
		create := func() error { return a.keeper.CreateTable(large) }
		await(t, "the reason", func() bool {
			err := create()
			return errors.Is(err, store.ErrUndecided) &&
				strings.Contains(err.Error(), fmt.Sprintf("%.8s", id(100))) &&
				strings.Contains(err.Error(), "filter memory")
		})
		await(t, "the others have it", func() bool {
			return len(a.node.st.Tables()) == 2 && len(nodes[2].node.st.Tables()) == 2
		})
		if err := b.keeper.CreateTable(large); !errors.Is(err, store.ErrUndecided) ||
			len(b.node.st.Tables()) != 1 {
			t.Errorf("at the shard itself: %v", err)
		}
		large.Name, large.Prefix = "b", "b:"
		if err := settled(t, func() error { return b.keeper.CreateTable(large) }); !errors.Is(err,
			store.ErrOutOfMemory) {
			t.Errorf("one that the node that is asked has no room for: %v", err)
		}
		b.node.st.SetFilterMaxMemory(1 << 30)
		await(t, "it has room", func() bool { return len(b.node.st.Tables()) == 2 })
		large.Name, large.Prefix = "a", "a:"
		must(t, settled(t, create))
		wantTables(t, nodes, "a")

		// A shard that has partitions counts before anybody has begun it, one that has none does not.
		c := g.nodes[0].meta.Configuration()
		for _, partitions := range [][]Range{nil, {{8, 15}}} {
			g.configure(g.nodes[0], func(c *Configuration) error {
				c.Shards[1].Partitions = []Range{{8, 15}}
				if len(c.Shards) < 4 {
					c.Shards = append(c.Shards, Shard{ID: id(200), Epoch: 1})
				}
				if c.Shards[3].Partitions = partitions; partitions != nil {
					c.Shards[1].Partitions = nil
				}
				return nil
			})
			want := ""
			if partitions != nil {
				want = id(200)
			}
			if lacks, _ := a.keeper.lacks(c.Tables.Version); lacks != want {
				t.Errorf("partitions %v: %q lacks the tables, want %q", partitions, lacks, want)
			}
		}
	})
}

// TestRefusedTables: a client is told the same of a full disk, and of a change of SCALE that must
// wait, whichever node says so.
func TestRefusedTables(t *testing.T) {
	for _, want := range []error{store.ErrDiskFull, store.ErrTableChanging} {
		if got := refusedTables(want.Error()); !errors.Is(got, want) {
			t.Errorf("%v is taken for %v", want, got)
		}
	}
	if got := refusedTables("why"); got.Error() != "why" {
		t.Error(got)
	}
}

// TestTablesOutgrowNothing makes as many large changes one after the other as the node's own values have no
// room for at once.
func TestTablesOutgrowNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		for i := range 40 {
			next := longTables(maxTables - 500)
			next[0].Window += time.Duration(i+1) * time.Second
			n := g.nodes[i%3]
			g.configure(n, func(c *Configuration) error {
				if want := uint64(4 + i); c.Tables.Version < want {
					c.Tables = Tables{Version: want, Set: next}
				}
				return nil
			})
			for _, n := range g.nodes {
				if n.meta.raft.State() == raft.Leader {
					log, err := n.stable.Meta().Get([]byte("log"))
					if must(t, err); len(log) > 3*maxConfiguration+1000 {
						t.Errorf("the leader's log has %d bytes", len(log))
					}
				}
			}
		}
		for _, n := range g.nodes {
			await(t, "all know the last one", func() bool {
				return n.meta.Configuration().Tables.Version == 43
			})
		}
		g.nodes[0].stop()
		g.nodes[0].listen()
		g.nodes[0].start(false)
		await(t, "it is known after a restart", func() bool {
			return g.nodes[0].meta.Configuration().Tables.Version == 43
		})
	})
}

// TestFounderBringsTables: a cluster begins with the tables of its founder, and with a version that the
// founder's data have not seen, though they were another cluster's.
func TestFounderBringsTables(t *testing.T) {
	for _, seen := range []uint64{0, 17} {
		fs := vfs.NewMem()
		st, err := store.Open(store.Options{Dir: "d", FS: fs, Partitions: 4, MinFreeDisk: -1})
		must(t, err)
		set, err := store.NewTables().Create(store.TableOptions{Name: "t", Prefix: "t:"})
		must(t, err)
		must(t, st.SetTables(set, nil, seen+1))
		self := member(1)
		a := &Admin{Store: st, Directory: &Directory{Stable: mustStable(t, fs), fs: fs, path: "d"},
			Self: self, Restart: func() {}}
		if _, err := ask[struct{}](a, VerbInit, InitRequest{Cluster: id(7), Partitions: 16}); err != nil {
			t.Fatal(err)
		}
		c, _ := a.Directory.Configuration()
		if c.Tables.Version != seen+2 || !c.Tables.Set.Equal(set) || c.Partitions != 4 {
			t.Errorf("the tables, of which version %d was seen, begin as %+v", seen+1, c.Tables)
		}
		must(t, errors.Join(a.Directory.Close(), st.CloseNow()))
	}
}

// TestMetaCatchesUp: a node that asks for the newest configuration knows every change that was
// answered before.
func TestMetaCatchesUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 3)
		for i := range 20 {
			name := fmt.Sprint("name", i)
			g.configure(g.nodes[i%3], rename(id(1), name))
			for _, n := range g.nodes {
				await(t, "the newest", func() bool { return n.meta.CatchUp(t.Context()) == nil })
				if c := n.meta.Configuration(); c.Member(id(1)).Hostname != name {
					t.Fatalf("change %d is not known: %+v", i, c.Member(id(1)))
				}
			}
		}
	})
}
