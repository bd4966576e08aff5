package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// special measures rows that are no ratio of two loads that run in turn.
type special struct {
	name string
	what func(r *row) string
	run  func(t *table, ctx context.Context, rows []*row) error
}

var processor = &special{"sketches", func(r *row) string {
	return fmt.Sprintf("pipeline 16, everysec: µs of the server's processor time an item, %s", r.ours)
}, (*table).processor}

// processor measures what an item costs the server. The loads run in turn on one server.
func (t *table) processor(ctx context.Context, rows []*row) error {
	p, err := process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec", "--filter-maxmemory", "4gb")
	if err != nil {
		return err
	}
	defer p.Close()
	for _, r := range rows { // the first load makes the sketch
		if _, err := runClean(ctx, t.options(p, r.ours)); err != nil {
			return err
		}
	}
	results, err := alternate(t.rounds, len(rows), func(i int) (*Result, error) {
		return takeQuiet(ctx, &t.quiet, func() (*Result, error) { return runMetered(ctx, p, t.options(p, rows[i].ours)) })
	})
	if err != nil {
		return err
	}
	for i, r := range rows {
		for round, result := range results[i] {
			t.keep("sketches", r.ours.String(), round, result)
		}
		cost := figures(results[i], serverCPU)
		t.emit(r, Ratio{Ratio: median(cost), Lowest: slices.Min(cost), Most: slices.Max(cost), Steal: slices.Max(figures(results[i], (*Result).stolen))},
			fmt.Sprintf("%.0fk requests/s", median(figures(results[i], throughput))/1000))
	}
	return nil
}

// runMetered is runClean, with the server's processor time.
func runMetered(ctx context.Context, p *process.Process, o options) (*Result, error) {
	w, err := findWorkload(o.Workload)
	if err != nil {
		return nil, err
	}
	before := p.CPU()
	r, err := runClean(ctx, o)
	if err == nil {
		r.ServerCPU = 1e6 * (p.CPU() - before) / float64(r.Sent) / float64(max(w.items, 1))
	}
	return r, err
}

func serverCPU(r *Result) float64 { return r.ServerCPU }

var duplicates = &special{"duplicates", func(r *row) string {
	from := "memory"
	if r.ours.runs {
		from = "runs"
	}
	return fmt.Sprintf("pipeline 16, everysec: %.0f %% duplicates, from %s, against new ones", 100*r.ours.share, from)
}, (*table).duplicates}

// duplicates compares streams of duplicates with one of new operations. In every
// round the new ones are sent first, then again from memory, and, after a SAVE has
// written them to runs, from there.
func (t *table) duplicates(ctx context.Context, rows []*row) error {
	p, err := process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec")
	if err != nil {
		return err
	}
	defer p.Close()
	base := t.options(p, rows[0].peer)
	base.format, base.Warmup = clientSeq, 0
	trial, err := runClean(ctx, base)
	if err != nil {
		return err
	}
	base.Count, base.Duration = max(trial.Operations/int64(base.Connections), 1)*int64(base.Connections), 0
	var fresh []*Result
	streams := make([][]*Result, len(rows))
	for round := range t.rounds {
		// Sent once more the same would be duplicates. The streams are of what was sent last.
		r, err := takeQuiet(ctx, &t.quiet, func() (*Result, error) {
			base.Seed = rand.Uint64()>>1 | 1
			return runClean(ctx, base)
		})
		if err != nil {
			return err
		}
		fresh = append(fresh, r)
		saved := false
		for i, row := range rows { // those from runs come last
			if row.ours.runs && !saved {
				saved = true
				if err := do(ctx, p, "SAVE"); err != nil {
					return err
				}
			}
			o := base
			o.RetryShare, o.Seed = row.ours.share, 0
			o.again = again{base.Seed, base.Count / int64(base.Connections)}
			r, err := t.quiet.run(ctx, o)
			if err != nil {
				return err
			}
			streams[i] = append(streams[i], r)
			t.keep("duplicates", row.name, round, r)
		}
	}
	for i, row := range rows {
		q := ratio(streams[i], fresh, throughput)
		t.emit(row, q, fmt.Sprintf("%.0fk/s and %.0fk/s", q.A/1000, q.B/1000))
	}
	return nil
}

var recovery = &special{"recovery", func(*row) string {
	return "seconds from start to answer, after kill -9 at full load, pipeline 64"
}, (*table).recovery}

