package main

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// What the plot shows, seconds since the fault, and the time for which one of its points stands.
const (
	plotFrom = -2.0
	plotTo   = 5.0
	bucket   = 0.1
)

// curve is what clients of one subject saw.
type curve struct {
	name    string
	answers []answer
}

// points are a curve's operations per second, and the longest latency, ms, where there was an answer.
func (c curve) points() (rates, latencies plotter.XYs) {
	first, n := int(plotFrom/bucket), int(math.Round((plotTo-plotFrom)/bucket))
	counts, longest := make([]float64, n), make([]float64, n)
	for _, a := range c.answers {
		if b := int(math.Floor(a.since/bucket)) - first; b >= 0 && b < n {
			counts[b]++
			longest[b] = max(longest[b], a.took.Seconds()*1000)
		}
	}
	for b := range n {
		x := (float64(first+b) + 0.5) * bucket
		rates = append(rates, plotter.XY{X: x, Y: counts[b] / bucket})
		if counts[b] > 0 {
			latencies = append(latencies, plotter.XY{X: x, Y: longest[b]})
		}
	}
	return rates, latencies
}

// plotDeath draws throughput and the longest latency over time through a leader's death.
func plotDeath(path string, curves []curve) error {
	rate, latency := chart.New(), chart.New()
	rate.Title.Text = "The leader is killed at 0"
	rate.Y.Label.Text, latency.Y.Label.Text = "operations per second", "longest latency in 0.1 s (ms)"
	rate.Y.Min = 0
	latency.X.Label.Text = "seconds since the kill"
	latency.Y.Scale, latency.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for i, c := range curves {
		rates, latencies := c.points()
		line, err := plotter.NewLine(rates)
		if err != nil {
			return err
		}
		marks, err := plotter.NewScatter(latencies)
		if err != nil {
			return err
		}
		tint := chart.Colors[i%2]
		shape := chart.Shapes[i%2]
		line.Color, line.Width = tint, vg.Points(1.4)
		marks.GlyphStyle = draw.GlyphStyle{Color: tint, Radius: vg.Points(2.2), Shape: shape}
		rate.Add(line)
		latency.Add(marks)
		rate.Legend.Add(c.name, line)
		latency.Legend.Add(c.name, marks)
	}
	for _, p := range []*plot.Plot{rate, latency} {
		p.X.Min, p.X.Max = plotFrom, plotTo
	}
	return chart.Write(path, 8*vg.Centimeter, rate, latency)
}
