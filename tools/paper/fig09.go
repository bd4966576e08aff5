package main

import "math/rand/v2"

// figure9 shows the experiment of Fig. 8 as a gain over the simple check, and what is left of
// the gain in steady state.
func figure9(r *run) (result, error) {
	rng := rand.New(rand.NewPCG(r.seed, 9))
	half := func(from float64) func(float64) {
		return func(share float64) { r.progress(from + share/2) }
	}
	printed, err := splitByOps(r, rng, asPrinted, half(0))
	if err != nil {
		return result{}, err
	}
	later, err := splitByOps(r, rng, steady, half(0.5))
	if err != nil {
		return result{}, err
	}
	x := column(printed, func(p splitPoint) float64 { return float64(p.ops) })
	model := func(p splitPoint) float64 { return p.simpleModel / p.optimisedModel }
	got := func(p splitPoint) float64 { return p.simple.value() / p.optimised.value() }
	ours := func(p splitPoint) float64 { return p.simpleModel / p.productModel }
	t := table{columns: []string{"operations", "gain_formula", "gain_measured", "gain_fbfkv_model",
		"steady_gain_formula", "steady_gain_measured", "steady_gain_fbfkv_model"}}
	res := result{}
	for i, p := range printed {
		q := later[i]
		t.add(float64(p.ops), model(p), got(p), ours(p), model(q), got(q), ours(q))
		if p.ops == splitOps {
			res.findings = []finding{
				{"times fewer false positives by the optimised check, 300 operations", "11 (91%)", model(p), got(p), ours(p)},
				{"the same in steady state (300 operations in any two periods)", "", model(q), got(q), ours(q)},
				{"optimised check in steady state", "", q.optimisedModel, q.optimised.value(), q.productModel},
			}
		}
	}
	res.tables = []table{t}
	res.panels = []panel{{
		title: "Fig. 9: the gain of the optimised check, and what is left of it in steady state",
		x:     axis{label: "operations, half in each of the last two refresh periods", max: 1200},
		y:     axis{label: "gain over the simple check (times)", log: true, min: 1, max: 1e6},
		series: []series{
			{"optimised check, first two periods: formula", x, column(printed, model), style{color: blue, line: true}},
			{"optimised check, first two periods: measured", x, column(printed, got), style{color: blue, glyph: dot}},
			{"optimised check, steady state: formula", x, column(later, model), style{color: orange, line: true}},
			{"optimised check, steady state: measured", x, column(later, got), style{color: orange, glyph: dot}},
			{"fbfkv, same memory, steady state: model", x, column(later, ours), style{color: green, line: true}},
			{"printed in the paper: 91% fewer", []float64{splitOps}, []float64{1 / (1 - 0.91)}, style{color: black, glyph: ring}},
		},
	}}
	return res, nil
}
