// Command filterbench measures package fbf beside other windowed filters and
// writes tables and a plot.
//
//	filterbench speed   ns per new and per duplicate id, contestants in turn
//	filterbench bits    memory per remembered id in steady state
//	filterbench fpp     false positives among ids never inserted
//	filterbench report  tables on standard output, and the plot
//
// The first three write CSV into the directory -out, which the last reads.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// config is what the command line says.
type config struct {
	out     string
	targets list[float64]
	sizes   list[uint64]
	rounds  int
	slice   time.Duration
	ids     uint64
	probes  uint64
	small   bool
	only    string
	more    bool
}

// list is a flag of comma-separated numbers.
type list[T float64 | uint64] []T

func (l *list[T]) String() string { return strings.Trim(fmt.Sprint([]T(*l)), "[]") }

func (l *list[T]) Set(s string) error {
	*l = nil
	for f := range strings.SplitSeq(s, ",") {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return err
		}
		*l = append(*l, T(x))
	}
	return nil
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "filterbench:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want speed, bits, fpp or report")
	}
	c := config{targets: list[float64]{1e-6}, sizes: list[uint64]{512 << 10, 4 << 20, 64 << 20, 512 << 20}}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.StringVar(&c.out, "out", "results", "directory of the CSV files and the plot")
	f.Var(&c.targets, "target", "false positive probabilities of the whole window")
	f.Var(&c.sizes, "size", "speed: bytes of filter memory")
	f.IntVar(&c.rounds, "rounds", 7, "speed: how often every contestant is measured")
	f.DurationVar(&c.slice, "slice", 60*time.Millisecond, "speed: length of one measurement")
	f.Uint64Var(&c.ids, "ids", 1<<20, "bits and fpp: ids in the window")
	f.Uint64Var(&c.probes, "probes", 1e7, "fpp: ids looked for")
	f.StringVar(&c.only, "only", "", "speed: contestants whose name begins so")
	f.BoolVar(&c.more, "append", false, "add to the CSV file instead of replacing it")
	f.BoolVar(&c.small, "small-pages", false, "speed: no huge pages, which package fbf would ask for")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if c.small {
		if err := smallPages(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	switch args[0] {
	case "speed":
		return speed(c)
	case "bits":
		return bits(c)
	case "fpp":
		return fpp(c)
	case "report":
		return report(c, out)
	}
	return fmt.Errorf("no command %q", args[0])
}

func (c config) path(name string) string { return filepath.Join(c.out, name) }
