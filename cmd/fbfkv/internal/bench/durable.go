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
	entries, steal := 0.0, 0.0
	for round := range t.rounds {
		t.progress.Set("recovery", false, int64(round), int64(t.rounds))
		c, err := takeQuiet(ctx, &t.quiet, func() (crash, error) { return t.crash(ctx) })
		if err != nil {
			return err
		}
		steal = max(steal, c.steal)
		t.keepStart("recovery", round, c.seconds, c.steal)
		took, allowed, entries = append(took, c.seconds), append(allowed, 2+c.gib), max(entries, c.redone)
	}
	r := Ratio{A: median(took), Ratio: median(took), Lowest: took[0], Most: took[0], Steal: steal}
	for _, s := range took {
		r.Lowest, r.Most = min(r.Lowest, s), max(r.Most, s)
	}
	t.emit(atMost("recovery", "seconds from start to answer, after kill -9 at full load, pipeline 64", median(allowed), r,
		fmt.Sprintf("up to %.0f log entries redone; every counter verified", entries)))
	return nil
}

// crash is how one start after a kill went.
type crash struct {
	seconds float64
	gib     float64 // of filters
	redone  float64 // log entries
	steal   float64 // share of the processor time that others had meanwhile
}

// crash is one round of recovery.
func (t *table) crash(ctx context.Context) (c crash, err error) {
	p, err := startFBFKV(ctx, t.fbfkv, "everysec", nil)
	if err != nil {
		return c, err
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
		return c, errors.Join(errors.New("the load ended early"), err)
	}
	p.kill()
	if c.seconds, c.steal, err = p.timeRun(ctx); err != nil {
		return c, err
	}
	if c.redone, err = p.info(ctx, "recovery_log_entries"); err != nil {
		return c, err
	}
	bytes, err := p.info(ctx, "filter_bytes")
	if err != nil {
		return c, err
	}
	c.gib = bytes / (1 << 30)
	return c, <-verified
}
