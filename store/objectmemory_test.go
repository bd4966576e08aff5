package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestObjectsLeaveHalfToTables: objects under keys, of whichever kind, get at most half of
// filter-maxmemory, so that tables can be made and grow whatever a client creates.
func TestObjectsLeaveHalfToTables(t *testing.T) {
	const limit = 4 << 20
	for name, create := range map[string]func(key []byte) Op{
		"BF": func(key []byte) Op {
			return Op{Kind: BFReserve, Key: key,
				Object: &BloomOptions{Error: 0.01, Capacity: 100_000, Expansion: 2}}
		},
		"CMS": func(key []byte) Op {
			return Op{Kind: CMSInit, Key: key, Object: &SketchOptions{Width: 10_000, Depth: 5, Cell: 4}}
		},
		"FBF": func(key []byte) Op {
			return Op{Kind: FBFReserve, Key: key,
				Object: &FilterOptions{Fixed: true, Bits: 1 << 20, Hashes: 3, Past: 1, Refresh: time.Minute}}
		},
		"FBF that grows": func(key []byte) Op {
			op := Op{Kind: FBFAdd, Key: []byte("f")}
			for i := range 20_000 {
				op.Keys = append(op.Keys, fmt.Appendf(nil, "%s-%d", key, i))
			}
			return op
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := testStore(t, func(o *Options) { o.FilterMaxMemory, o.FS = limit, fs })
			refused := func(from int) bool {
				for n := range 100 {
					op := do(s, create(fmt.Appendf(nil, "key%d-%d", from, n)))
					full := false
					for _, f := range op.Fulls {
						full = full || f
					}
					if op.Err != nil && !errors.Is(op.Err, ErrOutOfMemory) && op.Err != ErrBloomMemory &&
						op.Err != ErrSketchMemory {
						t.Fatal(op.Err)
					}
					if op.Err != nil || full {
						return true
					}
				}
				return false
			}
			if !refused(0) {
				t.Fatal("nothing is refused")
			}
			has := s.pool.objects.Load()
			if has > limit/2 || has < limit/4 {
				t.Errorf("objects have %d bytes of %d", has, limit)
			}
			o := TableOptions{Name: "t", Prefix: "t:", Mode: Approx}
			if err := s.CreateTable(o); err != nil {
				t.Errorf("a table does not get the other half: %v", err)
			}
			// Objects of a directory are served, whatever the limit is now; only growth is refused.
			must(t, s.Close())
			s = testStore(t, func(o *Options) { o.FilterMaxMemory, o.FS = limit/2, fs })
			if now := s.pool.objects.Load(); now != has {
				t.Errorf("objects have %d bytes after a start, %d before", now, has)
			}
			if do(s, Op{Kind: TypeOf, Key: []byte("key0-0")}).Type == TypeNone &&
				do(s, Op{Kind: TypeOf, Key: []byte("f")}).Type == TypeNone {
				t.Error("an object is not served")
			}
			if !refused(1) || s.pool.objects.Load() != has {
				t.Error("objects grow beyond their half")
			}
			must(t, do(s, Op{Kind: FlushAll}).Err)
			if now := s.pool.objects.Load(); now != 0 {
				t.Errorf("objects have %d bytes after FLUSHALL", now)
			}
		})
	}
}
