package hotkeys

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// TestTop: the hottest of many keys are found in their order with few counters, and no sum is too large.
func TestTop(t *testing.T) {
	top := newTop(100)
	rnd := rand.New(rand.NewPCG(1, 2))
	truth := map[string]uint64{}
	for range 200_000 {
		key := fmt.Sprint("cold:", rnd.IntN(50_000))
		if rnd.IntN(2) == 0 {
			key = fmt.Sprint("hot:", min(rnd.IntN(10), rnd.IntN(10)))
		}
		n := uint64(1 + rnd.IntN(5))
		truth[key] += n
		top.add([]byte(key), n)
	}
	if len(top.heap) != 100 || len(top.counters) != 100 {
		t.Errorf("%d and %d counters", len(top.heap), len(top.counters))
	}
	for i, h := range top.hottest(5) {
		if want := fmt.Sprint("hot:", i); h.Key != want || h.Sum > truth[want] || h.Sum < truth[want]*9/10 {
			t.Errorf("place %d: %v, want %s with %d", i, h, want, truth[want])
		}
	}
	for _, h := range top.hottest(100) {
		if h.Sum > truth[h.Key] {
			t.Errorf("%s has %d, not %d", h.Key, truth[h.Key], h.Sum)
		}
	}
}

// keys returns keys.
func keys(names ...string) (list [][]byte) {
	for _, n := range names {
		list = append(list, []byte(n))
	}
	return list
}

// TestSearch: keys share what a command costs, slots and samples are counted apart, and a search ends.
func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		now := Usage{User: 3 * time.Second, System: time.Second, Bytes: 100}
		used := func() Usage { return now }
		if h.Going() != nil || h.Last() != nil {
			t.Error("a search goes on")
		}
		o := Options{CPU: true, Net: true, Count: 2, Sample: 1, Slots: []uint16{4, 7}, Duration: time.Minute}
		if err := h.Start(o, used); err != nil {
			t.Fatal(err)
		}
		if err := h.Start(o, used); !errors.Is(err, ErrStarted) {
			t.Error(err)
		}
		s := h.Going()
		s.Add([]Command{
			{Time: 100, Bytes: 30, Slot: -1},
			{Time: 100, Bytes: 20, Keys: keys("a", "b"), Slot: 4},
			{Time: 60, Bytes: 50, Keys: keys("b"), Slot: 7},
			{Time: 20, Bytes: 5, Keys: keys("c"), Slot: 7},
			{Time: 900, Bytes: 900, Keys: keys("else"), Slot: 5},
		})
		now = Usage{User: 4 * time.Second, System: 3 * time.Second, Bytes: 1000}
		time.Sleep(time.Second)
		want := Report{
			Active: true, Took: time.Second, All: Totals{1180, 1005}, Selected: Totals{180, 75},
			Sampled: Totals{180, 75}, Used: Usage{time.Second, 2 * time.Second, 900},
			ByTime: []Hot{{"b", 110}, {"a", 50}}, ByBytes: []Hot{{"b", 60}, {"a", 10}},
		}
		if got := s.Report(time.Now(), now); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if err := h.Reset(); !errors.Is(err, ErrGoesOn) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if h.Going() != nil || h.Last() != s {
			t.Error("the search goes on")
		}
		s.Add([]Command{{Time: 1, Bytes: 1, Keys: keys("late"), Slot: 4}}) // by a worker that has it still
		want.Active, want.Took = false, time.Minute
		if got := s.Report(time.Now(), Usage{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if err := h.Reset(); err != nil || h.Last() != nil {
			t.Error(err)
		}
		if err := h.Start(Options{Net: true, Count: 1, Sample: 100}, used); err != nil {
			t.Fatal(err)
		}
		for range 10_000 {
			h.Going().Add([]Command{{Bytes: 2, Keys: keys("k")}})
		}
		if !h.Stop(used) || h.Stop(used) {
			t.Error("it does not stop once")
		}
		r := h.Last().Report(time.Now(), now)
		if r.All.Bytes != 20_000 || r.ByTime != nil || r.ByBytes[0].Sum != r.Sampled.Bytes ||
			r.Sampled.Bytes < 20 || r.Sampled.Bytes > 1000 {
			t.Errorf("one of 100: %+v", r)
		}
	})
}
