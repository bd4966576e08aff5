package regions

import (
	"fmt"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// TestNode: a node outside all groups reads nobody; made one, it reads those that have an address,
// and so it does when it is opened again.
func TestNode(t *testing.T) {
	all := newRegions(t, 4, 4)
	set := func(self int) store.RegionSet {
		s := setOf(all, self)
		for i, r := range all {
			s.Members[i].Address = r.server.address()
		}
		return s
	}
	var nodes []*Node
	for _, r := range all {
		n, err := Open(r.options(nil))
		must(t, err)
		nodes = append(nodes, n)
	}
	for i, n := range nodes {
		must(t, n.Change(set(i)))
	}
	for i, r := range all {
		must(t, r.once("k", fmt.Sprint("op", i), 5).Err)
	}
	sees := func(i int, want int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("region %d shows %d", i, want), func() bool {
			return all[i].value("k") == want
		})
	}
	sees(0, 10)
	sees(1, 10)
	must(t, nodes[0].Close())
	must(t, all[1].once("k", "later", 5).Err)
	n, err := Open(all[0].options(nil))
	must(t, err)
	sees(0, 15)
	must(t, n.Close())
	must(t, nodes[1].Close())
}

// TestFlush: a flush empties the node's store, and others follow: they take nothing of the new era before.
func TestFlush(t *testing.T) {
	all := newRegions(t, 1, 1)
	set := func(self int, era uint64) store.RegionSet {
		s := setOf(all, self)
		s.Version, s.Era = era, era
		for i, r := range all {
			s.Members[i].Address = r.server.address()
		}
		return s
	}
	var nodes []*Node
	for i, r := range all {
		o := r.options(nil)
		o.LastRetry = time.Hour
		n, err := Open(o)
		must(t, err)
		defer func() { must(t, n.Close()) }()
		must(t, n.Change(set(i, 0)))
		nodes = append(nodes, n)
	}
	must(t, all[0].once("k", "a", 5).Err)
	eventually(t, "the other one has read it", func() bool { return all[1].value("k") == 5 })
	must(t, nodes[0].Flush())
	must(t, all[0].once("k", "a", 7).Err)
	eventually(t, "it has followed", func() bool {
		v := all[1].value("k")
		if v != 5 && v != 0 && v != 7 {
			t.Errorf("it shows %d", v)
		}
		return v == 7
	})
}
