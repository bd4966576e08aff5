package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// options say what to send. prepare fills in defaults and checks them.
type options struct {
	Target   Target
	Workload string

	Connections int
	Pipeline    int // operations in flight per connection
	Keys        string
	KeyPrefix   string
	IDs         string

	Duration time.Duration // of the measurement; 0 with Count
	Count    int64         // operations to send; 0 for Duration
	Warmup   time.Duration // sent before it, and not measured
	Rate     float64       // operations per second of an open loop; 0 for a closed one
	Interval time.Duration // of the latencies over time

	Again      string        // SEED:COUNT of an earlier run to take duplicates from
	RetryShare float64       // of operations that are duplicates, with Again
	Seed       uint64        // of keys and client-seq ids; 0 for a random one
	Window     time.Duration // how long the recipe remembers an opid
	Patience   time.Duration // how long an outcome may stay unknown

	Verify   bool
	blocking bool // a goroutine for each connection, as with TLS
	workload *workload
	keys     *keys
	format   idFormat
	again    again
	progress func(soFar) // called now and then
}

// again names the operations of an earlier run.
type again struct {
	seed  uint64
	count int64 // per connection; 0 for none
}

// Limits of the options.
const (
	maxConnections = 10_000
	maxPipeline    = 10_000
)

// defaultOptions are those of the command line.
func defaultOptions() options {
	return options{
		Workload: "cincrby", Connections: 50, Pipeline: 1, Keys: "uniform:10000", KeyPrefix: "bench:",
		IDs: "uuidv7", Duration: 10 * time.Second, Interval: time.Second, RetryShare: 0.1,
		Window: 2 * time.Minute, Patience: 30 * time.Second,
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
	if o.format, err = parseIDFormat(o.IDs); err != nil {
		return err
	}
	if err := o.Target.resolve(); err != nil {
		return err
	}
	switch {
	case o.Connections < 1 || o.Connections > maxConnections:
		return fmt.Errorf("--connections: from 1 to %d", maxConnections)
	case o.Pipeline < 1 || o.Pipeline > maxPipeline:
		return fmt.Errorf("--pipeline: from 1 to %d", maxPipeline)
	case o.Duration < 0 || o.Count < 0 || o.Warmup < 0:
		return errors.New("--duration, --count and --warmup are not negative")
	case o.Duration == 0 && o.Count == 0:
		return errors.New("either --duration or --count says when to stop")
	case !(o.Rate >= 0 && o.Rate <= 1e9):
		return errors.New("--rate: from 0 (as fast as replies come) to 1e9 operations per second")
	case o.Interval < 10*time.Millisecond:
		return errors.New("--interval: at least 10ms")
	case o.Window < time.Second:
		return errors.New("--window: at least 1s")
	case o.Patience <= 0 || o.Patience > time.Hour:
		return errors.New("--retry-timeout: above 0, at most 1h")
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64() | 1
	}
	return o.prepareAgain()
}

// prepareAgain checks what makes duplicates.
func (o *options) prepareAgain() error {
	if o.Again == "" {
		return nil
	}
	if !(o.RetryShare >= 0 && o.RetryShare <= 1) {
		return errors.New("--retry-share: from 0 to 1")
	}
	if o.Workload != "cincrby" {
		return errors.New("--again is for --workload cincrby")
	}
	if o.format != clientSeq {
		return errors.New("--again needs --ids client-seq, which can be made again")
	}
	seed, count, ok := strings.Cut(o.Again, ":")
	s, err := strconv.ParseUint(seed, 10, 64)
	n, err2 := strconv.ParseInt(count, 10, 64)
	if !ok || err != nil || err2 != nil || n < int64(o.Connections) {
		return fmt.Errorf("--again: %q is not SEED:COUNT of an earlier run with as many --connections", o.Again)
	}
	if s == o.Seed {
		return errors.New("--again names this run's own seed")
	}
	o.again = again{seed: s, count: n / int64(o.Connections)}
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
