package sim

import (
	"fmt"
	"sync"
)

// Of hot counters.
const (
	hotCounters = 3
	// twinConnections is over how many connections a client sends twins.
	twinConnections = 6
	// mostTwins is how often an operation is sent over each, at most.
	mostTwins = 150
)

// twins sends a few operations on a hot counter over several connections at once, many times over each.
func (u *user) twins() {
	key := fmt.Sprint("hot", u.rng.IntN(hotCounters), u.Suffix)
	ops := make([]*Op, 1+u.rng.IntN(3))
	for i := range ops {
		ops[i] = u.History.Send(key, u.id())
	}
	for len(u.twinsTo) < twinConnections {
		u.twinsTo = append(u.twinsTo, u.Connect())
	}
	var sent sync.WaitGroup
	for _, s := range u.twinsTo[:2+u.rng.IntN(twinConnections-1)] {
		twins := make([]*Op, 1+u.rng.IntN(mostTwins))
		for i := range twins {
			twins[i] = ops[u.rng.IntN(len(ops))]
		}
		patience := u.patience()
		sent.Go(func() { u.pipeline(s, twins, patience) })
	}
	sent.Wait()
	for _, o := range ops {
		u.request(o)
	}
}
