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
//	                    replica that is behind
//	                    what was taken elsewhere has nothing to tell (newTeller)
//	by which name       the cluster's (logIncarnation). Directories come and go, and copy each other
//	who takes           the leader, by its log. Where it is in others' logs is in it, too, but for
//	what brought
//	                    nothing, which the next leader reads again (take.go)
//	who keeps the log   every replica, for those who may come to read it; it gives up what the
//	shard's own log says that
//	                    others have acknowledged (giveUpHeard)

// KeepRegions is SetRegions of the leader of a shard, for the partitions that this has. A partition
// that knows this version, or a newer one, stays as it is.
func (s *Store) KeepRegions(set RegionSet, partitions []uint16) error {
	var lack []*partition
	for _, n := range partitions {
		p, err := s.ownPartition(n)
		if err != nil {
			return err
		}
		p.lock()
		if p.regions == nil || p.regions.Version < set.Version {
			lack = append(lack, p)
		}
		p.mu.Unlock()
	}
	if len(lack) == 0 {
		return nil
	}
	return s.setRegions(set, lack)
}

// logIncarnation is what others know the partition's log by. The partition is locked.
func (p *machine) logIncarnation() uint64 {
	if p.regionIncarnation != 0 {
		return p.regionIncarnation
	}
	return p.incarnation
}

// isMember reports whether the partition knows of regions: a replica has some that are another shard's.
func (p *partition) isMember() bool {
	p.lock()
	defer p.mu.Unlock()
	return p.regions != nil
}

// holdForNews keeps the log for regions of which Follow has just heard.
func (s *Store) holdForNews() {
	if set := s.replica.news; set != nil {
		s.replica.news = nil
		s.member.Store(true)
		s.holdForRegions(set)
	}
}

// giveUpHeard gives up, of the log that a replica keeps for other regions, what these have said in
// their own logs that they have taken. They may never ask this replica.
func (s *Store) giveUpHeard() {
	if s.replica == nil || !s.member.Load() {
		return
	}
	for _, p := range s.partitions {
		if !p.lockNow() {
			continue
		}
		var taken [part.MaxRegions]uint64
		if g := p.regions; g != nil {
			for _, by := range g.ids {
				if by != g.Self {
					taken[by] = p.takenBy(by)
				}
			}
		}
		p.mu.Unlock()
		s.peers.mu.Lock()
		for r, seq := range taken {
			if h := s.peers.of[r]; h != nil && seq > 0 {
				h.hold.Acknowledge(p.id, seq+1)
			}
		}
		s.peers.mu.Unlock()
	}
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
