package store

import (
	"errors"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestBoundsComeOver: no change of the tables brings bounds, or narrower ones, over anything that a region
// knows under their prefix, whatever it is; and they come over nothing.
func TestBoundsComeOver(t *testing.T) {
	t.Parallel()
	bounds := TableOptions{Name: "n", Prefix: "b:", Min: boundAt(0), Max: boundAt(9)}
	changes := map[string]struct {
		before []TableOptions
		change func(*Store) error
	}{
		"create": {nil, func(s *Store) error { return s.CreateTable(bounds) }},
		"alter": {[]TableOptions{{Name: "n", Prefix: "b:"}},
			func(s *Store) error { return s.AlterTable("n", TableChange{Min: ptr(boundAt(0))}) }},
		"narrow": {[]TableOptions{{Name: "n", Prefix: "b:", Max: boundAt(200)}},
			func(s *Store) error { return s.AlterTable("n", TableChange{Max: ptr(boundAt(199))}) }},
		"create a longer prefix": {[]TableOptions{{Name: "w", Prefix: "b", Max: boundAt(200)}},
			func(s *Store) error { return s.CreateTable(bounds) }},
		"drop": {[]TableOptions{{Name: "w", Prefix: "b", Max: boundAt(99)},
			{Name: "n", Prefix: "b:", Max: boundAt(200)}}, func(s *Store) error { return s.DropTable("n") }},
		"create again": {[]TableOptions{bounds}, func(s *Store) error {
			must(t, s.DropTable("n"))
			return s.CreateTable(bounds)
		}},
	}
	add := func(r *testRegion, id string) {
		must(t, do(r.s, Op{Kind: CIncrBy, Key: []byte("b:k"), ID: []byte(id), Delta: 5}).Err)
	}
	for name, tc := range map[string]struct {
		has  func(w *testRemoval, a, b *testRegion)
		free bool
	}{
		"nothing":        {has: func(*testRemoval, *testRegion, *testRegion) {}, free: true},
		"another prefix": {has: func(_ *testRemoval, a, _ *testRegion) { incr(a.s, "c:k", 5) }, free: true},
		"a filter": {has: func(_ *testRemoval, a, _ *testRegion) {
			must(t, do(a.s, Op{Kind: FBFReserve, Key: []byte("b:k")}).Err)
		}, free: true},
		"a counter": {has: func(_ *testRemoval, a, _ *testRegion) { incr(a.s, "b:k", 5) }},
		"a counter that was heard of": {has: func(w *testRemoval, a, b *testRegion) {
			add(a, "1") // b asks for rights, if there are bounds
			w.drainLogs()
			_ = do(b.s, Op{Kind: IncrBy, Key: []byte("b:k"), Delta: 1})
			w.drainLogs()
			must(t, do(b.s, Op{Kind: IncrBy, Key: []byte("b:k"), Delta: 1}).Err)
			w.takeFrom(a, b)
		}},
		"a drained one": {has: func(w *testRemoval, a, _ *testRegion) {
			incr(a.s, "b:k", 5)
			for range 3 { // under bounds it can be drained once the other one knows of it
				w.drain()
				w.drop()
			}
			must(t, do(a.s, Op{Kind: CGetDel, Key: []byte("b:k"), ID: []byte("d")}).Err)
		}},
	} {
		for what, c := range changes {
			w := newTestRemoval(t, 2, 1, 4)
			for _, r := range w.r {
				for _, o := range c.before {
					must(t, r.s.CreateTable(o))
				}
			}
			a, b := w.r[0], w.r[1]
			tc.has(w, a, b)
			if w.rnd.IntN(2) == 0 {
				w.reopen(a)
			}
			if err := c.change(a.s); tc.free && err != nil || !tc.free && !errors.Is(err, ErrTableBounds) {
				t.Errorf("%s over %s: %v", what, name, err)
			}
			if op := incr(a.s, "b:new", 1); op.Err != nil {
				t.Errorf("%s over %s: writes are refused still: %v", what, name, op.Err)
			}
		}
	}
}

// TestBoundsComeLate: a deleted counter is in the way of bounds, where it was counted and where that is
// known: until all regions know of the end, and then as long as its operations are remembered. A region that
// is alone may bound what it has.
func TestBoundsComeLate(t *testing.T) {
	t.Parallel()
	w := newTestRemoval(t, 1, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	bounds := TableOptions{Name: "n", Prefix: "b:", Min: boundAt(0), Max: boundAt(9), Window: time.Hour}
	refused := func(why string) {
		t.Helper()
		for _, r := range []*testRegion{a, b} {
			if err := r.s.CreateTable(bounds); !errors.Is(err, ErrTableBounds) {
				t.Errorf("%s: %v", why, err)
			}
		}
	}
	must(t, do(a.s, Op{Kind: CIncrBy, Key: []byte("b:k"), ID: []byte("1"), Delta: 100}).Err)
	w.drainLogs()
	refused("a counter")
	del(b.s, "b:k")
	refused("a deletion that others have not heard of")
	w.drainLogs()
	refused("a deletion that is not acknowledged")
	for range 4 {
		w.drop()
		w.drain()
	}
	if left := w.left(); len(left) > 0 {
		t.Fatalf("%q are left", left)
	}
	refused("an operation that is remembered")
	w.advance(3 * time.Hour)
	for _, r := range w.r {
		incr(r.s, "c:k", 1) // the log tells the time
	}
	w.drain()
	for _, r := range w.r {
		must(t, r.s.CreateTable(bounds))
	}
	// Rights that only the bounds have kept are in the way no more once no region has these.
	_ = do(b.s, Op{Kind: IncrBy, Key: []byte("b:r"), Delta: 1})
	for range 4 { // the cycle finds nothing to drop
		w.drain()
		w.drop()
	}
	for _, r := range w.r {
		must(t, r.s.DropTable("n"))
	}
	refused("rights")
	for range 4 {
		w.drop()
		w.drain()
	}
	if left := w.left(); len(left) > 0 {
		t.Fatalf("rights are left of %q", left)
	}
	must(t, a.s.CreateTable(bounds))

	incr(b.s, "b:k", 50)
	w.loseOne(0, part.Region(1))
	w.loseOne(1, part.Region(1))
	w.finish()
	if must(t, b.s.CreateTable(bounds)); !b.s.partitions[0].regions.alone() {
		t.Error("it is not alone")
	}
}

// TestBoundsSearch: while the keys of a prefix are searched, a write to them is refused. Tables with narrower
// bounds are not logged without a search.
func TestBoundsSearch(t *testing.T) {
	t.Parallel()
	s := newTestRegions(t, 1, 1, 1).r[0].s
	next, err := s.Tables().Create(TableOptions{Name: "n", Prefix: "b:", Max: boundAt(9)})
	must(t, err)
	change := func(c *catalog, at moment) (*catalog, error) { return c.match(next, at) }
	p := s.partitions[0]
	cat, err := change(p.catalog, moment{})
	must(t, err)
	if err := p.checkSearched(cat); !errors.Is(err, ErrTableChanging) {
		t.Error(err)
	}
	r, err := s.mark(p, change)
	must(t, err)
	must(t, r.search())
	must(t, p.checkSearched(cat))
	if err := incr(s, "b:k", 1).Err; !errors.Is(err, ErrTableChanging) {
		t.Error(err)
	}
	must(t, incr(s, "c:k", 1).Err)
	s.endSearch(s.partitions)
	must(t, incr(s, "b:k", 1).Err)
}
