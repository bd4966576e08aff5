package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/tools/chart"
	"github.com/fbfkv/fbfkv/tools/process"
)

// table is a run of bench table.
type table struct {
	fbfkv, redis string // programs
	asked        string // beginnings of the names of rows
	all          bool   // also the slow ones
	seconds      float64
	rounds       int
	ids          int64
	quiet        quiet
	csv, plot    string // files for single measurements and for a plot

	out        io.Writer
	raw        [][]string
	curves     map[string]*chart.Series // throughput by pipeline
	goals, met int
	failed     []error
}

const tableHelp = `Starts an fbfkv and a redis-server on free ports of this machine, with directories of
their own and the same durability, measures them in turn, and prints this project's
goals beside what was reached. All ratios are of medians; the lowest and highest of a
single round stand in parentheses. "others" is the largest share of the processors
that the hypervisor gave to others during a measurement that counts. Everything started is
stopped and removed.

While one server is measured the others are stopped (SIGSTOP), so that each pays for
what it does in the background, and for nothing of the other's. What cannot be measured
is named at the end.

The rows are in rows.go: what is sent to whom, and the goal.`

func newTable(out io.Writer) *table {
	return &table{seconds: 1.5, rounds: 3, ids: 10_000_000, quiet: newQuiet(), curves: map[string]*chart.Series{}, out: out}
}

// flags returns the flags of the command.
func (t *table) flags() *flag.FlagSet {
	f := flag.NewFlagSet("bench table", flag.ContinueOnError)
	f.StringVar(&t.asked, "rows", "", "only rows whose `names` begin so, separated by commas")
	f.BoolVar(&t.all, "all", false, "also those that fill servers for minutes (counters, start, memory)")
	f.Float64Var(&t.seconds, "seconds", t.seconds, "length of one measurement")
	f.IntVar(&t.rounds, "rounds", t.rounds, "how often each is measured")
	f.Int64Var(&t.ids, "ids", t.ids, "rows memory: remembered ids; rows of many counters: that many at most")
	f.StringVar(&t.fbfkv, "fbfkv", "../fbfkv", "the `program` to measure; make build makes it")
	f.StringVar(&t.redis, "redis", "redis-server", "the redis-server `program`")
	t.quiet.addFlags(f)
	f.StringVar(&t.csv, "csv", "", "write every single measurement to this `file`")
	f.StringVar(&t.plot, "plot", "", "draw throughput against pipelines into this `file`, .svg or .png")
	return f
}

// run measures the rows and prints each as soon as it is known.
func (t *table) run(ctx context.Context, args []string, _ io.Writer) error {
	surplus, err := parse(t.flags(), args, tableHelp, t.out)
	if err != nil {
		return err
	}
	if t.rounds < 1 || !(t.seconds > 0) || t.ids < 1 || len(surplus) > 0 {
		return errors.New("--rounds, --seconds and --ids are above 0, and there are only flags (bench table --help)")
	}
	chosen, err := choose(t.asked, t.all)
	if err := errors.Join(err, process.Find("--fbfkv", t.fbfkv), process.Find("--redis", t.redis)); err != nil {
		return err
	}
	fmt.Fprintf(t.out, rowFormat, "row", "what", "measured", "goal", "", "others", "")
	for len(chosen) > 0 {
		name := chosen[0].together()
		var group []*row
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(r row) bool {
			if r.together() != name {
				return false
			}
			group = append(group, &r)
			return true
		})
		err := t.measureGroup(ctx, name, group)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			t.failed = append(t.failed, fmt.Errorf("%s: %w", name, err))
			fmt.Fprintf(t.out, "FAILED  %s: %v\n", name, err)
		}
	}
	return t.finish()
}

// finish prints and writes what is known at the end.
func (t *table) finish() error {
	err := t.writeCSV()
	if t.plot != "" {
		p := chart.Panel{Title: "Operations a second", X: chart.Axis{Label: "operations in a pipeline", Log: true},
			Y: chart.Axis{Label: "operations/s (thousands)"}}
		for i, name := range []string{"CINCRBY", "INCRBY", "the Lua recipe", "INCRBY of fbfkv"} {
			if l := t.curves[name]; l != nil {
				p.Series = append(p.Series, chart.Line(name, i, l.X, l.Y))
			}
		}
		err = errors.Join(err, chart.Write(t.plot, p))
	}
	fmt.Fprintf(t.out, "\n%d of %d goals are met.\n", t.met, t.goals)
	t.quiet.print(t.out)
	if len(t.failed) > 0 {
		err = errors.Join(err, fmt.Errorf("not everything could be measured, the rest stands:\n%w", errors.Join(t.failed...)))
	}
	return err
}

