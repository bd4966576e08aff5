package store

import (
	"math"

	"github.com/fbfkv/fbfkv/store/part"
)

// A region that is a cluster. Each shard is a part of the region with partitions of its own, and what the
// others know of a region they know by partition, so shards do nothing together. What differs from a single
// server:
//
//	who is a member     the cluster says it, and each shard's leader logs it in the partitions that the
//	                    shard has (KeepRegions). One shard may know it before another one
//	who is read         any replica tells what is committed (Pull, State): logs of a partition are the same
//	                    everywhere, and a committed sequence is never given to anything else. A
//	                    replica that is behind a reader's position has nothing to tell
//	                    (newTeller)
//	by which name       the cluster's (logIncarnation). Directories come and go, and copy each other
//	who takes           the leader, by its log. Where it is in others' logs is in it, too, but for
//	                    what brought nothing, which the next leader reads again (take.go)
//	who keeps the log   every replica, for those who may come to read it; it gives up what the
//	                    shard's own log says that others have acknowledged (giveUpHeard)

// logIncarnation is what others know the partition's log by. The partition is locked.
func (p *machine) logIncarnation() uint64 {
	if p.regionIncarnation != 0 {
		return p.regionIncarnation
	}
	return p.incarnation
}

// takenBy is how far a region has said, in all of its partitions that read this one, that it has
// taken its log. The partition is locked.
func (p *machine) takenBy(by part.Region) uint64 {
	g, low := p.regions, uint64(math.MaxUint64)
	first, last := slotRange(int(p.id), p.count)
	for q := g.source(by, first).Partition; q <= g.source(by, last).Partition; q++ {
		low = min(low, g.heard[RegionSource{by, q}][RegionSource{g.Self, p.id}])
	}
	return low
}
