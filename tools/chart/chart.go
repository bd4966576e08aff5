// Package chart draws the plots of measurements: numbers in, an SVG or PNG file out, all with one look.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one plot with its legend below.
type Panel struct {
	Title  string
	X, Y   Axis
	Series []Series
	Guides []Guide
}

// Axis describes one axis. With Min = Max the data decide.
type Axis struct {
	Label    string
	Log      bool
	Min, Max float64
}

// Series is one set of points. Those outside of the plot are not drawn, nor those that are no numbers, or not above 0
// on a logarithmic axis. A series without a name is not in the legend.
type Series struct {
	Name   string
	X, Y   []float64
	Color  int // index into the colours
	Line   bool
	Dashed bool
	Mark   draw.GlyphDrawer // at each point; nil for none
}

// Guide is a line of reference across the plot.
type Guide struct {
	Name     string
	At       float64
	Vertical bool
}

// Line is a series that is joined by a line.
func Line(name string, color int, x, y []float64) Series {
	return Series{Name: name, X: x, Y: y, Color: color, Line: true}
}

// Dashed is a series that is joined by dashes.
func Dashed(name string, color int, x, y []float64) Series {
	return Series{Name: name, X: x, Y: y, Color: color, Line: true, Dashed: true}
}

// Dots is a series of points.
func Dots(name string, color int, x, y []float64) Series {
	return Series{Name: name, X: x, Y: y, Color: color, Mark: Shapes[color%len(Shapes)]}
}

// Shapes tell points apart without colours.
var Shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.RingGlyph{}}

// The colours stay apart for the colour-blind (Okabe and Ito).
const (
	Blue = iota
	Orange
	Green
	Black
)

var colors = []color.RGBA{
	Blue: {G: 114, B: 178, A: 255}, Orange: {R: 213, G: 94, A: 255}, Green: {G: 158, B: 115, A: 255},
	Black: {A: 255}, {R: 204, G: 121, B: 167, A: 255}, {R: 230, G: 159, A: 255},
}

// Sizes of a plot.
const (
	width       = 18 * vg.Centimeter
	panelHeight = 8.5 * vg.Centimeter
	legendLine  = 0.46 * vg.Centimeter
	labelStrip  = vg.Length(20) // left of a plot, for the label of the y axis
)

// Write draws panels from top to bottom into a file, their data aligned. The file's format follows from
// its name.
func Write(path string, panels ...Panel) error {
	var height, left vg.Length
	for _, p := range panels {
		height += p.height()
	}
	c, err := draw.NewFormattedCanvas(width, height, strings.TrimPrefix(filepath.Ext(path), "."))
	if err != nil {
		return err
	}
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	plots, legends := make([]*plot.Plot, len(panels)), make([][]entry, len(panels))
	for i, p := range panels {
		if plots[i], legends[i], err = p.plot(); err != nil {
			return fmt.Errorf("%s: %w", p.Title, err)
		}
		left = max(left, plots[i].DataCanvas(all).Min.X)
	}
	top := all.Max.Y
	for i, p := range panels {
		upper, lower := all, all
		upper.Max.Y, upper.Min.Y = top, top-panelHeight
		lower.Max.Y, lower.Min.Y = upper.Min.Y, top-p.height()
		top = lower.Min.Y
		upper = draw.Crop(upper, left-plots[i].DataCanvas(all).Min.X+labelStrip, -vg.Points(14), 0, -vg.Points(8))
		plots[i].Draw(upper)
		p.Y.drawLabel(all.Min.X+vg.Points(4), plots[i].DataCanvas(upper))
		drawLegend(lower, legends[i])
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	// The letters are text in the font of the plot, or where that is missing in one of the same width.
	drawn := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	return os.WriteFile(path, drawn, 0o644)
}

func (p Panel) height() vg.Length {
	return panelHeight + legendLine*vg.Length((len(p.Series)+len(p.Guides)+1)/2+1)
}

// entry is a name in a legend and what it looks like.
type entry struct {
	name   string
	thumbs []plot.Thumbnailer
}

// plot makes the plot, and the entries of its legend.
func (p Panel) plot() (*plot.Plot, []entry, error) {
	pl := plot.New()
	for size, styles := range map[vg.Length][]*text.Style{
		12: {&pl.Title.TextStyle}, 10: {&pl.X.Label.TextStyle}, 9: {&pl.X.Tick.Label, &pl.Y.Tick.Label},
	} {
		for _, style := range styles {
			style.Font.Variant, style.Font.Size = "Sans", size
		}
	}
	pl.Title.Text, pl.Title.Padding, pl.X.Label.Text = p.Title, vg.Points(8), p.X.Label
	p.X.apply(&pl.X, p.Series, func(s Series) []float64 { return s.X })
	p.Y.apply(&pl.Y, p.Series, func(s Series) []float64 { return s.Y })
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	pl.Add(grid)
	var legend []entry
	for _, s := range p.Series {
		thumbs, err := s.addTo(pl, p)
		if err != nil {
			return nil, nil, err
		}
		if s.Name != "" && len(thumbs) > 0 {
			legend = append(legend, entry{s.Name, thumbs})
		}
	}
	for _, g := range p.Guides {
		points := plotter.XYs{{X: pl.X.Min, Y: g.At}, {X: pl.X.Max, Y: g.At}}
		if g.Vertical {
			points = plotter.XYs{{X: g.At, Y: pl.Y.Min}, {X: g.At, Y: pl.Y.Max}}
		}
		line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: color.Gray{Y: 90}, Width: vg.Points(1),
			Dashes: []vg.Length{vg.Points(2), vg.Points(3)}}}
		pl.Add(line)
		legend = append(legend, entry{g.Name, []plot.Thumbnailer{line}})
	}
	return pl, legend, nil
}

