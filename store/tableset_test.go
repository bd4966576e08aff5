package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
)

// withTables returns NewTables with more.
func withTables(t *testing.T, more ...TableOptions) TableSet {
	t.Helper()
	set := NewTables()
	for _, o := range more {
		var err error
		set, err = set.Create(o)
		must(t, err)
	}
	must(t, set.Validate())
	return set
}

// TestTableSetRules breaks every rule of a set of tables.
func TestTableSetRules(t *testing.T) {
	for want, edit := range map[string]func(TableSet) TableSet{
		"257 tables":                  func(TableSet) TableSet { return make(TableSet, MaxTables+1) },
		"name must be":                func(s TableSet) TableSet { s[0].Name = ""; return s },
		"ERROR must be":               func(s TableSet) TableSet { s[1].Error = 1; return s },
		`"default" lacks a setting`:   func(s TableSet) TableSet { s[1].Window = 0; return s },
		`"a" is not behind "default"`: func(s TableSet) TableSet { s[0], s[1] = s[1], s[0]; return s },
		`"a" is not behind "a"`:       func(s TableSet) TableSet { s[1].Name = "a"; return s },
		`have the prefix "a:"`:        func(s TableSet) TableSet { s[2].Prefix = "a:"; return s },
		"no table default":            func(s TableSet) TableSet { return append(s[:1], s[2:]...) },
		"with the empty prefix":       func(s TableSet) TableSet { s[1].Prefix = "d"; return s },
	} {
		set := withTables(t, TableOptions{Name: "z", Prefix: "z:"}, TableOptions{Name: "a", Prefix: "a:"})
		if err := edit(set).Validate(); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSetTables goes from any set of tables to any other, at once: an opid that was applied
// under the one is known under the other, and a replica, or a restart, has the same tables. A version that
// is there already logs nothing.
func TestSetTables(t *testing.T) {
	exact, approx := TableOptions{Name: "t", Prefix: "k", Window: time.Hour}, TableOptions{Name: "t",
		Prefix: "k", Mode: Approx}
	sets := map[string]TableSet{
		"none":      NewTables(),
		"exact":     withTables(t, exact),
		"approx":    withTables(t, approx),
		"renamed":   withTables(t, TableOptions{Name: "u", Prefix: "k", Skew: time.Second}),
		"elsewhere": withTables(t, TableOptions{Name: "t", Prefix: "x"}),
		"narrower":  withTables(t, TableOptions{Name: "t", Prefix: "k1"}),
		"nested": withTables(t, TableOptions{Name: "t", Prefix: "k1"},
			TableOptions{Name: "u", Prefix: "k", Mode: Approx}),
		"other way": withTables(t, TableOptions{Name: "u", Prefix: "k1", Mode: Approx},
			TableOptions{Name: "t", Prefix: "k"}),
		"deeper": withTables(t, TableOptions{Name: "a", Prefix: "k1"},
			TableOptions{Name: "b", Prefix: "k12"}, TableOptions{Name: "c", Prefix: "k"}),
		"of default": func() TableSet {
			s, _ := NewTables().Alter(DefaultTable, TableChange{Window: ptr(time.Hour)})
			return s
		}(),
	}
	for from, before := range sets {
		for to, after := range sets {
			if rand.IntN(raced.Step) > 0 {
				continue // another one in the next run
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				fs, clock := vfs.NewMem(), newFakeClock()
				with := func(o *Options) { o.FS, o.Clock, o.Partitions = fs, clock.now, 2 }
				s := testStore(t, with)
				must(t, s.SetTables(before, nil, 7))
				for i := range 40 {
					wantOp(t, cincr(s, "k"+strconv.Itoa(i), "op", 1), 1, true)
				}
				must(t, s.SetTables(after, nil, 9))
				seq := s.Last(1)
				for version, set := range []TableSet{8: before, 9: before} {
					if version >= 8 {
						must(t, s.SetTables(set, nil, uint64(version)))
					}
				}
				if s.Last(1) != seq {
					t.Error("a version that is there was logged again")
				}
				clock.advance(100 * time.Second)
				for range 2 {
					for i := range 40 {
						if op := cincr(s, "k"+strconv.Itoa(i), "op", 1); op.Applied || op.Err != nil {
							t.Fatalf("operation %d was applied again (%v)", i, op.Err)
						}
					}
					if all, newest, err := s.TablesVersion(); !s.Tables().Equal(after) || all != 9 ||
						newest != 9 || err != nil {
						t.Fatalf("version %d to %d (%v): %+v, want %+v", all, newest, err, s.Tables(), after)
					}
					must(t, s.CloseNow())
					s = testStore(t, with)
				}
			})
		}
	}
}

// TestOldTablesStayAway: a leader that knows the cluster's tables as they were before the last change
// leaves those of its shard alone, which a leader before it has brought up to date. Nothing is said of
// tables that are not committed.
func TestOldTablesStayAway(t *testing.T) {
	a, la := testReplica(t, vfs.NewMem(), newFakeClock().now)
	b, lb := testReplica(t, vfs.NewMem(), newFakeClock().now)
	old, long := withTables(t), withTables(t, TableOptions{Name: "t", Prefix: "k", Window: time.Hour})
	must(t, a.Lead())
	must(t, a.SetTables(old, nil, 1))
	must(t, a.SetTables(long, nil, 2))
	records, _ := la.records(0)
	receive(t, b, lb, records)
	if err := b.SetTables(old, nil, 3); !errors.Is(err, ErrNotLeader) {
		t.Errorf("tables of a replica: %v", err)
	}
	b.SetFilterMaxMemory(1)
	if err := b.CheckTables(withTables(t,
		TableOptions{Name: "u", Prefix: "u"})); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("too large for a replica: %v", err)
	}
	b.SetFilterMaxMemory(0)
	must(t, b.CheckTables(withTables(t, TableOptions{Name: "u", Prefix: "u"})))
	must(t, b.Lead())
	must(t, b.SetTables(old, nil, 1))
	if all, _, err := b.TablesVersion(); !b.Tables().Equal(long) || all != 2 || err != nil {
		t.Errorf("version %d (%v) of the new leader: %+v", all, err, b.Tables())
	}
}

