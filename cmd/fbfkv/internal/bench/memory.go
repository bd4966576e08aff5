package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// memoryRate is the steady load of row memory, operations per second: little
	// enough for every machine, so that the window holds what it is to hold.
	memoryRate = 200e3
	// memoryCounters are changed evenly.
	memoryCounters = 10_000
	// memoryWindows is for how many windows the load goes on: in the second one the
	// filters are still as the first, in which they grew, left them.
	memoryWindows = 2.5
	// memoryBase is how long the same load goes on before, with a window of a second.
	memoryBase = 20 * time.Second
	// memorySettle is how long the runtime has to give memory back.
	memorySettle = 15 * time.Second
)

// memoryCase is one way to remember, whose memory is measured.
type memoryCase struct {
	row, mode, what string
	args            []string // of the server
	goal            float64
	disk            bool // what it writes is measured as well
}

// memoryCases are all ways. Pebble's cache and the buffer of records, which do not grow
// with the ids, are small but in one case.
var memoryCases = []memoryCase{
	{row: "memory-APPROX", mode: "APPROX", what: "APPROX", args: []string{"--cache-memory", "2mb"}, goal: 9},
	{row: "memory-EXACT", mode: "EXACT", what: "EXACT, cache memory 8mb", args: []string{"--cache-memory", "8mb"}, goal: 6},
	{row: "memory-EXACT-default", mode: "EXACT", what: "EXACT, default cache memory", goal: 6, disk: true},
}

const memoryRedis = "memory-redis"

// memoryRows are the rows of this experiment.
func memoryRows() (names []string) {
	for _, c := range memoryCases {
		names = append(names, c.row)
	}
	return append(names, memoryRedis, diskRow, writesRow)
}

// wantsCase reports whether any row of a case is asked for.
func (t *table) wantsCase(c memoryCase) bool {
	return t.wantsRow(c.row) || c.disk && t.wantsAny(diskRow, writesRow)
}

// memory measures what a remembered id takes in steady state, in memory and on disk.
func memory(ctx context.Context, t *table) error {
	for _, c := range memoryCases {
		if !t.wantsCase(c) {
			continue
		}
		if err := t.growth(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.row, err)
		}
	}
	if !t.wantsRow(memoryRedis) {
		return nil
	}
	return t.redisMemory(ctx)
}

// memoryWindow is the window in which memoryRate makes the ids to remember.
func (t *table) memoryWindow() time.Duration {
	return max(time.Second, time.Duration(float64(t.ids)/memoryRate*float64(time.Second)))
}

// memoryLength is how long row memory takes, in seconds.
func (t *table) memoryLength() float64 {
	seconds := 0.0
	for _, c := range memoryCases {
		if t.wantsCase(c) {
			seconds += memoryWindows*t.memoryWindow().Seconds() + memoryBase.Seconds() + 2*memorySettle.Seconds()
		}
	}
	if t.wantsRow(memoryRedis) {
		seconds += 2*redisSettle.Seconds() + 10
	}
	return seconds
}

