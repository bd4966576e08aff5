package bench

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
	Operations int64            `json:"operations"` // answered while measuring
	Sent       int64            `json:"sent"`       // answered in all, warm-up and end included
	Throughput float64          `json:"throughput"` // operations per second
	Latency    latency          `json:"latency"`
	Duplicates int64            `json:"duplicates,omitempty"`
	Errors     map[string]int64 `json:"errors,omitempty"` // error replies by their first word
	Retried    int64            `json:"retried,omitempty"`
	Unknown    int64            `json:"unknown,omitempty"`
	Reconnects int64            `json:"reconnects,omitempty"`
	CPU        float64          `json:"generator_cpu_seconds"`
	Steal      float64          `json:"steal,omitempty"` // share of this machine's processor time that the hypervisor gave to others
	Verified   *Verification    `json:"verified,omitempty"`
	Profile    *serverProfile   `json:"profile,omitempty"`

	Series []moment `json:"-"` // latencies over time
}

// Run sends the load and returns what it measured.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	f, err := o.frame(ctx)
	if err != nil {
		return nil, err
	}
	var before *counters
	if o.Verify {
		if before, err = readCounters(ctx, &o); err != nil {
			return nil, err
		}
	}
	r := &run{o: &o, frame: f, base: time.Now()}
	if err := r.makeWorkers(ctx); err != nil {
		return nil, err
	}
	cpu := cpuSeconds()
	stolen := watchSteal()
	began, err := r.serve(ctx)
	if err != nil {
		return nil, err
	}
	res := r.result(began)
	res.CPU = cpuSeconds() - cpu
	res.Steal = stolen()
	if o.Verify {
		if res.Verified, err = verify(ctx, &o, before, r.workers); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// frame makes the server ready and encodes the request.
func (o *Options) frame(ctx context.Context) (*frame, error) {
	c := o.Target.client()
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Target.address, err)
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
	o         *Options
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

// watch reports progress until over is closed.
func (r *run) watch(over <-chan struct{}) {
	if r.o.progress == nil {
		return
	}
	for {
		select {
		case <-over:
			return
		case <-time.After(200 * time.Millisecond):
		}
		var done int64
		for _, w := range r.workers {
			done += w.recorder.done.Load()
		}
		r.o.progress(done, time.Since(r.base))
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
	end := began
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
		end = max(end, w.recorder.last)
	}
	if res.Seconds = float64(end-began) / 1e9; res.Seconds > 0 {
		res.Throughput = float64(res.Operations) / res.Seconds
	}
	return res
}
