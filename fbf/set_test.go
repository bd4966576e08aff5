package fbf

import (
	"errors"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// testSet is a set with a clock of its own, beside an exact list of its questions.
type testSet struct {
	*Set
	t      *testing.T
	time   atomic.Int64
	window int64
	asked  []int64 // when each id was new, by its number; -1: taken for a seen one
	wrong  int     // new ids taken for seen ones
}

func newTestSet(t *testing.T, o Options) *testSet {
	t.Helper()
	o.Overload = Degrade
	s := &testSet{t: t, window: o.Window}
	set, err := newSet(o, s.time.Load)
	if err != nil {
		t.Fatal(err)
	}
	s.Set = set
	return s
}

// new asks for n new ids.
func (s *testSet) new(n int) {
	for range n {
		at := s.time.Load()
		if s.Seen(strconv.Itoa(len(s.asked))) {
			at = -1
			s.wrong++
		}
		s.asked = append(s.asked, at)
	}
}

// remembered asks for every id again that is not older than the window, or for every
// one in so many of them.
func (s *testSet) remembered(every int) {
	s.t.Helper()
	for id := len(s.asked) - 1; id >= 0; id -= every {
		at := s.asked[id]
		if age := s.time.Load() - at; at >= 0 && age >= s.window {
			return
		}
		if at >= 0 && !s.Seen(strconv.Itoa(id)) {
			s.t.Fatalf("id %d is forgotten after %d ms of %d", id, s.time.Load()-at, s.window)
		}
	}
}

// TestSetKeepsItsPromise asks for ids at loads that rise a hundredfold and fall again. No id is
// forgotten within the window, each is soon after, and new ones are taken for seen ones no more
// often than promised.
func TestSetKeepsItsPromise(t *testing.T) {
	const target = 1e-3
	s := newTestSet(t, Options{Window: 10_000, Error: target})
	worst := 0.0
	for _, load := range []int{1, 100, 3, 30, 0, 1} { // ids per 10 ms, for a window and a half
		for range 1500 {
			s.time.Add(10)
			s.new(load)
			if s.time.Load()%500 == 0 {
				s.remembered(7)
				worst = max(worst, s.Stats().EffectiveFPP)
			}
		}
	}
	if mean := target * float64(len(s.asked)); float64(s.wrong) > mean+5*math.Sqrt(mean) || worst > target {
		t.Errorf("%d of %d new ids taken for seen ones, up to %g at a time; promised is %g", s.wrong,
			len(s.asked), worst, target)
	}
	if items := s.Stats().Items; items > 1500*3/2 {
		t.Errorf("%d ids remembered at an id per 10 ms for a window and a half", items)
	}
	for range s.window * 3 / 2 / 250 {
		s.time.Add(250)
		s.look()
	}
	if st := s.Stats(); st.Items != 0 || st.Bytes > 1<<20 {
		t.Errorf("%d ids and %d bytes after a window and a half without an id", st.Items, st.Bytes)
	}
}

// TestSetOutlivesPauses: a pause of any length ages ids by no more than a second.
func TestSetOutlivesPauses(t *testing.T) {
	s := newTestSet(t, Options{Window: 4000, Error: 1e-6})
	s.new(100)
	for _, pause := range []time.Duration{6 * time.Second, time.Hour, 366 * 24 * time.Hour} {
		s.time.Add(pause.Milliseconds())
		for id := range s.asked {
			if !s.Seen(strconv.Itoa(id)) {
				t.Fatalf("id %d is forgotten after a pause of %v", id, pause)
			}
		}
	}
}

// TestIdleSet: an idle set remembers for the window, to its last instant, and no longer
// than one that is in use.
func TestIdleSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 20*time.Second + 300*time.Microsecond
		s, err := NewSet(window, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(999 * time.Microsecond)
		for id := range 2 {
			if s.Seen(strconv.Itoa(id)) {
				t.Errorf("id %d is seen before it came", id)
			}
		}
		time.Sleep(window)
		if !s.Seen("0") {
			t.Error("forgotten within the window")
		}
		time.Sleep(window / 2)
		if s.Seen("1") {
			t.Error("remembered after a window and a half")
		}
		runtime.KeepAlive(s)
	})
}

