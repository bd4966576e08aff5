package store

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func ptr[T any](v T) *T { return &v }

// TestTableChangesForgetNothing moves keys between tables by CREATE and DROP
// and changes every setting by ALTER: ids applied before stay recognised, also
// after a restart (G1).
func TestTableChangesForgetNothing(t *testing.T) {
	changes := map[string]func(*Store) error{
		"create": func(s *Store) error { return s.CreateTable(TableOptions{Name: "t", Prefix: "k"}) },
		"create approx": func(s *Store) error {
			return s.CreateTable(TableOptions{Name: "t", Prefix: "k", Mode: Approx})
		},
		"create inside": func(s *Store) error {
			if err := s.CreateTable(TableOptions{Name: "t", Prefix: "k"}); err != nil {
				return err
			}
			return s.CreateTable(TableOptions{Name: "u", Prefix: "k1"})
		},
		"create, drop": func(s *Store) error {
			if err := s.CreateTable(TableOptions{Name: "t", Prefix: "k"}); err != nil {
				return err
			}
			return s.DropTable("t")
		},
		"to approx": func(s *Store) error {
			return s.AlterTable(DefaultTable, TableChange{Mode: ptr(Approx)})
		},
		"to exact": func(s *Store) error {
			return s.AlterTable(DefaultTable, TableChange{Mode: ptr(Exact)})
		},
		"longer window": func(s *Store) error {
			return s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Hour)})
		},
		"shorter window": func(s *Store) error {
			return s.AlterTable(DefaultTable,
				TableChange{Window: ptr(time.Second), Skew: ptr(time.Duration(0))})
		},
		"error": func(s *Store) error { return s.AlterTable(DefaultTable, TableChange{Error: ptr(1e-9)}) },
		"there and back": func(s *Store) error {
			if err := s.AlterTable(DefaultTable, TableChange{Mode: ptr(Approx)}); err != nil {
				return err
			}
			return s.AlterTable(DefaultTable, TableChange{Mode: ptr(Exact)})
		},
	}
	for _, mode := range []Mode{Exact, Approx} {
		for name, change := range changes {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				fs, clock := vfs.NewMem(), newFakeClock()
				with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
				s := testStore(t, with)
				must(t, s.AlterTable(DefaultTable, TableChange{Mode: &mode}))
				for i := range 300 {
					cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1)
				}
				must(t, s.Snapshot())
				must(t, change(s))
				// Well within the window that was promised when they were applied.
				clock.advance(100 * time.Second)
				for range 2 {
					for i := range 300 {
						if op := cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1); op.Applied ||
							op.Err != nil {
							t.Fatalf("operation %d was applied again (%v)", i, op.Err)
						}
					}
					s.CloseNow()
					s = testStore(t, with)
				}
			})
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDroppedTableDrains lets a dropped table's memory run out: the tables are
// pruned, and its ids are forgotten in the end.
func TestDroppedTableDrains(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "k", Window: time.Second}))
	wantOp(t, cincr(s, "k1", "1", 1), 1, true)
	must(t, s.DropTable("t"))
	wantOp(t, cincr(s, "k1", "1", 1), 1, false)
	clock.advance(time.Hour)
	s.pruneTables()
	if n := len(s.partitions[0].catalog.Tables); n != 1 {
		t.Fatalf("%d tables left", n)
	}
	if n := len(s.partitions[0].catalog.Tables[0].Links); n != 0 {
		t.Fatalf("%d links left", n)
	}
	wantOp(t, cincr(s, "k1", "1", 1), 2, true)
}

// TestLinksStayFew creates and drops tables again and again within a window:
// the catalogue must not grow with it.
func TestLinksStayFew(t *testing.T) {
	s := testStore(t, nil)
	for i := range 30 {
		must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "p"}))
		must(t, s.CreateTable(TableOptions{Name: "u", Prefix: "q"}))
		wantOp(t, cincr(s, "p", strconv.Itoa(i), 1), int64(i+1), true)
		must(t, s.DropTable("t"))
		must(t, s.DropTable("u"))
	}
	for i := range 30 {
		wantOp(t, cincr(s, "p", strconv.Itoa(i), 1), int64(i+1), false)
	}
	if n := len(s.partitions[0].catalog.encode()); n > 100_000 {
		t.Errorf("the catalogue has %d bytes", n)
	}
}

