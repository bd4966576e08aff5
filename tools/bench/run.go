package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Result is what a run measured. Latencies are in seconds.
type Result struct {
	Target      string  `json:"target"`
	Workload    string  `json:"workload"`
	Connections int     `json:"connections"`
	Threads     int     `json:"threads"`
	Pipeline    int     `json:"pipeline"`
	Keys        string  `json:"keys"`
	IDs         string  `json:"ids"`
	Rate        float64 `json:"rate,omitempty"` // operations per second that were to be sent
	Seed        uint64  `json:"seed"`

	Seconds    float64          `json:"seconds"`
	Operations int64            `json:"operations"` // answered while measuring, without error replies
	Sent       int64            `json:"sent"`       // answered in all, warm-up, end and error replies included
	Throughput float64          `json:"throughput"` // operations per second, without error replies
	Latency    latency          `json:"latency"`    // of the same
	Duplicates int64            `json:"duplicates,omitempty"`
	Errors     map[string]int64 `json:"errors,omitempty"`      // error replies in all, by their first word
	FirstError string           `json:"first_error,omitempty"` // its text
	Retried    int64            `json:"retried,omitempty"`
	Unknown    int64            `json:"unknown,omitempty"`
	Reconnects int64            `json:"reconnects,omitempty"`
	CPU        float64          `json:"generator_cpu_seconds"`
	Steal      float64          `json:"steal,omitempty"` // share of this machine's processor time that the hypervisor gave to others
	// Interrupted says that the load was ended early: the figures are of the time until then.
	Interrupted bool          `json:"interrupted,omitempty"`
	Verified    *Verification `json:"verified,omitempty"`

	Series  []moment `json:"-"` // latencies over time
	refused int64    // error replies after which an operation is not sent again
}

// send sends the load and returns what it measured. If that is interrupted, it
// returns what was measured until then, if anything, and errInterrupted.
func send(ctx context.Context, o options) (*Result, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	r, before, err := newRun(ctx, &o)
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, err
	}
	cpu := cpuSeconds()
	stolen := watchSteal()
	began, err := r.serve(ctx)
	if err != nil && err != errInterrupted {
		return nil, err
	}
	res := r.result(began)
	res.CPU = cpuSeconds() - cpu
	res.Steal = stolen()
	res.Interrupted = err != nil
	if res.Interrupted && res.Operations+res.errorReplies() == 0 {
		return nil, err
	}
	if o.Verify && err == nil {
		if res.Verified, err = verify(ctx, &o, before, r.workers); err != nil && ctx.Err() != nil {
			err, res.Interrupted = errInterrupted, true
		}
	}
	return res, err
}

// newRun makes everything ready that is not measured. If the run is to be verified,
// it also returns the counters as they are.
func newRun(ctx context.Context, o *options) (*run, *counters, error) {
	f, err := o.frame(ctx)
	if err != nil {
		return nil, nil, err
	}
	var before *counters
	if o.Verify {
		if before, err = readCounters(ctx, o); err != nil {
			return nil, nil, err
		}
	}
	r := &run{o: o, frame: f, base: time.Now()}
	if err := r.makeWorkers(ctx); err != nil {
		return nil, nil, err
	}
	return r, before, nil
}

// frame makes the server ready and encodes the request.
func (o *options) frame(ctx context.Context) (*frame, error) {
	c := o.Target.client()
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("%s does not answer PING: %w", o.Target.address, err)
	}
	s := setup{prefix: o.KeyPrefix, window: o.Window}
	if p := o.workload.prepare; p != nil {
		var err error
		if s.script, err = p(ctx, c, s); err != nil {
			return nil, fmt.Errorf("%s cannot run the workload %s: %w", o.Target.address, o.Workload, err)
		}
	}
	e := &encoder{frame: frame{digits: digitsFor(o.keys.count()), idLen: o.format.length()}, prefix: o.KeyPrefix}
	o.workload.encode(e, s)
	return &e.frame, nil
}

// run is one run under way.
type run struct {
	o         *options
	frame     *frame
	base      time.Time
	workers   []*worker
	collector *collector
}

