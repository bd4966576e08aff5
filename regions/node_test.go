package regions

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestFlush: a flush empties the node's store, and others wait with what it does from then on until
// they have followed, which they then read soon.
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
	eventually(t, "the other one has met the new era", func() bool {
		return strings.Contains(nodes[1].Mesh().Status()[0].LastError, store.ErrEra.Error())
	})
	if v := all[1].value("k"); v != 5 {
		t.Errorf("before it follows it shows %d", v)
	}
	for range 20 { // so long waits would end after the test
		at := nodes[1].Mesh().Status()[0].LastErrorAt
		eventually(t, "it asks again", func() bool { return nodes[1].Mesh().Status()[0].LastErrorAt != at })
	}
	must(t, nodes[1].Change(set(1, 1)))
	eventually(t, "it has followed", func() bool { return all[1].value("k") == 7 })
}
