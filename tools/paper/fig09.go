package main

import (
	"math/rand/v2"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// figure9 shows the experiment of Fig. 8 as a gain over the simple check, and what is left of
// the gain in steady state.
func figure9(r *run) result {
	rng := rand.New(rand.NewPCG(r.seed, 9))
	printed := splitByOps(r, rng, asPrinted)
	later := splitByOps(r, rng, steady)
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
	res.panels = []chart.Panel{{
		Title: "Fig. 9: the gain of the optimised check, and what is left of it in steady state",
		X:     chart.Axis{Label: "operations, half in each of the last two refresh periods", Max: 1200},
		Y:     chart.Axis{Label: "gain over the simple check (times)", Log: true, Min: 1, Max: 1e6},
		Series: []chart.Series{
			chart.Line("optimised check, first two periods: formula", chart.Blue, x, column(printed, model)),
			chart.Dots("optimised check, first two periods: measured", chart.Blue, x, column(printed, got)),
			chart.Line("optimised check, steady state: formula", chart.Orange, x, column(later, model)),
			chart.Dots("optimised check, steady state: measured", chart.Orange, x, column(later, got)),
			chart.Line("fbfkv, same memory, steady state: model", chart.Green, x, column(later, ours)),
			chart.Dots("printed in the paper: 91% fewer", chart.Black, []float64{splitOps}, []float64{1 / (1 - 0.91)}),
		},
	}}
	return res
}
