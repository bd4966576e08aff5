package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store/part"
)

// threeRegions are the members of tests; self is the one whose store it is.
func threeRegions(self part.Region, partitions int) RegionSet {
	set := RegionSet{Self: self}
	for r, name := range []string{"a", "b", "c"} {
		set.Members = append(set.Members,
			RegionMember{Region: part.Region(r), Name: name, Partitions: partitions})
	}
	return set
}

// idStore is the store of region 1 of three, which can be opened again.
type idStore struct {
	*Store
	t     *testing.T
	fs    *vfs.MemFS
	clock *fakeClock
	seq   map[part.Region]uint64 // the last one of each other region
}

func newIDStore(t *testing.T, change func(*Options)) *idStore {
	t.Helper()
	s := &idStore{t: t, fs: vfs.NewMem(), clock: newFakeClock(), seq: make(map[part.Region]uint64)}
	s.Store = testStore(t, func(o *Options) {
		o.FS, o.Clock, o.Partitions = s.fs, s.clock.now, 1
		if change != nil {
			change(o)
		}
	})
	if err := s.SetRegions(threeRegions(1, 1)); err != nil {
		t.Fatal(err)
	}
	return s
}

// reopen closes the store, with a checkpoint or without, and opens it again.
func (s *idStore) reopen(save bool) {
	s.t.Helper()
	if save {
		if err := s.Close(); err != nil {
			s.t.Fatal(err)
		}
	} else {
		s.CloseNow()
	}
	s.Store = testStore(s.t, func(o *Options) { o.FS, o.Clock, o.Partitions = s.fs, s.clock.now, 1 })
}

// told is what another region tells of an operation.
type told struct {
	key, id string
	region  part.Region
	dot     uint64
	wall    int64
	now     int64 // its clock
	delta   int64
	clip    int64
	result  int64
}

// next gives what is told its dot.
func (s *idStore) next(h told) told {
	s.seq[h.region]++
	h.dot = s.seq[h.region]
	return h
}

// take takes what another region tells, all in one batch, as a pull does.
func (s *idStore) take(hs ...told) error {
	b := Batch{Atomic: true}
	for _, h := range hs {
		op := b.Add(regionMerge)
		op.Key, op.Object = []byte(h.key),
			[]Change{{Kind: ChangeAdd, Region: h.region, Seq: h.dot, Delta: h.delta - h.clip}}
	}
	for _, h := range hs {
		op := b.Add(regionHear)
		op.Key, op.ID = []byte(h.key), []byte(h.id)
		op.Object = &Heard{Origin: h.region, Dot: h.dot, Wall: h.wall, Told: h.now, Delta: h.delta,
			Clip: h.clip, Result: h.result}
	}
	s.Execute(&b)
	for _, op := range b.Ops {
		if op.Err != nil {
			return op.Err
		}
	}
	return nil
}

func (s *idStore) cseen(key, id string) Op {
	return do(s.Store, Op{Kind: CSeen, Key: []byte(key), ID: []byte(id)})
}

func mustTake(t *testing.T, s *idStore, hs ...told) {
	t.Helper()
	if err := s.take(hs...); err != nil {
		t.Fatal(err)
	}
}

// idModel is what a region must know of one opid, and its counter.
type idModel struct {
	known bool
	seen  Seen
	value int64
}

// The events of TestIDRules: the own region applies the opid, or another one is heard.
type idEvent struct {
	region part.Region
	wall   int64 // of a heard one, after the beginning of the test, ms
}

func (e idEvent) String() string {
	if e.region == 1 {
		return "own"
	}
	return fmt.Sprintf("%c@%d", 'a'+rune(e.region), e.wall)
}

