package bench

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

// sweeper is a run of `fbfkv bench sweep`.
type sweeper struct {
	out     string
	fbfkv   string
	only    []string
	seconds float64
	rounds  int
	most    float64
	tail    time.Duration

	progress *bar.Bar
	server   *process // of the trials in a row
	current  string   // what it was started with
	sent     int64    // operations sent to it
}

const sweepHelp = `Starts servers on free ports of this machine, and measures throughput and latency against
what they depend on. For each sweep NAME it writes NAME.csv and NAME.svg. Everything
started is stopped and removed.

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
	s := &sweeper{seconds: 1.5, rounds: 1, most: 1e7, tail: 30 * time.Second}
	var help strings.Builder
	for _, one := range sweeps() {
		fmt.Fprintf(&help, "  %-12s  %s\n", one.name, one.title)
	}
	fmt.Fprintf(&help, "  %-12s  Latency over time, with and without snapshots and refreshes\n", tailName)
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
	f.DurationVar(&s.tail, "tail", s.tail, "length of each run of the sweep tail")
	f.StringVar(&s.fbfkv, "fbfkv", "", "the `program` to measure (this one)")
	setStyle(cmd)
	return cmd
}

func (s *sweeper) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	if s.fbfkv == "" {
		if s.fbfkv, err = os.Executable(); err != nil {
			return err
		}
	}
	if s.rounds < 1 || !(s.seconds > 0) || s.tail < 2*tailInterval {
		return errors.New("--rounds and --seconds are above 0, --tail is at least 1s")
	}
	for _, name := range s.only {
		if !slices.Contains(sweepNames(), name) {
			return fmt.Errorf("--only: %q is none of %s", name, strings.Join(sweepNames(), ", "))
		}
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	s.progress = bar.New(stderr)
	defer func() { err = errors.Join(err, s.stopServer()) }()
	for _, one := range sweeps() {
		if len(s.only) > 0 && !slices.Contains(s.only, one.name) {
			continue
		}
		if err := s.sweep(ctx, one, stdout); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	if len(s.only) == 0 || slices.Contains(s.only, tailName) {
		if err := s.tails(ctx, stdout); err != nil {
			return fmt.Errorf("%s: %w", tailName, err)
		}
	}
	return nil
}

// figuresOf is what one point measured.
type figuresOf struct {
	*Result
	serverCPU float64 // processors used by the server, on average
}

// sweep measures every point and writes the files.
func (s *sweeper) sweep(ctx context.Context, one sweep, stdout io.Writer) error {
	c := chart{title: one.title, x: one.x, y: "thousand operations per second", logX: !one.linear}
	rows := [][]string{{one.x, "curve", "operations_per_second", "p50_ms", "p99_ms", "p99.9_ms", "server_processors", "generator_processors"}}
	for _, curve := range one.curves {
		l := line{name: curve.name}
		for i, x := range one.points {
			if x > s.most {
				break
			}
			s.progress.Set(one.name+" "+curve.name, false, int64(i), int64(len(one.points)))
			m, err := s.measure(ctx, curve.at(x))
			if err != nil {
				return fmt.Errorf("%s, %v: %w", curve.name, x, err)
			}
			l.x, l.y = append(l.x, x), append(l.y, m.Throughput/1e3)
			rows = append(rows, []string{fmt.Sprint(x), curve.name, number(m.Throughput), number(m.Latency.P50 * 1e3), number(m.Latency.P99 * 1e3),
				number(m.Latency.P999 * 1e3), number(m.serverCPU), number(divide(m.CPU, m.Seconds))})
			s.progress.Clear()
			fmt.Fprintf(stdout, "%-12s %-24s %10s  %12s/s  p99 %-7s server %.2f processors\n", one.name, curve.name, tickLabel(x),
				thousands(m.Throughput), short(m.Latency.P99), m.serverCPU)
		}
		c.lines = append(c.lines, l)
		if err := s.stopServer(); err != nil {
			return err
		}
	}
	return s.write(one.name, rows, c)
}

// write writes the two files of a sweep.
func (s *sweeper) write(name string, rows [][]string, c chart) error {
	f, err := os.Create(filepath.Join(s.out, name+".csv"))
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	if err := errors.Join(w.WriteAll(rows), f.Close()); err != nil {
		return err
	}
	return c.write(filepath.Join(s.out, name+".svg"))
}

// measure runs one trial; of several rounds it returns the one in the middle.
func (s *sweeper) measure(ctx context.Context, t trial) (figuresOf, error) {
	if err := s.serverFor(ctx, t); err != nil {
		return figuresOf{}, err
	}
	o := DefaultOptions()
	o.Target = s.server.target
	o.Duration = time.Duration(s.seconds * float64(time.Second))
	o.Warmup = o.Duration / 5
	t.change(&o)
	if err := s.fill(ctx, t, o); err != nil {
		return figuresOf{}, err
	}
	var all []figuresOf
	for range s.rounds {
		m, err := s.load(ctx, o)
		if err != nil {
			return figuresOf{}, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b figuresOf) int { return cmp.Compare(a.Throughput, b.Throughput) })
	return all[len(all)/2], nil
}

// fill sends what is to be there before a trial.
func (s *sweeper) fill(ctx context.Context, t trial, o Options) error {
	missing := t.preload - s.sent
	if missing <= 0 {
		return nil
	}
	o.Workload, o.Duration, o.Warmup, o.Count, o.Pipeline = t.fill, 0, 0, max(missing, int64(o.Connections)), 256
	if _, err := s.load(ctx, o); err != nil || t.restart == nil {
		return err
	}
	if err := s.server.do(ctx, "SAVE"); err != nil {
		return err
	}
	s.server.kill()
	// Of a setting that is given twice the later would be refused.
	for i := 0; i < len(t.restart); i += 2 {
		if at := slices.Index(s.server.args, t.restart[i]); at >= 0 {
			s.server.args = slices.Delete(s.server.args, at, at+2)
		}
	}
	s.server.args = append(s.server.args, t.restart...)
	return s.server.run(ctx)
}

// load runs one load.
func (s *sweeper) load(ctx context.Context, o Options) (m figuresOf, err error) {
	before, err := s.server.cpu()
	if err != nil {
		return m, err
	}
	began := time.Now()
	if m.Result, err = Run(ctx, o); err != nil {
		return m, err
	}
	after, err := s.server.cpu()
	m.serverCPU = (after - before) / time.Since(began).Seconds()
	s.sent += m.Sent
	if len(m.Errors) > 0 {
		return m, fmt.Errorf("error replies: %v", m.Errors)
	}
	return m, err
}

// serverFor starts the server of a trial unless it runs.
func (s *sweeper) serverFor(ctx context.Context, t trial) (err error) {
	want := fmt.Sprint(t.fsync, t.args, t.env, t.setup)
	if s.server != nil && s.current == want && !t.alone {
		return nil
	}
	if err := s.stopServer(); err != nil {
		return err
	}
	if s.server, err = startFBFKV(ctx, s.fbfkv, cmp.Or(t.fsync, "everysec"), t.env, t.args...); err != nil {
		return err
	}
	s.current, s.sent = want, 0
	for _, command := range t.setup {
		args := make([]any, len(command))
		for i, a := range command {
			args[i] = a
		}
		if err := s.server.do(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweeper) stopServer() error {
	if s.server == nil {
		return nil
	}
	err := s.server.close()
	s.server = nil
	return err
}

// tails draws latency over time, of a server that is busy with snapshots and
// refreshes and of one that is not, at the same rate.
func (s *sweeper) tails(ctx context.Context, stdout io.Writer) error {
	c := chart{title: "Latency over time at half the full load, pipeline 16", x: "time, s", y: "latency, ms", logY: true}
	rows := [][]string{{"second", "server", "operations", "p50_ms", "p99_ms", "p99.9_ms", "max_ms"}}
	rate := 0.0
	for _, t := range tails {
		s.progress.Set(tailName+" "+t.name, false, 0, 1)
		if err := s.serverFor(ctx, t.trial); err != nil {
			return err
		}
		o := DefaultOptions()
		o.Target, o.Pipeline, o.Duration = s.server.target, 16, 3*time.Second
		if rate == 0 {
			m, err := s.load(ctx, o)
			if err != nil {
				return err
			}
			rate = m.Throughput / 2
		}
		o.Rate, o.Duration, o.Warmup, o.Interval = rate, s.tail, time.Second, tailInterval
		m, err := s.load(ctx, o)
		if err != nil {
			return err
		}
		s.progress.Clear()
		fmt.Fprintf(stdout, "%-12s %-30s %s/s  p50 %s  p99 %s  p99.9 %s  max %s\n", tailName, t.name, thousands(m.Throughput),
			short(m.Latency.P50), short(m.Latency.P99), short(m.Latency.P999), short(m.Latency.Max))
		for _, at := range m.Series {
			rows = append(rows, []string{number(at.Second), t.name, fmt.Sprint(at.Operations), number(at.P50 * 1e3), number(at.P99 * 1e3),
				number(at.P999 * 1e3), number(at.Max * 1e3)})
		}
		c.lines = append(c.lines, m.overTime("p99.9 "+t.name, func(m moment) float64 { return m.P999 }),
			m.overTime("p50 "+t.name, func(m moment) float64 { return m.P50 }))
		if err := s.stopServer(); err != nil {
			return err
		}
	}
	return s.write(tailName, rows, c)
}
