// Command failover measures what a shard of three nodes costs, and what its clients see when
// the leader dies or hands over, beside a redis-server with two replicas and three sentinels.
//
//	cd tools && go build -o /tmp/fbfkv ../cmd/fbfkv && go run ./failover -fbfkv /tmp/fbfkv -plot ../docs/performance/failover.svg
//
// All fsync always, and all nodes share this machine with the clients. Redis runs twice: as it
// is, and with min-replicas-to-write 1, which is what its documentation advises. A fault comes
// only when all nodes are well and have the same data, and the sentinels say so too.
//
// Each operation increments a counter of its own by one, and is repeated until it is
// answered: at fbfkv a CINCRBY with its opid, at Redis an INCR, which has none. So what a counter
// holds in the end says what became of its operation: 0 it is lost, 2 it was counted twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// quiet drops what go-redis has to say.
type quiet struct{}

// Printf implements go-redis' logger.
func (quiet) Printf(context.Context, string, ...any) {}

// options are the flags.
type options struct {
	fbfkv, redis, plot string
	seconds            float64
	deaths             int
}

func main() {
	var o options
	flag.StringVar(&o.fbfkv, "fbfkv", "fbfkv", "the program")
	flag.StringVar(&o.redis, "redis-server", "redis-server", "the program of Redis 7")
	flag.StringVar(&o.plot, "plot", "", "the file for a plot of throughput and latency through a leader's death")
	flag.Float64Var(&o.seconds, "seconds", 10, "how long a throughput is measured, 0 for not at all")
	flag.IntVar(&o.deaths, "deaths", 10, "how often there is each fault")
	match := flag.String("run", "", "only faults whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx, *match); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, match string) error {
	wanted, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	if err := errors.Join(process.Find("-fbfkv", o.fbfkv), process.Find("-redis-server", o.redis)); err != nil {
		return err
	}
	if o.seconds > 0 {
		if err := o.costs(ctx); err != nil {
			return err
		}
	}
	fmt.Println("| fault | servers | times | longest time without an answer: median | worst | acknowledged | sent again | lost | counted twice |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	var drawn []curve
	for _, f := range faults {
		if !wanted.MatchString(f.name) {
			continue
		}
		for _, s := range []subject{{"fbfkv", o.shard}, {"Redis", o.sentinels()},
			{"Redis, min-replicas-to-write 1", o.sentinels("--min-replicas-to-write", "1")}} {
			t, err := o.try(ctx, f, s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, f.name, err)
			}
			fmt.Printf("| %s | %s | %d | %.2f s | %.2f s | %d | %d | %d | %d |\n", f.name, s.name, len(t.gaps),
				t.gaps[len(t.gaps)/2].Seconds(), t.gaps[len(t.gaps)-1].Seconds(), t.acknowledged, t.again, t.lost, t.twice)
			if drawn = append(drawn, curve{s.name, t.first}); o.plot != "" && len(drawn) == 2 { // of the first fault
				if err := plotDeath(o.plot, drawn); err != nil {
					return err
				}
			}
		}
	}
	return ctx.Err()
}

// costs compares the throughput and the processor time of three nodes with those of one.
func (o *options) costs(ctx context.Context) error {
	one, err := o.throughput(ctx, 1)
	if err != nil {
		return err
	}
	three, err := o.throughput(ctx, 3)
	if err != nil {
		return err
	}
	fmt.Println("| what | one node | three nodes | |\n| --- | --- | --- | --- |")
	fmt.Printf("| operations per second, 64 connections, pipelines of 16 | %.0f | %.0f | %.2f times, goal at least 0.33 |\n", one.rate, three.rate, three.rate/one.rate)
	fmt.Printf("| processor time of all nodes, µs per operation | %.1f | %.1f | %.2f times, goal at most 3.2 |\n\n", one.cpu, three.cpu, three.cpu/one.cpu)
	return nil
}

// throughputs are operations per second, and the processor time of each, µs.
type throughputs struct{ rate, cpu float64 }

// throughput measures as many operations as some nodes take.
func (o *options) throughput(ctx context.Context, nodes int) (t throughputs, err error) {
	s, err := o.shardOf(ctx, nodes)
	if err != nil {
		return t, err
	}
	defer s.close()
	leader, err := s.settled(ctx)
	if err != nil {
		return t, err
	}
	address := s.all[leader].Address
	if _, err := pipelines(ctx, address, 2*time.Second); err != nil { // what is to be in memory is
		return t, err
	}
	before, began := s.cpu(), time.Now()
	n, err := pipelines(ctx, address, time.Duration(o.seconds*float64(time.Second)))
	return throughputs{float64(n) / time.Since(began).Seconds(), (s.cpu() - before) / float64(n) * 1e6}, err
}

// subject starts servers to be tried.
type subject struct {
	name  string
	start func(context.Context) (*servers, error)
}

// fault is one way in which a leader goes.
type fault struct {
	name string
	down bool // behind it the leader is to be started again
	make func(ctx context.Context, s *servers, leader int) error
}

var faults = []fault{
	{"the leader is killed", true, func(_ context.Context, s *servers, leader int) error {
		s.all[leader].Kill()
		return nil
	}},
	{"the leader is stopped (SIGTERM)", true, func(ctx context.Context, s *servers, leader int) error { return s.all[leader].Stop(ctx) }},
	{"the leader stands still for 1.2 s (SIGSTOP)", false, func(ctx context.Context, s *servers, leader int) error {
		if err := s.all[leader].Pause(); err != nil {
			return err
		}
		sleep(ctx, patience*6/5)
		return s.all[leader].Resume()
	}},
	{"the followers are killed, 1 s later the leader; the followers start again", true, func(ctx context.Context, s *servers, leader int) error {
		for i, p := range s.all {
			if i != leader {
				p.Kill()
			}
		}
		sleep(ctx, time.Second)
		s.all[leader].Kill()
		for i, p := range s.all {
			if i != leader {
				if err := p.Run(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}},
}

// Times of one fault, seconds: how long clients count before it, how long it is looked at at least, and
// how long clients must have counted again before the leader comes back.
const (
	quietTime  = 3 * time.Second
	drawnTime  = 5 * time.Second
	servedTime = time.Second
)

// trial is what clients saw of one kind of fault.
type trial struct {
	sums
	gaps  []time.Duration // for each fault the longest time without an answer, the shortest first
	first []answer        // around the first fault
}

// try has a fault some times.
func (o *options) try(ctx context.Context, f fault, of subject) (t trial, err error) {
	redis.SetLogger(quiet{}) // that a server is gone is no news here
	s, err := of.start(ctx)
	if err != nil {
		return t, err
	}
	defer s.close()
	l := startLoad(ctx, s)
	defer l.halt()
	for range o.deaths {
		leader, err := s.settled(ctx)
		if err != nil {
			return t, err
		}
		sleep(ctx, quietTime)
		began := time.Now()
		if err := f.make(ctx, s, leader); err != nil {
			return t, err
		}
		if err := l.awaitService(ctx); err != nil {
			return t, err
		}
		sleep(ctx, time.Until(began.Add(drawnTime)))
		t.gaps = append(t.gaps, l.gap(began, time.Now()))
		if t.first == nil {
			t.first = l.since(began)
		}
		if !f.down {
			continue
		}
		if err := s.all[leader].Run(ctx); err != nil {
			return t, err
		}
	}
	l.halt()
	leader, err := s.settled(ctx)
	if err != nil {
		return t, err
	}
	slices.Sort(t.gaps)
	if t.sums, err = l.compare(ctx, s.clients[leader]); err != nil {
		return t, err
	}
	return t, ctx.Err()
}

// sleep waits, unless the program is to end.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
