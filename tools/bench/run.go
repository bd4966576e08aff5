package main

import (
	"context"
	"fmt"
	"time"
)

// Result is what a run measured. Latencies are in seconds.
type Result struct {
	Target      string  `json:"target"`
	Workload    string  `json:"workload"`
	Connections int     `json:"connections"`
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
	ServerCPU  float64          `json:"server_cpu_micros,omitempty"` // for each operation, or item of a sketch
	Steal      float64          `json:"steal,omitempty"`             // share of this machine's processor time that the hypervisor gave to others
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
	err = r.serve(ctx)
	if err != nil && err != errInterrupted {
		return nil, err
	}
	res := r.result()
	res.CPU = cpuSeconds() - cpu
	res.Steal = stolen()
	res.Interrupted = err != nil
	if res.Interrupted && res.Operations+res.errorReplies() == 0 {
		return nil, err
	}
	if o.Verify && err == nil {
		if res.Verified, err = verify(ctx, &o, before, r.worker); err != nil && ctx.Err() != nil {
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
	if err := r.connect(ctx); err != nil {
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
		if s.script, err = p(ctx, c); err != nil {
			return nil, fmt.Errorf("%s cannot run the workload %s: %w", o.Target.address, o.Workload, err)
		}
	}
	e := &encoder{frame: frame{digits: digitsFor(o.keys.count()), idLen: o.format.length()}, prefix: o.KeyPrefix}
	o.workload.encode(e, s)
	return &e.frame, nil
}

// run is one run under way.
type run struct {
	o      *options
	frame  *frame
	base   time.Time
	worker *worker
}

// connect makes the worker and connects everything.
func (r *run) connect(ctx context.Context) error {
	o := r.o
	w := &worker{
		frame: r.frame, idempotent: o.workload.idempotent, base: r.base, started: r.base.UnixMilli(),
		patience: int64(o.Patience), again: o.again, share: o.RetryShare, retry: newRing(retryRing),
	}
	if o.Verify {
		w.acked, w.doubtful = make([]uint32, o.keys.count()), make([]uint32, o.keys.count())
	}
	r.worker = w
	for i := range o.Connections {
		c := newConn(w, i, o, r.frame, o.quota(i))
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
	for _, c := range r.worker.conns {
		if c.net != nil {
			c.net.Close()
		}
	}
}

// serve sends the load.
func (r *run) serve(ctx context.Context) error {
	o, w := r.o, r.worker
	start := int64(time.Since(r.base))
	serve := loop(serveEpoll)
	if o.Target.tls != nil || o.blocking {
		serve = serveBlocking
	} else {
		defer keepProcessors()()
	}
	w.recorder = newRecorder(start+int64(o.Warmup), int64(o.Interval))
	if o.Duration > 0 {
		w.end = w.recorder.began + int64(o.Duration)
	}
	if o.Rate > 0 {
		w.schedule = schedule{start: start, interval: 1e9 / o.Rate}
	}
	over := make(chan struct{})
	go r.watch(over)
	err := serve(ctx, w, &o.Target)
	close(over)
	w.recorder.flush()
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// soFar is how far a run is.
type soFar struct {
	done    int64 // operations answered
	elapsed time.Duration
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
		r.o.progress(soFar{done: r.worker.recorder.done.Load(), elapsed: time.Since(r.base)})
	}
}

// result is what the worker saw.
func (r *run) result() *Result {
	o, m, t := r.o, r.worker.recorder, &r.worker.tally
	res := &Result{
		Target: o.Target.address, Workload: o.Workload, Connections: o.Connections, Pipeline: o.Pipeline,
		Keys: o.Keys, IDs: o.IDs, Rate: o.Rate, Seed: o.Seed,
		Operations: m.total.TotalCount(), Sent: m.done.Load(), Latency: latencyOf(m.total), Series: m.series,
		Duplicates: t.duplicates, Errors: t.errors, FirstError: t.first.text, refused: t.refused,
		Retried: t.retried, Unknown: t.unknown, Reconnects: t.reconnects,
	}
	if res.Seconds = float64(m.last-m.began) / 1e9; res.Seconds > 0 {
		res.Throughput = float64(res.Operations) / res.Seconds
	}
	return res
}
