package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestAssign: three nodes on each of three machines become three shards, each with a node on every
// machine and its first one, which leads, on one of its own; in whatever order they are named.
func TestAssign(t *testing.T) {
	var named []string
	for i := range 9 {
		named = append(named, fmt.Sprintf("10.0.0.%d:700%d", i/3+1, i%3+1))
	}
	for range 200 {
		c := creation{replicas: 2, addrs: named}
		var found []asked
		for _, addr := range named {
			found = append(found, asked{addr: addr})
		}
		leads := map[string]bool{}
		for _, shard := range c.assign(found, nil) {
			on := map[string]bool{}
			for i, addr := range shard {
				host, _, _ := strings.Cut(addr, ":")
				if on[host] = true; i == 0 {
					leads[host] = true
				}
			}
			if len(shard) != 3 || len(on) != 3 {
				t.Fatalf("%v: the shard %v", named, shard)
			}
		}
		if len(leads) != 3 {
			t.Fatalf("%v: the leaders are on %v", named, leads)
		}
		rand.Shuffle(len(named), func(i, j int) { named[i], named[j] = named[j], named[i] })
	}
}
