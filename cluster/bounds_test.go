package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// TestBoundsInAllShards: in a cluster that is a region, bounds come in all shards, or in none: they do not if
// one shard has counted under their prefix. A cluster without regions may bound what it has counted.
func TestBoundsInAllShards(t *testing.T) {
	virtual(t, func(t *testing.T) {
		_, nodes := newTableShards(t)
		a, b := nodes[0], nodes[1]
		for _, n := range nodes {
			await(t, "it leads", n.node.Leads)
		}
		key := "q:k"
		for i := 0; store.Slot([]byte(key)) < 1<<13; i++ { // a slot of b
			key = fmt.Sprint("q:", i)
		}
		must(t, b.add(key))
		low := store.TableOptions{Name: "low", Prefix: "q:", Max: store.Bound{N: 9, Set: true}}
		must(t, settled(t, func() error { return a.keeper.CreateTable(low) }))
		must(t, settled(t, func() error { return a.keeper.DropTable("low") }))

		set := someRegions(16, 1)
		must(t, a.meta.AgreeRegions(context.Background(), *set, 0))
		for i, n := range []*tableNode{a, b} {
			var own []uint16
			for p := range uint16(8) {
				own = append(own, uint16(8*i)+p)
			}
			must(t, n.node.st.KeepRegions(*set, own))
			await(t, "it knows the regions", func() bool { return n.meta.Configuration().Regions != nil })
		}
		for range 2 {
			err := settled(t, func() error { return a.keeper.CreateTable(low) })
			if err == nil || !strings.Contains(err.Error(), store.ErrTableBounds.Error()) ||
				!strings.Contains(err.Error(), key) {
				t.Fatal(err)
			}
			wantTables(t, nodes)
		}
		low.Prefix = "r:"
		must(t, settled(t, func() error { return a.keeper.CreateTable(low) }))
		wantTables(t, nodes, "low")
	})
}

// TestBoundsRules: in a region the configuration has no bounds but those for which its shards were searched.
func TestBoundsRules(t *testing.T) {
	set := store.NewTables()
	low, err := set.Create(store.TableOptions{Name: "low", Prefix: "q:", Max: store.Bound{N: 9, Set: true}})
	must(t, err)
	c := threeNodes()
	c.Tables = Tables{Version: 1, Set: set}
	bound := func(next *Configuration) error {
		next.Tables = Tables{Version: 2, Set: low}
		return nil
	}
	if _, err := c.Changed(bound); err != nil {
		t.Error(err)
	}
	c.Regions = someRegions(c.Partitions, 1)
	if _, err := c.Changed(bound); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "searched") {
		t.Error(err)
	}
}