func TestTableErrors(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "p"}))
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"same name":    {s.CreateTable(TableOptions{Name: "t", Prefix: "q"}), ErrTableExists},
		"same prefix":  {s.CreateTable(TableOptions{Name: "u", Prefix: "p"}), ErrTableExists},
		"empty prefix": {s.CreateTable(TableOptions{Name: "u"}), ErrTableExists},
		"drop default": {s.DropTable(DefaultTable), ErrDropDefault},
		"drop unknown": {s.DropTable("x"), ErrNoTable},
		"alter":        {s.AlterTable("x", TableChange{}), ErrNoTable},
		"window": {s.CreateTable(TableOptions{Name: "u", Prefix: "u", Window: time.Millisecond}),
			ErrOption},
		"alter error": {s.AlterTable("t", TableChange{Error: ptr(0.9)}), ErrOption},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.want)
		}
	}
	s.SetFilterMaxMemory(1)
	if err := s.CreateTable(TableOptions{Name: "u", Prefix: "u"}); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("memory: %v", err)
	}
	if n := len(s.Tables()); n != 2 {
		t.Errorf("%d tables", n)
	}
}

// TestWindow forgets an id only after its window, in logged time.
func TestWindow(t *testing.T) {
	for _, mode := range []Mode{Exact, Approx} {
		clock := newFakeClock()
		s := testStore(t, func(o *Options) { o.Clock = clock.now })
		must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "k", Mode: mode, Window: 10 * time.Second,
			Skew: time.Second}))
		cincr(s, "k", "1", 1)
		for range 10 {
			clock.advance(time.Second)
			for _, p := range s.partitions {
				s.refreshDue(p)
			}
			must(t, s.Snapshot())
			wantOp(t, cincr(s, "k", "1", 1), 1, false)
		}
		clock.advance(time.Minute)
		for _, p := range s.partitions {
			s.refreshDue(p)
		}
		wantOp(t, cincr(s, "k", "1", 1), 2, true)
	}
}

// TestWallClockAgesNothing steps the wall clock by hours, stops the server for
// a day, and retries: neither ages an id (G1). With a client time, a retry is
// stale rather than applied again, whatever the clock does (G7).
func TestWallClockAgesNothing(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	cincr(s, "k", "1", 1)
	for _, step := range []time.Duration{3 * time.Hour, -6 * time.Hour, 2 * time.Hour} {
		clock.step(step)
		wantOp(t, cincr(s, "k", "1", 1), 1, false)
	}
	s.CloseNow()
	clock.advance(24 * time.Hour)
	s = testStore(t, with)
	wantOp(t, cincr(s, "k", "1", 1), 1, false)
}

// TestWallTimeNeverGoesBack sets the clock back by an hour after it was that much ahead:
// what was STALE stays so (G7), what has expired stays away, no record is older than one
// before it, and the future begins where the server's time stands; also after a restart.
func TestWallTimeNeverGoesBack(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock, o.Partitions = fs, clock.now, 1 }
	s := testStore(t, with)
	t0, _ := clock.now()
	for _, key := range []string{"removed", "unseen"} {
		must(t, do(s, Op{Kind: Set, Key: []byte(key), Delta: 1, Flags: HasExpire, ExpireAt: t0 + 60_000}).Err)
	}
	clock.step(time.Hour)
	ahead := s.WallTime()
	wantOp(t, cincr(s, "k", "ahead", 1), 1, true)
	if op := cincrAt(s, "k", "old", t0); !errors.Is(op.Err, ErrStale) {
		t.Fatalf("an hour late: %+v", op)
	}
	if _, ok := get(s, "removed"); ok {
		t.Fatal("the key has not expired")
	}
	clock.step(-time.Hour)
	for i, when := range []string{"set back", "after a restart"} {
		if op := cincrAt(s, "k", "old", t0); !errors.Is(op.Err, ErrStale) {
			t.Errorf("%s: an operation that was STALE: %+v", when, op)
		}
		for _, key := range []string{"removed", "unseen"} {
			if _, ok := get(s, key); ok {
				t.Errorf("%s: %s exists again", when, key)
			}
		}
		if op := cincrAt(s, "k", "future"+when, ahead+6000); !errors.Is(op.Err, ErrFuture) {
			t.Errorf("%s: from the future: %+v", when, op)
		}
		wantOp(t, cincrAt(s, "k", when, ahead+4000), int64(i+2), true)
		if op := do(s, Op{Kind: CSeen, Key: []byte("k"), ID: []byte(when)}); op.Seen.UnixMs < ahead {
			t.Errorf("%s: recorded at %d, before %d", when, op.Seen.UnixMs, ahead)
		}
		must(t, s.CloseNow())
		s = testStore(t, with)
	}
	clock.advance(time.Hour + time.Second)
	if now, _ := clock.now(); s.WallTime() != now {
		t.Errorf("the clock has caught up, but wall time is %d, not %d", s.WallTime(), now)
	}
}

