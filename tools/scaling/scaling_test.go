package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseLayouts(t *testing.T) {
	got, err := parseLayouts("1x1,3x3")
	if want := []layout{{1, 1}, {3, 3}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "3", "0x1", "1x0", "1x1x1", "-1x1", "1x1,"} {
		if got, err := parseLayouts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestReport: a ratio is taken of the medians, its spread of single rounds, and shards are compared with one shard of as
// many nodes.
func TestReport(t *testing.T) {
	layouts := []layout{{1, 1}, {1, 3}, {3, 3}}
	rounds := make([][]measured, 3)
	for i, rates := range [][]float64{{50, 52, 51}, {10, 30, 20}, {54, 27, 81}} {
		for _, r := range rates {
			rounds[i] = append(rounds[i], measured{rate: r, cpu: 2, leaders: []float64{9.9, 9.5}, load: 9.5})
		}
	}
	rounds[2][0].load = 10.2
	if s := scaleOf(2, layouts, rounds); math.Abs(s.ratio-2.7) > 1e-9 || s.lowest != 0.9 || s.highest != 5.4 {
		t.Errorf("%+v", s)
	}
	if s := scaleOf(0, layouts[1:], rounds[1:]); s.ratio != 1 {
		t.Errorf("one shard: %+v", s)
	}
	if s := scaleOf(0, []layout{{3, 1}}, rounds); s.ratio != 0 {
		t.Errorf("beside nothing: %+v", s)
	}
	text := report(layouts, rounds, 10)
	for _, want := range []string{"| 3 shards of 3 nodes | 54 | 27 to 81 | 2.70 | 0.90 to 5.40 | 0.90 | 2.0 | 9.5 to 9.9 |", "10 % of a processor", "Load average 9.5 to 10.2."} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
