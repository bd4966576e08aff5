package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/tools/process"
)

// options are the command's flags.
type options struct {
	out     string
	figures []int
	quick   bool
	png     bool
	fbfkv   string
	seed    uint64
}

const help = `Makes the figures of the FBF paper again (Subramanyam, Gupta, Leslie, Wang:
"Idempotent Distributed Counters Using a Forgetful Bloom Filter"), with the numbers
the paper prints and with fbfkv's own filter beside them.

Figures 8 to 13 are simulations: the same seed gives the same files. Figures 14 and
15 are measured on a server that this command starts on a free port with a data
directory of its own, and removes afterwards.

Writes figNN.svg and figNN.csv, and the summary of the figures made to summary.csv
and to standard output.`

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "paper:", err)
		os.Exit(1)
	}
}

// newCommand returns the command line.
func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "paper [--out DIR] [--figures 8,9,...] [--quick]",
		Short: "make the figures of the FBF paper again",
		Long:  help,
		Args:  cobra.NoArgs,

		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.out, "out", "fbfkv-paper", "directory to write to; it is created if it is missing")
	flags.IntSliceVar(&o.figures, "figures", numbers(figures()), "which figures")
	flags.BoolVar(&o.quick, "quick", false, "a small part of the work, for a first look; not to be quoted")
	flags.BoolVar(&o.png, "png", false, "write figNN.png too")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the simulations")
	flags.StringVar(&o.fbfkv, "fbfkv", "../fbfkv", "the `program` of figures 14 and 15; make build makes it")
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (paper --help lists the flags)", err)
	})
	return cmd
}

func numbers(all []figure) (n []int) {
	for _, f := range all {
		n = append(n, f.number)
	}
	return n
}

// chosen are the figures asked for, in the paper's order.
func (o options) chosen() ([]figure, error) {
	known := figures()
	for _, n := range o.figures {
		if !slices.Contains(numbers(known), n) {
			return nil, fmt.Errorf("--figures: no figure %d, there are 8 to 15", n)
		}
	}
	return slices.DeleteFunc(known, func(f figure) bool { return !slices.Contains(o.figures, f.number) }), nil
}

// run makes the figures and writes them.
func (o options) run(stdout, stderr io.Writer) error {
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(chosen, func(f figure) bool { return f.number >= 14 }) {
		if err := process.Find("--fbfkv", o.fbfkv); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	bar := newProgress(stderr)
	var all []made
	for _, f := range chosen {
		bar.begin(f)
		res, err := f.make(&run{seed: o.seed, quick: o.quick, fbfkv: o.fbfkv, progress: bar.set})
		if err != nil {
			return fmt.Errorf("figure %d: %w", f.number, err)
		}
		if err := res.write(o.out, f, o.png); err != nil {
			return fmt.Errorf("figure %d: %w", f.number, err)
		}
		all = append(all, made{f, res})
		bar.end(f)
	}
	if err := writeSummary(o.out+"/summary.csv", all); err != nil {
		return err
	}
	if err := printSummary(stdout, all); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nWritten to %s.\n", o.out)
	return err
}
