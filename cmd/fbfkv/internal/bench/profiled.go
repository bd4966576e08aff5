package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/cpuprofile"
)

// A load that is profiled runs a little before and after its profile is taken.
const (
	profileLead = 200 * time.Millisecond
	profileTail = 300 * time.Millisecond
)

// profileLoad runs a load for as long as a profile of the server takes, some
// whole seconds, and says what the processors did meanwhile. What it measures
// besides is not looked at: taking a profile costs a little.
func profileLoad(ctx context.Context, p *process, o Options, seconds int) (s spent, sent int64, err error) {
	o.Duration = time.Duration(seconds)*time.Second + profileLead + profileTail
	o.Warmup, o.Count = 0, 0
	type outcome struct {
		r   *Result
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan outcome, 1)
	go func() {
		r, err := Run(ctx, o)
		over <- outcome{r, err}
	}()
	s, err = profileNow(ctx, p, seconds)
	if err != nil {
		cancel()
	}
	load := <-over
	if err = errors.Join(err, load.err); err != nil {
		return s, 0, fmt.Errorf("while profiling: %w", err)
	}
	if len(load.r.Errors) > 0 {
		return s, 0, fmt.Errorf("while profiling: error replies: %v", load.r.Errors)
	}
	if load.r.Throughput > 0 {
		s.perOp = 1e6 * s.server() * float64(runtime.NumCPU()) / load.r.Throughput
	}
	return s, load.r.Sent, nil
}

// profileNow takes the profile once the load runs.
func profileNow(ctx context.Context, p *process, seconds int) (s spent, err error) {
	select {
	case <-ctx.Done():
		return s, ctx.Err()
	case <-time.After(profileLead):
	}
	before, err := usageOf(p)
	if err != nil {
		return s, err
	}
	raw, profile, err := cpuprofile.Fetch(ctx, p.web, seconds)
	if err != nil {
		return s, err
	}
	after, err := usageOf(p)
	if err != nil {
		return s, err
	}
	shares, err := cpuprofile.Attribute(profile)
	if err != nil {
		return s, err
	}
	s = divideUsage(after.since(before), shares)
	s.raw = raw
	return s, nil
}
