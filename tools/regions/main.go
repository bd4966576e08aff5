// Command regions measures three regions that count the same counters, on this machine.
//
//	make build && go -C tools run ./regions -plot ../docs/performance/regions.svg
//
// Between them are proxies that hold all bytes for half of a round trip, each way. It tells what regions cost where
// operations are decided and where they are taken, in processor time beside that of a server that is no region; how many
// bytes an operation is on the wire; how fast a region catches up; how much later an operation is seen elsewhere; and draws
// how two regions come together again after their link was cut. All share this machine with the clients: what is
// told as a ratio means more than the rest.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// options are the flags.
type options struct {
	fbfkv, plot      string
	rtt, busy, cut   time.Duration
	partitions, rate int
	probes           int
}

func main() {
	var o options
	flag.StringVar(&o.fbfkv, "fbfkv", "../fbfkv", "the program; make build makes it")
	flag.StringVar(&o.plot, "plot", "", "the file for a plot of a cut; none: there is no cut")
	flag.DurationVar(&o.rtt, "rtt", 80*time.Millisecond, "the round trip between regions")
	flag.DurationVar(&o.busy, "busy", 10*time.Second, "for how long operations are decided as fast as possible")
	flag.DurationVar(&o.cut, "cut", time.Minute, "for how long a link is cut")
	flag.IntVar(&o.partitions, "partitions", 16, "of each region")
	flag.IntVar(&o.rate, "rate", 5000, "operations per second while lag is measured, and during a cut in each region")
	flag.IntVar(&o.probes, "probes", 300, "how often lag is measured")
	flag.Parse()
	process.Main(o.run)
}

func (o *options) run(ctx context.Context) {
	process.Check(process.Find("-fbfkv", o.fbfkv))
	alone := o.start(ctx, "alone")
	defer alone.close()
	plain := o.work(ctx, alone)
	process.Check(alone.Stop(ctx))
	w := &world{o: o, seed: rand.Uint32()}
	defer w.close()
	w.start(ctx)
	w.costs(ctx, plain)
	if w.lag(ctx); o.plot != "" {
		w.drawCut(ctx)
	}
}

// busy is what a server did as fast as it could.
type busy struct {
	ops, cpu, seconds float64
	warm              float64 // operations before that
}

func (b busy) rate() float64     { return b.ops / b.seconds }
func (b busy) perOp() float64    { return b.cpu / b.ops * 1e6 }
func (b busy) String() string    { return fmt.Sprintf("%.0f ops/s, %.2f µs/op", b.rate(), b.perOp()) }
func line(name string, v ...any) { fmt.Printf("%-44s %s\n", name, fmt.Sprint(v...)) }

// work lets a server decide operations as fast as it can, for a while.
func (o *options) work(ctx context.Context, s *server) busy {
	warm, l := newLoad(s, 0), newLoad(s, 0)
	runFor(ctx, warm, o.busy/5)
	cpu, began := s.CPU(), time.Now()
	runFor(ctx, l, o.busy)
	return busy{float64(l.Done.Load()), s.CPU() - cpu, time.Since(began).Seconds(), float64(warm.Done.Load())}
}

// newLoad counts on a server, so many operations per second, 0: as fast as they are answered.
func newLoad(s *server, rate int) *process.Load {
	return &process.Load{Leaders: []string{s.Address}, Keys: process.Keys(10_000), Clients: 8, Depth: 32, Rate: rate}
}

func runFor(ctx context.Context, l *process.Load, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	process.Check(l.Run(ctx))
}

// costs measures a region that decides while nobody reads it, and then two that take all of it.
func (w *world) costs(ctx context.Context, alone busy) {
	a, b, c := w.all[0], w.all[1], w.all[2]
	// The log is measured, and not the state, which who has taken nothing yet may have to take.
	a.do(ctx, "CINCRBY", "first", "op", "1")
	b.caughtUp(ctx, "a")
	c.caughtUp(ctx, "a")
	time.Sleep(time.Second) // which a has heard by then
	b.do(ctx, "REGION", "PAUSE", "a")
	c.do(ctx, "REGION", "PAUSE", "a")
	own := w.o.work(ctx, a)
	line("no region:", alone)
	line("a region that nobody reads:", own)
	line("… of the throughput, processor time of one:", fmt.Sprintf("%.2f, %.2f", own.rate()/alone.rate(), own.perOp()/alone.perOp()))
	cpuA, cpuB := a.CPU(), b.CPU()
	before := b.peer(ctx, "a")
	began := time.Now()
	b.do(ctx, "REGION", "RESUME", "a")
	c.do(ctx, "REGION", "RESUME", "a")
	after := b.caughtUp(ctx, "a")
	c.caughtUp(ctx, "a")
	took := time.Since(began).Seconds()
	ops := own.warm + own.ops
	line("caught up by two regions at the same time:", fmt.Sprintf("%.0f ops/s each", ops/took))
	line("telling one, of deciding one:", fmt.Sprintf("%.2f", (a.CPU()-cpuA)/2/ops*1e6/alone.perOp()))
	line("taking one, of deciding one:", fmt.Sprintf("%.2f", (b.CPU()-cpuB)/ops*1e6/alone.perOp()))
	line("on the wire:", fmt.Sprintf("%.1f bytes an op", float64(after.Bytes-before.Bytes)/ops))
}

// lag measures how long after it was acknowledged an operation is seen in another region.
func (w *world) lag(ctx context.Context) {
	a, b := w.all[0], w.all[1]
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	before := b.peer(ctx, "a")
	l, failed := newLoad(a, w.o.rate), make(chan error, 1)
	began := time.Now()
	go func() { failed <- l.Run(loading) }()
	var lags []time.Duration
	for i := range w.o.probes {
		key := fmt.Sprint("probe", i)
		a.do(ctx, "CINCRBY", key, fmt.Sprint("probe", w.seed, i), 1)
		since := time.Now()
		for n := int64(0); n == 0; {
			n = process.Must(b.client.Exists(ctx, key).Result())
			time.Sleep(time.Millisecond)
		}
		lags = append(lags, time.Since(since))
		time.Sleep(time.Duration(i%17) * time.Millisecond)
	}
	seconds := time.Since(began).Seconds()
	cancel()
	process.Check(<-failed)
	slices.Sort(lags)
	after := b.caughtUp(ctx, "a")
	ops := float64(l.Done.Load())
	line(fmt.Sprintf("lag at %.0f ops/s and a round trip of %v:", ops/seconds, w.o.rtt),
		fmt.Sprintf("p50 %v, p99 %v", lags[len(lags)/2].Round(time.Millisecond), lags[len(lags)*99/100].Round(time.Millisecond)))
	line("… on the wire:", fmt.Sprintf("%.1f bytes an op", float64(after.Bytes-before.Bytes)/ops))
}
