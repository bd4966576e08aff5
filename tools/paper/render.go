package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// Colours that stay apart for the colour-blind (Okabe and Ito).
const (
	black = iota
	orange
	blue
	green
)

var palette = []color.RGBA{
	black:  {A: 255},
	orange: {R: 213, G: 94, A: 255},
	blue:   {G: 114, B: 178, A: 255},
	green:  {G: 158, B: 115, A: 255},
}

var gridColor = color.Gray{Y: 225}

// Sizes of a plot.
const (
	plotWidth   = 18 * vg.Centimeter
	panelHeight = 9 * vg.Centimeter
	legendLine  = 0.46 * vg.Centimeter
	titleSize   = vg.Length(12)
	labelSize   = vg.Length(10)
)

// height is the height of the plot of a result, legends included.
func (res result) height() vg.Length {
	var h vg.Length
	for _, p := range res.panels {
		h += p.height()
	}
	return h
}

func (p panel) height() vg.Length { return panelHeight + p.legendHeight() }

// legendHeight is the room of the legend, which stands below the plot, two columns wide.
func (p panel) legendHeight() vg.Length {
	return legendLine * vg.Length((len(p.entries())+1)/2+1)
}

// draw draws the panels from top to bottom.
func (res result) draw(c draw.Canvas) error {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	top := c.Max.Y
	for _, p := range res.panels {
		box := c
		box.Max.Y, box.Min.Y = top, top-p.height()
		if err := p.draw(box); err != nil {
			return fmt.Errorf("%s: %w", p.title, err)
		}
		top -= p.height()
	}
	return nil
}

// draw draws one plot and, below it, its legend.
func (p panel) draw(c draw.Canvas) error {
	pl := plot.New()
	pl.Title.Text = p.title
	pl.Title.TextStyle.Font = sans(titleSize)
	pl.Title.Padding = vg.Points(8)
	pl.X.Label.Text = p.x.label
	pl.X.Label.TextStyle.Font = sans(labelSize)
	pl.X.Label.Padding = vg.Points(4)
	p.x.apply(&pl.X, p.values(func(s series) []float64 { return s.x }))
	p.y.apply(&pl.Y, p.values(func(s series) []float64 { return s.y }))
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridColor, gridColor
	pl.Add(grid)
	var entries []legendEntry
	for _, g := range p.guides {
		line := p.guideLine(g, pl)
		pl.Add(line)
		if g.name != "" {
			entries = append(entries, legendEntry{g.name, []plot.Thumbnailer{line}})
		}
	}
	var seriesEntries []legendEntry
	for _, s := range p.series {
		thumbs, err := s.addTo(pl, p.y.log)
		if err != nil {
			return err
		}
		if len(thumbs) > 0 {
			seriesEntries = append(seriesEntries, legendEntry{s.name, thumbs})
		}
	}
	upper, lower := c, c
	upper.Min.Y += p.legendHeight()
	lower.Max.Y = upper.Min.Y
	upper = draw.Crop(upper, vg.Points(6), -vg.Points(14), 0, -vg.Points(8))
	pl.Draw(draw.Crop(upper, labelStrip, 0, 0, 0))
	p.y.drawLabel(upper, pl.DataCanvas(upper))
	drawLegend(lower, append(seriesEntries, entries...))
	return nil
}

// labelStrip is the room left of a plot for the label of the y axis.
const labelStrip = vg.Length(16)

// drawLabel writes the label of the y axis, centred on the data. The plot library does so
// too, but on a logarithmic axis puts it off centre and reserves room in vain.
func (a axis) drawLabel(c, data draw.Canvas) {
	style := plot.New().Y.Label.TextStyle
	style.Font = sans(labelSize)
	style.Rotation = math.Pi / 2
	style.XAlign, style.YAlign = text.XCenter, text.YTop
	c.FillText(style, vg.Point{X: c.Min.X, Y: (data.Min.Y + data.Max.Y) / 2}, a.label)
}

// legendEntry is a name and what it looks like.
type legendEntry struct {
	name   string
	thumbs []plot.Thumbnailer
}

// entries are the names in the legend.
func (p panel) entries() (names []string) {
	for _, s := range p.series {
		names = append(names, s.name)
	}
	for _, g := range p.guides {
		if g.name != "" {
			names = append(names, g.name)
		}
	}
	return names
}

