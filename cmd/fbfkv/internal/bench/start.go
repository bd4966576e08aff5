package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Filling a server and starting it again: how long the start may take before
// the measurement is given up, and how deep the pipelines of the fill are.
const (
	startPatience = 10 * time.Minute
	fillPipeline  = 256
)

// startMany fills a server with counters, ends it as a crash would and then in
// order, and takes the time from each start to the first answer.
func startMany(ctx context.Context, t *table) (err error) {
	p, err := startFBFKV(ctx, t.fbfkv, "everysec", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	p.patience = startPatience
	filled, err := t.fillCounters(ctx, p)
	if err != nil {
		return err
	}
	p.kill()
	if err := t.timeStart(ctx, p, "start-kill", "after kill -9 at full load", filled); err != nil {
		return err
	}
	began := time.Now()
	if err := p.stop(ctx); err != nil {
		return err
	}
	return t.timeStart(ctx, p, "start-order", "after an orderly stop", fmt.Sprintf("which took %s", short(time.Since(began).Seconds())))
}

// fillCounters makes every counter with one operation, and says how fast.
func (t *table) fillCounters(ctx context.Context, p *process) (note string, err error) {
	o := t.options(p, "cincrby", fillPipeline)
	o.Warmup, o.Duration, o.Count, o.Keys = 0, 0, int64(t.counters), fmt.Sprintf("sequence:%.0f", t.counters)
	o.progress = func(s soFar) { t.progress.Set("filling", false, s.done, o.Count) }
	r, err := Run(ctx, o)
	if err != nil {
		return "", err
	}
	if len(r.Errors) > 0 || r.Unknown > 0 {
		return "", fmt.Errorf("filling: error replies %v, %d outcomes unknown", r.Errors, r.Unknown)
	}
	return fmt.Sprintf("filled at %.0fk operations/s", r.Throughput/1e3), nil
}

// timeStart starts the server and takes the time to its first answer. All
// counters must be there.
func (t *table) timeStart(ctx context.Context, p *process, row, what, note string) error {
	t.progress.Set(row, false, 0, 1)
	seconds, steal, err := p.timeRun(ctx)
	if err != nil {
		return err
	}
	t.keepStart(row, 0, seconds, steal) // it cannot be repeated: the next start has nothing to redo
	c := p.target.client()
	defer c.Close()
	n, err := c.DBSize(ctx).Result()
	if err != nil {
		return err
	}
	if n != int64(t.counters) {
		return fmt.Errorf("%s: %d counters of %.0f are there", row, n, t.counters)
	}
	filter, err := p.info(ctx, "filter_bytes")
	if err != nil {
		return err
	}
	redone, err := p.info(ctx, "recovery_log_entries")
	if err != nil {
		return err
	}
	t.emit(atMost(row, fmt.Sprintf("seconds from start to answer, %s counters, %s", tickLabel(t.counters), what), 2+filter/(1<<30),
		Ratio{Ratio: seconds, Lowest: seconds, Most: seconds, Steal: steal}, fmt.Sprintf("%s; %.0f log entries redone; counted", note, redone)))
	return nil
}
