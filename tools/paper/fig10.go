package main

import (
	"fmt"
	"math/rand/v2"

	reference "github.com/fbfkv/fbfkv/fbf/paper"
	"github.com/fbfkv/fbfkv/tools/chart"
)

// figure10 varies the size of the constituents at 150 + 150 operations.
func figure10(r *run) (result, error) {
	rng := rand.New(rand.NewPCG(r.seed, 10))
	from, step := pick(r, 2500, 5000), pick(r, 1250, 5000)
	var points []splitPoint
	for bits := from; bits <= 20_000; bits += step {
		p, err := split(r, rng, uint64(bits), splitOps, asPrinted)
		if err != nil {
			return result{}, err
		}
		points = append(points, p)
	}
	x := column(points, func(p splitPoint) float64 { return float64(p.bits) / 1000 })
	y := func(of func(p splitPoint) float64) []float64 { return column(points, of) }
	best := func(periods int) func(p splitPoint) float64 {
		return func(p splitPoint) float64 {
			_, fpp := bestHashes(splitPeriods(p.ops, periods), p.bits)
			return fpp
		}
	}
	t := splitTable(points)
	t.columns = append(append([]string(nil), t.columns...), "best_k", "best_k_formula", "steady_best_k", "steady_best_k_formula")
	for i, p := range points {
		k, fpp := bestHashes(splitPeriods(p.ops, asPrinted), p.bits)
		late, lateFPP := bestHashes(splitPeriods(p.ops, steady), p.bits)
		t.rows[i] = append(t.rows[i], float64(k), fpp, float64(late), lateFPP)
	}
	res := result{tables: []table{t}, panels: []chart.Panel{{
		Title: "Fig. 10: what more bits buy, at 150 + 150 operations",
		X:     chart.Axis{Label: "bits per constituent filter (thousands)", Min: 2.5, Max: 20},
		Y:     chart.Axis{Label: "false positive probability", Log: true, Min: 1e-12, Max: 1e-1},
		Series: []chart.Series{
			chart.Line("the paper's filter, k = 5: corrected formula", chart.Blue, x, y(func(p splitPoint) float64 { return p.optimisedModel })),
			chart.Dots("the paper's filter, k = 5: measured", chart.Blue, x, y(func(p splitPoint) float64 { return p.optimised.value() })),
			chart.Dashed("the paper's filter, best k: formula", chart.Blue, x, y(best(asPrinted))),
			chart.Dashed("the paper's filter, best k, steady state: formula", chart.Orange, x, y(best(steady))),
			chart.Line("fbfkv in the same memory: model", chart.Green, x, y(func(p splitPoint) float64 { return p.productModel })),
			chart.Dots("fbfkv: measured", chart.Green, x, y(func(p splitPoint) float64 { return p.product.value() })),
			chart.Dots("printed in the paper (15k: 2e-7 to 5e-7)", chart.Black, []float64{5, 10, 15, 15}, []float64{1.05e-4, 3.6e-6, 2e-7, 5e-7}),
		},
	}}}
	printed := map[uint64]string{5000: "1.05e-4", 10_000: "3.6e-6", 15_000: "2e-7 to 5e-7"}
	for _, p := range points {
		if s := printed[p.bits]; s != "" {
			res.findings = append(res.findings, finding{fmt.Sprintf("optimised check, %d bits", p.bits), s, p.optimisedModel, p.optimised.value(), p.productModel})
		}
	}
	return res, nil
}

// bestHashes is the number of hash functions with the lowest probability of a false positive in the optimised check, and
// that probability (Eq. 3 corrected).
func bestHashes(periods []uint64, m uint64) (k int, fpp float64) {
	k, fpp = 1, 1
	for try := 1; try <= reference.MaxHashes; try++ {
		if p := reference.FPPOptimized(periods, m, try); p < fpp {
			k, fpp = try, p
		}
	}
	return k, fpp
}
