package chart

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

// TestAxis: the data decide where an axis begins and ends, without what cannot be drawn.
func TestAxis(t *testing.T) {
	for _, c := range []struct {
		axis      Axis
		values    []float64
		low, high float64
	}{
		{Axis{}, []float64{2, 10}, 0, 10.5},
		{Axis{Log: true}, []float64{0.02, math.NaN(), 0, 30}, 0.01, 100},
		{Axis{Log: true, Min: 1e-3, Max: 1}, []float64{5}, 1e-3, 1},
		{Axis{}, nil, 1, 10},
		{Axis{}, []float64{0}, 0, 1},
	} {
		low, high := c.axis.bounds([]Series{{X: c.values}}, func(s Series) []float64 { return s.X })
		if math.Abs(low-c.low) > 1e-9 || math.Abs(high-c.high) > 1e-9 {
			t.Errorf("%+v of %v: %g to %g", c.axis, c.values, low, high)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		ticks     plot.TickerFunc
		low, high float64
		want      string
	}{
		{evenly, 0, 1200, "0 200 400 600 800 1000 1200"},
		{evenly, 2.5, 20, "4 6 8 10 12 14 16 18 20"},
		{evenly, 0, 9.6, "0 2 4 6 8"},
		{decades, 1e-4, 1, "0.0001 0.001 0.01 0.1 1"},
		{decades, 1e-10, 1, "1e-10 1e-8 1e-6 0.0001 0.01 1"},
		{decades, 1, 64, "1 2 5 10 20 50"},
	} {
		var got []string
		for _, tick := range c.ticks(c.low, c.high) {
			if tick.Label != "" {
				got = append(got, tick.Label)
			}
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%g to %g: %v, want %v", c.low, c.high, got, c.want)
		}
	}
}

// TestWrite draws what there is, and leaves out what there is not.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plot.svg")
	x := []float64{1, 2, 3}
	err := Write(path, Panel{Title: "upper", Y: Axis{Log: true, Label: "up"}, Series: []Series{
		Line("all", Blue, x, []float64{1, 10, math.NaN()}), Dots("nothing", Orange, x, []float64{0, 0, -1})}},
		Panel{Title: "lower", Series: []Series{Dashed("", Green, x, x)}, Guides: []Guide{{Name: "goal", At: 2}}})
	b, readErr := os.ReadFile(path)
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	for word, want := range map[string]bool{"upper": true, "lower": true, "all": true, "goal": true, "nothing": false} {
		if strings.Contains(string(b), word+"</text>") != want {
			t.Errorf("%s: drawn is not %v", word, want)
		}
	}
	if err := Write(filepath.Join(t.TempDir(), "plot.doc"), Panel{}); err == nil {
		t.Error("an unknown format was drawn")
	}
}