// TestTablesDrainFirst: a set of tables that there is no room for, beside those that still drain,
// changes nothing, and is taken once they have drained.
func TestTablesDrainFirst(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock, o.Partitions = clock.now, 1 })
	full := func(name string) TableSet {
		var more []TableOptions
		for i := range MaxTables - 1 {
			more = append(more, TableOptions{Name: fmt.Sprint(name, i), Prefix: fmt.Sprint(name, i, ":")})
		}
		return withTables(t, more...)
	}
	must(t, s.SetTables(full("a"), nil, 1))
	must(t, s.SetTables(full("b"), nil, 2))
	if err := s.SetTables(full("c"), nil, 3); !errors.Is(err, ErrTooManyTables) {
		t.Fatalf("a third set within the window: %v", err)
	}
	if all, _, _ := s.TablesVersion(); all != 2 || !s.Tables().Equal(full("b")) {
		t.Errorf("version %d", all)
	}
	clock.advance(time.Hour)
	must(t, s.SetTables(full("c"), nil, 3))
}

// TestTablesAreCommitted: tables whose commit nobody knows of are there for nobody, who asks again
// neither.
func TestTablesAreCommitted(t *testing.T) {
	s, l := proposingStore(t, vfs.NewMem(), func(*Options) {})
	var cuts []cut
	for _, p := range s.partitions {
		cuts = append(cuts, cut{p, p.seq})
	}
	set := withTables(t, TableOptions{Name: "new", Prefix: "new:"})
	_, before := l.records(0)
	l.holdBack()
	first := make(chan error, 1)
	go func() { first <- s.SetTables(set, nil, 5) }()
	for n := before; n == before; _, n = l.records(0) {
		time.Sleep(time.Millisecond)
	}
	l.cut()
	s.GiveUp()
	if err := <-first; !errors.Is(err, ErrUndecided) {
		t.Errorf("nobody knows whether it was committed: %v", err)
	}
	if err := s.SetTables(set, nil, 5); !errors.Is(err, ErrUndecided) {
		t.Errorf("the same again: %v", err)
	}
	if _, _, err := s.TablesVersion(); !errors.Is(err, ErrUndecided) {
		t.Errorf("its version: %v", err)
	}
	must(t, s.rebuild(cuts...))
	if all, _, err := s.TablesVersion(); all != 0 || err != nil || len(s.Tables()) != 1 {
		t.Errorf("taken back: version %d (%v) of %+v", all, err, s.Tables())
	}
}