func cincrAt(s *Store, key, id string, at int64) Op {
	return do(s, Op{Kind: CIncrBy, Flags: HasAt, Key: []byte(key), ID: []byte(id), Delta: 1, At: at})
}

func TestStale(t *testing.T) {
	clock := newFakeClock()
	fs := vfs.NewMem()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	t0, _ := clock.now()
	check := func(what string, op Op, want error) {
		t.Helper()
		if !errors.Is(op.Err, want) {
			t.Fatalf("%s: %v, want %v", what, op.Err, want)
		}
	}
	check("now", cincrAt(s, "k", "1", t0), nil)
	check("from the future", cincrAt(s, "k", "2", t0+6000), ErrFuture)
	check("within skew", cincrAt(s, "k", "3", t0+4000), nil)
	check("too old", cincrAt(s, "k", "4", t0-121_000), ErrStale)
	check("old enough", cincrAt(s, "k", "5", t0-119_000), nil)

	clock.advance(119 * time.Second)
	if op := cincrAt(s, "k", "1", t0); op.Err != nil || op.Applied {
		t.Fatalf("retry within the window: %+v", op)
	}
	clock.advance(time.Hour)
	check("retry after the window", cincrAt(s, "k", "1", t0), ErrStale)
	// The wall clock goes back to where the operation was young: its id has
	// been forgotten, so it must stay out.
	clock.step(-time.Hour - 119*time.Second)
	check("retry after the clock went back", cincrAt(s, "k", "1", t0), ErrStale)
	must(t, s.Snapshot())
	s.CloseNow()
	s = testStore(t, with)
	// No outcome was logged in that hour, so logged time goes on before it: the
	// id is remembered still. Either way it is not applied again.
	if op := cincrAt(s, "k", "1", t0); op.Applied || op.Err != nil && !errors.Is(op.Err, ErrStale) {
		t.Fatalf("after a restart: %+v", op)
	}
}

// TestForgottenBefore: FLUSHALL and a longer window do not let in again what
// was forgotten (G7).
func TestForgottenBefore(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	t0, _ := clock.now()
	if op := cincrAt(s, "k", "1", t0); !op.Applied {
		t.Fatal(op.Err)
	}
	clock.advance(200 * time.Second)
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Hour)}))
	if op := cincrAt(s, "k", "1", t0); !errors.Is(op.Err, ErrStale) {
		t.Fatalf("after ALTER: %+v", op)
	}
	t1, _ := clock.now()
	if op := cincrAt(s, "k", "2", t1+3000); !op.Applied {
		t.Fatal(op.Err)
	}
	if op := do(s, Op{Kind: FlushAll}); op.Err != nil {
		t.Fatal(op.Err)
	}
	if op := cincrAt(s, "k", "2", t1+3000); !errors.Is(op.Err, ErrStale) {
		t.Fatalf("after FLUSHALL: %+v", op)
	}
	clock.advance(5 * time.Second)
	if op := cincrAt(s, "k", "3", t1+5000); !op.Applied {
		t.Fatalf("new operation after FLUSHALL: %+v", op)
	}
}

