package store

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// scaled are tables of which one has a scale.
func scaled(s *Store, prefix string, scale uint8) error {
	return s.CreateTable(TableOptions{Name: "cents", Prefix: prefix, Scale: scale, Window: time.Minute})
}

// TestScaleStays: no change of the tables gives a counter, a hold or a remembered operation another scale,
// wherever they are; and none that is left over is in the way.
func TestScaleStays(t *testing.T) {
	opened := func(s *Store) {
		do(s, Op{Kind: CHold, Key: []byte("p:k"), ID: []byte("h"), Delta: 5, ExpireAt: 1 << 60})
	}
	drained := func(s *Store) {
		incr(s, "p:k", 5)
		do(s, Op{Kind: CGetDel, Key: []byte("p:k"), ID: []byte("d")})
	}
	expired := func(s *Store, c *fakeClock) {
		do(s, Op{Kind: Set, Key: []byte("p:k"), Flags: HasExpire, ExpireAt: c.wall + 1000})
		c.advance(2 * time.Second)
	}
	forgotten := func(s *Store, c *fakeClock) {
		cincr(s, "p:k", "1", 5)
		del(s, "p:k")
		c.advance(time.Hour)
		incr(s, "q:{p:k}", 1) // the log tells the partition's time
	}
	for name, tc := range map[string]struct {
		has  func(*Store, *fakeClock)
		free bool
	}{
		"a counter":    {has: func(s *Store, _ *fakeClock) { incr(s, "p:k", 5) }},
		"an operation": {has: func(s *Store, _ *fakeClock) { cincr(s, "p:k", "1", 5); del(s, "p:k") }},
		"an open hold": {has: func(s *Store, _ *fakeClock) { opened(s) }},
		"a hold's end": {has: func(s *Store, _ *fakeClock) {
			opened(s)
			do(s, Op{Kind: CCancel, Key: []byte("p:k"), ID: []byte("h")})
		}},
		"a drain":   {has: func(s *Store, _ *fakeClock) { drained(s) }},
		"nothing":   {has: func(*Store, *fakeClock) {}, free: true},
		"another's": {has: func(s *Store, _ *fakeClock) { cincr(s, "q:k", "1", 5) }, free: true},
		"a filter": {has: func(s *Store, _ *fakeClock) {
			do(s, Op{Kind: FBFReserve, Key: []byte("p:k")})
		}, free: true},
		"a deleted one":  {has: func(s *Store, _ *fakeClock) { incr(s, "p:k", 5); del(s, "p:k") }, free: true},
		"an expired one": {has: expired, free: true},
		"forgotten ones": {has: forgotten, free: true},
		"flushed ones": {has: func(s *Store, _ *fakeClock) {
			opened(s)
			cincr(s, "p:l", "1", 5)
			do(s, Op{Kind: FlushAll})
		}, free: true},
	} {
		for _, place := range []string{"memory", "disk"} {
			for what, change := range map[string]func(*Store) error{
				"create": func(s *Store) error { return scaled(s, "p:", 2) },
				"alter":  func(s *Store) error { return s.AlterTable("t", TableChange{Scale: ptr(uint8(3))}) },
				"drop":   func(s *Store) error { return s.DropTable("t") },
				"set": func(s *Store) error {
					next, err := s.Tables().Alter(DefaultTable, TableChange{Scale: ptr(uint8(1))})
					must(t, err)
					next, err = next.Create(TableOptions{Name: "q", Prefix: "q:"}) // whose scale stays
					must(t, err)
					return s.SetTables(next, nil, 1)
				},
			} {
				fs, clock := vfs.NewMem(), newFakeClock()
				with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
				s := testStore(t, with)
				if what == "alter" || what == "drop" {
					must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "p:", Scale: 2, Window: time.Minute}))
				}
				tc.has(s, clock)
				if place == "disk" {
					must(t, s.Close())
					s = testStore(t, with)
				}
				if err := change(s); tc.free && err != nil || !tc.free && !errors.Is(err, ErrScale) {
					t.Errorf("%s beside %s, on %s: %v", what, name, place, err)
				}
				if op := incr(s, "p:new", 1); op.Err != nil {
					t.Fatal("writes are refused still", op.Err)
				}
				must(t, s.Close())
			}
		}
	}
}

func del(s *Store, key string) { do(s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}}) }

// TestScaleSearch: while the keys of a prefix are searched, no write to them is applied, and others are.
// Tables with another scale are not logged without a search.
func TestScaleSearch(t *testing.T) {
	s := testStore(t, nil)
	incr(s, "q:k", 1)
	next, err := s.Tables().Create(TableOptions{Name: "cents", Prefix: "p:", Scale: 2})
	must(t, err)
	change := func(c *catalog, at moment) (*catalog, error) { return c.match(next, at) }
	for _, p := range s.partitions {
		cat, err := change(p.catalog, moment{})
		must(t, err)
		if err := p.checkSearched(cat); !errors.Is(err, ErrTableChanging) {
			t.Fatal(err)
		}
		r, err := s.mark(p, change)
		must(t, err)
		must(t, p.checkSearched(cat))
		must(t, r.search())
	}
	for range 2 {
		for _, op := range []Op{cincr(s, "p:k", "1", 1), incr(s, "p:k", 1),
			do(s, Op{Kind: MSet, Keys: [][]byte{[]byte("q:m"), []byte("p:k")}, Deltas: []int64{1, 1}})} {
			if !errors.Is(op.Err, ErrTableChanging) {
				t.Fatalf("%+v", op)
			}
		}
	}
	if _, found := get(s, "q:m"); found {
		t.Fatal("half of an MSET was applied")
	}
	if op := do(s, Op{Kind: Get, Key: []byte("p:k")}); op.Err != nil || op.Found {
		t.Fatalf("%+v", op)
	}
	wantOp(t, incr(s, "q:k", 1), 2, true)
	s.endSearch(s.partitions)
	wantOp(t, cincr(s, "p:k", "1", 1), 1, true)
	if err := scaled(s, "p:", 2); !errors.Is(err, ErrScale) {
		t.Fatal(err)
	}
}

// TestScaleInTheLog: a table's scale is in no entry but the tables'. The counters are there after a
// restart.
func TestScaleInTheLog(t *testing.T) {
	var bytes [2]uint64
	for i := range bytes {
		fs, clock := vfs.NewMem(), newFakeClock()
		with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
		s := testStore(t, with)
		number := Op{Kind: CIncrBy, Key: []byte("p:k"), ID: []byte("1"), Delta: 12345}
		if i == 1 {
			must(t, scaled(s, "p:", 2))
			number.Points[0] = 2 | Decimal // 123.45
		}
		logged := func() (n uint64) {
			for _, p := range s.partitions {
				n += p.logBytes
			}
			return n
		}
		before := logged()
		wantOp(t, do(s, number), 12345, true)
		bytes[i] = logged() - before
		must(t, s.Close())
		s = testStore(t, with)
		op := do(s, Op{Kind: Get, Key: []byte("p:k")})
		if op.Value != 12345 || op.Scale != uint8(2*i) {
			t.Fatalf("%+v", op)
		}
		wantOp(t, do(s, number), 12345, false)
	}
	if bytes[0] != bytes[1] || bytes[0] == 0 {
		t.Fatalf("%d bytes with SCALE, and %d without", bytes[1], bytes[0])
	}
}
