package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

// experiment measures some rows. Those that fill servers of their own are slow.
type experiment struct {
	name string
	rows []string // their names
	slow bool     // only if asked for
	run  func(ctx context.Context, t *table) error
	// length is how long it is foreseen to take, in seconds.
	length func(t *table) float64
}

// experiments are all experiments, in the order of the table.
func experiments() []experiment {
	return []experiment{
		{name: "everysec", rows: everysecRows(),
			run: func(ctx context.Context, t *table) error { return t.against(ctx, "everysec") }, length: againstLength(30, 5, 10)},
		{name: "always", rows: alwaysRows(),
			run: func(ctx context.Context, t *table) error { return t.against(ctx, "always") }, length: againstLength(11, 0, 4)},
		{name: "recovery", rows: []string{"recovery"}, run: recovery,
			length: func(t *table) float64 { return float64(t.rounds) * (4*t.seconds + 2) }},
		{name: "start", rows: []string{"start-kill", "start-order"}, slow: true, run: startMany,
			length: func(t *table) float64 { return t.counters/createRate + 15 }},
		{name: "memory", rows: memoryRows(), slow: true, run: memory,
			length: (*table).memoryLength},
	}
}

// table is a run of `fbfkv bench table`.
type table struct {
	fbfkv, redis string   // binaries
	redisArgs    []string // more arguments of the redis-server
	rows         []string // beginnings of the names of those to measure; none for all
	all          bool     // also the slow rows
	seconds      float64
	rounds       int
	ids          int64
	counters     float64
	profile      int // seconds of each profile; 0 for none
	quiet        quiet
	json         bool
	into         string // a document whose table is written anew
	plot         string // file for the picture of the profiles

	stdout, stderr io.Writer
	progress       *bar.Bar
	forecast       *forecast
	stage          string
	compared       []*process // the servers that run at present, to be measured in turn
	done           []Row
	raw            [][]string // single measurements
	chosen         []experiment
	profiles       []profiled
	failed         []error
}

const tableHelp = `Starts this fbfkv and a redis-server on free ports of this machine, with directories of
their own and the same durability, measures them in turn, and prints this project's
goals beside what was reached. All are ratios of medians; the lowest and highest ratio
of a single round stand in parentheses. "others" is the largest share of the processors
that the hypervisor gave to others during a measurement that counts. Everything started is
stopped and removed.

Rows, of which --rows chooses by the beginnings of their names:
  lua-FSYNC-P, incrby-FSYNC-P   CINCRBY with unique ids against the recipe and against plain
                                INCRBY on Redis; FSYNC is everysec or always, P the pipeline
  p99                           latency at pipeline 1 against the recipe's
  sadd-P, bfadd-P               against recipes that keep the opids in one set, or in one Bloom filter, for
                                which the redis-server needs a module (--redis-arg)
  hot-FSYNC                     one hot counter, against INCRBY on it
  ping-P, ping-incrby-P         CINCRBY, and INCRBY of the same server, against PING with as many
                                bytes on the same connections
  approx-P, approx-p99-P        EXACT against APPROX: throughput and p99
  duplicates                    10% and 100% duplicates, from memory and from runs
  recovery                      start after kill -9 at full load
  start                         start with many counters, after kill -9 and after an orderly stop;
                                only if asked for
  memory                        memory per remembered id, beside Redis' for a key per id; only if asked
                                for, it takes minutes
  disk                          bytes on disk per remembered id, and bytes written; only if asked for

With --profile the server is profiled while the loads run once more, and a table says what
the processors did. What cannot be measured is left out, and named at the end.`

// newTable returns the subcommand table.
func newTable() *cobra.Command {
	t := &table{seconds: 1.5, rounds: 3, redis: "redis-server", ids: 10_000_000, counters: 1e8, quiet: newQuiet()}
	cmd := &cobra.Command{
		Use:   "table [--rows NAME,...] [--seconds S] [--rounds N]",
		Short: "this server beside Redis, against its goals",
		Long:  tableHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.print(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&t.rows, "rows", nil, "only rows whose names begin so (all but start, memory and disk)")
	f.BoolVar(&t.all, "all", false, "start, memory and disk too, which fill servers for minutes")
	f.Float64Var(&t.seconds, "seconds", t.seconds, "length of one measurement")
	f.IntVar(&t.rounds, "rounds", t.rounds, "how often each is measured")
	f.Int64Var(&t.ids, "ids", t.ids, "rows memory and disk: remembered ids")
	f.Float64Var(&t.counters, "counters", t.counters, "row start: existing counters")
	f.IntVar(&t.profile, "profile", 0, "length of each profile, whole seconds; 0 for no profiles")
	f.StringVar(&t.fbfkv, "fbfkv", "", "the `program` to measure (this one)")
	f.StringVar(&t.redis, "redis", t.redis, "the redis-server `program`")
	f.StringArrayVar(&t.redisArgs, "redis-arg", nil, "one more `argument` of the redis-server, as --loadmodule or the file of a module; may be\ngiven again")
	t.quiet.addFlags(f)
	f.BoolVar(&t.json, "json", false, "print the rows as JSON, one per line")
	f.StringVar(&t.into, "into", "", "also write the table into this Markdown `file`, between its two marks,\nthat of the profiles between theirs, and the single measurements beside it,\nas performance/table.csv")
	f.StringVar(&t.plot, "plot", "", "draw what the processors did into this `file`, .svg or .png")
	setStyle(cmd)
	return cmd
}

// print measures the rows and prints each as soon as it is known.
func (t *table) print(ctx context.Context, stdout, stderr io.Writer) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := t.prepare(); err != nil {
		return err
	}
	t.stdout, t.stderr, t.progress = stdout, stderr, bar.New(stderr)
	if !t.json {
		fmt.Fprintf(stdout, rowFormat, "row", "what", "measured", "goal", "", "others", "")
	}
	if err := t.measureRows(ctx); err != nil {
		return err
	}
	goals, met := 0, 0
	for _, r := range t.done {
		if r.NoGoal {
			continue
		}
		if goals++; r.OK {
			met++
		}
	}
	if !t.json {
		fmt.Fprintf(stdout, "\n%d of %d goals are met.\n", met, goals)
		if err := t.quiet.print(stdout); err != nil {
			return err
		}
		if len(t.profiles) > 0 {
			fmt.Fprintf(stdout, "\nWhat the processors did, in percent:\n\n%s", spentMarkdown("pipeline", t.profiles))
		}
	}
	if err := t.write(ctx); err != nil {
		return err
	}
	if len(t.failed) > 0 {
		return fmt.Errorf("not everything could be measured, the rest stands:\n%w", errors.Join(t.failed...))
	}
	return nil
}

