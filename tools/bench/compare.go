package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// alternate measures every subject once per round, in turn and every other round
// backwards, so that what drifts on the machine hits all alike. The result is
// indexed by subject, then round; with an error it is what was measured before.
func alternate(rounds, subjects int, measure func(subject int) (*Result, error), progress func(done, total int)) ([][]*Result, error) {
	results := make([][]*Result, subjects)
	done := 0
	for round := range rounds {
		for i := range subjects {
			if round%2 == 1 {
				i = subjects - 1 - i
			}
			r, err := measure(i)
			if err != nil {
				return results, err
			}
			results[i] = append(results[i], r)
			done++
			progress(done, rounds*subjects)
		}
	}
	return results, nil
}

// median is the middle of the values, or the mean of the two in the middle.
func median(values []float64) float64 {
	s := sorted(values)
	if len(s) == 0 {
		return 0
	}
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

func sorted(values []float64) []float64 { return slices.Sorted(slices.Values(values)) }

// figures takes one figure of every result.
func figures(results []*Result, of func(*Result) float64) (values []float64) {
	for _, r := range results {
		values = append(values, of(r))
	}
	return values
}

func throughput(r *Result) float64 { return r.Throughput }
func p99(r *Result) float64        { return r.Latency.P99 }

// Ratio is one figure of A in relation to the same of B.
type Ratio struct {
	A      float64 `json:"a"` // median
	B      float64 `json:"b"`
	Ratio  float64 `json:"ratio"`     // of the medians
	Lowest float64 `json:"ratio_min"` // of single rounds
	Most   float64 `json:"ratio_max"`
	Steal  float64 `json:"steal"` // the largest share of the processors that others had
}

// ratio compares a figure of the results of two subjects, round by round.
func ratio(a, b []*Result, of func(*Result) float64) Ratio {
	x, y := figures(a, of), figures(b, of)
	r := Ratio{A: median(x), B: median(y)}
	r.Ratio = divide(r.A, r.B)
	r.Steal = slices.Max(append(append(figures(a, (*Result).stolen), figures(b, (*Result).stolen)...), 0))
	for i := range x {
		q := divide(x[i], y[i])
		if i == 0 {
			r.Lowest, r.Most = q, q
		}
		r.Lowest, r.Most = min(r.Lowest, q), max(r.Most, q)
	}
	return r
}

func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Comparison is the outcome of `bench compare`.
type Comparison struct {
	A          []*Result `json:"runs_a"`
	B          []*Result `json:"runs_b"`
	Throughput Ratio     `json:"throughput"`
	P50        Ratio     `json:"p50"`
	P99        Ratio     `json:"p99"`
	// Interrupted says that not all rounds were run.
	Interrupted bool `json:"interrupted,omitempty"`
}

// compareCommand are the flags of `bench compare`.
type compareCommand struct {
	o      options
	a, b   string // workloads
	rounds int
	quiet  quiet
	json   bool
}

const compareHelp = `Runs the load on two servers in turn, and says how they relate: the ratio of the
medians, and the lowest and highest ratio of one round.

  bench compare 127.0.0.1:6379 127.0.0.1:6380 --workload-b incrby --pipeline 16

The flags hold for both.`

// newCompare returns the subcommand compare.
func newCompare() *cobra.Command {
	c := &compareCommand{o: defaultOptions(), rounds: 3, quiet: newQuiet()}
	c.o.Duration = 3e9
	cmd := &cobra.Command{
		Use:   "compare A B [--workload-a NAME] [--workload-b NAME] [--flag value ...]",
		Short: "measure two servers in turn",
		Long:  compareHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("two addresses are needed, A and B, not %d (%s --help)", len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("count") && !cmd.Flags().Changed("duration") {
				c.o.Duration = 0
			}
			return c.run(cmd.Context(), args[0], args[1], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.a, "workload-a", "cincrby", "what to send to A")
	f.StringVar(&c.b, "workload-b", "cincrby", "what to send to B")
	f.IntVar(&c.rounds, "rounds", c.rounds, "how often each is measured")
	c.o.addLoadFlags(f)
	c.quiet.addFlags(f)
	f.BoolVar(&c.json, "json", false, "print the results as JSON")
	setStyle(cmd)
	return cmd
}

func (c *compareCommand) run(ctx context.Context, a, b string, stdout, stderr io.Writer) error {
	if c.rounds < 1 {
		return fmt.Errorf("--rounds: at least 1")
	}
	if err := c.quiet.check(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	subjects := []options{c.o, c.o}
	subjects[0].Target.URL, subjects[0].Workload = a, c.a
	subjects[1].Target.URL, subjects[1].Workload = b, c.b
	progress := newStatus(stderr)
	results, err := alternate(c.rounds, len(subjects), func(i int) (*Result, error) { return c.quiet.run(ctx, subjects[i]) }, func(done, total int) {
		progress.say("measured %d of %d", done, total)
	})
	progress.clear()
	rounds := min(len(results[0]), len(results[1]))
	if err != nil && (ctx.Err() == nil || rounds == 0) {
		return err
	}
	for i := range results {
		results[i] = results[i][:rounds]
	}
	all := Comparison{
		A: results[0], B: results[1], Interrupted: err != nil,
		Throughput: ratio(results[0], results[1], throughput),
		P50:        ratio(results[0], results[1], func(r *Result) float64 { return r.Latency.P50 }),
		P99:        ratio(results[0], results[1], p99),
	}
	if c.json {
		return errors.Join(err, printJSON(stdout, all))
	}
	return errors.Join(err, all.print(stdout), c.quiet.print(stdout))
}

func (c *Comparison) print(out io.Writer) error {
	if c.Interrupted {
		fmt.Fprintf(out, "interrupted after %d rounds\n", len(c.A))
	}
	fmt.Fprintf(out, "A  %s on %s\nB  %s on %s\n\n", c.A[0].Workload, c.A[0].Target, c.B[0].Workload, c.B[0].Target)
	fmt.Fprintf(out, "%-12s %14s %14s   %s\n", "", "A", "B", "A/B (lowest to highest of a round)")
	for _, line := range []struct {
		name string
		r    Ratio
		show func(float64) string
	}{{"operations/s", c.Throughput, thousands}, {"p50", c.P50, short}, {"p99", c.P99, short}} {
		fmt.Fprintf(out, "%-12s %14s %14s   %.2f (%.2f to %.2f)\n", line.name, line.show(line.r.A), line.show(line.r.B),
			line.r.Ratio, line.r.Lowest, line.r.Most)
	}
	return nil
}