// TestIDRules lets an opid be applied here and told by two other regions, in all orders of up to
// three such events at ascending times, with ranks before and behind. After each event the value,
// the answers to a retry and to CSEEN, and the take-backs are as the rules say. So they are after
// the store was opened again from the log, and from runs and rows.
func TestIDRules(t *testing.T) {
	const stepMs, own = 10, part.Region(1)
	events := []idEvent{{region: own}}
	for _, r := range []part.Region{0, 2} {
		for _, wall := range []int64{-5, stepMs, 2*stepMs + 5, 99} { // an own one has the second, too
			events = append(events, idEvent{r, wall})
		}
	}
	s := newIDStore(t, nil)
	start, _ := s.clock.now()
	var all [][]idEvent
	for _, a := range events {
		for _, b := range events {
			for _, c := range events {
				all = append(all, []idEvent{a, b, c})
			}
		}
	}
	models := make([]idModel, len(all))
	key := func(i int) string { return fmt.Sprint("k", i) }
	check := func(when string) {
		t.Helper()
		for i := range all {
			m := &models[i]
			if v, _ := get(s.Store, key(i)); v != m.value {
				t.Fatalf("%v, %s: value %d, not %d", all[i], when, v, m.value)
			}
			op := s.cseen(key(i), "x")
			if op.Found != m.known || op.Seen != m.seen {
				t.Fatalf("%v, %s: CSEEN %v %+v, not %v %+v", all[i], when, op.Found, op.Seen, m.known, m.seen)
			}
			if m.known {
				wantOp(t, cincr(s.Store, key(i), "x", m.seen.Delta), m.seen.Result, false)
				if op := cincr(s.Store, key(i), "x", m.seen.Delta+1); !errors.Is(op.Err, ErrMismatch) {
					t.Fatalf("%v, %s: another delta: %v", all[i], when, op.Err)
				}
			}
		}
	}
	twins, taken := uint64(0), uint64(0)
	for step := range 3 {
		for i := range all {
			m, e := &models[i], all[i][step]
			delta := int64(1000*(step+1) + 10*int(e.region))
			if e.region == own {
				if op := cincr(s.Store, key(i), "x", delta); m.known != errors.Is(op.Err, ErrMismatch) {
					t.Fatal(op.Err)
				}
				if !m.known {
					m.value += delta
					now, _ := s.clock.now()
					m.known, m.seen = true, Seen{Delta: delta, Result: m.value, UnixMs: now,
						Dot: s.partitions[0].seq}
				}
				continue
			}
			h := s.next(told{key: key(i), id: "x", region: e.region, wall: start + e.wall, delta: delta,
				clip: 4, result: -delta})
			mustTake(t, s, h)
			m.value += delta - 4 // the other region takes it back, if so, and tells that later
			heard := Seen{Delta: delta, Result: -delta, UnixMs: h.wall, Clip: 4, Other: true,
				Region: h.region, Dot: h.dot}
			first := heard.UnixMs < m.seen.UnixMs || heard.UnixMs == m.seen.UnixMs &&
				(heard.Region < m.region(own) || heard.Region == m.region(own) && heard.Dot < m.seen.Dot)
			switch {
			case !m.known:
				m.known, m.seen = true, heard
			case !m.seen.Other:
				if twins++; first {
					m.value -= m.seen.Delta
					heard.Taken = m.seen.Dot
					m.seen = heard
					taken++
				}
			case first:
				heard.Taken = m.seen.Taken
				m.seen = heard
			}
		}
		check("live")
		if n := s.RegionIDs(); n.Twins != twins || n.TakenBack != taken || n.Late != 0 || n.Unchecked != 0 {
			t.Errorf("%+v, want %d twins, %d taken back", n, twins, taken)
		}
		twins, taken = 0, 0
		s.reopen(false)
		check("from the log")
		s.reopen(true)
		check("from rows and runs")
		s.clock.advance(stepMs * time.Millisecond)
	}
}

// region is the region of what counts.
func (m *idModel) region(own part.Region) part.Region {
	if m.seen.Other {
		return m.seen.Region
	}
	return own
}
