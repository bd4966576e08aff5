package main

import (
	"math"

	"github.com/fbfkv/fbfkv/tools/chart"
)

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
