package main

import (
	"math/rand/v2"

	"github.com/fbfkv/fbfkv/tools/chart"

	"github.com/fbfkv/fbfkv/fbf"
)

// The workload of Fig. 11: the rate doubles every 30 s and ends at 100 operations a second.
const (
	doublingEvery = 30_000
	doublings     = 4
	finalRate     = 100.0
)

var doubling = workload{end: (doublings + 1) * doublingEvery, rate: func(ms int64) float64 {
	return finalRate / float64(int(1)<<(doublings-min(doublings, ms/doublingEvery)))
}}

// figure11 varies the refresh period.
func figure11(r *run) (result, error) {
	rng := rand.New(rand.NewPCG(r.seed, 11))
	n := pick(r, fleetSize, 4)
	p := plan{every: 250, probeEvery: 20, want: probeHits, limit: pick(r, 3_000_000, 30_000)}
	var theirs [2]sampled
	for i, period := range []int64{5000, 1000} {
		f, err := newFleet(n, paperBits, 1, period)
		if err != nil {
			return result{}, err
		}
		if theirs[i], err = doubling.watch(f, rng, n, p); err != nil {
			return result{}, err
		}
	}
	// The same guarantee as t = 5 s gives: (N+1) t = 10 s.
	f, err := newProduct(fbf.Options{Window: 10_000, Error: 1e-4})
	if err != nil {
		return result{}, err
	}
	defer f.Release()
	ours, err := doubling.watch(f, rng, n, p)
	if err != nil {
		return result{}, err
	}

	t := table{columns: []string{"seconds", "rate_per_s", "t5_corrected_formula", "t5_measured", "t1_corrected_formula", "t1_measured",
		"fbfkv_model", "fbfkv_measured", "paper_bytes", "fbfkv_bytes_per_paper_filter"}}
	for i, s := range ours.seconds {
		t.add(s, doubling.rate(int64(s*1000)-1), theirs[0].model[i], theirs[0].got[i], theirs[1].model[i], theirs[1].got[i],
			ours.model[i], ours.got[i], theirs[0].bytes[i], ours.bytes[i])
	}
	last := len(ours.seconds) - 1
	x := ours.seconds
	return result{tables: []table{t}, panels: []chart.Panel{{
		Title: "Fig. 11: a shorter refresh period errs less because it remembers less",
		X:     chart.Axis{Label: "time (s); the rate doubles every 30 s, from 6.25 to 100 operations/s", Max: 150},
		Y:     chart.Axis{Label: "false positive probability", Log: true, Min: 1e-10, Max: 1},
		Series: []chart.Series{
			chart.Line("t = 5 s, remembers 10 s: corrected formula", chart.Orange, x, theirs[0].model),
			chart.Dots("t = 5 s: measured", chart.Orange, x, theirs[0].got),
			chart.Line("t = 1 s, remembers 2 s: corrected formula", chart.Blue, x, theirs[1].model),
			chart.Dots("t = 1 s: measured", chart.Blue, x, theirs[1].got),
			chart.Line("fbfkv, remembers 10 s, target 1e-4: model", chart.Green, x, ours.model),
			chart.Dots("fbfkv: measured", chart.Green, x, ours.got),
		},
		Guides: []chart.Guide{{Name: "fbfkv's target", At: 1e-4}},
	}}, findings: []finding{
		{"FPP with t = 5 s over FPP with t = 1 s, at 100 operations/s", "about 1000",
			theirs[0].model[last] / theirs[1].model[last], theirs[0].got[last] / theirs[1].got[last], none},
		{"FPP with t = 5 s (remembers 10 s), at 100 operations/s", "", theirs[0].model[last], theirs[0].got[last], ours.model[last]},
		{"FPP with t = 1 s (remembers 2 s), at 100 operations/s", "", theirs[1].model[last], theirs[1].got[last], none},
		{"bytes, at 100 operations/s", "", none, theirs[0].bytes[last], ours.bytes[last]},
	}}, nil
}