// recovery kills the server at full load, starts it again, and takes the time until it answers.
func (t *table) recovery(ctx context.Context, rows []*row) error {
	var all []crash
	for range t.rounds {
		c, err := takeQuiet(ctx, &t.quiet, func() (crash, error) { return t.crash(ctx) })
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	t.emitStart(rows[0], all, "")
	return nil
}

// crash is how one start after a kill went.
type crash struct {
	seconds float64
	gib     float64 // of filters
	redone  float64 // log entries
	steal   float64 // share of the processor time that others had meanwhile
}

// emitStart prints a row about starts. Its goal grows with the filters.
func (t *table) emitStart(r *row, all []crash, note string) {
	var took, gib, redone, steal []float64
	for _, c := range all {
		took, gib, redone, steal = append(took, c.seconds), append(gib, c.gib), append(redone, c.redone), append(steal, c.steal)
	}
	r.goal += median(gib)
	q := Ratio{Ratio: median(took), Lowest: slices.Min(took), Most: slices.Max(took), Steal: slices.Max(steal)}
	t.emit(r, q, fmt.Sprintf("up to %.0f log entries redone%s", slices.Max(redone), note))
}

// crash is one round of recovery.
func (t *table) crash(ctx context.Context) (c crash, err error) {
	p, err := process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	o := t.options(p, cincrby(64))
	at := o.Duration * 3
	o.Warmup, o.Duration = 0, time.Hour
	ended := make(chan error, 1)
	go func() {
		_, err := runClean(ctx, o)
		ended <- err
	}()
	select {
	case <-time.After(at):
	case err := <-ended:
		return c, errors.Join(errors.New("the load ended early"), err)
	}
	c, err = restart(ctx, p)
	<-ended // with the connections
	return c, err
}

// restart ends a server as a crash would, starts it and takes the time until it answers.
func restart(ctx context.Context, p *process.Process) (c crash, err error) {
	p.Kill()
	stolen, began := watchSteal(), time.Now()
	if err := p.Run(ctx); err != nil {
		return c, err
	}
	c.seconds, c.steal = time.Since(began).Seconds(), stolen()
	if c.redone, err = info(ctx, p, "recovery_log_entries"); err != nil {
		return c, err
	}
	bytes, err := info(ctx, p, "filter_bytes")
	c.gib = bytes / (1 << 30)
	return c, err
}

var startFull = &special{"start", func(r *row) string {
	return fmt.Sprintf("seconds from start to answer, %d counters, after kill -9", r.ours.counters)
}, (*table).startFull}

// startFull fills a server with counters and ends it as a crash would. All counters
// must be there. It cannot be repeated: the next start has nothing to redo.
func (t *table) startFull(ctx context.Context, rows []*row) (err error) {
	p, err := process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	p.Wait = 10 * time.Minute
	if err := t.fill(ctx, p, rows[0].ours); err != nil {
		return err
	}
	c, err := restart(ctx, p)
	if err != nil {
		return err
	}
	client := clientOf(p)
	defer client.Close()
	n, err := client.DBSize(ctx).Result()
	if want := min(rows[0].ours.counters, t.ids); err == nil && n != want {
		err = fmt.Errorf("%d counters of %d are there", n, want)
	}
	if err != nil {
		return err
	}
	t.emitStart(rows[0], []crash{c}, "; counted")
	return nil
}

const (
	// memoryRate is the steady load of rows memory, operations per second: little
	// enough for every machine, so that the window holds what it is to hold.
	memoryRate = 200e3
	// memoryWindows is for how many windows the load goes on: in the second one the
	// filters are still as the first, in which they grew, left them.
	memoryWindows = 2.5
	// memoryBase is how long the same load goes on before, with a window of a second.
	memoryBase = 20 * time.Second
	// memorySettle is how long the runtime has to give memory back.
	memorySettle = 15 * time.Second
)

var memory = &special{"memory", func(r *row) string { return "bytes of RSS per remembered id, " + r.ours.mode }, (*table).memory}

// memory is by how much the resident memory is larger with a long window than with a
// short one under the same load, per remembered id.
func (t *table) memory(ctx context.Context, rows []*row) error {
	for _, r := range rows {
		if err := t.growth(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) growth(ctx context.Context, r *row) (err error) {
	p, err := startFBFKV(ctx, t.fbfkv, r.ours.mode, append([]string{"--appendfsync", "everysec"}, r.ours.args...)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	window := max(time.Second, time.Duration(float64(t.ids)/memoryRate*float64(time.Second)))
	before, _, err := t.rssAfter(ctx, p, time.Second, memoryBase)
	if err != nil {
		return err
	}
	after, res, err := t.rssAfter(ctx, p, window, time.Duration(memoryWindows*float64(window)))
	if err != nil {
		return err
	}
	if res.Throughput < 0.9*memoryRate {
		return fmt.Errorf("the server reached %.0f operations per second of %.0f: the window does not hold %d ids", res.Throughput, memoryRate, t.ids)
	}
	filters, err := info(ctx, p, "used_memory_filters")
	if err != nil {
		return err
	}
	ids := res.Throughput * window.Seconds()
	each := (after - before) / ids
	t.emit(r, Ratio{Ratio: each, Lowest: each, Most: each, Steal: res.Steal}, fmt.Sprintf("%d ids, of which filters %.2f", t.ids, filters/ids))
	return nil
}

// rssAfter sends a steady load into a window, and returns the server's memory once
// everything is written to disk and garbage is given back.
func (t *table) rssAfter(ctx context.Context, p *process.Process, window, length time.Duration) (rss float64, r *Result, err error) {
	if err := do(ctx, p, "CTABLE", "ALTER", "default", "WINDOW", window.Milliseconds(), "SKEW", 0); err != nil {
		return 0, nil, err
	}
	o := t.options(p, cincrby(64))
	o.Warmup, o.Rate, o.Duration = 0, memoryRate, length
	if r, err = runClean(ctx, o); err != nil {
		return 0, nil, err
	}
	if err := do(ctx, p, "SAVE"); err != nil {
		return 0, nil, err
	}
	// The least within some time: what it gives back soon is not what it needs.
	for begin := time.Now(); time.Since(begin) < memorySettle; {
		now, err := residentBytes(p.PID())
		if err != nil {
			return 0, nil, err
		}
		if rss == 0 || now < rss {
			rss = now
		}
		if process.Sleep(ctx, 500*time.Millisecond); ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
	}
	return rss, r, nil
}

// residentBytes is the resident memory of a process.
func residentBytes(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "VmRSS:")
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		kb, err := strconv.ParseFloat(fields[0], 64)
		return kb * 1024, err
	}
	return 0, errors.New("no VmRSS")
}

// clientOf returns a client for what is asked before and after a load.
func clientOf(p *process.Process) *redis.Client {
	t := Target{URL: p.Address}
	if err := t.resolve(); err != nil {
		panic(err) // an address of this package's own
	}
	return t.client()
}
