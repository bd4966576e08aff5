package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/tools/chart"
	"github.com/fbfkv/fbfkv/tools/process"
)

// compareClusters is the paper's Fig. 14 with nodes that are lost.
func (o *options) compareClusters(ctx context.Context, kinds []fault) {
	var subjects []subject
	var trials []trial
	for _, s := range []subject{{"fbfkv, CINCRBY", o.fbfkvCluster(3)}, {"Redis Cluster, INCR", o.redisCluster(3, incr)},
		{"Redis Cluster, script with ids", o.redisCluster(3, lua)}} {
		subjects, trials = append(subjects, s), append(trials, o.try(ctx, kinds, s))
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
	if o.plot != "" {
		process.Check(plotErrors(o.plot, subjects, trials))
	}
}

// all is a line of the table for all faults together.
func (t *trial) all(name string) string {
	var s sums
	for _, a := range t.answers {
		s.add(a)
	}
	return fmt.Sprintf("| all | %s | %d | | | %d | %d | %d | %d |\n", name, len(t.faults), s.acknowledged, s.again, s.lost, s.twice)
}

// errorsAt is by how much the counters were wrong, % of the operations acknowledged until then.
type errorsAt struct{ second, twice, lost, sum float64 }

// errorStep is the time between two points of a plot.
const errorStep = 0.25

// errors returns the counters' errors over time. An operation counts at the time of its acknowledgement.
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
	x := chart.Axis{Label: "seconds since the load began; a mark is a fault"}
	y := chart.Axis{Label: "% of those acknowledged"}
	twice := chart.Panel{Title: "Increments that were counted twice", X: x, Y: y}
	lost := chart.Panel{Title: "Acknowledged increments that were lost", X: x, Y: y}
	for i, s := range subjects {
		twice.Series = append(twice.Series, trials[i].curve(i, s.name, func(e errorsAt) float64 { return e.twice })...)
		lost.Series = append(lost.Series, trials[i].curve(i, s.name, func(e errorsAt) float64 { return e.lost })...)
	}
	if err := writeErrors(strings.TrimSuffix(path, filepath.Ext(path))+".csv", subjects, trials); err != nil {
		return err
	}
	return chart.Write(path, twice, lost)
}

// curve is one figure over time, and marks where there was a fault.
func (t *trial) curve(color int, name string, value func(errorsAt) float64) []chart.Series {
	line, marks := chart.Line(name, color, nil, nil), chart.Dots("", color, nil, nil)
	for _, e := range t.errors() {
		line.X, line.Y = append(line.X, e.second), append(line.Y, value(e))
	}
	for _, at := range t.faults {
		second := at.Sub(t.began).Seconds()
		if i := slices.IndexFunc(line.X, func(x float64) bool { return x >= second }); i >= 0 {
			marks.X, marks.Y = append(marks.X, second), append(marks.Y, line.Y[i])
		}
	}
	return []chart.Series{line, marks}
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
func (c curve) points(color int) (rates, latencies chart.Series) {
	rates, latencies = chart.Line(c.name, color, nil, nil), chart.Dots(c.name, color, nil, nil)
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
		rates.X, rates.Y = append(rates.X, x), append(rates.Y, counts[b]/bucket)
		if counts[b] > 0 {
			latencies.X, latencies.Y = append(latencies.X, x), append(latencies.Y, longest[b])
		}
	}
	return rates, latencies
}

// plotDeath draws throughput and the longest latency over time through a leader's death.
func plotDeath(path string, curves []curve) error {
	x := chart.Axis{Label: "seconds since the kill", Min: plotFrom, Max: plotTo}
	rate := chart.Panel{Title: "The leader is killed at 0", X: x, Y: chart.Axis{Label: "operations per second"}}
	latency := chart.Panel{X: x, Y: chart.Axis{Label: "longest latency in 0.1 s (ms)", Log: true}}
	for i, c := range curves {
		rates, latencies := c.points(i)
		rate.Series, latency.Series = append(rate.Series, rates), append(latency.Series, latencies)
	}
	return chart.Write(path, rate, latency)
}
