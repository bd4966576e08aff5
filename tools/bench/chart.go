package main

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	looks "github.com/fbfkv/fbfkv/tools/chart"
)

// chart is a plot of some lines.
type chart struct {
	title      string
	x, y       string // labels
	logX, logY bool
	lines      []line
}

// line is one line of a chart. On a logarithmic axis, values that are not above
// 0 are left out.
type line struct {
	name string
	x, y []float64
}

// The height of a chart, and how much of it is for the legend, above the lines.
const (
	chartHeight = 10 * vg.Centimeter
	legendShare = 0.35
)

// write draws the chart into a file, whose format follows from its name.
func (c chart) write(path string) error {
	p := looks.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	for i, l := range c.lines {
		points := c.points(l)
		if len(points) == 0 {
			continue
		}
		drawn, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		drawn.Color = looks.Colors[i%len(looks.Colors)]
		drawn.Width = vg.Points(1.4)
		marks.GlyphStyle = draw.GlyphStyle{Color: drawn.Color, Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}
		p.Add(drawn, marks)
		p.Legend.Add(l.name, drawn)
	}
	if c.logX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(powers)
	}
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(powers)
		p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, legendShare)
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*(1+legendShare)
	}
	return looks.Write(path, chartHeight, p)
}

// points are the points of a line that can be drawn.
func (c chart) points(l line) (points plotter.XYs) {
	for i := range l.x {
		if c.logX && l.x[i] <= 0 || c.logY && l.y[i] <= 0 {
			continue
		}
		points = append(points, plotter.XY{X: l.x[i], Y: l.y[i]})
	}
	return points
}

// powers marks powers of ten, or of two where there are few of those, and names them.
func powers(low, high float64) (ticks []plot.Tick) {
	base, v := 10.0, 1e-9
	if high/low < 1000 {
		base, v = 2, 1.0/(1<<20)
	}
	for ; v <= high*1.0001; v *= base {
		if v >= low*0.9999 {
			ticks = append(ticks, plot.Tick{Value: v, Label: tickLabel(v)})
		}
	}
	return ticks
}

// tickLabel writes a value on an axis: 1000000 as 1M.
func tickLabel(v float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"M", 1e6}, {"k", 1e3}} {
		if v >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// plot draws the latencies over time.
func (r *Result) plot(path string) error {
	c := chart{title: r.Workload + " on " + r.Target + ": latency of operations", x: "time, s", y: "latency, ms", logY: true}
	for _, of := range []struct {
		name  string
		value func(moment) float64
	}{
		{"max", func(m moment) float64 { return m.Max }}, {"p99.9", func(m moment) float64 { return m.P999 }},
		{"p99", func(m moment) float64 { return m.P99 }}, {"p50", func(m moment) float64 { return m.P50 }},
	} {
		c.lines = append(c.lines, r.overTime(of.name, of.value))
	}
	return c.write(path)
}

// overTime is one figure of each interval, in ms.
func (r *Result) overTime(name string, value func(moment) float64) line {
	l := line{name: name}
	for _, m := range r.Series {
		l.x, l.y = append(l.x, m.Second), append(l.y, value(m)*1e3)
	}
	return l
}
