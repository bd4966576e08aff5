package node

import (
	"context"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// region is what package regions needs of the cluster, of which this node must be a member.
func (n *member) region() *regions.Cluster {
	c := n.configuration()
	data, incarnation := cluster.RegionIdentity(c.Cluster)
	return &regions.Cluster{
		Data: data, Incarnation: incarnation, Partitions: c.Partitions,
		Members: func() (store.RegionSet, bool) {
			if set := n.configuration().Regions; set != nil {
				return *set, true
			}
			return store.RegionSet{}, false
		},
		Agree: func(ctx context.Context, set store.RegionSet, after uint64) error {
			return n.meta.Load().AgreeRegions(ctx, set, after)
		},
		CatchUp: func(ctx context.Context) error { return n.meta.Load().CatchUp(ctx) },
		Leads:   n.node.Load().Leads,
		Own:     n.ownPartitions,
		Changed: func() <-chan struct{} { return *n.changed.Load() },
		Shards:  n.regionShards,
	}
}

// ownPartitions returns the partitions of this node's shard.
func (n *member) ownPartitions() (all []uint16) {
	c := n.configuration()
	self := c.Member(n.directory.ID())
	if self == nil {
		return nil
	}
	for _, r := range c.Shard(self.Shard).Partitions {
		for p := r.First; p <= r.Last; p++ {
			all = append(all, uint16(p))
		}
	}
	return all
}

// regionShards are the shards that have partitions, with the nodes that others may ask.
func (n *member) regionShards() []regions.Shard {
	c, all := n.configuration(), []regions.Shard{}
	leads := make(map[string]bool)
	for _, s := range n.view.Load().Shards {
		if s.Leader >= 0 {
			leads[s.Nodes[s.Leader].ID] = true
		}
	}
	for _, shard := range c.Shards {
		var s regions.Shard
		for _, r := range shard.Partitions {
			s.Partitions = append(s.Partitions, [2]uint16{uint16(r.First), uint16(r.Last)})
		}
		for _, m := range c.Of(shard.ID) {
			if m.Voter {
				s.Nodes = append(s.Nodes, regions.ShardNode{Host: m.Host, Port: uint16(m.Port),
					TLSPort: uint16(m.TLSPort), Leads: leads[m.ID]})
			}
			s.Own = s.Own || m.ID == n.directory.ID()
		}
		if len(s.Partitions) > 0 {
			all = append(all, s)
		}
	}
	return all
}
