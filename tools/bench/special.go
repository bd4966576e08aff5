package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// special measures rows that are no ratio of two loads that run in turn.
type special struct {
	name string
	what func(r *row) string
	run  func(t *table, ctx context.Context, rows []*row)
}

var processor = &special{"sketches", func(r *row) string {
	return fmt.Sprintf("pipeline 16, everysec: µs of the server's processor time an item, %s", r.ours)
}, (*table).processor}

// processor measures what an item costs the server. The loads run in turn on one server.
func (t *table) processor(ctx context.Context, rows []*row) {
	p := process.Must(process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec", "--filter-maxmemory", "4gb"))
	defer p.Close()
	for _, r := range rows { // the first load makes the sketch
		process.Must(runClean(ctx, t.options(p, r.ours)))
	}
	results := alternate(t.rounds, len(rows), func(i int) *Result {
		return takeQuiet(ctx, &t.quiet, func() *Result { return runMetered(ctx, p, t.options(p, rows[i].ours)) })
	})
	for i, r := range rows {
		for round, result := range results[i] {
			t.keep("sketches", r.ours.String(), round, result)
		}
		cost := figures(results[i], (*Result).serverCPU)
		t.emit(r, ratioOf(cost, slices.Max(figures(results[i], (*Result).stolen))),
			fmt.Sprintf("%.0fk requests/s", median(figures(results[i], throughput))/1000))
	}
}

// ratioOf shows a single figure as a ratio is shown.
func ratioOf(values []float64, steal float64) Ratio {
	return Ratio{Ratio: median(values), Lowest: slices.Min(values), Most: slices.Max(values), Steal: steal}
}

// runMetered runs a load, and takes the server's processor time.
func runMetered(ctx context.Context, p *process.Process, o options) *Result {
	w, before := process.Must(findWorkload(o.Workload)), p.CPU()
	r := process.Must(runClean(ctx, o))
	r.ServerCPU = 1e6 * (p.CPU() - before) / float64(r.Sent) / float64(max(w.items, 1))
	return r
}

var duplicates = &special{"duplicates", func(r *row) string {
	from := "memory"
	if r.ours.runs {
		from = "runs"
	}
	return fmt.Sprintf("pipeline 16, everysec: %.0f %% duplicates, from %s, against new ones", 100*r.ours.share, from)
}, (*table).duplicates}

// duplicates compares streams of duplicates with one of new operations. In every round the new ones are
// sent first, then again from memory, and, after a SAVE has written them to runs, from there.
func (t *table) duplicates(ctx context.Context, rows []*row) {
	p := process.Must(process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec"))
	defer p.Close()
	base := t.options(p, rows[0].peer)
	base.format, base.Warmup = clientSeq, 0
	trial := process.Must(runClean(ctx, base))
	base.Count, base.Duration = max(trial.Operations/int64(base.Connections), 1)*int64(base.Connections), 0
	var fresh []*Result
	streams := make([][]*Result, len(rows))
	for round := range t.rounds {
		// Sent once more the same would be duplicates. The streams repeat the operations sent last.
		fresh = append(fresh, takeQuiet(ctx, &t.quiet, func() *Result {
			base.Seed = rand.Uint64()>>1 | 1
			return process.Must(runClean(ctx, base))
		}))
		saved := false
		for i, row := range rows { // those from runs come last
			if row.ours.runs && !saved {
				saved = true
				do(ctx, p, "SAVE")
			}
			o := base
			o.RetryShare, o.Seed = row.ours.share, 0
			o.again = again{base.Seed, base.Count / int64(base.Connections)}
			r := t.quiet.run(ctx, o)
			streams[i] = append(streams[i], r)
			t.keep("duplicates", row.name, round, r)
		}
	}
	for i, row := range rows {
		q := ratio(streams[i], fresh, throughput)
		t.emit(row, q, fmt.Sprintf("%.0fk/s and %.0fk/s", q.A/1000, q.B/1000))
	}
}

var recovery = &special{"recovery", func(*row) string {
	return "seconds from start to answer, after kill -9 at full load, pipeline 64"
}, (*table).recovery}

// recovery kills the server at full load, starts it again, and takes the time until it answers.
func (t *table) recovery(ctx context.Context, rows []*row) {
	var all []crash
	for range t.rounds {
		all = append(all, takeQuiet(ctx, &t.quiet, func() crash { return t.crash(ctx) }))
	}
	t.emitStart(rows[0], all)
}

// crash is how one start after a kill went.
type crash struct {
	seconds float64
	gib     float64 // of filters
	redone  float64 // log entries
	steal   float64 // share of the processor time that others had meanwhile
}

// emitStart prints a row about starts. Its goal grows with the filters.
func (t *table) emitStart(r *row, all []crash) {
	var took, gib, redone, steal []float64
	for _, c := range all {
		took, gib, redone, steal = append(took, c.seconds), append(gib, c.gib), append(redone, c.redone), append(steal, c.steal)
	}
	r.goal += median(gib)
	t.emit(r, ratioOf(took, slices.Max(steal)), fmt.Sprintf("up to %.0f log entries redone", slices.Max(redone)))
}

// crash is one round of recovery.
func (t *table) crash(ctx context.Context) crash {
	p := process.Must(process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec"))
	defer p.Close()
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
		process.Check(errors.Join(errors.New("the load ended early"), err))
	}
	c := restart(ctx, p)
	<-ended // with the connections
	return c
}

// restart ends a server as a crash would, starts it and takes the time until it answers.
func restart(ctx context.Context, p *process.Process) (c crash) {
	p.Kill()
	stolen, began := watchSteal(), time.Now()
	process.Check(p.Run(ctx))
	c.seconds, c.steal = time.Since(began).Seconds(), stolen()
	c.redone, c.gib = info(ctx, p, "recovery_log_entries"), info(ctx, p, "filter_bytes")/(1<<30)
	return c
}

var startFull = &special{"start", func(r *row) string {
	if r.after > 0 {
		return fmt.Sprintf("pipeline 16, everysec: %s, %v after a start, against before", r.ours, r.after)
	}
	return fmt.Sprintf("seconds from start to answer, %d counters, after kill -9", r.ours.counters)
}, (*table).startFull}

// startFull fills a server with counters and ends it as a crash would. All counters
// must be there. It cannot be repeated: the next start has nothing to redo. Then it goes on
// with the load, which the counters come into memory beside.
func (t *table) startFull(ctx context.Context, rows []*row) {
	p := process.Must(process.FBFKV(ctx, t.fbfkv, slices.Concat(rows[0].ours.args, []string{"--appendfsync", "everysec"})...))
	defer p.Close()
	p.Wait = 10 * time.Minute
	t.fill(ctx, p, rows[0].ours)
	o := t.options(p, rows[0].ours)
	before := []*Result{runMetered(ctx, p, o)}
	c, began := restart(ctx, p), time.Now()
	if n, want := do(ctx, p, "DBSIZE"), min(rows[0].ours.counters, t.ids); n != want {
		process.Check(fmt.Errorf("%d counters of %d are there", n, want))
	}
	for _, r := range rows {
		if r.after == 0 {
			t.emitStart(r, []crash{c})
			continue
		}
		o.Warmup = time.Until(began.Add(r.after))
		q := ratio([]*Result{runMetered(ctx, p, o)}, before, throughput)
		t.emit(r, q, fmt.Sprintf("%.0fk/s and %.0fk/s", q.A/1000, q.B/1000))
	}
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

// memory is by how much the resident memory is larger with a long window than with a short one under the same load, per
// remembered id.
func (t *table) memory(ctx context.Context, rows []*row) {
	for _, r := range rows {
		p := startFBFKV(ctx, t.fbfkv, r.ours.mode, append([]string{"--appendfsync", "everysec"}, r.ours.args...)...)
		defer p.Close()
		window := max(time.Second, time.Duration(float64(t.ids)/memoryRate*float64(time.Second)))
		before, _ := t.rssAfter(ctx, p, time.Second, memoryBase)
		after, res := t.rssAfter(ctx, p, window, time.Duration(memoryWindows*float64(window)))
		if res.Throughput < 0.9*memoryRate {
			process.Check(fmt.Errorf("the server reached %.0f operations per second of %.0f: the window does not hold %d ids",
				res.Throughput, memoryRate, t.ids))
		}
		ids := res.Throughput * window.Seconds()
		t.emit(r, ratioOf([]float64{(after - before) / ids}, res.Steal),
			fmt.Sprintf("%d ids, of which filters %.2f", t.ids, info(ctx, p, "used_memory_filters")/ids))
		process.Check(p.Close())
	}
}

// rssAfter sends a steady load into a window, and returns the server's memory once everything is written to disk and
// garbage is given back.
func (t *table) rssAfter(ctx context.Context, p *process.Process, window, length time.Duration) (rss float64, r *Result) {
	do(ctx, p, "CTABLE", "ALTER", "default", "WINDOW", window.Milliseconds(), "SKEW", 0)
	o := t.options(p, cincrby(64))
	o.Warmup, o.Rate, o.Duration = 0, memoryRate, length
	r = process.Must(runClean(ctx, o))
	do(ctx, p, "SAVE")
	// The least within some time: what it gives back soon is not what it needs.
	rss = residentBytes(p.PID())
	for begin := time.Now(); time.Since(begin) < memorySettle; process.Sleep(ctx, 500*time.Millisecond) {
		process.Check(ctx.Err())
		rss = min(rss, residentBytes(p.PID()))
	}
	return rss, r
}

// residentBytes is the resident memory of a process.
func residentBytes(pid int) (kb float64) {
	_, rest, _ := strings.Cut(string(process.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))), "VmRSS:")
	_ = process.Must(fmt.Sscan(rest, &kb))
	return kb * 1024
}
