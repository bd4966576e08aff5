package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// goal is how much of n times the throughput of one shard n shards are to have.
const goal = 0.9

// of returns one figure of each round, in order of size.
func of(rounds []measured, figure func(measured) float64) (values []float64) {
	for _, m := range rounds {
		values = append(values, figure(m))
	}
	slices.Sort(values)
	return values
}

// median is that of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func rate(m measured) float64 { return m.rate }

// scale is the throughput of shards beside that of one alone: the ratio of the medians, and the lowest and highest of
// single rounds. It is 0 if one shard alone was not measured.
type scale struct{ ratio, lowest, highest float64 }

func scaleOf(i int, layouts []layout, rounds [][]measured) (s scale) {
	one := slices.Index(layouts, layout{1, layouts[i].nodes})
	if one < 0 || layouts[i].shards == 0 {
		return s
	}
	var single []float64
	for r, m := range rounds[i] {
		single = append(single, m.rate/rounds[one][r].rate)
	}
	return scale{median(of(rounds[i], rate)) / median(of(rounds[one], rate)), slices.Min(single), slices.Max(single)}
}

// report writes the table.
func report(layouts []layout, rounds [][]measured, slice float64) string {
	var b strings.Builder
	b.WriteString("| layout | operations per second: median | single rounds | times one shard | single rounds | of n times | µs of all servers for an operation | leaders: % of a processor |\n" +
		"| --- | ---: | --- | ---: | --- | ---: | ---: | --- |\n")
	var every []measured
	for i, l := range layouts {
		rates := of(rounds[i], rate)
		fmt.Fprintf(&b, "| %s | %.0f | %.0f to %.0f |", l, median(rates), rates[0], rates[len(rates)-1])
		if s := scaleOf(i, layouts, rounds); s.ratio > 0 {
			fmt.Fprintf(&b, " %.2f | %.2f to %.2f | %.2f |", s.ratio, s.lowest, s.highest, s.ratio/float64(l.shards))
		} else {
			b.WriteString(" | | |")
		}
		var leaders []float64
		for _, m := range rounds[i] {
			leaders = append(leaders, m.leaders...)
		}
		every = append(every, rounds[i]...)
		fmt.Fprintf(&b, " %.1f | %.1f to %.1f |\n", median(of(rounds[i], func(m measured) float64 { return m.cpu })), slices.Min(leaders), slices.Max(leaders))
	}
	fmt.Fprintf(&b, "\nThe goal is at least %g of n times. ", goal)
	if slice > 0 {
		fmt.Fprintf(&b, "Each process had %g %% of a processor. ", slice)
	}
	clients, idle := of(every, func(m measured) float64 { return m.clients }), of(every, func(m measured) float64 { return m.idle })
	loads := of(every, func(m measured) float64 { return m.load })
	fmt.Fprintf(&b, "The clients used %.0f to %.0f %% of one; %.0f to %.0f %% were idle. Load average %.1f to %.1f.\n",
		clients[0], clients[len(clients)-1], idle[0], idle[len(idle)-1], loads[0], loads[len(loads)-1])
	return b.String()
}

// plotScaling draws each round's throughput over the number of shards, and what n times one shard would be.
func plotScaling(path string, layouts []layout, rounds [][]measured, slice float64) error {
	p := chart.New()
	p.Title.Text = "Throughput of shards; every process has an equal slice of a processor"
	p.X.Label.Text, p.Y.Label.Text = "shards", "operations per second (thousands)"
	if slice > 0 {
		p.Title.Text = fmt.Sprintf("Throughput of shards; every process has %g %% of a processor", slice)
	}
	most := 1
	for _, nodes := range []int{1, 2, 3, 5} {
		var medians, single plotter.XYs
		for i, l := range layouts {
			if l.shards == 0 || l.nodes != nodes {
				continue
			}
			most = max(most, l.shards)
			medians = append(medians, plotter.XY{X: float64(l.shards), Y: median(of(rounds[i], rate)) / 1000})
			for _, m := range rounds[i] {
				single = append(single, plotter.XY{X: float64(l.shards), Y: m.rate / 1000})
			}
		}
		if err := addLine(p, nodes, medians, single); err != nil {
			return err
		}
	}
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.3 // room for the legend
	p.X.Min, p.X.Max = 0.8, float64(most)+0.2
	p.X.Tick.Marker = plot.TickerFunc(func(float64, float64) (ticks []plot.Tick) {
		for n := range most {
			ticks = append(ticks, plot.Tick{Value: float64(n + 1), Label: strconv.Itoa(n + 1)})
		}
		return ticks
	})
	p.Y.Tick.Marker = plot.TickerFunc(chart.Evenly)
	return chart.Write(path, 11*vg.Centimeter, p)
}

// addLine adds shards of so many nodes.
func addLine(p *plot.Plot, nodes int, medians, single plotter.XYs) error {
	if len(medians) == 0 {
		return nil
	}
	tint := chart.Colors[nodes/2%len(chart.Colors)]
	slices.SortFunc(medians, func(a, b plotter.XY) int { return int(a.X - b.X) })
	line, err := plotter.NewLine(medians)
	if err != nil {
		return err
	}
	marks, err := plotter.NewScatter(single)
	if err != nil {
		return err
	}
	line.Color, line.Width = tint, vg.Points(1.6)
	marks.GlyphStyle = draw.GlyphStyle{Color: tint, Radius: vg.Points(2.6), Shape: chart.Shapes[nodes/2%2]}
	p.Add(line, marks)
	p.Legend.Add("  shards of "+count(nodes, "node")+": the median and each round", line, marks)
	if medians[0].X != 1 {
		return nil
	}
	last := medians[len(medians)-1].X
	ideal, err := plotter.NewLine(plotter.XYs{medians[0], {X: last, Y: last * medians[0].Y}})
	if err != nil {
		return err
	}
	ideal.Width, ideal.Dashes = vg.Points(1), []vg.Length{vg.Points(4), vg.Points(4)}
	ideal.Color = tint
	p.Add(ideal)
	p.Legend.Add("  the same: n times one shard", ideal)
	return nil
}
