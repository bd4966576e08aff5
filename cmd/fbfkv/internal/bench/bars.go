package bench

import (
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/cpuprofile"
)

// partColors are the colours of what processors do: one family for what the
// protocol costs, one for the operations, one for what is written, and greys
// for what is not the server's.
var partColors = [spentParts]color.RGBA{
	cpuprofile.Requests: {R: 86, G: 180, B: 233, A: 255},
	cpuprofile.Routing:  {R: 0, G: 158, B: 115, A: 255},
	cpuprofile.Finding:  {R: 120, G: 200, B: 140, A: 255},
	cpuprofile.Deciding: {R: 190, G: 225, B: 130, A: 255},
	cpuprofile.Log:      {R: 213, G: 94, B: 0, A: 255},
	cpuprofile.Exact:    {R: 230, G: 159, B: 0, A: 255},
	cpuprofile.Rows:     {R: 240, G: 228, B: 66, A: 255},
	cpuprofile.Replies:  {R: 0, G: 114, B: 178, A: 255},
	cpuprofile.Runtime:  {R: 204, G: 121, B: 167, A: 255},
	cpuprofile.Network:  {R: 40, G: 60, B: 120, A: 255},
	cpuprofile.Files:    {R: 140, G: 40, B: 30, A: 255},
	cpuprofile.Other:    {R: 0, G: 0, B: 0, A: 255},
	spentGenerator:      {R: 150, G: 150, B: 150, A: 255},
	spentElsewhere:      {R: 195, G: 195, B: 195, A: 255},
	spentIdle:           {R: 240, G: 240, B: 240, A: 255},
}

// Sizes of a bar chart: the axis is longer than the bars need, for the legend.
const (
	barWidth  = 0.62 // of the distance between two bars
	barsShare = 0.8  // of the chart's width
	barGap    = 0.7  // between two curves, of the distance between two bars
)

// writeBars draws what was spent at each point as a stack, into a file whose
// format follows from its name. Points of a curve stand side by side.
func writeBars(path, title, x string, points []profiled) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.X.Label.Text = title, "processor time of the machine, %", x
	setFonts(p)
	p.Legend.Top = true
	p.Legend.ThumbnailWidth, p.Legend.XOffs = vg.Points(10), -vg.Points(5)
	at, ticks := barPlaces(points)
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Tick.Length = 0
	last := at[len(at)-1]
	p.X.Min, p.X.Max = -0.6, (last+1.2)/barsShare-0.6
	p.Y.Min, p.Y.Max = 0, 100
	width := vg.Length(barWidth) * chartWidth / vg.Length(p.X.Max-p.X.Min) * 0.92
	legend := make([]*plotter.BarChart, spentParts)
	for i := range points {
		var below *plotter.BarChart
		for part := range spentParts {
			bar, err := plotter.NewBarChart(plotter.Values{100 * points[i].of[part]}, width)
			if err != nil {
				return err
			}
			bar.Color, bar.LineStyle.Width, bar.XMin = partColors[part], 0, at[i]
			if below != nil {
				bar.StackOn(below)
			}
			p.Add(bar)
			below, legend[part] = bar, bar
		}
	}
	for part := spentParts - 1; part >= 0; part-- {
		p.Legend.Add(partName(part), legend[part])
	}
	return p.Save(chartWidth, chartHeight, path)
}

// barPlaces says where the bars stand, with a gap before each curve, and what
// is written below them: the value, and the curve in the middle of its bars.
func barPlaces(points []profiled) (at []float64, ticks []plot.Tick) {
	place, first := 0.0, 0
	for i, p := range points {
		if i > 0 && p.curve != points[i-1].curve {
			place += barGap
			first = i
		}
		at = append(at, place)
		place++
		ticks = append(ticks, plot.Tick{Value: at[i], Label: tickLabel(p.x)})
		if i == len(points)-1 || points[i+1].curve != p.curve {
			name := "\n" + strings.ReplaceAll(p.curve, ", ", "\n")
			ticks = append(ticks, plot.Tick{Value: (at[first] + at[i]) / 2, Label: name})
		}
	}
	return at, ticks
}
