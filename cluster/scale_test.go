package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// add adds 1 to a counter in the node's own shard.
func (n *tableNode) add(key string) error {
	var b store.Batch
	op := b.Add(store.IncrBy)
	op.Key, op.Delta = []byte(key), 1
	n.node.st.Execute(&b)
	return b.Ops[0].Err
}

// wantScale expects a scale of a table in every shard, and of none that one is coming.
func wantScale(t *testing.T, nodes []*tableNode, name string, scale uint8) {
	t.Helper()
	for i, n := range nodes {
		info, err := n.node.st.TableInfo(name)
		if must(t, err); info.Scale != scale {
			t.Errorf("shard %d has SCALE %d, want %d", i, info.Scale, scale)
		}
		if err := n.add(fmt.Sprint(info.Prefix, "written ", i)); err != nil {
			t.Errorf("shard %d refuses writes: %v", i, err)
		}
	}
}

// TestScaleInAllShards: a scale changes in all shards, or in none. If the node that changes it ends, the
// others take back their preparation.
func TestScaleInAllShards(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, nodes := newTableShards(t)
		a, b := nodes[0], nodes[1]
		for _, n := range nodes {
			await(t, "it leads", n.node.Leads)
		}
		cents := store.TableOptions{Name: "cents", Prefix: "p:", Scale: 2}
		must(t, settled(t, func() error { return a.keeper.CreateTable(cents) }))
		wantScale(t, nodes, "cents", 2)
		must(t, settled(t, func() error { return b.keeper.CreateTable(cents) })) // it may be asked again

		must(t, b.add("q:k"))
		for range 2 {
			err := settled(t, func() error {
				return a.keeper.CreateTable(store.TableOptions{Name: "grams", Prefix: "q:", Scale: 3})
			})
			if err == nil || !strings.Contains(err.Error(), `SCALE cannot change`) ||
				!strings.Contains(err.Error(), `(key "q:k")`) {
				t.Fatal(err)
			}
			wantTables(t, nodes, "cents")
			wantScale(t, nodes, store.DefaultTable, 0)
			for _, n := range nodes {
				must(t, n.add("q:k"))
			}
		}
		err := settled(t, func() error { return b.keeper.DropTable("cents") })
		if err == nil || !strings.Contains(err.Error(), "SCALE cannot change") {
			t.Fatal(err)
		}
		wantScale(t, nodes, "cents", 2)

		// A node prepares a change and ends.
		before := a.meta.Configuration().Tables
		next, err := before.Set.Create(store.TableOptions{Name: "litres", Prefix: "l:", Scale: 1})
		must(t, err)
		must(t, a.meta.Configure(context.Background(), func(c *Configuration) error {
			c.Tables.Version, c.Tables.Next = before.Version+1, next
			return nil
		}))
		for _, n := range nodes {
			await(t, "it is prepared", func() bool { return errors.Is(n.add("l:k"), store.ErrTableChanging) })
			must(t, n.add("m:k"))
		}
		other := func() error {
			return b.keeper.CreateTable(store.TableOptions{Name: "miles", Prefix: "m:"})
		}
		if err := settled(t, other); !errors.Is(err, errComing) {
			t.Fatal(err)
		}
		time.Sleep((comingPart + 1) * g.nodes[0].meta.o.Timeout)
		for _, n := range nodes {
			await(t, "it is given up", func() bool { return n.add("l:k") == nil })
		}
		must(t, settled(t, other))
		wantTables(t, nodes, "cents", "miles")
	})
}

// TestScaleRules: the configuration has no other SCALE than one that was prepared, and prepares none while
// partitions move.
func TestScaleRules(t *testing.T) {
	set := store.NewTables()
	cents, err := set.Create(store.TableOptions{Name: "cents", Prefix: "p:", Scale: 2})
	must(t, err)
	other, err := set.Create(store.TableOptions{Name: "cents", Prefix: "p:", Scale: 3})
	must(t, err)
	for name, tc := range map[string]struct {
		old, next Tables
		ok        bool
	}{
		"prepare":           {Tables{Version: 1, Set: set}, Tables{Version: 2, Set: set, Next: cents}, true},
		"at once":           {Tables{Version: 1, Set: set}, Tables{Version: 2, Set: cents}, false},
		"commit":            {Tables{Version: 2, Set: set, Next: cents}, Tables{Version: 3, Set: cents}, true},
		"commit another":    {Tables{Version: 2, Set: set, Next: cents}, Tables{Version: 3, Set: other}, false},
		"give up":           {Tables{Version: 2, Set: set, Next: cents}, Tables{Version: 3, Set: set}, true},
		"without a version": {Tables{Version: 2, Set: set, Next: cents}, Tables{Version: 2, Set: set}, false},
	} {
		if err := tc.next.follows(tc.old, false); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := threeNodes()
	c.Tables.Next, err = c.Tables.Set.Create(store.TableOptions{Name: "cents", Prefix: "p:", Scale: 2})
	must(t, err)
	must(t, c.rules())
	c.Moves = []Move{{Partition: 0, From: c.Shards[0].ID, To: c.Shards[0].ID, Epoch: 1}}
	if err := c.rules(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "SCALE") {
		t.Error(err)
	}
}
