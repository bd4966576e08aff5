package sim

import (
	"slices"
	"testing"
)

// TestItemNames checks that no item has so few bits in a filter that it is often reported in vain.
func TestItemNames(t *testing.T) {
	names, subs := itemNames(), subFilters()
	if len(slices.Compact(slices.Sorted(slices.Values(names)))) != bloomItems || len(subs) < 3 {
		t.Fatalf("%d names, and sub-filters %v", len(names), subs)
	}
	for _, name := range append(names, "none") { // facts asks for that one, too
		for i := range subs {
			if n := bitsOf(name, &subs[i]); n < int(subs[i].Hashes) {
				t.Errorf("%s has %d of %d bits in sub-filter %d", name, n, subs[i].Hashes, i)
			}
		}
	}
}
