package store

import (
	"fmt"

	"github.com/fbfkv/fbfkv/store/part"
)

// What clients may ask of regions: who has counted what.

// RegionShare is what a region has added to the value of a counter, by its name.
type RegionShare struct {
	Region string
	Value  int64
}

// shares answers ByRegion. The counter is looked at as Get does: what is shown is committed.
func (r *ref) shares(op *Op) error {
	g := r.p.regions
	if g == nil {
		return ErrNoRegions
	}
	if !op.Found {
		return nil
	}
	parts := r.c.asParts(g.Self)
	all := make([]RegionShare, len(parts))
	for i := range parts {
		of := parts[i].Region
		all[i] = RegionShare{g.name(of), parts.Share(of)}
	}
	op.Object = all
	return nil
}

// nameOf is the region that applied an operation.
func (g *regions) nameOf(o *Seen) string {
	if o.Own() {
		return g.name(g.Self)
	}
	return g.name(o.Region)
}

// name is that of a region, or its number if it is no member any more.
func (g *regions) name(r part.Region) string {
	if m := g.member(r); m != nil {
		return m.Name
	}
	return fmt.Sprint("region ", r)
}