// drawLegend writes the entries in two columns.
func drawLegend(c draw.Canvas, entries []legendEntry) {
	rows := (len(entries) + 1) / 2
	width := (c.Max.X - c.Min.X - vg.Points(40)) / 2
	for column := range 2 {
		l := plot.NewLegend()
		l.TextStyle.Font = sans(9)
		l.Left, l.Top = true, true
		l.ThumbnailWidth = vg.Points(24)
		l.Padding = vg.Points(2)
		for i := column * rows; i < min(len(entries), (column+1)*rows); i++ {
			l.Add("  "+entries[i].name, entries[i].thumbs...)
		}
		box := c
		box.Min.X += vg.Points(40) + width*vg.Length(column)
		l.Draw(box)
	}
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: size}
}

// apply sets up an axis for the values it must show.
func (a axis) apply(to *plot.Axis, values []float64) {
	to.Tick.Label.Font = sans(9)
	to.Min, to.Max = a.bounds(values)
	to.Tick.Marker = plot.TickerFunc(chart.Evenly)
	if a.log {
		to.Scale = plot.LogScale{}
		to.Tick.Marker = plot.TickerFunc(decades)
	}
}

// bounds are the limits of an axis.
func (a axis) bounds(values []float64) (low, high float64) {
	if a.min != a.max {
		return a.min, a.max
	}
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !(a.log && v <= 0) {
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case low > high:
		return 1, 10
	case a.log:
		return math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high*1.0001)))
	}
	return min(0, low), high * 1.05
}

// decades marks the powers of ten, or every second or third where they are many.
func decades(low, high float64) (ticks []plot.Tick) {
	first, last := int(math.Ceil(math.Log10(low)-1e-9)), int(math.Floor(math.Log10(high)+1e-9))
	step := 1 + (last-first)/8
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Pow(10, float64(e))}
		if (last-e)%step == 0 {
			t.Label = tenTo(e)
		}
		ticks = append(ticks, t)
		if step > 1 || e == last {
			continue
		}
		for m := 2; m < 10; m++ {
			ticks = append(ticks, plot.Tick{Value: float64(m) * t.Value})
		}
	}
	return ticks
}

// tenTo writes a power of ten: plainly between 0.001 and 10000.
func tenTo(e int) string {
	if e >= -3 && e <= 4 {
		return fmt.Sprintf("%g", math.Pow(10, float64(e)))
	}
	return fmt.Sprintf("1e%d", e)
}

// values are the values of all series and guides along one axis.
func (p panel) values(of func(s series) []float64) (all []float64) {
	for _, s := range p.series {
		all = append(all, of(s)...)
	}
	return all
}

// guideLine is a line of reference across the plot.
func (p panel) guideLine(g guide, pl *plot.Plot) *plotter.Line {
	points := plotter.XYs{{X: pl.X.Min, Y: g.at}, {X: pl.X.Max, Y: g.at}}
	if g.vertical {
		points = plotter.XYs{{X: g.at, Y: pl.Y.Min}, {X: g.at, Y: pl.Y.Max}}
	}
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: color.Gray{Y: 90}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(2), vg.Points(3)}}}
}

// addTo adds the series to a plot, and returns how it looks in the legend.
func (s series) addTo(pl *plot.Plot, log bool) (thumbs []plot.Thumbnailer, err error) {
	points := s.points(log, pl.Y.Min, pl.Y.Max)
	if len(points) == 0 {
		return nil, nil
	}
	c := palette[s.color]
	if s.line {
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = c, vg.Points(1.4)
		if s.dashed {
			line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
		}
		pl.Add(line)
		thumbs = append(thumbs, line)
	}
	if s.glyph != noGlyph {
		marks, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		marks.GlyphStyle = s.glyphStyle(c)
		pl.Add(marks)
		thumbs = append(thumbs, marks)
	}
	return thumbs, nil
}

func (s series) glyphStyle(c color.Color) draw.GlyphStyle {
	switch s.glyph {
	case ring:
		return draw.GlyphStyle{Color: c, Radius: vg.Points(5.5), Shape: draw.RingGlyph{}}
	case square:
		return draw.GlyphStyle{Color: c, Radius: vg.Points(3), Shape: draw.BoxGlyph{}}
	}
	return draw.GlyphStyle{Color: c, Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}
}

// points are the points that can be drawn: numbers within the plot.
func (s series) points(log bool, low, high float64) (points plotter.XYs) {
	for i := range s.x {
		y := s.y[i]
		if math.IsNaN(y) || math.IsInf(y, 0) || log && y <= 0 || y < low || y > high {
			continue
		}
		points = append(points, plotter.XY{X: s.x[i], Y: y})
	}
	return points
}
