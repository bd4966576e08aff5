package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

// Row is one goal and how it was met.
type Row struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	Measured float64 `json:"measured"`
	Lowest   float64 `json:"min"` // of one round
	Most     float64 `json:"max"`
	Goal     float64 `json:"goal"`
	AtMost   bool    `json:"at_most"` // the goal is an upper bound
	OK       bool    `json:"ok"`
	Note     string  `json:"note,omitempty"` // what the figure is made of
}

// atLeast is a row whose figure must reach a goal.
func atLeast(name, what string, goal float64, r Ratio, note string) Row {
	return Row{Name: name, What: what, Measured: r.Ratio, Lowest: r.Lowest, Most: r.Most, Goal: goal, OK: r.Ratio >= goal, Note: note}
}

// atMost is a row whose figure must not exceed a goal.
func atMost(name, what string, goal float64, r Ratio, note string) Row {
	row := atLeast(name, what, goal, r, note)
	row.AtMost, row.OK = true, r.Ratio <= goal
	return row
}

// experiment measures some rows. Those that run servers of their own are slow.
type experiment struct {
	name string
	rows []string // beginnings of their names
	slow bool     // only if asked for
	run  func(ctx context.Context, t *table) ([]Row, error)
}

// experiments are all experiments, in the order of the table.
func experiments() []experiment {
	return []experiment{
		{name: "everysec", rows: []string{"lua-everysec", "incrby-everysec", "p99", "hot-everysec", "ping", "approx", "duplicates"},
			run: func(ctx context.Context, t *table) ([]Row, error) { return t.against(ctx, "everysec") }},
		{name: "always", rows: []string{"lua-always", "incrby-always", "hot-always"},
			run: func(ctx context.Context, t *table) ([]Row, error) { return t.against(ctx, "always") }},
		{name: "recovery", rows: []string{"recovery"}, run: recovery},
		{name: "memory", rows: []string{"memory"}, slow: true, run: memory},
	}
}

// table is a run of `fbfkv bench table`.
type table struct {
	fbfkv, redis string // binaries
	rows         []string
	seconds      float64
	rounds       int
	ids          int64
	json         bool
	into         string // a document whose table is written anew

	progress *bar.Bar
	stage    string
}

const tableHelp = `Starts this fbfkv and a redis-server on free ports of this machine, with directories of
their own and the same durability, measures them in turn, and prints this project's
goals beside what was reached. All are ratios of medians; the lowest and highest ratio
of a single round stand in parentheses. Everything started is stopped and removed.

Rows, of which --rows chooses by the beginnings of their names:
  lua-FSYNC-P, incrby-FSYNC-P   CINCRBY with unique ids against the recipe and against plain
                                INCRBY on Redis; FSYNC is everysec or always, P the pipeline
  p99                           latency at pipeline 1 against the recipe's
  hot-FSYNC                     one hot counter, against INCRBY on it
  ping-P                        against PING with as many bytes on the same connections
  approx                        EXACT against APPROX: throughput and p99
  duplicates                    10% and 100% duplicates, from memory and from runs
  recovery                      start after kill -9 at full load
  memory                        memory per remembered id; only if asked for, it takes minutes`

// newTable returns the subcommand table.
func newTable() *cobra.Command {
	t := &table{seconds: 1.5, rounds: 3, redis: "redis-server", ids: 10_000_000}
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
	f.StringSliceVar(&t.rows, "rows", nil, "only rows whose names begin so (all but memory)")
	f.Float64Var(&t.seconds, "seconds", t.seconds, "length of one measurement")
	f.IntVar(&t.rounds, "rounds", t.rounds, "how often each is measured")
	f.Int64Var(&t.ids, "ids", t.ids, "row memory: remembered ids")
	f.StringVar(&t.fbfkv, "fbfkv", "", "the `program` to measure (this one)")
	f.StringVar(&t.redis, "redis", t.redis, "the redis-server `program`")
	f.BoolVar(&t.json, "json", false, "print the rows as JSON, one per line")
	f.StringVar(&t.into, "into", "", "also write the table into this Markdown `file`, between its two marks")
	setStyle(cmd)
	return cmd
}

// print measures the rows and prints each as soon as it is known.
func (t *table) print(ctx context.Context, stdout, stderr io.Writer) (err error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := t.prepare(); err != nil {
		return err
	}
	t.progress = bar.New(stderr)
	if !t.json {
		fmt.Fprintf(stdout, rowFormat, "row", "what", "measured", "goal", "", "")
	}
	rows, err := t.measureRows(ctx, func(r Row) error { return r.print(stdout, t.json) })
	if err != nil {
		return err
	}
	met := 0
	for _, r := range rows {
		if r.OK {
			met++
		}
	}
	if !t.json {
		fmt.Fprintf(stdout, "\n%d of %d goals are met.\n", met, len(rows))
	}
	if t.into != "" {
		return t.writeInto(ctx, rows)
	}
	return nil
}

// measureRows runs the experiments and shows each row as soon as it is known.
func (t *table) measureRows(ctx context.Context, show func(Row) error) (all []Row, err error) {
	for _, e := range experiments() {
		if !t.wants(e) {
			continue
		}
		t.stage = e.name
		rows, err := e.run(ctx, t)
		t.progress.Clear()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		for _, r := range rows {
			if err := show(r); err != nil {
				return nil, err
			}
		}
		all = append(all, rows...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--rows: no row begins with %s", strings.Join(t.rows, " or "))
	}
	return all, nil
}

// prepare finds the programs.
func (t *table) prepare() (err error) {
	if t.rounds < 1 || !(t.seconds > 0) || t.ids < 1 {
		return errors.New("--rounds, --seconds and --ids are above 0")
	}
	if t.fbfkv == "" {
		if t.fbfkv, err = os.Executable(); err != nil {
			return err
		}
	}
	if _, err = exec.LookPath(t.redis); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// wants reports whether any row of an experiment is asked for.
func (t *table) wants(e experiment) bool {
	if len(t.rows) == 0 {
		return !e.slow
	}
	return slices.ContainsFunc(e.rows, t.wantsGroup)
}

// wantsGroup reports whether any row is asked for whose name has a beginning.
func (t *table) wantsGroup(beginning string) bool {
	return len(t.rows) == 0 || slices.ContainsFunc(t.rows, func(r string) bool {
		return strings.HasPrefix(beginning, r) || strings.HasPrefix(r, beginning)
	})
}

// wantsRow reports whether one row is asked for.
func (t *table) wantsRow(name string) bool {
	return len(t.rows) == 0 || slices.ContainsFunc(t.rows, func(r string) bool { return strings.HasPrefix(name, r) })
}

// rowFormat are the columns of the printed table.
const rowFormat = "%-21s %-69s %-22s %-8s %-6s %s\n"

// print writes the row for people or, as a line of JSON, for programs.
func (r Row) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	sign, verdict := ">=", "ok"
	if r.AtMost {
		sign = "<="
	}
	if !r.OK {
		verdict = "MISSED"
	}
	measured := fmt.Sprintf("%.2f (%.2f to %.2f)", r.Measured, r.Lowest, r.Most)
	_, err := fmt.Fprintf(out, rowFormat, r.Name, r.What, measured, fmt.Sprintf("%s %.4g", sign, r.Goal), verdict, r.Note)
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

// measure runs subjects in turn.
func (t *table) measure(ctx context.Context, what string, subjects ...Options) ([][]*Result, error) {
	return alternate(ctx, t.rounds, subjects, func(done, total int) {
		t.progress.Set(t.stage+" "+what, false, int64(done), int64(total))
	})
}