// drawLegend writes the entries in two columns.
func drawLegend(c draw.Canvas, entries []entry) {
	rows := (len(entries) + 1) / 2
	half := (c.Max.X - c.Min.X - vg.Points(40)) / 2
	for column := range 2 {
		l := plot.NewLegend()
		l.TextStyle.Font.Variant, l.TextStyle.Font.Size = "Sans", 9
		l.Left, l.Top = true, true
		l.ThumbnailWidth, l.Padding = vg.Points(24), vg.Points(2)
		for i := column * rows; i < min(len(entries), (column+1)*rows); i++ {
			l.Add("  "+entries[i].name, entries[i].thumbs...)
		}
		box := c
		box.Min.X += vg.Points(40) + half*vg.Length(column)
		l.Draw(box)
	}
}

// addTo adds the series to a plot, and returns how it looks in the legend.
func (s Series) addTo(pl *plot.Plot, p Panel) (thumbs []plot.Thumbnailer, err error) {
	var points plotter.XYs
	for i, x := range s.X {
		if p.X.shows(x) && p.Y.shows(s.Y[i]) && s.Y[i] >= pl.Y.Min && s.Y[i] <= pl.Y.Max {
			points = append(points, plotter.XY{X: x, Y: s.Y[i]})
		}
	}
	if len(points) == 0 {
		return nil, nil
	}
	if s.Line {
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colors[s.Color%len(colors)], vg.Points(1.4)
		if s.Dashed {
			line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
		}
		pl.Add(line)
		thumbs = append(thumbs, line)
	}
	if s.Mark != nil {
		marks, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: colors[s.Color%len(colors)], Radius: vg.Points(2.6), Shape: s.Mark}
		pl.Add(marks)
		thumbs = append(thumbs, marks)
	}
	return thumbs, nil
}

// shows tells whether a value can be on the axis.
func (a Axis) shows(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && !(a.Log && v <= 0) }

// drawLabel writes the label of the y axis, centred on the data. The plot library does so too, but on a
// logarithmic axis puts it off centre and reserves room in vain.
func (a Axis) drawLabel(left vg.Length, data draw.Canvas) {
	style := plot.New().Y.Label.TextStyle
	style.Font.Variant, style.Font.Size = "Sans", 10
	style.Rotation, style.XAlign, style.YAlign = math.Pi/2, text.XCenter, text.YTop
	data.FillText(style, vg.Point{X: left, Y: (data.Min.Y + data.Max.Y) / 2}, a.Label)
}

// apply sets up an axis for the values it must show.
func (a Axis) apply(to *plot.Axis, all []Series, of func(s Series) []float64) {
	to.Min, to.Max = a.bounds(all, of)
	to.Tick.Marker = plot.TickerFunc(evenly)
	if a.Log {
		to.Scale, to.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	}
}

// bounds are the limits of an axis.
func (a Axis) bounds(all []Series, of func(s Series) []float64) (low, high float64) {
	if a.Min != a.Max {
		return a.Min, a.Max
	}
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range all {
		for _, v := range of(s) {
			if a.shows(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	switch {
	case low > high:
		return 1, 10
	case a.Log:
		return math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high*1.0001)))
	case low == high && high == 0:
		return 0, 1
	}
	return min(0, low), high * 1.05
}

// evenly marks four to nine round numbers of an axis.
func evenly(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, more := range []float64{5, 2} {
		if (high-low)/(step*more) >= 4 {
			step *= more
			break
		}
	}
	for v := math.Ceil(low/step-1e-9) * step; v <= high+step*1e-9; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.6g", math.Round(v/step)*step+0)})
	}
	return ticks
}

// decades marks the powers of ten, or every second or third where they are many; with 2 and 5 between
// where they are few.
func decades(low, high float64) (ticks []plot.Tick) {
	first, last := int(math.Ceil(math.Log10(low)-1e-9)), int(math.Floor(math.Log10(high)+1e-9))
	step := 1 + (last-first)/8
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Pow(10, float64(e))}
		if (last-e)%step == 0 {
			t.Label = strings.Replace(fmt.Sprintf("%.4g", t.Value), "e-0", "e-", 1)
		}
		ticks = append(ticks, t)
		for m := 2.0; m < 10 && step == 1 && m*t.Value <= high*1.0001; m++ {
			minor := plot.Tick{Value: m * t.Value}
			if last-first < 3 && (m == 2 || m == 5) {
				minor.Label = fmt.Sprintf("%.4g", minor.Value)
			}
			ticks = append(ticks, minor)
		}
	}
	return ticks
}
