package store

import (
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestRegionExpiryOfNothing: a counter that begins has no expiry, although another region has set one of what
// was deleted here, and all regions agree.
func TestRegionExpiryOfNothing(t *testing.T) {
	key := []byte("k")
	for name, op := range map[string]Op{
		"INCRBY":  {Kind: IncrBy, Key: key, Delta: 3},
		"CINCRBY": {Kind: CIncrBy, Key: key, ID: []byte("i"), Delta: 3},
		"INCREX":  {Kind: IncrEx, Key: key, Delta: 3},
	} {
		r := newRegionStore(t, false)
		r.must(Op{Kind: IncrBy, Key: key, Delta: 4}, Op{Kind: Del, Keys: [][]byte{key}})
		wall := r.clock.wall
		r.merge("k", Change{Kind: ChangeExpire, Region: other, Seq: 9,
			Expire: part.Expiry{HLC: uint64(wall) + 9, At: wall + 5000}})
		r.shows("k", 0, false)
		r.must(op)
		r.shows("k", 3, true)
		if k := r.counter("k"); k.expire != 0 || k.parts().Expiry().At != 0 {
			t.Errorf("%s: it expires at %d, by its parts at %d", name, k.expire, k.parts().Expiry().At)
		}
		r.reopen("k")
	}
}
