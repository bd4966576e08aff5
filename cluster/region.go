package cluster

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"github.com/fbfkv/fbfkv/store"
)

// A cluster can be a region (package regions): who the regions are is a part of the configuration,
// so that each node knows it, and the leader of each shard logs it.

const (
	regionDataDigits = 32
	regionLogDigits  = 16
)

// RegionIdentity returns the numbers by which other regions know a cluster: the id of its data, and
// the incarnation of its logs (store.RegionMember). A cluster made from a backup is another
// cluster, so they can tell the two apart.
func RegionIdentity(cluster string) (data string, incarnation uint64) {
	if !validID(cluster) {
		return "", 0
	}
	incarnation, _ = strconv.ParseUint(cluster[idDigits-regionLogDigits:], 16, 64) // hex digits
	return cluster[:regionDataDigits], max(incarnation, 1)
}

var (
	errRegionsMove   = errors.New("the cluster is a region, and partitions of a region cannot be moved yet")
	errRegionsMoving = errors.New("partitions are on their way to another shard: a cluster becomes a " +
		"region when they have arrived (fbfkv cluster status)")
	errRegionsChanged = errors.New("the set of regions has changed meanwhile: run the command again")
)

// AgreeRegions makes a set the regions that the cluster knows, in the place of that of a version;
// 0: it knows none.
func (m *Meta) AgreeRegions(ctx context.Context, set store.RegionSet, after uint64) error {
	return m.Configure(ctx, func(c *Configuration) error {
		known := uint64(0)
		if c.Regions != nil {
			known = c.Regions.Version
		}
		switch {
		case sameRegions(c.Regions, &set):
			return nil
		case known != after || c.Regions == nil && after != 0:
			return errRegionsChanged
		case len(c.Moves) > 0:
			return errRegionsMoving
		}
		c.Regions = &set
		return nil
	})
}

// regionsOfData returns the regions of which data is a copy, which a new cluster is made of: it
// refuses to be taken for the region that the data were, until that is removed (regions.Node). Data
// of a region that goes on are refused.
func regionsOfData(st *store.Store) (*store.RegionSet, error) {
	set, ok := st.Regions()
	if !ok {
		return nil, nil
	}
	if own, _ := set.Member(set.Self); own.Incarnation == st.Meta().Incarnation && !set.Older &&
		len(set.Members) > 1 {
		return nil, errors.New("it is the region " + own.Name + ", and a server cannot become a cluster " +
			"while it is a region: " +
			"remove it from the regions, and let the cluster join them with empty directories")
	}
	return &set, nil
}

// validRegions checks the regions of a configuration.
func (c Configuration) validRegions() error {
	if c.Regions == nil {
		return nil
	}
	if err := c.Regions.Valid(); err != nil {
		return invalid("its regions: %v", err)
	}
	own, _ := c.Regions.Member(c.Regions.Self)
	switch {
	case own.Partitions != c.Partitions:
		return invalid("its region has %d partitions, and it has %d", own.Partitions, c.Partitions)
	case len(c.Moves) > 0:
		return invalid("%v", errRegionsMove)
	}
	return nil
}

// regionsFollow checks that regions may take the place of older ones: who was a region stays one.
func (c Configuration) regionsFollow(old Configuration) error {
	is, was := c.Regions, old.Regions
	switch {
	case was == nil:
	case is == nil:
		return invalid("a region stays one")
	case is.Group != was.Group || is.Self != was.Self || is.Version < was.Version ||
		is.Version == was.Version && !sameRegions(is, was):
		return invalid("version %d of the regions follows version %d", is.Version, was.Version)
	}
	return nil
}

func sameRegions(a, b *store.RegionSet) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Encode(), b.Encode())
}
