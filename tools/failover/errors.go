package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// compareClusters is the paper's Fig. 14 with nodes that are lost.
func (o *options) compareClusters(ctx context.Context, kinds []fault) error {
	var subjects []subject
	var trials []trial
	for _, s := range []subject{{"fbfkv, CINCRBY", o.fbfkvCluster(3)}, {"Redis Cluster, INCR", o.redisCluster(3, incr)},
		{"Redis Cluster, script with ids", o.redisCluster(3, lua)}} {
		t, err := o.try(ctx, kinds, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		subjects, trials = append(subjects, s), append(trials, t)
	}
	fmt.Print(heading)
	for kind, f := range kinds {
		for i, s := range subjects {
			fmt.Print(trials[i].row(kind, f, s))
		}
	}
	for i, s := range subjects {
		fmt.Print(trials[i].all(s.name))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("\nLoad average at the end: %.14s\n", b)
	}
	if o.plot == "" {
		return nil
	}
	return plotErrors(o.plot, subjects, trials)
}

// all is a line of the table for all faults together.
func (t *trial) all(name string) string {
	var s sums
	for _, a := range t.answers {
		s.add(a)
	}
	return fmt.Sprintf("| all | %s | %d | | | %d | %d | %d | %d |\n", name, len(t.faults), s.acknowledged, s.again, s.lost, s.twice)
}

// errorsAt is by how much the counters were wrong, % of what was acknowledged until then.
type errorsAt struct{ second, twice, lost, sum float64 }

// errorStep is the time between two points of a plot.
const errorStep = 0.25

// errors are the counters' errors over time. What becomes of an operation belongs to when it was acknowledged.
func (t *trial) errors() (points []errorsAt) {
	var acknowledged, twice, lost float64
	next := errorStep
	point := func() {
		if acknowledged > 0 {
			points = append(points, errorsAt{next, 100 * twice / acknowledged, 100 * lost / acknowledged, 100 * (twice - lost) / acknowledged})
		}
		next += errorStep
	}
	for _, a := range t.answers {
		for a.at.Sub(t.began).Seconds() >= next {
			point()
		}
		acknowledged++
		twice += float64(max(0, a.counted-1))
		if a.counted == 0 {
			lost++
		}
	}
	point()
	return points
}

// plotErrors draws the errors over time, with a mark for each fault, and writes their points.
func plotErrors(path string, subjects []subject, trials []trial) error {
	var panels []*plot.Plot
	for _, of := range []struct {
		title, label string
		value        func(errorsAt) float64
	}{
		{"Increments that were counted twice", "% of those acknowledged", func(e errorsAt) float64 { return e.twice }},
		{"Acknowledged increments that were lost", "% of those acknowledged", func(e errorsAt) float64 { return e.lost }},
	} {
		p := chart.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = of.title, "seconds since the load began; a mark is a fault", of.label
		for i, s := range subjects {
			if err := trials[i].draw(p, i, s.name, of.value); err != nil {
				return err
			}
		}
		p.X.Min, p.Y.Min = 0, 0
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(chart.Evenly), plot.TickerFunc(chart.Evenly)
		p.Y.Max = max(p.Y.Max*1.45, 0.01) // room for the legend
		panels = append(panels, p)
	}
	if err := writeErrors(strings.TrimSuffix(path, filepath.Ext(path))+".csv", subjects, trials); err != nil {
		return err
	}
	return chart.Write(path, 8.5*vg.Centimeter, panels...)
}

// draw draws one curve, and ticks where it has a fault.
func (t *trial) draw(p *plot.Plot, i int, name string, value func(errorsAt) float64) error {
	var points, marks plotter.XYs
	for _, e := range t.errors() {
		points = append(points, plotter.XY{X: e.second, Y: value(e)})
	}
	for _, at := range t.faults {
		x := at.Sub(t.began).Seconds()
		for _, e := range points {
			if e.X >= x {
				marks = append(marks, plotter.XY{X: x, Y: e.Y})
				break
			}
		}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	faults, err := plotter.NewScatter(marks)
	if err != nil {
		return err
	}
	line.Color, line.Width = chart.Colors[i], vg.Points(1.6)
	faults.GlyphStyle.Color, faults.GlyphStyle.Radius, faults.GlyphStyle.Shape = chart.Colors[i], vg.Points(2.6), chart.Shapes[i]
	p.Add(line, faults)
	p.Legend.Add("  "+name, line, faults)
	return nil
}

// writeErrors writes the points.
func writeErrors(path string, subjects []subject, trials []trial) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	rows := [][]string{{"what", "second", "counted_twice_percent", "lost_percent", "error_percent"}}
	for i, s := range subjects {
		last := errorsAt{second: -1}
		for _, e := range trials[i].errors() {
			if e.second-last.second >= 1 || e.lost+e.twice > last.lost+last.twice {
				rows = append(rows, []string{s.name, fmt.Sprint(e.second), fmt.Sprintf("%.5g", e.twice), fmt.Sprintf("%.5g", e.lost), fmt.Sprintf("%.5g", e.sum)})
				last = e
			}
		}
	}
	return w.WriteAll(rows)
}