// options returns the options of one measurement.
func (t *table) options(p *process.Process, l load) options {
	o := defaultOptions()
	o.Target.URL = p.Address
	o.Workload, o.Pipeline = l.workload, l.pipeline
	o.Duration = time.Duration(t.seconds * float64(time.Second))
	o.Warmup = o.Duration / 5
	if w, err := findWorkload(l.workload); err == nil && w.keys != "" {
		o.Keys = w.keys
	}
	if l.hot {
		o.Keys, o.KeyPrefix = "hot", "hot"
	}
	if l.counters > 0 {
		o.Keys = fmt.Sprintf("uniform:%d", min(l.counters, t.ids))
	}
	return o
}

// measureGroup measures the rows of one group.
func (t *table) measureGroup(ctx context.Context, name string, group []*row) (err error) {
	defer process.Catch(&err)
	if special := group[0].measure; special != nil {
		special.run(t, ctx, group)
		return nil
	}
	var loads []load
	for _, r := range group {
		for _, l := range []load{r.ours, r.peer} {
			if !slices.ContainsFunc(loads, l.same) {
				loads = append(loads, l)
			}
		}
	}
	m := &measured{t: t, row: group[0], servers: map[string]*process.Process{}, secure: map[string]string{}}
	defer m.close()
	m.start(ctx, loads)
	results := alternate(t.rounds, len(loads), func(i int) *Result { return m.measure(ctx, loads[i]) })
	of := func(l load) []*Result { return results[slices.IndexFunc(loads, l.same)] }
	for i, l := range loads {
		for round, r := range results[i] {
			t.keep(name, l.String(), round, r)
		}
	}
	t.addToCurves(group[0], loads, results)
	for _, r := range group {
		figure, shown := throughput, func(x float64) string { return fmt.Sprintf("%.0fk/s", x/1000) }
		switch r.figure {
		case "p99":
			figure, shown = p99, short
		case "processor":
			figure, shown = (*Result).serverCPU, func(x float64) string { return fmt.Sprintf("%.2f µs", x) }
		}
		q := ratio(of(r.ours), of(r.peer), figure)
		t.emit(r, q, shown(q.A)+" and "+shown(q.B))
	}
	return nil
}

// same reports whether two loads are one measurement.
func (l load) same(m load) bool {
	return l.where() == m.where() && l.workload == m.workload && l.pipeline == m.pipeline && l.hot == m.hot && l.counters == m.counters
}

// addToCurves notes the plot's points.
func (t *table) addToCurves(r *row, loads []load, results [][]*Result) {
	if r.sync() != "everysec" || r.via != "" {
		return
	}
	for i, l := range loads {
		if t.curves[l.String()] == nil {
			t.curves[l.String()] = new(chart.Series)
		}
		c := t.curves[l.String()]
		c.X, c.Y = append(c.X, float64(l.pipeline)), append(c.Y, median(figures(results[i], throughput))/1000)
	}
}

// rowFormat are the columns of the printed table.
const rowFormat = "%-22s %-75s %-22s %-8s %-6s %-6s %s\n"

// emit prints a row.
func (t *table) emit(r *row, q Ratio, note string) {
	ok := q.Ratio >= r.goal
	goal := fmt.Sprintf(">= %.4g", r.goal)
	if r.atMost {
		ok, goal = q.Ratio <= r.goal, fmt.Sprintf("<= %.4g", r.goal)
	}
	verdict := "MISSED"
	if t.goals++; ok {
		t.met++
		verdict = "ok"
	}
	fmt.Fprintf(t.out, rowFormat, r.name, r.what(), fmt.Sprintf("%.2f (%.2f to %.2f)", q.Ratio, q.Lowest, q.Most), goal, verdict,
		fmt.Sprintf("%.0f %%", 100*q.Steal), note)
}

// rawHeader is the head of the table of single measurements.
var rawHeader = []string{"group", "what", "round", "operations_per_second", "p50_ms", "p99_ms", "max_ms", "others_percent"}

// keep keeps a measurement that counts for the table of single ones.
func (t *table) keep(group, what string, round int, r *Result) {
	row := []string{group, what, strconv.Itoa(round + 1)}
	for _, v := range []float64{r.Throughput, r.Latency.P50 * 1e3, r.Latency.P99 * 1e3, r.Latency.Max * 1e3, 100 * r.Steal} {
		row = append(row, number(v))
	}
	t.raw = append(t.raw, row)
}

func (t *table) writeCSV() error {
	if t.csv == "" {
		return nil
	}
	f, err := os.Create(t.csv)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(append([][]string{rawHeader}, t.raw...)), f.Close())
}
