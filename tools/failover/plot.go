package main

import (
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// bucket is the time for which a point of the plot stands, seconds.
const bucket = 0.1

// plotDeath draws throughput and the longest latency over time through a leader's death, ours and
// theirs.
func plotDeath(path string, ours, theirs []answer) error {
	rate, latency := plot.New(), plot.New()
	rate.Title.Text = "The leader is killed at 0"
	rate.Y.Label.Text, latency.Y.Label.Text = "operations per second", "longest latency, ms"
	latency.X.Label.Text = "seconds"
	latency.Y.Scale, latency.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for _, l := range []struct {
		name    string
		answers []answer
		color   color.RGBA
	}{{"fbfkv", ours, color.RGBA{G: 114, B: 178, A: 255}}, {"Redis with sentinels", theirs, color.RGBA{R: 213, G: 94, A: 255}}} {
		counts, longest := make(map[int]float64), make(map[int]float64)
		for _, a := range l.answers {
			b := int(math.Floor(a.since / bucket))
			counts[b]++
			longest[b] = max(longest[b], a.took.Seconds()*1000)
		}
		var rates, latencies plotter.XYs
		for b := int(-2 / bucket); b < int(5/bucket); b++ {
			x := float64(b) * bucket
			rates = append(rates, plotter.XY{X: x, Y: counts[b] / bucket})
			if longest[b] > 0 {
				latencies = append(latencies, plotter.XY{X: x, Y: longest[b]})
			}
		}
		line, err := plotter.NewLine(rates)
		if err != nil {
			return err
		}
		line.Color, line.Width = l.color, vg.Points(1.4)
		rate.Add(line)
		rate.Legend.Add(l.name, line)
		marks, err := plotter.NewScatter(latencies)
		if err != nil {
			return err
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: l.color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
		latency.Add(marks)
	}
	rate.Legend.Top = true
	c := vgsvg.New(18*vg.Centimeter, 16*vg.Centimeter)
	all := draw.New(c)
	height := all.Max.Y - all.Min.Y
	rate.Draw(draw.Crop(all, 0, 0, height/2, 0))
	latency.Draw(draw.Crop(all, 0, 0, 0, -height/2))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = c.WriteTo(f)
	return err
}
