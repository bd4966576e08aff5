package main

import (
	"fmt"
	"image/color"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plotTarget is the target the plot is about.
const plotTarget = 1e-6

// colours per contestant, safe for the colour-blind (Okabe and Ito).
var colours = map[string]color.Color{
	"fbf":             color.RGBA{0, 114, 178, 255},
	"fbf batch":       color.RGBA{86, 180, 233, 255},
	"blobloom":        color.RGBA{230, 159, 0, 255},
	"bits-and-blooms": color.RGBA{213, 94, 0, 255},
	"apbf":            color.RGBA{0, 158, 115, 255},
	"paper's N-FBF":   color.RGBA{204, 121, 167, 255},
	"exact map":       color.RGBA{90, 90, 90, 255},
}

// graph draws the time per new id over the memory of the filter, and beside
// it the memory per id.
func graph(path string, speeds []sample, memory, positives [][]string) (err error) {
	left, err := timePlot(speeds)
	if err != nil {
		return err
	}
	right, err := memoryPlot(memory, positives)
	if err != nil {
		return err
	}
	img := vgsvg.New(30*vg.Centimeter, 12*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 8 * vg.Millimeter, PadTop: 3 * vg.Millimeter,
		PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 6 * vg.Millimeter}
	canvas := draw.New(img)
	for i, c := range plot.Align([][]*plot.Plot{{left, right}}, tiles, canvas)[0] {
		[]*plot.Plot{left, right}[i].Draw(c)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	_, err = img.WriteTo(f)
	return err
}

// timePlot is ns per new id over bytes, both logarithmic.
func timePlot(speeds []sample) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("check and insert of a new id, target %s", short(fmt.Sprint(plotTarget)))
	p.X.Label.Text = "memory of the window"
	p.Y.Label.Text = "CPU time per id, ns"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Millimeter / 2
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{225}
	p.Add(grid)
	target := fmt.Sprint(plotTarget)
	sizes := distinct(speeds, func(s sample) float64 { return s.bytes })
	var ticks plot.ConstantTicks
	for _, n := range sizes {
		ticks = append(ticks, plot.Tick{Value: n, Label: bytesName(n)})
	}
	p.X.Tick.Marker = ticks
	p.Y.Tick.Marker = decades(5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
	for _, name := range distinct(speeds, func(s sample) string { return s.name }) {
		var xy plotter.XYs
		for _, n := range sizes {
			if ns, _ := middle(speeds, target, n, name, "new"); ns > 0 {
				xy = append(xy, plotter.XY{X: n, Y: ns})
			}
		}
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return nil, fmt.Errorf("no times of %s at %s: %w", name, target, err)
		}
		line.Color, points.Color = colours[name], colours[name]
		line.Width = 1.6 * vg.Millimeter / 3
		points.Shape = draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	p.Y.Min, p.Y.Max = 8, 60000 // room for the legend above the lines
	return p, nil
}

// decades are labelled ticks.
func decades(values ...float64) (t plot.ConstantTicks) {
	for _, v := range values {
		t = append(t, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
	}
	return t
}

// memoryPlot is a bar per contestant, with what its false positives were measured at.
func memoryPlot(memory, positives [][]string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("memory in steady state, and FPP measured (target %s)", short(fmt.Sprint(plotTarget)))
	p.X.Label.Text = "bits per id of the window"
	var names []string
	var labels plotter.XYLabels
	for _, m := range slices.Backward(memory) { // from the bottom up
		bits, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		if target, _ := strconv.ParseFloat(m[0], 64); target != plotTarget {
			continue
		}
		if m[1] == "exact map" { // off the scale of the others
			p.X.Label.Text = fmt.Sprintf("bits per id of the window (%s: %.0f)", m[1], bits)
			continue
		}
		at := float64(len(names))
		bar, err := plotter.NewBarChart(plotter.Values{bits}, 9*vg.Millimeter)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin = true, at
		bar.Color, bar.LineStyle.Width = colours[m[1]], 0
		p.Add(bar)
		names = append(names, m[1])
		labels.XYs = append(labels.XYs, plotter.XY{X: bits + 1, Y: at})
		labels.Labels = append(labels.Labels, fmt.Sprintf("%.0f bits, %s", bits, measured(positives, m[0], m[1])))
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	for i := range text.TextStyle {
		text.TextStyle[i].YAlign = draw.YCenter
	}
	p.Add(text)
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, 1.4*p.X.Max
	return p, nil
}

// measured is the measured FPP of a contestant in words.
func measured(positives [][]string, target, name string) string {
	for _, f := range positives {
		if f[0] == target && f[1] == name {
			hits, _ := strconv.ParseFloat(f[3], 64)
			probes, _ := strconv.ParseFloat(f[4], 64)
			if hits == 0 {
				return "no false positive"
			}
			return "FPP " + scientific(hits/probes, 1)
		}
	}
	return "FPP not measured"
}