// measureRows runs the experiments. What fails is noted; the error says that the
// work was interrupted.
func (t *table) measureRows(ctx context.Context) error {
	seconds := 0.0
	for _, e := range t.chosen {
		seconds += e.length(t)
	}
	t.forecast = newForecast(seconds)
	for i, e := range t.chosen {
		t.stage = e.name
		err := e.run(ctx, t)
		if ctx.Err() != nil {
			t.progress.Clear()
			return errInterrupted
		}
		t.note(e.name, err)
		t.forecast.add(e.length(t))
		if i+1 < len(t.chosen) {
			t.progress.Clear()
			fmt.Fprintf(t.stderr, "%s is measured, %s\n", e.name, t.forecast.left())
		}
	}
	return nil
}

// emit prints rows and keeps them, those that are asked for.
func (t *table) emit(rows ...Row) {
	t.progress.Clear()
	for _, r := range rows {
		if !t.wantsRow(r.Name) {
			continue // measured with another that is
		}
		t.done = append(t.done, r)
		if err := r.print(t.stdout, t.json); err != nil {
			t.note("printing", err)
		}
	}
}

// note notes an error, if it is one, and says so at once.
func (t *table) note(what string, err error) {
	if err == nil {
		return
	}
	err = fmt.Errorf("%s: %w", what, err)
	t.failed = append(t.failed, err)
	t.progress.Clear()
	fmt.Fprintf(t.stderr, "FAILED  %v\n", err)
}

// prepare checks the flags and finds the programs.
func (t *table) prepare() (err error) {
	if t.rounds < 1 || !(t.seconds > 0) || t.ids < 1 || !(t.counters >= 1 && t.counters <= maxKeys) || t.profile < 0 {
		return fmt.Errorf("--rounds, --seconds and --ids are above 0, --profile is not negative, --counters is from 1 to %d", maxKeys)
	}
	if err := t.quiet.check(); err != nil {
		return err
	}
	if t.fbfkv == "" {
		if t.fbfkv, err = os.Executable(); err != nil {
			return err
		}
	}
	if _, err = exec.LookPath(t.redis); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	t.chosen, err = t.choose()
	return err
}

// options are those of one measurement.
func (t *table) options(p *process, workload string, pipeline int) Options {
	o := DefaultOptions()
	o.Target, o.Workload, o.Pipeline = p.target, workload, pipeline
	o.Duration = time.Duration(t.seconds * float64(time.Second))
	o.Warmup = o.Duration / 5
	return o
}

// measure runs subjects in turn. Of the servers compared only the one that is
// measured runs, so that each pays for what it does in the background, and for
// nothing of the other's.
func (t *table) measure(ctx context.Context, what string, subjects ...Options) ([][]*Result, error) {
	defer t.resume()
	results, err := alternate(ctx, &t.quiet, t.rounds, subjects, func(o *Options) error { return t.only(o.Target) }, func(done, total int) {
		t.progress.Set(t.stage+" "+what, false, int64(done), int64(total))
	})
	for _, rounds := range results {
		for i, r := range rounds {
			t.keep(what, i, r)
		}
	}
	return results, err
}

// only pauses all servers that are compared but one.
func (t *table) only(one Target) (err error) {
	for _, p := range t.compared {
		if p.target == one {
			err = errors.Join(err, p.resume())
		} else {
			err = errors.Join(err, p.pause())
		}
	}
	return err
}

// resume lets all run again. One that ended meanwhile is missed by whoever needs
// it next.
func (t *table) resume() {
	for _, p := range t.compared {
		_ = p.resume()
	}
}

// profileWhile profiles the fbfkv under a load, if profiles are wanted.
func (t *table) profileWhile(ctx context.Context, p *process, o Options, curve string, measured []*Result) error {
	if t.profile == 0 {
		return nil
	}
	t.progress.Set(t.stage+" profile", false, 0, 1)
	defer t.resume()
	if err := t.only(o.Target); err != nil {
		return err
	}
	s, err := takeQuiet(ctx, &t.quiet, func() (spent, error) {
		s, _, err := profileLoad(ctx, p, o, t.profile)
		return s, err
	})
	if err != nil {
		return err
	}
	t.profiles = append(t.profiles, profiled{curve: curve, x: float64(o.Pipeline), throughput: median(figures(measured, throughput)), spent: s})
	return nil
}
