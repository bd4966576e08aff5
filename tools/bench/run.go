package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// Result is what a run measured. Latencies are in seconds.
type Result struct {
	Target      string
	Workload    string
	Connections int
	Pipeline    int
	Keys        string

	Seconds    float64
	Operations int64    // answered while measuring, without error replies
	Sent       int64    // answered in all, warm-up, end and error replies included
	Throughput float64  // operations per second, without error replies
	Latency    latency  // of the same
	Series     []moment // latencies over time
	tally
	CPU       float64 // of the generator, seconds
	ServerCPU float64 // for each operation, or item of a sketch, µs
	Steal     float64 // share of this machine's processor time that the hypervisor gave to others
	Verified  *Verification
}

// send sends the load and returns what it measured.
func send(ctx context.Context, o options) (*Result, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	r, before, err := newRun(ctx, &o)
	if err != nil {
		return nil, err
	}
	cpu := cpuSeconds()
	stolen := watchSteal()
	if err := r.serve(ctx); err != nil {
		return nil, err
	}
	res := r.result()
	res.CPU = cpuSeconds() - cpu
	res.Steal = stolen()
	if o.Verify {
		res.Verified, err = verify(ctx, &o, before, r.worker)
	}
	return res, err
}

// cpuSeconds is the processor time this process has used, user and system.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// newRun makes everything ready that is not measured. For a run with verification
// it also returns the counters as they are.
func newRun(ctx context.Context, o *options) (*run, []int64, error) {
	f, err := o.frame(ctx)
	if err != nil {
		return nil, nil, err
	}
	var before []int64
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
		return nil, fmt.Errorf("%s does not answer PING: %w", o.Target.Addr, err)
	}
	name := ""
	if p := o.workload.prepare; p != nil {
		var err error
		if name, err = p(ctx, c); err != nil {
			return nil, fmt.Errorf("%s cannot run the workload %s: %w", o.Target.Addr, o.Workload, err)
		}
	}
	return encode(o.workload.words, digitsFor(o.keys.count()), o.format.length(), o.KeyPrefix, name), nil
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
		frame: r.frame, base: r.base, started: r.base.UnixMilli(), again: o.again, share: o.RetryShare,
	}
	if o.Verify {
		w.acked = make([]uint32, o.keys.count())
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
	w.recorder = newRecorder(start+int64(o.Warmup), int64(o.Interval))
	if o.Duration > 0 {
		w.end = w.recorder.began + int64(o.Duration)
	}
	if o.Rate > 0 {
		w.schedule = schedule{start: start, interval: 1e9 / o.Rate}
	}
	err := serveEpoll(ctx, w)
	w.recorder.flush()
	return err
}

// result is what the worker saw.
func (r *run) result() *Result {
	o, m := r.o, r.worker.recorder
	res := &Result{
		Target: o.Target.Addr, Workload: o.Workload, Connections: o.Connections, Pipeline: o.Pipeline, Keys: o.Keys,
		Operations: m.total.TotalCount(), Sent: m.done, Latency: latencyOf(m.total), Series: m.series,
		tally: r.worker.tally,
	}
	if res.Seconds = float64(m.last-m.began) / 1e9; res.Seconds > 0 {
		res.Throughput = float64(res.Operations) / res.Seconds
	}
	return res
}
