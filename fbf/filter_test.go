package fbf

import (
	"errors"
	"math"
	"testing"
)

func TestOptions(t *testing.T) {
	good := Options{Window: 1000, Error: 1e-3}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"window 0":     func(o *Options) { o.Window = 0 },
		"window huge":  func(o *Options) { o.Window = MaxWindow + 1 },
		"error 0":      func(o *Options) { o.Error = 0 },
		"error NaN":    func(o *Options) { o.Error = math.NaN() },
		"error 1":      func(o *Options) { o.Error = 1 },
		"capacity":     func(o *Options) { o.Capacity = MaxCapacity + 1 },
		"memory":       func(o *Options) { o.MaxMemory = MinMemory - 1 },
		"past":         func(o *Options) { o.Past = 7 },
		"past below 0": func(o *Options) { o.Past = -1 },
		"roles":        func(o *Options) { o.Roles = 3 },
		"overload":     func(o *Options) { o.Overload = 2 },
	} {
		o := good
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: Validate says %v", name, err)
		}
		if f, err := New(o, 0); !errors.Is(err, ErrOptions) || f != nil {
			t.Errorf("%s: New says %v", name, err)
		}
		s := newSim(t, good, 1)
		if err := s.f.Alter(o, 0); !errors.Is(err, ErrOptions) || s.f.Options().Window != 1000 {
			t.Errorf("%s: Alter says %v", name, err)
		}
	}
	for past := 0; past <= MaxPast; past++ {
		for roles := 0; roles <= 2; roles++ {
			o := Options{Window: 1, Error: MaxError, Past: past, Roles: roles, Capacity: 1000,
				MaxMemory: MinMemory}
			s := newSim(t, o, 1)
			if s.f.Bytes() > MinMemory || s.f.Bytes() != o.InitialBytes() {
				t.Errorf("past %d, roles %d: %d bytes, InitialBytes %d", past, roles, s.f.Bytes(),
					o.InitialBytes())
			}
			s.run(20, steady(20_000))
			s.check()
		}
	}
}

// TestNoAllocations: the hot path takes nothing from the heap.
func TestNoAllocations(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-6, Capacity: 100_000}, 1)
	hs, present := make([]uint64, 100), make([]bool, 100)
	h := uint64(1)
	for name, f := range map[string]func(){
		"Insert":         func() { h++; s.f.Insert(h, 1) },
		"Contains":       func() { s.f.Contains(h) },
		"Match":          func() { s.f.Match(h) },
		"Touch":          func() { s.f.Touch(h) },
		"CheckAndInsert": func() { h++; s.f.CheckAndInsert(h, 1) },
		"Batch":          func() { s.f.CheckAndInsertBatch(hs, 1, present) },
		"Due":            func() { s.f.Due(1); s.f.Room(); s.f.Full() },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// TestMatch: an insert lies in the times that its generations span.
func TestMatch(t *testing.T) {
	for roles := 1; roles <= 2; roles++ {
		s := newSim(t, Options{Window: minute, Error: 1e-9, Roles: roles, Tag: 2}, 1)
		s.run(3*minute, steady(50))
		for _, id := range s.ids {
			if id.until <= s.now {
				continue
			}
			m, ok := s.f.Match(id.h)
			if !ok || m.First > id.at || m.Last < id.at || m.Generations != 1 || m.Tags != 2 ||
				m.Last-m.First > minute/4 {
				t.Fatalf("r=%d: %+v for an insert at %d", roles, m, id.at)
			}
		}
		if m, ok := s.f.Match(12345); ok || m != (Match{}) {
			t.Errorf("unknown id matches %+v", m)
		}
	}
}

// TestStats: the figures agree with the operations.
func TestStats(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3}, 1)
	s.run(5*minute, steady(100))
	st := s.f.Stats(s.now)
	var items uint64
	var fpp float64
	for i, g := range st.Generations {
		items += g.Count
		fpp += g.FPP
		if g.Count > 0 && (g.Expire != g.Newest+minute || g.Start > g.Newest || g.Newest > s.now) {
			t.Errorf("generation %d: %+v", i, g)
		}
		if i > 0 && g.Start != 0 && g.Start < st.Generations[i-1].Start {
			t.Errorf("generation %d begins before the one before it", i)
		}
	}
	if st.Items != items || st.Items != s.f.Len() || st.Inserted != uint64(len(s.ids)) || st.Segments != 1 {
		t.Errorf("%+v", st)
	}
	if math.Abs(fpp/st.EffectiveFPP-1) > 0.01 || st.GuaranteedWindow != minute ||
		st.RefreshPeriod != (2*minute+12)/13*5/4 || st.Refreshes == 0 || st.Full {
		t.Errorf("%+v", st)
	}
}