func TestIDTime(t *testing.T) {
	ms := int64(0x018bcfe56800)
	for _, tc := range []struct {
		format IDTime
		id     string
		ok     bool
	}{
		{IDTimeUUIDv7, "018bcfe5-6800-7abc-8def-0123456789ab", true},
		{IDTimeUUIDv7, "018BCFE568007ABC8DEF0123456789AB", true},
		{IDTimeUUIDv7, "\x01\x8b\xcf\xe5\x68\x00\x7a\xbc\x8d\xef\x01\x23\x45\x67\x89\xab", true},
		{IDTimeUUIDv7, "018bcfe5-6800-4abc-8def-0123456789ab", false},
		{IDTimeUUIDv7, "018bcfe5-6800-7abc-8def-0123456789a", false},
		{IDTimeUUIDv7, "", false},
		{IDTimeULID, "01HF7YAT00ABCDEFGHJKMNPQRS", true},
		{IDTimeULID, "01hf7yat00abcdefghjkmnpqrs", true},
		{IDTimeULID, "81HF7YAT00ABCDEFGHJKMNPQRS", false},
		{IDTimeULID, "01HF7YAT00ABCDEFGHJKMNPQRU", false},
		{IDTimeMS, "1700000000000", true},
		{IDTimeMS, "1700000000000-client-7", true},
		{IDTimeMS, "client-1700000000000", false},
		{IDTimeMS, "99999999999999999999999", false},
	} {
		got, ok := idTime(&tableDef{TableOptions: TableOptions{IDTime: tc.format}}, []byte(tc.id), ms)
		if ok != tc.ok || ok && got != ms {
			t.Errorf("%d %q: %d %v, want %d %v", tc.format, tc.id, got, ok, ms, tc.ok)
		}
	}
}

// TestIDTimeAuto: without being told, only opids that are a UUIDv7 or a ULID beyond
// doubt have a time.
func TestIDTimeAuto(t *testing.T) {
	const ms, day = int64(0x018bcfe56800), 24 * time.Hour
	d := &tableDef{TableOptions: TableOptions{IDTime: IDTimeAuto, Window: time.Minute, Skew: 5 * time.Second}}
	for _, tc := range []struct {
		what, id string
		since    time.Duration // the opid's time
		known    bool
	}{
		{"UUIDv7", "018bcfe5-6800-7abc-8def-0123456789ab", 0, true},
		{"UUIDv7 in capitals", "018BCFE5-6800-7ABC-8DEF-0123456789AB", 0, true},
		{"old UUIDv7", "018bcfe5-6800-7abc-8def-0123456789ab", 3000 * day, true},
		{"UUIDv7 a little ahead", "018bcfe5-6800-7abc-8def-0123456789ab", -5 * time.Second, true},
		{"UUIDv7 of the future", "018bcfe5-6800-7abc-8def-0123456789ab", -6 * time.Second, false},
		{"UUIDv4", "018bcfe5-6800-4abc-8def-0123456789ab", 0, false},
		{"another variant", "018bcfe5-6800-7abc-cdef-0123456789ab", 0, false},
		{"no digits", "018bcfe5-6800-7abc-8def-0123456789ax", 0, false},
		{"no hyphens", "018bcfe5-6800-7abc-8def_0123456789ab", 0, false},
		{"longer", "018bcfe5-6800-7abc-8def-0123456789abc", 0, false},
		{"32 digits", "018bcfe568007abc8def0123456789ab", time.Minute, true},
		{"32 capitals", "018BCFE568007ABC8DEF0123456789AB", 30 * day, true},
		{"32 digits of long ago", "018bcfe568007abc8def0123456789ab", 31 * day, false},
		{"32 digits of another version", "018bcfe568006abc8def0123456789ab", 0, false},
		{"32 digits of another variant", "018bcfe568007abc4def0123456789ab", 0, false},
		{"16 bytes", "\x01\x8b\xcf\xe5\x68\x00\x7a\xbc\x8d\xef\x01\x23\x45\x67\x89\xab", time.Hour, true},
		{"16 bytes of long ago", "\x01\x8b\xcf\xe5\x68\x00\x7a\xbc\x8d\xef\x01\x23\x45\x67\x89\xab", 31 * day,
			false},
		{"16 bytes without a variant", "\x01\x8b\xcf\xe5\x68\x00\x7a\xbc\x0d\xef\x01\x23\x45\x67\x89\xab", 0,
			false},
		{"16 bytes, perhaps a ULID", "\x01\x8b\xcf\xe5\x68\x00\x1a\xbc\x8d\xef\x01\x23\x45\x67\x89\xab", 0,
			false},
		{"ULID", "01HF7YAT00ABCDEFGHJKMNPQRS", 0, true},
		{"old ULID", "01HF7YAT00ABCDEFGHJKMNPQRS", 2000 * day, true},
		{"ULID in small letters", "01hf7yat00abcdefghjkmnpqrs", 0, true},
		{"ULID of the future", "01HF7YAT00ABCDEFGHJKMNPQRS", -time.Hour, false},
		{"both cases", "01HF7YAT00abcdefghjkmnpqrs", 0, false},
		{"a letter that is none", "01HF7YAT00ABCDEFGHJKMNPQRL", 0, false},
		{"padded number", "00000000000000000000000123", 0, false},
		{"26 digits", "01999999999999999999999999", 0, false},
		{"milliseconds", "1700000000000", 0, false},
		{"nothing", "", 0, false},
	} {
		got, known := idTime(d, []byte(tc.id), ms+tc.since.Milliseconds())
		if known != tc.known || known && got != ms {
			t.Errorf("%s: %d %v, want %v", tc.what, got, known, tc.known)
		}
	}
	if got, known := idTime(d, []byte("01ARZ3NDEKTSV4RRFFQ69G5FAV"), ms); got != 1469922850259 || !known {
		t.Errorf("the ULID of the specification: %d %v", got, known)
	}
}

