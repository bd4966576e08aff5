package bench

import (
	"strings"
	"testing"
	"time"
)

// TestTailMarkdown says how the two sides compare, and what they did.
func TestTailMarkdown(t *testing.T) {
	side := func(name string, did activity, p999 ...float64) *tailSide {
		s := &tailSide{name: name}
		for i, v := range p999 {
			r := &Result{Latency: latency{P999: v, Max: 2 * v}, Steal: 0.01 * float64(i)}
			s.rounds = append(s.rounds, tailRound{figuresOf: figuresOf{Result: r, elsewhere: 0.1}, from: 1e6, did: did})
		}
		return s
	}
	did := activity{snapshots: 3, refreshes: 100, resizes: 16, flushes: 2, compactions: 1, ids: 2e6}
	for _, tc := range []struct {
		name        string
		busy, quiet []float64
		want        []string
	}{
		{"met", []float64{0.02, 0.03, 0.04}, []float64{0.01, 0.02, 0.01},
			[]string{"3.00 times", "1.50 to 4.00", "is met", "| busy | 20.0, 30.0, 40.0 | 30.0 | 80 | 1.0 to 2.0 million | 9 | 300 | 48 | 6 | 3 | 2 % | 10 % |",
				"| quiet | 10.0, 20.0, 10.0 | 10.0 | 40 | 1.0 to 1.0 million | 0 | 0 | 0 | 0 | 0 | 2 % | 10 % |"}},
		{"missed", []float64{0.04, 0.04, 0.04}, []float64{0.01, 0.01, 0.01}, []string{"4.00 times", "is **missed**"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tailMarkdown(side("busy", did, tc.busy...), side("quiet", activity{}, tc.quiet...), 1e5, 10)
			for _, want := range append(tc.want, "3 rounds of 10 s", "100 000 operations") {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in:\n%s", want, got)
				}
			}
		})
	}
}

// TestQuietFill: both sides remember about as many ids, and each counter is made.
func TestQuietFill(t *testing.T) {
	for _, tc := range []struct {
		rate, tail float64 // a second; seconds
		want       int64
	}{{300e3, 2, 1_500_000}, {300e3, 10, 300_000}, {300e3, 30, tailCounters}, {10e3, 10, tailCounters}} {
		s := &sweeper{tail: time.Duration(tc.tail * 1e9)}
		if got := s.quietFill(tc.rate); got != tc.want {
			t.Errorf("at %.0f/s, %.0f s: %d, want %d", tc.rate, tc.tail, got, tc.want)
		}
	}
}

// TestParseMetrics reads what a server's page of metrics says.
func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader("# HELP a b\n# TYPE a counter\na 3\nt{table=\"x y\"} 2\nt{table=\"z\"} 5\nbig 1.5e+06\n\n"))
	if err != nil || got["a"] != 3 || got["t"] != 7 || got["big"] != 1.5e6 || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"alone\n", "a b\n"} {
		if _, err := parseMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
