package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// recovery kills the server at full load, starts it again, and takes the time
// until it answers. The generator goes on as clients do, with the same opids,
// and every counter must be right in the end.
func recovery(ctx context.Context, t *table) error {
	var took, allowed []float64
	entries := 0.0
	for round := range t.rounds {
		t.progress.Set("recovery", false, int64(round), int64(t.rounds))
		seconds, gib, redone, err := t.crash(ctx)
		if err != nil {
			return err
		}
		took, allowed, entries = append(took, seconds), append(allowed, 2+gib), max(entries, redone)
	}
	r := Ratio{A: median(took), Ratio: median(took), Lowest: took[0], Most: took[0]}
	for _, s := range took {
		r.Lowest, r.Most = min(r.Lowest, s), max(r.Most, s)
	}
	t.emit(atMost("recovery", "seconds from start to answer, after kill -9 at full load, pipeline 64", median(allowed), r,
		fmt.Sprintf("up to %.0f log entries redone; every counter verified", entries)))
	return nil
}

// crash is one round of recovery.
func (t *table) crash(ctx context.Context) (seconds, gib, redone float64, err error) {
	p, err := startFBFKV(ctx, t.fbfkv, "everysec", nil)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	o := t.options(p, "cincrby", 64)
	o.Warmup, o.Verify, o.Duration = 0, true, 4*o.Duration
	verified := make(chan error, 1)
	go func() {
		r, err := Run(ctx, o)
		if err == nil {
			err = r.Verified.Err()
		}
		if err == nil && r.Reconnects == 0 {
			err = errors.New("the load was over before the server was killed")
		}
		verified <- err
	}()
	select {
	case <-time.After(o.Duration * 3 / 4):
	case err := <-verified:
		return 0, 0, 0, errors.Join(errors.New("the load ended early"), err)
	}
	p.kill()
	began := time.Now()
	if err := p.run(ctx); err != nil {
		return 0, 0, 0, err
	}
	seconds = time.Since(began).Seconds()
	if redone, err = p.info(ctx, "recovery_log_entries"); err != nil {
		return 0, 0, 0, err
	}
	if gib, err = p.info(ctx, "filter_bytes"); err != nil {
		return 0, 0, 0, err
	}
	return seconds, gib / (1 << 30), redone, <-verified
}

// memory fills a window and sees how the server grows with each id.
func memory(ctx context.Context, t *table) error {
	for _, mode := range []struct {
		name string
		goal float64
	}{{"APPROX", 9}, {"EXACT", 6}} {
		perID, note, err := t.growth(ctx, mode.name)
		if err != nil {
			return err
		}
		t.emit(atMost("memory-"+mode.name, fmt.Sprintf("bytes of RSS per remembered id, %d ids, %s", t.ids, mode.name),
			mode.goal, Ratio{Ratio: perID, Lowest: perID, Most: perID}, note))
	}
	return nil
}

// growth is by how much the resident memory grows per remembered id.
func (t *table) growth(ctx context.Context, mode string) (perID float64, note string, err error) {
	// The smallest cache, since caches are not what is asked for.
	p, err := startFBFKV(ctx, t.fbfkv, "everysec", nil, "--block-cache", "1mb")
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.do(ctx, "CTABLE", "ALTER", "default", "MODE", mode, "WINDOW", 3600_000); err != nil {
		return 0, "", err
	}
	o := t.options(p, "cincrby", 64)
	o.Warmup, o.Duration, o.IDs, o.Count = 0, 0, "client-seq", 100_000
	before, err := t.settle(ctx, p, o)
	if err != nil {
		return 0, "", err
	}
	o.Count = t.ids
	after, err := t.settle(ctx, p, o)
	if err != nil {
		return 0, "", err
	}
	filters, err := p.info(ctx, "used_memory_filters")
	if err != nil {
		return 0, "", err
	}
	disk, err := p.info(ctx, "disk_bytes")
	return (after - before) / float64(t.ids), fmt.Sprintf("of which filter %.2f; disk %.1f bytes per id", filters/float64(t.ids), disk/float64(t.ids)), err
}

// settle sends a load, and returns the server's memory once it is written to
// disk and garbage is given back.
func (t *table) settle(ctx context.Context, p *process, o Options) (rss float64, err error) {
	o.progress = func(done int64, _ time.Duration) { t.progress.Set("memory", false, done, o.Count) }
	r, err := Run(ctx, o)
	if err != nil {
		return 0, err
	}
	if len(r.Errors) > 0 {
		return 0, fmt.Errorf("error replies: %v", r.Errors)
	}
	if err := p.do(ctx, "SAVE"); err != nil {
		return 0, err
	}
	// The runtime gives memory back over some seconds.
	for begin := time.Now(); time.Since(begin) < 15*time.Second; {
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
