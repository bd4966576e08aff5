package paper

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func mustNew(t testing.TB, m uint64, k, past int) *Filter {
	t.Helper()
	f, err := New(m, k, past)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParameters(t *testing.T) {
	for _, c := range []struct {
		m    uint64
		k, n int
	}{{0, 5, 1}, {MaxBits + 1, 5, 1}, {1000, 0, 1}, {1000, MaxHashes + 1, 1}, {1000, 5, 0},
		{1000, 5, MaxPast + 1}} {
		if f, err := New(c.m, c.k, c.n); !errors.Is(err, ErrOptions) || f != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f := mustNew(t, 1000, 5, 4)
	if f.Bits() != 1000 || f.Hashes() != 5 || f.Past() != 4 || f.Bytes() != 6*16*8 {
		t.Errorf("%+v, %d bytes", f, f.Bytes())
	}
}

// TestWindow: an id is found for (N+1) refreshes at least, and, being alone, not after N+2.
func TestWindow(t *testing.T) {
	for past := 1; past <= 8; past++ {
		f := mustNew(t, 1<<16, 5, past)
		for age := range past + 5 {
			f.Insert(uint64(1000 + age))
			for a := 0; a <= age; a++ {
				h, want := uint64(1000+age-a), a <= past+1
				if f.Contains(h) != want || f.ContainsSimple(h) != want {
					t.Fatalf("N=%d: id of %d refreshes ago: %v, simple %v, want %v", past, a, f.Contains(h),
						f.ContainsSimple(h), want)
				}
			}
			f.Refresh()
		}
	}
}

// TestAsPrinted: Algorithm 2 as printed misses ids that are in the oldest filter alone, if N > 1.
func TestAsPrinted(t *testing.T) {
	for _, past := range []int{1, 2, 4, 8} {
		f := mustNew(t, 1<<16, 5, past)
		f.Insert(7)
		for age := 0; age <= past+1; age++ {
			missed := past > 1 && age == past+1
			if f.ContainsAsPrinted(7) == missed || !f.Contains(7) {
				t.Errorf("N=%d after %d refreshes: as printed %v, corrected %v", past, age,
					f.ContainsAsPrinted(7), f.Contains(7))
			}
			f.Refresh()
		}
	}
}

// TestFormulas: measured rates agree with the corrected equations, and Eq. 3 with
// its independence is too low.
func TestFormulas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, past := range []int{1, 4} {
		const n, m, k, fills, probes = 300, 6250, 5, 40, 50_000
		simple, optimized := 0, 0
		var f *Filter
		for range fills {
			f = mustNew(t, m, k, past)
			for p := range past + 2 {
				if p > 0 {
					f.Refresh()
				}
				for range n {
					f.Insert(rng.Uint64())
				}
			}
			for range probes {
				h := rng.Uint64()
				if f.ContainsSimple(h) {
					simple++
				}
				if f.Contains(h) {
					optimized++
				}
			}
		}
		for name, c := range map[string]struct {
			got  int
			want float64
		}{"simple": {simple, FPPSimple(f.periods(), m, k)},
			"optimized": {optimized, FPPOptimized(f.periods(), m, k)}} {
			mean := c.want * fills * probes
			if slack := 6*math.Sqrt(mean) + 0.04*mean; math.Abs(float64(c.got)-mean) > slack {
				t.Errorf("N=%d %s: %d false positives, formula says %.0f +- %.0f", past, name, c.got, mean,
					slack)
			}
		}
		if past == 4 {
			l := float64(k*n) / m
			s, fill, q := 1-math.Exp(-l), 1-math.Exp(-2*l), 1-2*math.Exp(-2*l)+math.Exp(-3*l)
			first := math.Pow(s, k) + float64(past-1)*math.Pow(q, k) + math.Pow(fill, k)
			if got := FPPOptimized(f.periods(), m, k); math.Abs(got/first-1) > 0.02 ||
				math.Abs(got/.01136-1) > 0.02 {
				t.Errorf("optimized %g, first order %g, published .01136", got, first)
			}
			if got := FPPOptimizedIndependent(f.periods(), m, k); math.Abs(got/.00875-1) > 0.02 ||
				got >= FPPOptimized(f.periods(), m, k) {
				t.Errorf("Eq. 3 with independence %g, want .00875", got)
			}
			if got := f.EffectiveFPP(); got != FPPOptimized(f.periods(), m, k) {
				t.Errorf("EffectiveFPP %g", got)
			}
		}
	}
}

func TestConstituentAndFill(t *testing.T) {
	f := mustNew(t, 10_000, 5, 2)
	for i := range uint64(500) {
		f.Insert(i)
	}
	f.Refresh()
	for i := range uint64(300) {
		f.Insert(1000 + i)
	}
	fill := f.Fill()
	for i, ids := range []uint64{300, 800, 500, 0} {
		want := math.Pow(FPPConstituent(ids, 10_000, 5), 1./5)
		if math.Abs(fill[i]-want) > 0.015 {
			t.Errorf("constituent %d: fill %.4f, want %.4f", i, fill[i], want)
		}
	}
	if f.Inserted() != 800 || f.Len() != 800 || f.Refreshes() != 1 {
		t.Errorf("%d inserted, %d remembered, %d refreshes", f.Inserted(), f.Len(), f.Refreshes())
	}
}

func TestResize(t *testing.T) {
	f := mustNew(t, 1<<14, 4, 2)
	f.Insert(1)
	f.Refresh()
	if err := f.Resize(6); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		f.Refresh()
	}
	if !f.Contains(1) {
		t.Error("forgotten although the window has grown")
	}
	if err := f.Resize(1); err != nil || f.Contains(1) || f.Past() != 1 {
		t.Error("still there although the oldest filters were dropped", err)
	}
	if err := f.Resize(0); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}

// TestController: Algorithm 3 doubles and steps as published, and does not hold a target.
func TestController(t *testing.T) {
	c := Controller{Target: .01, Filters: 4, Period: 10, Step: 1}
	if !c.Adapt(.5) || c.Filters != 8 || c.Period != 9 {
		t.Errorf("above the target: %+v", c)
	}
	if !c.Adapt(.001) || c.Filters != 7 || c.Period != 10 {
		t.Errorf("below the target: %+v", c)
	}
	c = Controller{Target: .01, Filters: 6, Period: 10, Step: 1}
	c.Adapt(0)
	c.Adapt(0)
	if c.Filters != 4 || c.Period != 12 { // the text under Fig. 13 says 13
		t.Errorf("two steps down: %+v", c)
	}
	c = Controller{Target: .01, Filters: 3, Period: 1, Step: 1, MaxFilters: 3}
	if c.Adapt(1) {
		t.Errorf("changed at both limits: %+v", c)
	}
	// More filters at the same period make the steady state worse.
	if few, many := steadyFPP(3), steadyFPP(24); many < 2*few {
		t.Errorf("3 filters %g, 24 filters %g", few, many)
	}
}

func steadyFPP(filters int) float64 {
	p := make([]uint64, filters)
	for i := range p {
		p[i] = 1000
	}
	return FPPOptimized(p, 15_000, 5)
}

// The Basic FBF of Section III: one past filter.
func ExampleFilter() {
	f, _ := New(1<<16, 5, 1)
	f.Insert(42)
	for range 4 {
		fmt.Print(f.Contains(42), " ")
		f.Refresh()
	}
	// Output: true true true false
}
