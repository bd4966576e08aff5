package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fbfkv/fbfkv/tools/process"
)

const help = `Sends increments to a server of the Redis protocol as fast as replies come, or at a
given rate, and says how many were answered and how long they took.

  bench --pipeline 16
  bench 127.0.0.1:6380 --workload lua --pipeline 16
  bench --rate 50000 --duration 1m --plot latency.svg
  bench --duration 1m --verify

  bench compare --help          two servers in turn, and their ratio
  bench table --help            fbfkv beside Redis, against its goals

Workloads:
`

func main() {
	process.Main(func(ctx context.Context) { process.Check(execute(ctx, os.Args[1:], os.Stdout)) })
}

// execute is main with everything that it touches as arguments.
func execute(ctx context.Context, args []string, out io.Writer) (err error) {
	defer process.Catch(&err)
	run, name := measure, ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "compare":
		run, args = compare, args[1:]
	case "table":
		run, args = newTable(out).run, args[1:]
	}
	if err := run(ctx, args, out); !errors.Is(err, flag.ErrHelp) {
		return err
	}
	return nil // it was asked for, and is printed
}

// measure measures one server.
func measure(ctx context.Context, args []string, out io.Writer) error {
	o, f := defaultOptions(), flag.NewFlagSet("bench [ADDRESS]", flag.ContinueOnError)
	f.StringVar(&o.Workload, "workload", o.Workload, "what to send, see above")
	o.addFlags(f)
	f.BoolVar(&o.Verify, "verify", false,
		"afterwards compare every counter with what was acknowledged; nobody else may change them")
	plot := f.String("plot", "", "draw latencies over time into this `file`, .svg or .png")
	addresses, err := parse(f, args, help+workloadHelp(), out)
	if err != nil {
		return err
	}
	if len(addresses) > 1 {
		return fmt.Errorf("one address at most, not %d (bench compare takes two)", len(addresses))
	}
	if len(addresses) == 1 {
		o.Target.URL = addresses[0]
	}
	r, err := send(ctx, o)
	if err != nil {
		return err
	}
	r.print(out)
	if *plot != "" {
		err = r.plot(*plot)
	}
	return errors.Join(err, r.Err())
}

func workloadHelp() string {
	var b strings.Builder
	for _, w := range workloads {
		fmt.Fprintf(&b, "  %-18s  %s\n", w.name, w.what)
	}
	return b.String()
}

// parse reads flags with addresses before, between and behind them, or prints help.
func parse(f *flag.FlagSet, args []string, help string, out io.Writer) (addresses []string, err error) {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	for len(args) > 0 {
		if !strings.HasPrefix(args[0], "-") {
			addresses, args = append(addresses, args[0]), args[1:]
			continue
		}
		if err = f.Parse(args); err != nil {
			break
		}
		args = f.Args()
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(out, "%s\n\nUsage: %s [--flag value ...]\n\n", strings.TrimSpace(help), f.Name())
		f.SetOutput(out)
		f.PrintDefaults()
	}
	return addresses, err
}

// addFlags adds the flags that shape the load.
func (o *options) addFlags(f *flag.FlagSet) {
	f.IntVar(&o.Connections, "connections", o.Connections, "connections")
	f.IntVar(&o.Pipeline, "pipeline", o.Pipeline, "operations that a connection sends at once, without waiting")
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to measure")
	f.Int64Var(&o.Count, "count", 0, "how many operations to send at most; 0 for as many as the time allows")
	f.Float64Var(&o.Rate, "rate", 0, "operations per second to send whether or not replies come (open loop: an "+
		"operation that\nhas to wait is charged from when it was due). 0: a connection waits for its replies")
	f.StringVar(&o.Keys, "keys", o.Keys, "counters: hot (only one), uniform:N, or sequence:N (one after the other)")
	f.StringVar(&o.KeyPrefix, "key-prefix", o.KeyPrefix, "what their names begin with")
}
