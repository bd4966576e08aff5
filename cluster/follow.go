package cluster

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store"
)

// FollowedShard returns what followers of a shard's counters need to know of it. A cluster made from a backup
// is another one, whose logs are others.
func (c Configuration) FollowedShard(shard string) store.Shard {
	log := func(id string) uint64 { return max(xxhash.Sum64String(c.Cluster+" "+id), 1) }
	return store.Shard{
		Cluster: xxhash.Sum64String(c.Cluster), Log: log(shard),
		Owns: func(p uint16) bool {
			owner := c.Owner(int(p))
			return owner != nil && owner.ID == shard
		},
		Exists: func(of uint64) bool {
			return slices.ContainsFunc(c.Shards, func(s Shard) bool { return log(s.ID) == of })
		},
	}
}
