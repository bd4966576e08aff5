package main

import (
	"fmt"
	"slices"
	"strings"

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

// median returns the median of sorted values.
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
	if one < 0 {
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
	fmt.Fprintf(&b, "\nThe goal is at least %g of n times. Each process had %g %% of a processor. ", goal, slice)
	loads := of(every, func(m measured) float64 { return m.load })
	fmt.Fprintf(&b, "Load average %.1f to %.1f.\n", loads[0], loads[len(loads)-1])
	return b.String()
}

// plotScaling draws each round's throughput over the number of shards, and what n times one shard would be.
func plotScaling(path string, layouts []layout, rounds [][]measured, slice float64) error {
	p := chart.Panel{Title: fmt.Sprintf("Throughput of shards; every process has %g %% of a processor", slice),
		X: chart.Axis{Label: "shards"}, Y: chart.Axis{Label: "operations per second (thousands)"}}
	for color, nodes := range []int{1, 3} {
		var x, y, ideal, singleX, single []float64
		for i, l := range layouts {
			if l.nodes != nodes {
				continue
			}
			x, y = append(x, float64(l.shards)), append(y, median(of(rounds[i], rate))/1000)
			ideal = append(ideal, y[0]/x[0]*x[len(x)-1])
			for _, m := range rounds[i] {
				singleX, single = append(singleX, float64(l.shards)), append(single, m.rate/1000)
			}
		}
		name := fmt.Sprintf("shards of %d nodes: ", nodes)
		p.Series = append(p.Series, chart.Line(name+"the median", color, x, y),
			chart.Dots(name+"single rounds", color, singleX, single), chart.Dashed("n times one shard", color, x, ideal))
	}
	return chart.Write(path, p)
}