// growth is by how much the resident memory is larger with a long window than
// with a short one under the same load, per remembered id.
func (t *table) growth(ctx context.Context, c memoryCase) (err error) {
	p, err := startFBFKV(ctx, t.fbfkv, "everysec", nil, c.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	o := t.options(p, "cincrby", 64)
	o.Keys, o.Warmup, o.Rate, o.Duration = uniform(memoryCounters), 0, memoryRate, memoryBase
	before, _, err := t.settle(ctx, p, o, c.mode, time.Second)
	if err != nil {
		return err
	}
	window := t.memoryWindow()
	o.Duration = time.Duration(memoryWindows * float64(window))
	disk := func() (diskUse, error) { return diskUse{}, nil }
	if c.disk {
		disk = watchDisk(ctx, p, time.Duration((memoryWindows-1)*float64(window)), window)
	}
	after, r, err := t.settle(ctx, p, o, c.mode, window)
	used, err2 := disk()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if r.Throughput < 0.9*memoryRate {
		return fmt.Errorf("the server reached %.0f operations per second of %.0f: the window does not hold %d ids", r.Throughput, memoryRate, t.ids)
	}
	filters, err := p.info(ctx, "used_memory_filters")
	if err != nil {
		return err
	}
	ids := r.Throughput * window.Seconds()
	t.emit(atMost(c.row, fmt.Sprintf("bytes of RSS per remembered id, %d ids, %s", t.ids, c.what), c.goal, single((after-before)/ids, r.Steal),
		fmt.Sprintf("of which filters %.2f; a window of %v at %.0f operations/s", filters/ids, window, r.Throughput)))
	if c.disk {
		t.emitDisk(used, o, ids, r.Steal)
	}
	return nil
}

// single is a figure that was measured once.
func single(v, steal float64) Ratio { return Ratio{A: v, Ratio: v, Lowest: v, Most: v, Steal: steal} }

// settle sends a load into a window, and returns what it measured, and the
// server's memory once everything is written to disk and garbage is given back.
func (t *table) settle(ctx context.Context, p *process, o Options, mode string, window time.Duration) (rss float64, r *Result, err error) {
	if err := p.do(ctx, "CTABLE", "ALTER", "default", "MODE", mode, "WINDOW", window.Milliseconds(), "SKEW", 0); err != nil {
		return 0, nil, err
	}
	o.progress = func(at soFar) {
		t.progress.Set("memory", false, int64(at.elapsed), int64(o.Duration))
	}
	r, err = Run(ctx, o)
	if err != nil {
		return 0, nil, err
	}
	if len(r.Errors) > 0 {
		return 0, nil, fmt.Errorf("error replies: %v", r.Errors)
	}
	if err := p.do(ctx, "SAVE"); err != nil {
		return 0, nil, err
	}
	rss, err = p.leastRSS(ctx, memorySettle)
	return rss, r, err
}

// leastRSS is the least resident memory that the server has within some time: what it
// gives back soon is not what it needs.
func (p *process) leastRSS(ctx context.Context, within time.Duration) (rss float64, err error) {
	for begin := time.Now(); time.Since(begin) < within; {
		now, err := p.rss()
		if err != nil {
			return 0, err
		}
		if rss == 0 || now < rss {
			rss = now
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return rss, nil
}

// The ids that Redis is to remember at most, what it takes for each being always the
// same, and how long its memory is looked at.
const (
	redisIDs    = 2_000_000
	redisSettle = 5 * time.Second
)

// redisUse is the memory of a Redis at rest: what is resident, and its own account.
func (p *process) redisUse(ctx context.Context) (rss, used float64, err error) {
	if rss, err = p.leastRSS(ctx, redisSettle); err == nil {
		used, err = p.info(ctx, "used_memory")
	}
	return rss, used, err
}

// redisMemory measures what Redis takes for the recipe's key of an id.
func (t *table) redisMemory(ctx context.Context) (err error) {
	p, err := startRedis(ctx, t.redis, "everysec", t.redisArgs...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	before, used, err := p.redisUse(ctx)
	if err != nil {
		return err
	}
	o := t.options(p, "setnx", 64)
	o.Warmup, o.Duration, o.Count, o.Window = 0, 0, max(int64(o.Connections), min(t.ids, redisIDs)), time.Hour
	t.progress.Set(memoryRedis, false, 0, 1)
	r, err := runClean(ctx, o)
	if err != nil {
		return err
	}
	after, usedAfter, err := p.redisUse(ctx)
	if err != nil {
		return err
	}
	ids := float64(r.Operations)
	t.emit(noGoal(memoryRedis, fmt.Sprintf("bytes of RSS per id, Redis' SET id NX EX, %.0f ids of %d bytes", ids, uuidv7.length()), single((after-before)/ids, r.Steal),
		fmt.Sprintf("by its own account %.0f (used_memory)", (usedAfter-used)/ids)))
	return nil
}
