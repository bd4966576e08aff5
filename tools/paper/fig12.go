package main

import (
	"math/rand/v2"

	"github.com/fbfkv/fbfkv/tools/chart"

	"github.com/fbfkv/fbfkv/fbf"
	reference "github.com/fbfkv/fbfkv/fbf/paper"
)

// The workload of Fig. 12: a ramp from nothing to 100 operations a second in
// a minute. The paper stops there; we go on until everything is in steady state.
const (
	rampEnd    = 60_000
	rampRate   = 100.0
	rampPeriod = 5000 // t, ms
	many       = 24   // constituents
)

var ramp = workload{end: 320_000, rate: func(ms int64) float64 {
	return rampRate * min(1, float64(ms)/rampEnd)
}}

// figure12 varies the number of constituents. It is sampled at the end of each period, where
// the filters are fullest.
func figure12(r *run) result {
	rng := rand.New(rand.NewPCG(r.seed, 12))
	n := pick(r, fleetSize, 4)
	p := plan{every: rampPeriod, probeEvery: 1, want: probeHits, limit: pick(r, 1_000_000, 10_000)}
	var theirs [2]sampled
	var independent [2][]float64 // Eq. 3 as printed
	for i, filters := range []int{3, many} {
		f := newFleet(n, paperBits, filters-2, rampPeriod)
		theirs[i] = sampled{}
		ramp.drive(f, rng, n, f.insert, p.every, func(now int64) {
			theirs[i].add(f, rng, n, p, now)
			independent[i] = append(independent[i], reference.FPPOptimizedIndependent(f[0].added, paperBits, paperHashes))
		})
	}
	// What 24 filters guarantee: (N+1) t = 115 s.
	f := newProduct(fbf.Options{Window: (many - 1) * rampPeriod, Error: 1e-3})
	defer f.Release()
	ours := ramp.watch(f, rng, n, p)
	return rampResult(theirs, independent, ours)
}

func rampResult(theirs [2]sampled, independent [2][]float64, ours sampled) result {
	t := table{columns: []string{"seconds", "rate_per_s", "filters3_corrected_formula", "filters3_measured",
		"filters24_corrected_formula", "filters24_eq3_as_printed", "filters24_measured", "fbfkv_model", "fbfkv_measured",
		"filters3_bytes", "filters24_bytes", "fbfkv_bytes_per_paper_filter"}}
	top, end := 0, len(ours.seconds)-1 // the samples at the end of the ramp and of the run
	for i, s := range ours.seconds {
		if s <= rampEnd/1000 {
			top = i
		}
		t.add(s, ramp.rate(int64(s*1000)), theirs[0].model[i], theirs[0].got[i], theirs[1].model[i], independent[1][i], theirs[1].got[i],
			ours.model[i], ours.got[i], theirs[0].bytes[i], theirs[1].bytes[i], ours.bytes[i])
	}
	x := ours.seconds
	return result{tables: []table{t}, panels: []chart.Panel{{
		Title: "Fig. 12: many filters look better only until the oldest has filled",
		X:     chart.Axis{Label: "time (s); the rate rises to 100 operations/s at 60 s and stays there", Max: 320},
		Y:     chart.Axis{Label: "false positive probability", Log: true, Min: 1e-6, Max: 1},
		Series: []chart.Series{
			chart.Line("3 filters, remember 10 s: corrected formula", chart.Orange, x, theirs[0].model),
			chart.Dots("3 filters: measured", chart.Orange, x, theirs[0].got),
			chart.Dashed("24 filters, remember 115 s: Eq. 3 as printed", chart.Blue, x, independent[1]),
			chart.Line("24 filters: corrected formula", chart.Blue, x, theirs[1].model),
			chart.Dots("24 filters: measured", chart.Blue, x, theirs[1].got),
			chart.Line("fbfkv, remembers 115 s, target 1e-3: model", chart.Green, x, ours.model),
			chart.Dots("fbfkv: measured", chart.Green, x, ours.got),
		},
		Guides: []chart.Guide{{Name: "end of the paper's experiment", At: rampEnd / 1000, Vertical: true}},
	}}, findings: []finding{
		{"3 filters over 24 by Eq. 3 as printed, end of the ramp", "6.1", independent[0][top] / independent[1][top], none, none},
		{"3 filters over 24, end of the ramp", "6.1", theirs[0].model[top] / theirs[1].model[top], theirs[0].got[top] / theirs[1].got[top], none},
		{"3 filters over 24, steady at 100 operations/s", "", theirs[0].model[end] / theirs[1].model[end], theirs[0].got[end] / theirs[1].got[end], none},
		{"FPP of 24 filters (remember 115 s), steady", "", theirs[1].model[end], theirs[1].got[end], ours.model[end]},
		{"bytes, steady", "", none, theirs[1].bytes[end], ours.bytes[end]},
	}}
}
