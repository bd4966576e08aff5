package regions

import (
	"fmt"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// TestNode: a node that is no member reads nobody; made one, it reads those that have an address,
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
		eventually(t, fmt.Sprintf("region %d shows %d", i, want), func() bool { return all[i].value("k") == want })
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
