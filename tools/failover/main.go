// Command failover measures what a shard of three nodes costs, and what its clients see when
// the leader dies or hands over, beside a redis-server with two replicas and three sentinels.
//
//	cd tools && go build -o /tmp/fbfkv ../cmd/fbfkv && go run ./failover -fbfkv /tmp/fbfkv -plot ../docs/performance/failover.svg
//
// Both always fsync. Clients of fbfkv repeat a CINCRBY with its opid, clients of Redis a plain
// INCR, which is what they have. All nodes share this machine with the clients.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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
	flag.Float64Var(&o.seconds, "seconds", 10, "how long a throughput is measured")
	flag.IntVar(&o.deaths, "deaths", 10, "how often a leader dies, and how often one hands over")
	flag.Parse()
	redis.SetLogger(quiet{}) // that a server is gone is no news here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	if err := errors.Join(process.Find("-fbfkv", o.fbfkv), process.Find("-redis-server", o.redis)); err != nil {
		return err
	}
	fmt.Println("| what | one node | three nodes | |\n| --- | --- | --- | --- |")
	one, err := o.throughput(ctx, 1)
	if err != nil {
		return err
	}
	three, err := o.throughput(ctx, 3)
	if err != nil {
		return err
	}
	fmt.Printf("| operations per second, 64 connections, pipelines of 16 | %.0f | %.0f | %.2f times, goal at least 0.33 |\n", one.rate, three.rate, three.rate/one.rate)
	fmt.Printf("| processor time of all nodes, µs per operation | %.1f | %.1f | %.2f times, goal at most 3.2 |\n\n", one.cpu, three.cpu, three.cpu/one.cpu)
	fmt.Println("| fault | server | times | longest gap without an answer: median | longest | acknowledged and lost | counted twice |\n| --- | --- | --- | --- | --- | --- | --- |")
	ours, err := o.faults(ctx, o.shard)
	if err != nil {
		return err
	}
	theirs, err := o.faults(ctx, o.sentinels)
	if err != nil || o.plot == "" {
		return err
	}
	return plotDeath(o.plot, ours, theirs)
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
	address, err := s.leader(ctx)
	if err != nil {
		return t, err
	}
	if _, err := pipelines(ctx, address, 2*time.Second); err != nil { // what is to be in memory is
		return t, err
	}
	before, began := s.cpu(), time.Now()
	n, err := pipelines(ctx, address, time.Duration(o.seconds*float64(time.Second)))
	return throughputs{float64(n) / time.Since(began).Seconds(), (s.cpu() - before) / float64(n) * 1e6}, err
}

// faults lets leaders die and hand over, and returns what clients saw at the first death.
func (o *options) faults(ctx context.Context, make func(context.Context) (*servers, error)) (first []answer, err error) {
	for _, fault := range []struct {
		name string
		make func(ctx context.Context, s *servers, leader int) error
	}{
		{"kill -9 of the leader", func(ctx context.Context, s *servers, leader int) error {
			s.all[leader].Kill()
			return nil
		}},
		{"the leader is told to stop (SIGTERM)", func(ctx context.Context, s *servers, leader int) error { return s.all[leader].Stop(ctx) }},
		{"both followers are killed, then the leader", func(ctx context.Context, s *servers, leader int) error {
			for i, p := range s.all {
				if i != leader {
					p.Kill()
				}
			}
			sleep(ctx, time.Second)
			s.all[leader].Kill()
			for i, p := range s.all { // its machine takes longer to come back
				if i != leader {
					if err := p.Run(ctx); err != nil {
						return err
					}
				}
			}
			return nil
		}},
	} {
		s, err := make(ctx)
		if err != nil {
			return nil, err
		}
		l := startLoad(ctx, s)
		var gaps []time.Duration
		for range o.deaths {
			sleep(ctx, 3*time.Second)
			leader, err := s.leaderIndex(ctx)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := fault.make(ctx, s, leader); err != nil {
				return nil, err
			}
			sleep(ctx, 6*time.Second)
			gaps = append(gaps, l.gap(began, time.Now()))
			if first == nil {
				first = l.since(began.Add(-2*time.Second), began)
			}
			if err := s.all[leader].Run(ctx); err != nil {
				return nil, err
			}
		}
		sleep(ctx, 3*time.Second)
		lost, doubled, err := l.end(ctx)
		if err != nil {
			return nil, err
		}
		slices.Sort(gaps)
		fmt.Printf("| %s | %s | %d | %.2f s | %.2f s | %d | %d |\n", fault.name, s.name, len(gaps), gaps[len(gaps)/2].Seconds(),
			gaps[len(gaps)-1].Seconds(), lost, doubled)
		s.close()
	}
	return first, ctx.Err()
}

// sleep waits, unless the program is to end.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
