package main

import "math/rand/v2"

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
		r.progress(float64(bits) / 20_000)
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
	res := result{tables: []table{t}, panels: []panel{{
		title: "Fig. 10: what more bits buy, at 150 + 150 operations",
		x:     axis{label: "bits per constituent filter (thousands)", min: 2.5, max: 20},
		y:     axis{label: "false positive probability", log: true, min: 1e-12, max: 1e-1},
		series: []series{
			{"the paper's filter, k = 5: corrected formula", x, y(func(p splitPoint) float64 { return p.optimisedModel }), style{color: blue, line: true}},
			{"the paper's filter, k = 5: measured", x, y(func(p splitPoint) float64 { return p.optimised.value() }), style{color: blue, glyph: dot}},
			{"the paper's filter, best k: formula", x, y(best(asPrinted)), style{color: blue, line: true, dashed: true}},
			{"the paper's filter, best k, steady state: formula", x, y(best(steady)), style{color: orange, line: true, dashed: true}},
			{"fbfkv in the same memory: model", x, y(func(p splitPoint) float64 { return p.productModel }), style{color: green, line: true}},
			{"fbfkv: measured", x, y(func(p splitPoint) float64 { return p.product.value() }), style{color: green, glyph: dot}},
			{"printed in the paper (15k: 2e-7 to 5e-7)", []float64{5, 10, 15, 15}, []float64{1.05e-4, 3.6e-6, 2e-7, 5e-7}, style{color: black, glyph: ring}},
		},
	}}}
	printed := map[uint64]string{5000: "1.05e-4", 10_000: "3.6e-6", 15_000: "2e-7 to 5e-7"}
	for _, p := range points {
		if s := printed[p.bits]; s != "" {
			res.findings = append(res.findings, finding{"optimised check, " + thousands(p.bits) + " bits", s, p.optimisedModel, p.optimised.value(), p.productModel})
		}
	}
	return res, nil
}
