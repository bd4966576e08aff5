package main

import "github.com/fbfkv/fbfkv/tools/chart"

// plot draws the latencies over time.
func (r *Result) plot(path string) error {
	p := chart.Panel{Title: r.Workload + " on " + r.Target + ": latency of operations",
		X: chart.Axis{Label: "time, s"}, Y: chart.Axis{Label: "latency, ms", Log: true}}
	for i, of := range []struct {
		name  string
		value func(moment) float64
	}{
		{"max", func(m moment) float64 { return m.Max }}, {"p99.9", func(m moment) float64 { return m.P999 }},
		{"p99", func(m moment) float64 { return m.P99 }}, {"p50", func(m moment) float64 { return m.P50 }},
	} {
		l := chart.Line(of.name, i, nil, nil)
		for _, m := range r.Series {
			l.X, l.Y = append(l.X, m.Second), append(l.Y, of.value(m)*1e3)
		}
		p.Series = append(p.Series, l)
	}
	return chart.Write(path, p)
}
