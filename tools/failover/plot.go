package main

import (
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
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
	rate, latency := plot.New(), plot.New()
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
		// Colours that stay apart for the colour-blind, and shapes that need none.
		tint := []color.RGBA{{G: 114, B: 178, A: 255}, {R: 213, G: 94, A: 255}}[i%2]
		shape := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.PyramidGlyph{}}[i%2]
		line.Color, line.Width = tint, vg.Points(1.4)
		marks.GlyphStyle = draw.GlyphStyle{Color: tint, Radius: vg.Points(2.2), Shape: shape}
		rate.Add(line)
		latency.Add(marks)
		rate.Legend.Add(c.name, line)
		latency.Legend.Add(c.name, marks)
	}
	for _, p := range []*plot.Plot{rate, latency} {
		p.Add(plotter.NewGrid())
		p.X.Min, p.X.Max = plotFrom, plotTo
		p.Legend.Top, p.Legend.Left = true, true
		p.Legend.Padding = vg.Points(3)
		for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
			&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
			f.Variant = "Sans"
		}
	}
	c := vgsvg.New(18*vg.Centimeter, 16*vg.Centimeter)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Points(8), PadLeft: vg.Points(6), PadRight: vg.Points(12), PadTop: vg.Points(6), PadBottom: vg.Points(6)}
	for row, canvas := range plot.Align([][]*plot.Plot{{rate}, {latency}}, tiles, all) {
		[]*plot.Plot{rate, latency}[row].Draw(canvas[0])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = c.WriteTo(f)
	return err
}
