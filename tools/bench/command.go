package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const help = `Sends increments to a server of the Redis protocol as fast as replies come, or at a
given rate, and says how many were answered and how long they took.

  bench --pipeline 16
  bench 127.0.0.1:6380 --workload lua --pipeline 16
  bench --rate 50000 --duration 1m --plot latency.svg
  bench --duration 1m --verify

  bench compare --help          two servers in turn, and their ratio
  bench table --help            fbfkv beside Redis, against its goals

Ctrl-C ends the load early: what was measured so far is printed, and marked as
interrupted (exit status 130).

Workloads:
`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute is main with everything that it touches as arguments.
func execute(args []string, stdout, stderr io.Writer) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "bench: %s\n", err)
	if errors.Is(err, errInterrupted) {
		return 128 + int(syscall.SIGINT) // as if the signal had ended it
	}
	return 1
}

// newCommand returns the command line.
func newCommand() *cobra.Command {
	c := &command{o: defaultOptions()}
	cmd := &cobra.Command{
		Use:   "bench [ADDRESS] [--workload NAME] [--flag value ...]",
		Short: "measure a server",
		Long:  help + workloadHelp(),

		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("one address at most, not %d: %q (%s compare takes two)", len(args), args, cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				c.o.Target.URL = args[0]
			}
			if cmd.Flags().Changed("count") && !cmd.Flags().Changed("duration") {
				c.o.Duration = 0
			}
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().SortFlags = false
	c.o.addFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.BoolVar(&c.json, "json", false, "print the result as JSON")
	flags.StringVar(&c.plot, "plot", "", "draw latencies over time into this `file`, .svg or .png")
	setStyle(cmd)
	cmd.AddCommand(newCompare(), newTable())
	return cmd
}

// setStyle gives a command this project's help and flag errors.
func setStyle(cmd *cobra.Command) {
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", strings.TrimRight(cmd.Long, "\n"), cmd.UsageString())
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())
	})
}

func workloadHelp() string {
	var b strings.Builder
	for _, w := range workloads {
		fmt.Fprintf(&b, "  %-18s  %s\n", w.name, w.what)
	}
	return b.String()
}

// addFlags adds the flags of everything but the output.
func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Workload, "workload", o.Workload, "what to send, see above")
	o.addLoadFlags(f)
	f.BoolVar(&o.Verify, "verify", false, "afterwards compare every counter with what was acknowledged; nobody else may change them")
}

// addLoadFlags adds the flags that shape the load.
func (o *options) addLoadFlags(f *pflag.FlagSet) {
	f.IntVar(&o.Connections, "connections", o.Connections, "connections")
	f.IntVar(&o.Pipeline, "pipeline", o.Pipeline, "operations that a connection sends at once, without waiting")
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to measure")
	f.Int64Var(&o.Count, "count", 0, "how many operations to send, instead of --duration (or at most, with both)")
	f.DurationVar(&o.Warmup, "warmup", 0, "how long to send before measuring")
	f.Float64Var(&o.Rate, "rate", 0, "operations per second to send whether or not replies come (open loop: an operation that\nhas to wait is charged from when it was due). 0: a connection waits for its replies")
	f.StringVar(&o.Keys, "keys", o.Keys, "counters: hot (only one), uniform:N, or sequence:N (one after the\nother)")
	f.StringVar(&o.KeyPrefix, "key-prefix", o.KeyPrefix, "what their names begin with")
	f.StringVar(&o.IDs, "ids", o.IDs, "opids: uuidv7, or client-seq (client's name and sequence number)")
	f.Float64Var(&o.RetryShare, "retry-share", o.RetryShare, "with --again: share of all operations that are duplicates")
	f.StringVar(&o.Again, "again", "", "send duplicates too, from an earlier run, `SEED:COUNT`, with as many\n--connections and the same --keys; both runs with --ids client-seq")
	f.BoolVar(&o.Target.Insecure, "insecure", false, "trust any certificate of a rediss:// address")
	f.Uint64Var(&o.Seed, "seed", 0, "makes keys and client-seq ids repeatable (random)")
	f.DurationVar(&o.Window, "window", o.Window, "how long the recipe on Redis remembers an opid")
	f.DurationVar(&o.Patience, "retry-timeout", o.Patience, "how long unknown outcomes are retried and lost connections made again")
	f.DurationVar(&o.Interval, "interval", o.Interval, "of the latencies over time")
}

// command are the flags of a single load.
type command struct {
	o    options
	json bool
	plot string
}

func (c *command) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	line := newStatus(stderr)
	c.o.progress = line.showProgress(&c.o)
	r, err := send(ctx, c.o)
	line.clear()
	if r == nil {
		return err
	}
	return errors.Join(err, c.print(stdout, r), r.Err())
}

// check finds out before the load what would fail after it.
func (c *command) check() error {
	if c.plot != "" {
		if ext := filepath.Ext(c.plot); ext != ".svg" && ext != ".png" {
			return fmt.Errorf("--plot: %q ends neither in .svg nor in .png", c.plot)
		}
	}
	return checkOutput("--plot", c.plot)
}

// print writes the result wherever it is wanted.
func (c *command) print(stdout io.Writer, r *Result) (err error) {
	if c.json {
		err = printJSON(stdout, r)
	} else {
		r.print(stdout)
	}
	if c.plot != "" && err == nil && len(r.Series) > 0 {
		err = r.plot(c.plot)
	}
	return err
}

// checkOutput finds out whether a file can be written, before there is anything
// to write: a file that is there stays as it is.
func checkOutput(flag, path string) error {
	if path == "" {
		return nil
	}
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	err = f.Close()
	if missing != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
