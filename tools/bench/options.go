package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// options say what to send. prepare checks them.
type options struct {
	Target   Target
	Workload string

	Connections int
	Pipeline    int // operations in flight per connection
	Keys        string
	KeyPrefix   string

	Duration time.Duration // of the measurement; 0 for no limit but Count
	Count    int64         // operations to send; 0 for no limit but Duration
	Warmup   time.Duration // sent before it, and not measured
	Rate     float64       // operations per second of an open loop; 0 for a closed one
	Interval time.Duration // of the latencies over time
	Verify   bool

	format     idFormat
	again      again
	RetryShare float64 // of operations that are duplicates, with again
	Seed       uint64  // of keys and client-seq ids; 0 for a random one

	workload *workload
	keys     *keys
}

// again names the operations of an earlier run, which had as many connections, the same keys and client-seq ids.
type again struct {
	seed  uint64
	count int64 // per connection; 0 for none
}

// defaultOptions are the options of a command line without flags.
func defaultOptions() options {
	return options{
		Workload: "cincrby", Connections: 50, Pipeline: 1, Keys: "uniform:10000", KeyPrefix: "bench:",
		Duration: 10 * time.Second, Interval: time.Second,
	}
}

// prepare checks the options and reads those that are text.
func (o *options) prepare() (err error) {
	if o.workload, err = findWorkload(o.Workload); err != nil {
		return err
	}
	if o.keys, err = parseKeys(o.Keys); err != nil {
		return err
	}
	if err := o.Target.resolve(); err != nil {
		return err
	}
	switch {
	case o.Connections < 1 || o.Connections > 10_000 || o.Pipeline < 1 || o.Pipeline > 10_000:
		return errors.New("--connections and --pipeline: from 1 to 10000")
	case o.Duration < 0 || o.Count < 0 || o.Duration == 0 && o.Count == 0:
		return errors.New("--duration or --count says when to stop, and neither is negative")
	case !(o.Rate >= 0 && o.Rate <= 1e9):
		return errors.New("--rate: from 0 (as fast as replies come) to 1e9 operations per second")
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64() | 1
	}
	if o.again.count > 0 && (o.again.seed == o.Seed || o.format != clientSeq) {
		return fmt.Errorf("the operations of the run of seed %d cannot be sent again by that of %d", o.again.seed, o.Seed)
	}
	return nil
}

// quota is how many operations a connection sends; negative for any number.
func (o *options) quota(connection int) int64 {
	if o.Count == 0 {
		return -1
	}
	n := o.Count / int64(o.Connections)
	if int64(connection) < o.Count%int64(o.Connections) {
		n++
	}
	return n
}
