package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	reference "github.com/fbfkv/fbfkv/fbf/paper"
)

func newRun(seed uint64) *run { return &run{seed: seed, quick: true} }

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// near fails unless got is within share of want.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*want) {
		t.Errorf("%s: %.4g, want %.4g within %g%%", what, got, want, 100*share)
	}
}

// The formulas give the numbers that the paper prints, which fixes its m and k.
func TestFormulasGiveThePapersNumbers(t *testing.T) {
	printed := splitPeriods(300, asPrinted)
	near(t, "Fig. 8 simple", reference.FPPSimple(printed, 6250, 5), 4.4e-4, 0.01)
	near(t, "Fig. 8 optimised", reference.FPPOptimized(printed, 6250, 5), 3.8e-5, 0.03)
	near(t, "Fig. 9", 1-reference.FPPOptimized(printed, 6250, 5)/reference.FPPSimple(printed, 6250, 5), 0.91, 0.01)
	near(t, "Fig. 10 m=5k", reference.FPPOptimized(printed, 5000, 5), 1.05e-4, 0.01)
	near(t, "Fig. 10 m=10k", reference.FPPOptimized(printed, 10_000, 5), 3.6e-6, 0.10)
	if p := reference.FPPOptimized(printed, 15_000, 5); p < 2e-7 || p > 6e-7 {
		t.Errorf("Fig. 10 m=15k: %.3g, the paper shows 2e-7 to 5e-7", p)
	}
	// Measured for N = 4, n = 300: 0.01136.
	near(t, "steady state, N = 4", reference.FPPOptimized([]uint64{300, 300, 300, 300, 300, 300}, 6250, 5), 0.01136, 0.01)
}

// A filter that holds the ids agrees with the formula, early and in steady state.
func TestFilterAgreesWithFormula(t *testing.T) {
	for _, c := range []struct{ ops, past, periods int }{
		{300, 1, asPrinted}, {300, 1, steady}, {600, 1, asPrinted}, {600, 2, 6}, {600, 4, 8}, {600, 6, 10},
	} {
		rng := newRand()
		f := newFleet(16, paperBits, c.past, splitPeriod)
		fill(f, rng, 16*c.ops*c.periods/2, int64(c.periods)*splitPeriod)
		e := measure(rng, f.contains, 1000, 5_000_000)
		near(t, "optimised", f.effective(), e.value(), 4*e.stderr()/e.value()+0.03)
		if c.past == 1 {
			e := measure(rng, f.containsSimple, 1000, 5_000_000)
			near(t, "simple", reference.FPPSimple(splitPeriods(c.ops, c.periods), paperBits, paperHashes), e.value(), 4*e.stderr()/e.value()+0.03)
		}
	}
}

func finds(t *testing.T, res result, i int) finding {
	t.Helper()
	if i >= len(res.findings) {
		t.Fatalf("%d findings", len(res.findings))
	}
	return res.findings[i]
}

func TestFigure12(t *testing.T) {
	res := figure12(newRun(1))
	near(t, "by Eq. 3", finds(t, res, 0).model, 6.1, 0.01)
	near(t, "corrected", finds(t, res, 1).model, 1.9, 0.06)
	near(t, "measured", finds(t, res, 1).got, 1.9, 0.25)
	if late := finds(t, res, 2).got; late > 0.35 {
		t.Errorf("steady state: 24 filters are only %.3g times worse", 1/late)
	}
}

func TestFigure13(t *testing.T) {
	res := figure13(newRun(1))
	for i, label := range res.tables[1].labels {
		above, dismissed, forgotten, shortest := res.tables[1].rows[i][0], res.tables[1].rows[i][1], res.tables[1].rows[i][2], res.tables[1].rows[i][3]
		if i%3 == 2 { // ours
			if above > 0 || forgotten > 0 || shortest < contestWindow/1000 || dismissed > 1.5*contestTarget {
				t.Errorf("%s: %v", label, res.tables[1].rows[i])
			}
			continue
		}
		if above < 30 || forgotten < 0.01 || shortest > contestWindow/2000+5 {
			t.Errorf("%s: %v does not show what Algorithm 3 does", label, res.tables[1].rows[i])
		}
	}
}

// The retries of a contest notice a filter that forgets too early.
func TestContestNoticesForgetting(t *testing.T) {
	w := workload{end: 120_000, rate: func(int64) float64 { return 10 }}
	p := plan{every: 1000, probeEvery: 10, want: 10, limit: 100}
	for _, c := range []struct {
		period int64
		want   bool
	}{{contestPeriod, false}, {contestPeriod / 2, true}} {
		f := newFleet(1, 1<<20, contestFilters-2, c.period)
		got := w.compete(f, newRand(), 1, p)
		if (got.forgotten > 0) != c.want || got.retries == 0 {
			t.Errorf("t = %d ms: %d of %d retries not recognised", c.period, got.forgotten, got.retries)
		}
	}
}

// The fleet gives each filter the same operations at the same times.
func TestFleetIsEven(t *testing.T) {
	f := newFleet(8, paperBits, 1, 1000)
	fill(f, newRand(), 8*100, 10_000)
	for _, p := range f {
		if p.Inserted() != 100 || p.Refreshes() != 9 || !reflect.DeepEqual(p.added, []uint64{10, 10, 10}) {
			t.Fatalf("inserted %d, refreshes %d, %v", p.Inserted(), p.Refreshes(), p.added)
		}
	}
}

// The same seed gives the same files, another one gives others. 9 is as 8, 13 as 12 but slower.
func TestFiles(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	var said strings.Builder
	for i, seed := range []uint64{1, 1, 2} {
		if err := makeFigures(dirs[i], "8|12", newRun(seed), &said); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fig08.csv", "fig08.svg", "fig12.csv", "fig12.svg"} {
		var texts []string
		for _, dir := range dirs {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(b))
		}
		if texts[0] != texts[1] || texts[0] == texts[2] {
			t.Errorf("%s: the same seed gives the same: %v, another: %v", name, texts[0] == texts[1], texts[0] == texts[2])
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dirs[0], "*")); len(files) != 4 || !strings.Contains(said.String(), "4.4e-4") {
		t.Errorf("wrote %v and said %s", files, said.String())
	}
}
