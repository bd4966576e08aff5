package main

import "math"

// figure is one figure of the paper.
type figure struct {
	number int
	title  string
	make   func(*run) (result, error)
}

// figures are the figures that can be made, in the paper's order.
func figures() []figure {
	return []figure{
		{8, "Simple and optimised check", figure8},
		{9, "What the optimised check gains", figure9},
		{10, "Size of the constituents", figure10},
		{11, "Refresh period", figure11},
		{12, "Number of constituents", figure12},
		{13, "Adapting to the load", figure13},
		{14, "Counter error when requests time out", figure14},
		{15, "Latency of a batch", figure15},
	}
}

// run is what a figure's computation is given.
type run struct {
	seed     uint64
	fbfkv    string              // the server's program
	quick    bool                // a hundredth of the work: for tests and a first look
	progress func(share float64) // called with the share done, 0 to 1
}

// pick returns the full run's value, or the quick one's.
func pick[T any](r *run, full, quick T) T {
	if r.quick {
		return quick
	}
	return full
}

// result is a computed figure.
type result struct {
	panels   []panel   // from top to bottom
	tables   []table   // at least one; the first holds every point drawn
	findings []finding // beside the paper's numbers
}

// panel is one plot.
type panel struct {
	title  string
	x, y   axis
	series []series
	guides []guide
}

// axis describes one axis. With min = max the data decide.
type axis struct {
	label    string
	log      bool
	min, max float64
}

// style is how a series is drawn.
type style struct {
	color  int     // index into palette
	line   bool    // joined by a line
	dashed bool    // the line
	glyph  glyph   // at each point
	width  float64 // of the line in points; 0: the default
}

// glyph is the mark at a point.
type glyph int

const (
	noGlyph glyph = iota
	dot           // measured
	ring          // the paper's printed number
	square
)

// series is one set of points. Points with a y that is not a positive number are not
// drawn on a logarithmic axis.
type series struct {
	name string
	x, y []float64
	style
}

// guide is a horizontal or vertical line of reference.
type guide struct {
	name     string // in the legend; "" has no entry
	at       float64
	vertical bool
}

// table is a CSV file.
type table struct {
	suffix  string // of the file name; "" for the first
	columns []string
	rows    [][]float64
	labels  []string // optional first column, one per row, under the heading "what"
}

// add appends a row.
func (t *table) add(values ...float64) { t.rows = append(t.rows, values) }

// finding is one number of the paper beside ours.
type finding struct {
	what    string
	paper   string  // as printed; "" if the paper has no number
	model   float64 // the corrected formula, NaN if there is none
	got     float64 // the paper's scheme, measured; NaN if it does not apply
	product float64 // our filter or server on the same operations; NaN if it does not apply
}

// none marks a number that does not exist.
var none = math.NaN()
