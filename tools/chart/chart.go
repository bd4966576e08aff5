// Package chart gives the plots of measurements one look.
package chart

import (
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

// Width is that of a plot on a page.
const Width = 18 * vg.Centimeter

// Colors stay apart for the colour-blind (Okabe and Ito).
var Colors = []color.RGBA{
	{G: 114, B: 178, A: 255}, {R: 213, G: 94, A: 255}, {G: 158, B: 115, A: 255}, {A: 255},
	{R: 204, G: 121, B: 167, A: 255}, {R: 230, G: 159, A: 255},
}

// New returns an empty plot with a grid, and its legend at the upper left.
func New() *plot.Plot {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.Title.Padding = vg.Points(6)
	p.BackgroundColor = color.White
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	p.Add(grid)
	return p
}

// Write draws plots from top to bottom into a file, their axes aligned. Each is so high; the file's format follows
// from its name.
func Write(path string, height vg.Length, plots ...*plot.Plot) error {
	c, err := draw.NewFormattedCanvas(Width, height*vg.Length(len(plots)), strings.TrimPrefix(filepath.Ext(path), "."))
	if err != nil {
		return err
	}
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	var rows [][]*plot.Plot
	for _, p := range plots {
		rows = append(rows, []*plot.Plot{p})
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: vg.Points(8), PadLeft: vg.Points(6), PadRight: vg.Points(12), PadTop: vg.Points(6), PadBottom: vg.Points(6)}
	for row, canvas := range plot.Align(rows, tiles, all) {
		plots[row].Draw(canvas[0])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = c.WriteTo(f)
	return err
}

// Shapes tell points apart without colours.
var Shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.PyramidGlyph{}, draw.SquareGlyph{}, draw.CrossGlyph{}}

// Evenly marks four to nine round numbers of an axis.
func Evenly(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, more := range []float64{5, 2} {
		if (high-low)/(step*more) >= 4 {
			step *= more
			break
		}
	}
	for v := math.Ceil(low/step-1e-9) * step; v <= high+step*1e-9; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", math.Round(v/step)*step+0)})
	}
	return ticks
}
