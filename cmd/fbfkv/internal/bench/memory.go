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
	// memoryWindows is for how many windows the load goes on: in the second one the
	// filters are still as the first, in which they grew, left them.
	memoryWindows = 2.5
	// memoryBase is how long the same load goes on before, with a window of a second.
	memoryBase = 20 * time.Second
	// memorySettle is how long the runtime has to give memory back.
	memorySettle = 15 * time.Second
)

// memory measures what a remembered id takes in steady state.
func memory(ctx context.Context, t *table) error {
	for _, mode := range []struct {
		name string
		goal float64
	}{{"APPROX", 9}, {"EXACT", 6}} {
		if !t.wantsRow("memory-" + mode.name) {
			continue
		}
		perID, note, err := t.growth(ctx, mode.name)
		if err != nil {
			return err
		}
		t.emit(atMost("memory-"+mode.name, fmt.Sprintf("bytes of RSS per remembered id, %d ids, %s", t.ids, mode.name),
			mode.goal, Ratio{Ratio: perID, Lowest: perID, Most: perID}, note))
	}
	return nil
}

// memoryWindow is the window in which memoryRate makes the ids to remember.
func (t *table) memoryWindow() time.Duration {
	return max(time.Second, time.Duration(float64(t.ids)/memoryRate*float64(time.Second)))
}

// memoryLength is how long row memory takes, in seconds.
func (t *table) memoryLength() float64 {
	return 2 * (memoryWindows*t.memoryWindow().Seconds() + memoryBase.Seconds() + 2*memorySettle.Seconds())
}

// growth is by how much the resident memory is larger with a long window than
// with a short one under the same load, per remembered id.
func (t *table) growth(ctx context.Context, mode string) (perID float64, note string, err error) {
	// A small cache and a small buffer of records: what is configured, and does not
	// grow with the ids, is not what is asked for.
	p, err := startFBFKV(ctx, t.fbfkv, "everysec", nil, "--block-cache", "1mb", "--exact-record-memory", "8mb")
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	o := t.options(p, "cincrby", 64)
	o.Warmup, o.Rate, o.Duration = 0, memoryRate, memoryBase
	before, _, err := t.settle(ctx, p, o, mode, time.Second)
	if err != nil {
		return 0, "", err
	}
	window := t.memoryWindow()
	o.Duration = time.Duration(memoryWindows * float64(window))
	after, rate, err := t.settle(ctx, p, o, mode, window)
	if err != nil {
		return 0, "", err
	}
	if rate < 0.9*memoryRate {
		return 0, "", fmt.Errorf("the server reached %.0f operations per second of %.0f: the window does not hold %d ids", rate, memoryRate, t.ids)
	}
	filters, err := p.info(ctx, "used_memory_filters")
	if err != nil {
		return 0, "", err
	}
	ids := rate * window.Seconds()
	return (after - before) / ids, fmt.Sprintf("of which filters %.2f; a window of %v at %.0f operations/s", filters/ids, window, rate), err
}

// settle sends a load into a window, and returns the rate reached, and the
// server's memory once everything is written to disk and garbage is given back.
func (t *table) settle(ctx context.Context, p *process, o Options, mode string, window time.Duration) (rss, rate float64, err error) {
	if err := p.do(ctx, "CTABLE", "ALTER", "default", "MODE", mode, "WINDOW", window.Milliseconds(), "SKEW", 0); err != nil {
		return 0, 0, err
	}
	o.progress = func(at soFar) {
		t.progress.Set("memory", false, int64(at.elapsed), int64(o.Duration))
	}
	r, err := Run(ctx, o)
	if err != nil {
		return 0, 0, err
	}
	if len(r.Errors) > 0 {
		return 0, 0, fmt.Errorf("error replies: %v", r.Errors)
	}
	if err := p.do(ctx, "SAVE"); err != nil {
		return 0, 0, err
	}
	for begin := time.Now(); time.Since(begin) < memorySettle; {
		now, err := p.rss()
		if err != nil {
			return 0, 0, err
		}
		if rss == 0 || now < rss {
			rss = now
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return rss, r.Throughput, nil
}