// TestSetAtItsBound: a set that may not grow forgets nothing early, and takes new ids for seen
// ones until the load has gone.
func TestSetAtItsBound(t *testing.T) {
	const bound, target = 64 << 10, 1e-3
	s := newTestSet(t, Options{Window: 10_000, Error: target, MaxMemory: bound})
	worst := 0.0
	for range 1500 {
		s.time.Add(10)
		s.new(100)
		if s.time.Load()%500 == 0 {
			s.remembered(7)
		}
		st := s.Stats()
		worst = max(worst, st.EffectiveFPP)
		if st.Bytes > bound {
			t.Fatalf("%d bytes, more than %d", st.Bytes, bound)
		}
	}
	if worst <= target || s.wrong == 0 {
		t.Errorf("error %g at most, with %d of %d new ids taken for seen ones: the bound was not reached",
			worst, s.wrong, len(s.asked))
	}
	for range 3000 {
		s.time.Add(10)
		s.new(1)
	}
	if now := s.Stats().EffectiveFPP; now > target {
		t.Errorf("error %g after the load has gone", now)
	}
}

// TestSeenAtTheSameTime: of many who ask for an id at the same time one is told that it
// is new, while the set grows.
func TestSeenAtTheSameTime(t *testing.T) {
	const askers, ids = 4, 30_000
	s := newTestSet(t, Options{Window: 10_000, Error: 1e-9})
	var told [ids]atomic.Int32
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			for id := range told {
				if !s.Seen(strconv.Itoa(id)) {
					told[id].Add(1)
				}
				if id%100 == 0 {
					s.time.Add(1)
					s.Stats()
				}
			}
		})
	}
	asking.Wait()
	for id := range told {
		if n := told[id].Load(); n != 1 {
			t.Errorf("%d were told that id %d is new", n, id)
		}
	}
}

// TestSetOptions: what cannot be promised is refused.
func TestSetOptions(t *testing.T) {
	for _, c := range []struct {
		window  time.Duration
		error   float64
		options []SetOption
	}{
		{0, 1e-3, nil}, {-time.Second, 1e-3, nil}, {math.MaxInt64, 1e-3, nil},
		{time.Second, 0, nil}, {time.Second, 0.9, nil}, {time.Second, math.NaN(), nil},
		{time.Second, 1e-3, []SetOption{WithMaxMemory(0)}},
		{time.Second, 1e-3, []SetOption{WithMaxMemory(MinMemory - 1)}},
	} {
		if _, err := NewSet(c.window, c.error, c.options...); !errors.Is(err, ErrOptions) {
			t.Errorf("window %v, error %g, %d options: %v", c.window, c.error, len(c.options), err)
		}
	}
	s, err := NewSet(1, 1e-3, WithMaxMemory(MinMemory))
	if err != nil || s.Seen("") || !s.Seen("") {
		t.Errorf("the smallest window and memory: %v", err)
	}
}

// TestSetIsCollected: a set that nobody holds goes, and its memory with it, though it
// looks at its clock by itself.
func TestSetIsCollected(t *testing.T) {
	s, err := NewSet(time.Hour, 1e-3)
	if err != nil {
		t.Fatal(err)
	}
	for id := range 1 << 20 {
		s.Seen(strconv.Itoa(id))
	}
	filter, set := s.filter, weak.Make(s)
	if filter.Bytes() < mapFrom {
		t.Fatalf("%d bytes are not mapped", filter.Bytes())
	}
	s = nil
	for deadline := time.Now().Add(testwait.Limit); set.Value() != nil || !raceEnabled &&
		filter.Bytes() != 0; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("the set is still there: %v; %d bytes", set.Value() != nil, filter.Bytes())
		}
	}
}

// TestSeenDoesNotAllocate: nor does the clock.
func TestSeenDoesNotAllocate(t *testing.T) {
	s, err := NewSet(time.Hour, 1e-3)
	if err != nil {
		t.Fatal(err)
	}
	id := "0199c0de-0000-7000-8000-000000000000, of some client"
	if n := testing.AllocsPerRun(1000, func() { s.Seen(id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
