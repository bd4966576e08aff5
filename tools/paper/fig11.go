package main

import (
	"math/rand/v2"

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
		r.progress(float64(i+1) / 3)
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
	r.progress(1)

	t := table{columns: []string{"seconds", "rate_per_s", "t5_corrected_formula", "t5_measured", "t1_corrected_formula", "t1_measured",
		"fbfkv_model", "fbfkv_measured", "paper_bytes", "fbfkv_bytes_per_paper_filter"}}
	for i, s := range ours.seconds {
		t.add(s, doubling.rate(int64(s*1000)-1), theirs[0].model[i], theirs[0].got[i], theirs[1].model[i], theirs[1].got[i],
			ours.model[i], ours.got[i], theirs[0].bytes[i], ours.bytes[i])
	}
	last := len(ours.seconds) - 1
	x := ours.seconds
	return result{tables: []table{t}, panels: []panel{{
		title: "Fig. 11: a shorter refresh period errs less because it remembers less",
		x:     axis{label: "time (s); the rate doubles every 30 s, from 6.25 to 100 operations/s", max: 150},
		y:     axis{label: "false positive probability", log: true, min: 1e-10, max: 1},
		series: []series{
			{"t = 5 s, remembers 10 s: corrected formula", x, theirs[0].model, style{color: orange, line: true}},
			{"t = 5 s: measured", x, theirs[0].got, style{color: orange, glyph: dot}},
			{"t = 1 s, remembers 2 s: corrected formula", x, theirs[1].model, style{color: blue, line: true}},
			{"t = 1 s: measured", x, theirs[1].got, style{color: blue, glyph: dot}},
			{"fbfkv, remembers 10 s, target 1e-4: model", x, ours.model, style{color: green, line: true}},
			{"fbfkv: measured", x, ours.got, style{color: green, glyph: dot}},
		},
		guides: []guide{{name: "fbfkv's target", at: 1e-4}},
	}}, findings: []finding{
		{"FPP with t = 5 s over FPP with t = 1 s, at 100 operations/s", "about 1000",
			theirs[0].model[last] / theirs[1].model[last], theirs[0].got[last] / theirs[1].got[last], none},
		{"FPP with t = 5 s (remembers 10 s), at 100 operations/s", "", theirs[0].model[last], theirs[0].got[last], ours.model[last]},
		{"FPP with t = 1 s (remembers 2 s), at 100 operations/s", "", theirs[1].model[last], theirs[1].got[last], none},
		{"bytes, at 100 operations/s", "", none, theirs[0].bytes[last], ours.bytes[last]},
	}}, nil
}