// TestIDTimeOfNoTime: opids that only name something have no time.
func TestIDTimeOfNoTime(t *testing.T) {
	d := &tableDef{TableOptions: TableOptions{IDTime: IDTimeAuto, Window: 2 * time.Minute,
		Skew: 5 * time.Second}}
	rnd := rand.NewChaCha8([32]byte{1})
	var b [16]byte
	for range 200_000 {
		rnd.Read(b[:])
		md5 := hex.EncodeToString(b[:])
		v4 := b
		v4[6], v4[8] = v4[6]&0xf|0x40, v4[8]&0x3f|0x80
		h := hex.EncodeToString(v4[:])
		for _, id := range []string{string(b[:]), md5, strings.ToUpper(md5), h, string(v4[:]),
			h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], "order:" + md5[:20],
			fmt.Sprintf("%026d", binary.BigEndian.Uint64(b[:]))} {
			if ms, known := idTime(d, []byte(id), 1_800_000_000_000); known {
				t.Errorf("%q is taken for an operation of %d", id, ms)
			}
		}
	}
}

// TestLateByDefault: in a new directory a retry that comes after the window is
// refused, not counted again, if its opid has a time (G7). A table that was made to
// read none goes on reading none.
func TestLateByDefault(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	must(t, s.CreateTable(TableOptions{Name: "none", Prefix: "none:", IDTime: IDTimeNone}))
	wall, _ := clock.now()
	id := uuidv7(wall, 1)
	both := [][]byte{[]byte("a"), []byte("b")}
	wantOp(t, cincr(s, "k", id, 1), 1, true)
	wantOp(t, cincr(s, "none:k", id, 1), 1, true)
	if op := do(s, Op{Kind: CMIncrBy, Keys: both, Deltas: []int64{1, 1}, ID: []byte(id)}); !op.Applied {
		t.Fatal(op.Err)
	}
	for range 20 {
		clock.advance(30 * time.Second)
		for _, p := range s.partitions {
			s.refreshDue(p)
		}
	}
	s.CloseNow()
	s = testStore(t, with)
	if op := cincr(s, "k", id, 1); !errors.Is(op.Err, ErrStale) {
		t.Errorf("a retry after the window: %+v", op)
	}
	if op := do(s, Op{Kind: CMIncrBy, Keys: both, Deltas: []int64{1, 1}, ID: []byte(id)}); !errors.Is(op.Err,
		ErrStale) {
		t.Errorf("a retry of several increments after the window: %+v", op)
	}
	wantOp(t, cincr(s, "none:k", id, 1), 2, true)
	wall, _ = clock.now()
	wantOp(t, cincr(s, "k", uuidv7(wall, 2), 1), 2, true)
	do(s, Op{Kind: FlushAll})
	if op := cincr(s, "k", uuidv7(wall, 2), 1); !errors.Is(op.Err, ErrStale) {
		t.Errorf("a retry after FLUSHALL: %+v", op)
	}
	wantOp(t, cincr(s, "k", uuidv7(wall+1, 3), 1), 1, true)
}

