package main

import (
	"math/rand/v2"

	"github.com/fbfkv/fbfkv/tools/chart"

	"github.com/fbfkv/fbfkv/fbf"
	reference "github.com/fbfkv/fbfkv/fbf/paper"
)

// The experiment of Figs. 8 to 10: a Basic FBF (one past filter), half of the
// operations in one refresh period, half in the next, probed at its end. The past filter then
// holds the ids of one period, where in steady state it holds those of two; so the
// paper's experiment stops where its filter looks best.
const (
	splitPeriod = 60_000          // t, ms; only its share of the window matters
	splitWindow = 2 * splitPeriod // (N+1) t with N = 1
	splitOps    = 300             // the number of operations whose results the paper prints
	asPrinted   = 2               // periods of the paper's experiment
	steady      = 5               // periods after which every filter holds what it ever will
	probeHits   = 1000            // hits after which an estimate is good to 3%
)

// splitPoint is what the experiment yields for one number of operations and one size.
type splitPoint struct {
	ops               int
	bits              uint64
	simple, optimised estimate // the paper's filter, measured
	simpleModel       float64
	optimisedModel    float64
	product           estimate // our filter, sized for ops in the same memory, measured
	productModel      float64
	productError      float64  // the target it was sized for
	frozen            estimate // our filter, sized for splitOps and not allowed to grow
	frozenModel       float64
}

// split runs the experiment for a number of periods with ops operations in the last two: the mean over many filters of the paper's size, and
// one filter of ours with the memory and the operations of all of them.
func split(r *run, rng *rand.Rand, bits uint64, ops, periods int) splitPoint {
	n := pick(r, fleetSize, 4)
	limit := pick(r, 10_000_000, 100_000)
	p := splitPoint{ops: ops, bits: bits}
	theirs := newFleet(n, bits, 1, splitPeriod)
	end := int64(periods) * splitPeriod
	fill(theirs, rng, n*ops*periods/2, end)
	p.simple = measure(rng, theirs.containsSimple, probeHits, limit)
	p.optimised = measure(rng, theirs.contains, probeHits, 4*limit)
	p.simpleModel = reference.FPPSimple(splitPeriods(ops, periods), bits, paperHashes)
	p.optimisedModel = reference.FPPOptimized(splitPeriods(ops, periods), bits, paperHashes)

	memory := theirs.fleetBits() / 8
	o := withinMemory(splitWindow, uint64(n*ops), memory)
	p.productError = o.Error
	p.product, p.productModel = splitProduct(rng, o, n*ops*periods/2, end, limit)
	p.frozen, p.frozenModel = splitProduct(rng, withinMemory(splitWindow, uint64(n*splitOps), memory), n*ops*periods/2, end, limit)
	return p
}

// splitProduct is the experiment with our filter.
func splitProduct(rng *rand.Rand, o fbf.Options, ops int, end int64, limit int) (estimate, float64) {
	f := newProduct(o)
	defer f.Release()
	fill(f, rng, ops, end)
	return measure(rng, f.contains, probeHits, limit), f.effective()
}

// splitPeriods are the operations per period, newest first, at the end.
func splitPeriods(ops, periods int) []uint64 {
	half := uint64(ops / 2)
	if periods > asPrinted {
		return []uint64{half, half, half}
	}
	return []uint64{half, half, 0}
}

// splitByOps runs the experiment for a range of operations.
func splitByOps(r *run, rng *rand.Rand, periods int) []splitPoint {
	step := pick(r, 50, 300)
	var points []splitPoint
	for ops := step; ops <= 1200; ops += step {
		p := split(r, rng, paperBits, ops, periods)
		points = append(points, p)
	}
	return points
}

// column picks one number of each point.
func column(points []splitPoint, of func(p splitPoint) float64) []float64 {
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = of(p)
	}
	return out
}

var splitColumns = []string{"operations", "bits_per_constituent", "simple_measured", "simple_stderr", "simple_formula",
	"optimised_measured", "optimised_stderr", "optimised_formula", "fbfkv_measured", "fbfkv_stderr", "fbfkv_model", "fbfkv_target",
	"fbfkv_for_300_measured", "fbfkv_for_300_stderr", "fbfkv_for_300_model"}

func splitTable(points []splitPoint) table {
	t := table{columns: splitColumns}
	for _, p := range points {
		t.add(float64(p.ops), float64(p.bits), p.simple.value(), p.simple.stderr(), p.simpleModel,
			p.optimised.value(), p.optimised.stderr(), p.optimisedModel,
			p.product.value(), p.product.stderr(), p.productModel, p.productError,
			p.frozen.value(), p.frozen.stderr(), p.frozenModel)
	}
	return t
}

// figure8 compares the simple check (Eq. 2) with the optimised one (Algorithm 2).
func figure8(r *run) result {
	rng := rand.New(rand.NewPCG(r.seed, 8))
	points := splitByOps(r, rng, asPrinted)
	x := column(points, func(p splitPoint) float64 { return float64(p.ops) })
	y := func(of func(p splitPoint) float64) []float64 { return column(points, of) }
	res := result{tables: []table{splitTable(points)}, panels: []chart.Panel{{
		Title: "Fig. 8: the optimised check is about ten times better than the simple one",
		X:     chart.Axis{Label: "operations, half in each of two refresh periods", Max: 1200},
		Y:     chart.Axis{Label: "false positive probability", Log: true, Min: 1e-10, Max: 1},
		Series: []chart.Series{
			chart.Line("simple check: formula", chart.Orange, x, y(func(p splitPoint) float64 { return p.simpleModel })),
			chart.Dots("simple check: measured", chart.Orange, x, y(func(p splitPoint) float64 { return p.simple.value() })),
			chart.Line("optimised check (Alg. 2): corrected formula", chart.Blue, x, y(func(p splitPoint) float64 { return p.optimisedModel })),
			chart.Dots("optimised check: measured", chart.Blue, x, y(func(p splitPoint) float64 { return p.optimised.value() })),
			chart.Dashed("fbfkv, same memory, sized for 300: model", chart.Green, x, y(func(p splitPoint) float64 { return p.frozenModel })),
			chart.Line("fbfkv, same memory, sized for the load: model", chart.Green, x, y(func(p splitPoint) float64 { return p.productModel })),
			chart.Dots("fbfkv, sized for the load: measured", chart.Green, x, y(func(p splitPoint) float64 { return p.product.value() })),
			chart.Dots("printed in the paper", chart.Black, []float64{splitOps, splitOps}, []float64{4.4e-4, 3.8e-5}),
		},
	}}}
	for _, p := range points {
		if p.ops == splitOps {
			res.findings = []finding{
				{"simple check, 300 operations", "4.4e-4", p.simpleModel, p.simple.value(), none},
				{"optimised check, 300 operations", "3.8e-5", p.optimisedModel, p.optimised.value(), p.productModel},
			}
		}
	}
	return res
}
