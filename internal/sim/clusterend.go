package sim

import (
	"errors"
	"fmt"

	"github.com/fbfkv/fbfkv/cluster"
)

// drain moves all partitions of a shard to the others, as `fbfkv cluster rebalance --without` does.
// Others may move some back later.
func (c *clusterWorld) drain(a administrator) {
	config, err := a.configuration()
	if err != nil {
		return
	}
	from := c.w.Intn(len(config.Shards))
	for i, to := range config.Shards {
		var some []int
		for p := range config.Partitions {
			if config.Shards[from].Has(p) && p%len(config.Shards) == i {
				some = append(some, p)
			}
		}
		if i == from || len(some) == 0 {
			continue
		}
		a.insist(fmt.Sprintf("partitions %v are to move", some), func() error {
			return a.anywhere(cluster.VerbMove, cluster.MoveRequest{Partitions: some, To: to.ID}, nil)
		})
	}
}

// settle fails the world unless the cluster becomes what it is meant to be: each shard has its
// voters, nothing moves any more, and all nodes know that.
func (c *clusterWorld) settle() {
	a := c.administrator()
	a.insist("the cluster is as it is meant to be", func() (err error) {
		config, err := a.configuration()
		if err != nil {
			return err
		}
		voters := make(map[string]int)
		for _, m := range config.Members {
			if m.Voter {
				voters[m.Shard]++
			}
		}
		for _, s := range config.Shards {
			if voters[s.ID] != replicas || len(config.Members) != replicas*len(config.Shards) {
				err = errors.Join(err, fmt.Errorf("the shard %s has %d voters", s.ID, voters[s.ID]))
			}
		}
		for p := range config.Partitions {
			if move := config.Move(p); move != nil {
				err = errors.Join(err, fmt.Errorf("partition %d is on its way to %s", p, move.To))
			}
		}
		for _, m := range c.machines {
			var info cluster.Info
			if failed := a.ask(m, cluster.VerbInfo, struct{}{}, &info); failed != nil {
				err = errors.Join(err, failed)
			} else if info.Configuration == nil || info.Configuration.Version != config.Version {
				err = errors.Join(err, fmt.Errorf("machine %d has an older configuration", m.Index()))
			}
		}
		return err
	})
}