// makeWorkers connects everything.
func (r *run) makeWorkers(ctx context.Context) error {
	o := r.o
	r.collector = newCollector(o.Threads, int64(o.Interval))
	for range o.Threads {
		w := &worker{
			frame: r.frame, idempotent: o.workload.idempotent, base: r.base, started: r.base.UnixMilli(),
			patience: int64(o.Patience), again: o.again, share: o.RetryShare, delay: int64(o.RetryDelay),
			copies: newRing(copyRing), retry: newRing(retryRing),
		}
		if o.Verify {
			w.acked, w.doubtful = make([]uint32, o.keys.count()), make([]uint32, o.keys.count())
		}
		r.workers = append(r.workers, w)
	}
	for i := range o.Connections {
		w := r.workers[i%o.Threads]
		c := newConn(w, i, o, r.frame, o.quota(i))
		c.index = len(w.conns)
		w.conns = append(w.conns, c)
		var err error
		if c.net, err = o.Target.dial(ctx); err != nil {
			r.close()
			return err
		}
	}
	return nil
}

// close closes the connections of a run that does not begin.
func (r *run) close() {
	for _, w := range r.workers {
		for _, c := range w.conns {
			if c.net != nil {
				c.net.Close()
			}
		}
	}
	r.collector.finish()
}

// serve runs the workers, and returns when the measurement began, on the run's
// clock.
func (r *run) serve(parent context.Context) (began int64, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	o := r.o
	start := int64(time.Since(r.base))
	began = start + int64(o.Warmup)
	serve := loop(serveEpoll)
	if o.Target.tls != nil || o.Loop == "goroutines" {
		serve = serveBlocking
	} else {
		defer keepProcessors(o.Threads)()
	}
	errs := make([]error, len(r.workers))
	var all sync.WaitGroup
	for i, w := range r.workers {
		w.recorder = r.collector.recorder(began)
		if o.Duration > 0 {
			w.end = began + int64(o.Duration)
		}
		if o.Rate > 0 {
			interval := 1e9 / o.Rate
			w.schedule = schedule{start: start + int64(float64(i)*interval), interval: interval * float64(o.Threads)}
		}
		all.Go(func() {
			errs[i] = serve(ctx, w, &o.Target)
			if errs[i] != nil {
				cancel()
			}
			w.recorder.flush()
		})
	}
	over := make(chan struct{})
	go r.watch(over)
	all.Wait()
	close(over)
	r.collector.finish()
	if parent.Err() != nil {
		return began, errInterrupted
	}
	for _, err := range errs {
		// When one worker fails, the others are cancelled.
		if err != nil && !errors.Is(err, context.Canceled) {
			return began, err
		}
	}
	return began, nil
}

// soFar is how far a run is.
type soFar struct {
	done    int64 // operations answered
	failed  int64 // of them, with an error
	elapsed time.Duration
	p99     float64 // latency in seconds, of all that was measured until the last interval ended; 0 before
}

// watch reports progress until over is closed.
func (r *run) watch(over <-chan struct{}) {
	if r.o.progress == nil {
		return
	}
	for {
		select {
		case <-over:
			return
		case <-time.After(progressPeriod):
		}
		s := soFar{elapsed: time.Since(r.base), p99: float64(r.collector.p99.Load()) / 1e9}
		for _, w := range r.workers {
			s.done += w.recorder.done.Load()
			s.failed += w.recorder.failed.Load()
		}
		r.o.progress(s)
	}
}

// result adds up what the workers saw.
func (r *run) result(began int64) *Result {
	o := r.o
	res := &Result{
		Target: o.Target.address, Workload: o.Workload, Connections: o.Connections, Threads: o.Threads, Pipeline: o.Pipeline,
		Keys: o.Keys, IDs: o.IDs, Rate: o.Rate, Seed: o.Seed,
		Operations: r.collector.total.TotalCount(), Latency: latencyOf(r.collector.total), Series: r.collector.series,
	}
	end, first := began, failure{}
	for _, w := range r.workers {
		res.Sent += w.recorder.done.Load()
		t := &w.tally
		res.Duplicates += t.duplicates
		res.Retried += t.retried
		res.Unknown += t.unknown
		res.Reconnects += t.reconnects
		for code, n := range t.errors {
			if res.Errors == nil {
				res.Errors = map[string]int64{}
			}
			res.Errors[code] += n
		}
		res.refused += t.refused
		first = first.or(t.first)
		end = max(end, w.recorder.last)
	}
	res.FirstError = first.text
	if res.Seconds = float64(end-began) / 1e9; res.Seconds > 0 {
		res.Throughput = float64(res.Operations) / res.Seconds
	}
	return res
}
