package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"
)

// alternate measures every subject once per round, in turn and every other round backwards, so that what drifts on the
// machine hits all alike. The result is indexed by subject, then round.
func alternate(rounds, subjects int, measure func(subject int) *Result) [][]*Result {
	results := make([][]*Result, subjects)
	for round := range rounds {
		for i := range subjects {
			if round%2 == 1 {
				i = subjects - 1 - i
			}
			results[i] = append(results[i], measure(i))
		}
	}
	return results
}

// median is the middle of the values, or the mean of the two in the middle.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// figures takes one figure of every result.
func figures(results []*Result, of func(*Result) float64) (values []float64) {
	for _, r := range results {
		values = append(values, of(r))
	}
	return values
}

func throughput(r *Result) float64 { return r.Throughput }
func p50(r *Result) float64        { return r.Latency.P50 }
func p99(r *Result) float64        { return r.Latency.P99 }

// Ratio is one figure of A in relation to the same of B.
type Ratio struct {
	A, B   float64 // medians
	Ratio  float64 // of these
	Lowest float64 // of single rounds
	Most   float64
	Steal  float64 // the largest share of the processors that others had
}

// ratio compares a figure of the results of two subjects, round by round.
func ratio(a, b []*Result, of func(*Result) float64) Ratio {
	x, y := figures(a, of), figures(b, of)
	r := Ratio{A: median(x), B: median(y), Steal: slices.Max(figures(append(slices.Clone(a), b...), (*Result).stolen))}
	r.Ratio = divide(r.A, r.B)
	var single []float64
	for i := range x {
		single = append(single, divide(x[i], y[i]))
	}
	r.Lowest, r.Most = slices.Min(single), slices.Max(single)
	return r
}

func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

const compareHelp = `Runs the load on two servers in turn, and says how they relate: the ratio of the
medians, and the lowest and highest ratio of one round.

  bench compare 127.0.0.1:6379 127.0.0.1:6380 --workload-b incrby --pipeline 16

The flags hold for both.`

// compare is the command compare.
func compare(ctx context.Context, args []string, out io.Writer) error {
	o, q := defaultOptions(), newQuiet()
	o.Duration = 3 * time.Second
	f := flag.NewFlagSet("bench compare A B", flag.ContinueOnError)
	workloadA := f.String("workload-a", "cincrby", "what to send to A")
	workloadB := f.String("workload-b", "cincrby", "what to send to B")
	rounds := f.Int("rounds", 3, "how often each is measured")
	o.addFlags(f)
	q.addFlags(f)
	addresses, err := parse(f, args, compareHelp, out)
	if err != nil {
		return err
	}
	if len(addresses) != 2 || *rounds < 1 {
		return errors.New("two addresses are needed, A and B, and at least one round (bench compare --help)")
	}
	subjects := []options{o, o}
	subjects[0].Target.URL, subjects[0].Workload = addresses[0], *workloadA
	subjects[1].Target.URL, subjects[1].Workload = addresses[1], *workloadB
	results := alternate(*rounds, 2, func(i int) *Result { return q.run(ctx, subjects[i]) })
	a, b := results[0], results[1]
	fmt.Fprintf(out, "A  %s on %s\nB  %s on %s\n\n", a[0].Workload, a[0].Target, b[0].Workload, b[0].Target)
	fmt.Fprintf(out, "%-12s %14s %14s   %s\n", "", "A", "B", "A/B (lowest to highest of a round)")
	for _, line := range []struct {
		name string
		of   func(*Result) float64
		show func(float64) string
	}{{"operations/s", throughput, thousands}, {"p50", p50, short}, {"p99", p99, short}} {
		r := ratio(a, b, line.of)
		fmt.Fprintf(out, "%-12s %14s %14s   %.2f (%.2f to %.2f)\n", line.name, line.show(r.A), line.show(r.B), r.Ratio, r.Lowest, r.Most)
	}
	q.print(out)
	return nil
}