// TestMoveToLongerWindow: a key that comes into a table with a longer window
// leaves behind what the shorter one forgot; operations of that time are STALE.
func TestMoveToLongerWindow(t *testing.T) {
	for name, move := range map[string]func(*Store) error{
		"create": func(s *Store) error {
			return s.CreateTable(TableOptions{Name: "l", Prefix: "s:k", Window: time.Hour})
		},
		"drop": func(s *Store) error { return s.DropTable("s") },
		"drop, alter": func(s *Store) error {
			if err := s.DropTable("s"); err != nil {
				return err
			}
			return s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Hour)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newFakeClock()
			s := testStore(t, func(o *Options) { o.Clock = clock.now })
			must(t, s.CreateTable(TableOptions{Name: "s", Prefix: "s:", Window: time.Second}))
			t0, _ := clock.now()
			if op := cincrAt(s, "s:k", "1", t0); !op.Applied {
				t.Fatal(op.Err)
			}
			must(t, move(s))
			for range 30 {
				clock.advance(3 * time.Second)
				for _, p := range s.partitions {
					s.refreshDue(p)
				}
				s.pruneTables()
				if op := cincrAt(s, "s:k", "1", t0); op.Applied {
					t.Fatal("applied again")
				}
			}
			now, _ := clock.now()
			if op := cincrAt(s, "s:k", "2", now); !op.Applied {
				t.Fatalf("a new operation: %+v", op)
			}
		})
	}
}

// TestAlterCannotFreeze: what an ALTER would take is asked for before it is
// logged, so that redo cannot fail on it (G6, G8).
func TestAlterCannotFreeze(t *testing.T) {
	s := testStore(t, nil)
	s.SetFilterMaxMemory(1)
	for _, ch := range []TableChange{{Mode: ptr(Approx)}, {Error: ptr(MinError)}} {
		if err := s.AlterTable(DefaultTable, ch); !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("%+v: %v", ch, err)
		}
	}
	s.SetFilterMaxMemory(0)
	for i := range 200 { // policies that are still draining are bounded
		e := 1e-3 / float64(i+2)
		if err := s.AlterTable(DefaultTable, TableChange{Error: &e}); err != nil &&
			!errors.Is(err, ErrOption) {
			t.Fatal(err)
		}
	}
	wantOp(t, cincr(s, "k", "1", 1), 1, true)
	if err := s.Failure(); err != nil {
		t.Fatal(err)
	}
}

// TestMultiKeyError: in APPROX a CMINCRBY of up to 16 keys errs no more often
// than the table's ERROR, although it makes as many tests (G5).
func TestMultiKeyError(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, s.AlterTable(DefaultTable,
		TableChange{Mode: ptr(Approx), Error: ptr(0.01)}))
	for i := range 20_000 {
		cincr(s, "a", strconv.Itoa(i), 1)
	}
	wrong := 0
	for i := range 2000 {
		op := Op{Kind: CMIncrBy, ID: []byte("m" + strconv.Itoa(i))}
		for k := range 16 {
			op.Keys, op.Deltas = append(op.Keys, []byte("k"+strconv.Itoa(k))), append(op.Deltas, 1)
		}
		if got := do(s, op); !got.Applied {
			wrong++
		}
	}
	if wrong > 40 { // 20 expected at most; five standard deviations above
		t.Errorf("%d of 2000 new operations were dismissed", wrong)
	}
}
