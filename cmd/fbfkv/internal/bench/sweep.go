package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

// sweeper is a run of `fbfkv bench sweep`.
type sweeper struct {
	out     string
	into    string
	fbfkv   string
	only    []string
	seconds float64
	rounds  int
	most    float64
	tail    time.Duration
	profile int  // seconds of each profile; 0 for none
	keep    bool // the profiles
	quiet   quiet

	stdout   io.Writer
	progress *bar.Bar
	forecast *forecast
	failed   []error
	server   *process // of the trials in a row
	current  string   // what it was started with
	sent     int64    // operations sent to it
}

const sweepHelp = `Starts servers on free ports of this machine, and measures throughput and latency against
what they depend on. For each sweep NAME it writes NAME.csv and NAME.svg. While the load
runs once more, the server is profiled at the first, the middle and the last point of
every curve: NAME-profile.csv and NAME-profile.svg say what the processors did. Everything
started is stopped and removed. What cannot be measured is left out, and named at the end.

Sweeps:
`

const tailName = "tail"

func sweepNames() (names []string) {
	for _, s := range sweeps() {
		names = append(names, s.name)
	}
	return append(names, tailName)
}

// newSweep returns the subcommand sweep.
func newSweep() *cobra.Command {
	s := &sweeper{seconds: 1.5, rounds: 1, most: 1e7, tail: 10 * time.Second, profile: 2, quiet: newQuiet()}
	var help strings.Builder
	for _, one := range sweeps() {
		fmt.Fprintf(&help, "  %-12s  %s\n", one.name, one.title)
	}
	fmt.Fprintf(&help, "  %-12s  Latency over time, with and without snapshots, refreshes, resizes and compactions\n", tailName)
	cmd := &cobra.Command{
		Use:   "sweep [--out DIR] [--only NAME,...] [--seconds S] [--rounds N]",
		Short: "throughput and latency against what they depend on",
		Long:  sweepHelp + help.String(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.out, "out", "fbfkv-sweep", "directory to write to; it is created if it is missing")
	f.StringSliceVar(&s.only, "only", nil, "which sweeps (all)")
	f.Float64Var(&s.seconds, "seconds", s.seconds, "length of one measurement")
	f.IntVar(&s.rounds, "rounds", s.rounds, "measurements of a point, of which the median is taken")
	f.Float64Var(&s.most, "max", s.most, "leave out points with more counters or ids than this")
	f.DurationVar(&s.tail, "tail", s.tail, "length of each of the sweep tail's measurements")
	f.IntVar(&s.profile, "profile", s.profile, "length of each profile, whole seconds; 0 for no profiles")
	s.quiet.addFlags(f)
	f.BoolVar(&s.keep, "keep-profiles", false, "also write the profiles as they are, for go tool pprof")
	f.StringVar(&s.into, "into", "", "also write the profiles' tables into this Markdown `file`, between the marks of each sweep")
	f.StringVar(&s.fbfkv, "fbfkv", "", "the `program` to measure (this one)")
	setStyle(cmd)
	return cmd
}

// prepare checks the flags.
func (s *sweeper) prepare() (err error) {
	if s.fbfkv == "" {
		if s.fbfkv, err = os.Executable(); err != nil {
			return err
		}
	}
	if s.rounds < 1 || !(s.seconds > 0) || s.tail < 2*tailInterval || s.profile < 0 {
		return errors.New("--rounds and --seconds are above 0, --profile is not negative, --tail is at least 1s")
	}
	if err := s.quiet.check(); err != nil {
		return err
	}
	for _, name := range s.only {
		if !slices.Contains(sweepNames(), name) {
			return fmt.Errorf("--only: %q is none of %s", name, strings.Join(sweepNames(), ", "))
		}
	}
	if s.into != "" {
		if err := s.checkMarks(); err != nil {
			return err
		}
	}
	return os.MkdirAll(s.out, 0o755)
}

// checkMarks finds out before the work whether the document has a place for
// every table.
func (s *sweeper) checkMarks() error {
	b, err := os.ReadFile(s.into)
	if err != nil {
		return err
	}
	for _, name := range sweepNames() {
		if len(s.only) > 0 && !slices.Contains(s.only, name) {
			continue
		}
		if _, err := between(string(b), name, ""); err != nil {
			return fmt.Errorf("--into: %s: %w", s.into, err)
		}
	}
	return nil
}

// chosen are the sweeps asked for, but for the one over time.
func (s *sweeper) chosen() (all []sweep) {
	for _, one := range sweeps() {
		if len(s.only) == 0 || slices.Contains(s.only, one.name) {
			all = append(all, one)
		}
	}
	return all
}

func (s *sweeper) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := s.prepare(); err != nil {
		return err
	}
	s.stdout, s.progress = stdout, bar.New(stderr)
	defer func() { err = errors.Join(err, s.stopServer()) }()
	tail := len(s.only) == 0 || slices.Contains(s.only, tailName)
	s.forecast = newForecast(s.foresee(tail))
	for _, one := range s.chosen() {
		if err := s.sweep(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	if tail {
		if err := s.tails(ctx); ctx.Err() != nil {
			return errInterrupted
		} else if err != nil {
			s.fail(tailName, err)
		}
	}
	if err := s.quiet.print(stdout); err != nil {
		return err
	}
	if len(s.failed) > 0 {
		return fmt.Errorf("%d measurements failed, the rest is written:\n%w", len(s.failed), errors.Join(s.failed...))
	}
	return nil
}

// fail notes that something could not be measured. The next point gets a server
// of its own.
func (s *sweeper) fail(what string, err error) {
	s.progress.Clear()
	err = errors.Join(fmt.Errorf("%s: %w", what, err), s.stopServer())
	fmt.Fprintf(s.stdout, "FAILED  %v\n", err)
	s.failed = append(s.failed, err)
}

// foresee is how long everything takes, in seconds, roughly.
func (s *sweeper) foresee(tail bool) (seconds float64) {
	for _, one := range s.chosen() {
		for _, j := range s.jobs(one) {
			seconds += s.lengthOf(one, j)
		}
	}
	if tail {
		seconds += s.tailLength()
	}
	return seconds
}
