package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// someRegions returns the regions of a cluster with so many partitions.
func someRegions(partitions int, version uint64) *store.RegionSet {
	return &store.RegionSet{Group: 5, Version: version, Members: []store.RegionMember{
		{Region: 0, Name: "eu", Partitions: partitions, Incarnation: 7},
		{Region: 1, Name: "us", Partitions: 4, Incarnation: 8},
	}}
}

// TestRegionsInConfiguration: who is a region stays one, and versions of the regions go forward;
// partitions do not move.
func TestRegionsInConfiguration(t *testing.T) {
	c := threeNodes()
	c.Regions = someRegions(16, 2)
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeConfiguration(b); err != nil || !got.equal(c) || got.Regions.Version != 2 {
		t.Errorf("%+v, %v", got.Regions, err)
	}
	if err := c.moves(MoveRequest{Partitions: []int{3}, To: id(98)}); !errors.Is(err, errRegionsMove) {
		t.Errorf("a move: %v", err)
	}
	for want, edit := range map[string]func(c *Configuration){
		"a region stays one":              func(c *Configuration) { c.Regions = nil },
		"has 8 partitions, and it has 16": func(c *Configuration) { c.Regions = someRegions(8, 3) },
		"version 1 of the regions follows": func(c *Configuration) {
			c.Regions = someRegions(16, 1)
		},
		"version 2 of the regions follows": func(c *Configuration) {
			c.Regions = someRegions(16, 2)
			c.Regions.Era = 1
		},
		"version 3 of the regions follows": func(c *Configuration) {
			c.Regions = someRegions(16, 3)
			c.Regions.Group++
		},
		"its regions": func(c *Configuration) { c.Regions = &store.RegionSet{Group: 5, Version: 3} },
	} {
		_, err := c.Changed(func(next *Configuration) error { edit(next); return nil })
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	next, err := c.Changed(func(next *Configuration) error { next.Regions = someRegions(16, 3); return nil })
	if err != nil || next.Version != c.Version+1 {
		t.Errorf("version %d, %v", next.Version, err)
	}
	same, err := next.Changed(func(next *Configuration) error {
		next.Regions = someRegions(16, 3)
		return nil
	})
	if err != nil || same.Version != next.Version {
		t.Errorf("the same regions again: version %d, %v", same.Version, err)
	}
}

// TestAgreeRegions: a change of the regions takes the place of what its author knew, and of nothing
// else; what it finds to be so is no error.
func TestAgreeRegions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g := newMetaGroup(t, 1)
		n := g.nodes[0]
		g.awaitSettled()
		partitions := n.meta.Configuration().Partitions
		agree := func(version, after uint64) error {
			return n.meta.AgreeRegions(t.Context(), *someRegions(partitions, version), after)
		}
		if err := agree(2, 1); !errors.Is(err, errRegionsChanged) {
			t.Errorf("in the place of none: %v", err)
		}
		must(t, agree(1, 0))
		must(t, agree(1, 0))
		if err := agree(3, 2); !errors.Is(err, errRegionsChanged) {
			t.Errorf("in the place of others: %v", err)
		}
		must(t, agree(2, 1))
		if c := n.meta.Configuration(); c.Regions.Version != 2 {
			t.Errorf("%+v", c.Regions)
		}
	})
}

// TestRegionIdentity: two clusters are known by different names.
func TestRegionIdentity(t *testing.T) {
	a, n := RegionIdentity(strings.Repeat("0", 24) + "00000000000000ab")
	if len(a) != regionDataDigits || n != 0xab {
		t.Errorf("%q, %x", a, n)
	}
	if _, n := RegionIdentity(strings.Repeat("0", 40)); n != 1 {
		t.Errorf("incarnation %d is that of no cluster", n)
	}
	if data, n := RegionIdentity("none"); data != "" || n != 0 {
		t.Errorf("%q, %d", data, n)
	}
}
