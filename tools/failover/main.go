// Command failover measures what clients see when a leader dies, hands over or freezes, beside Redis.
//
//	make build && go -C tools run ./failover -plot ../docs/performance/failover.svg
//	make build && go -C tools run ./failover -clusters -deaths 5 -run 'killed|still' -plot ../docs/paper/fig14-lost.svg
//
// The first is one shard of three nodes beside a redis-server with two replicas and three sentinels, as it is and with
// min-replicas-to-write 1, which is what its documentation advises. The second, the paper's Fig. 14 with nodes that are
// lost, is three shards of three nodes beside a Redis Cluster of three masters with two replicas each, without ids and with
// a script that remembers them. All fsync always, and all nodes share this machine with the clients. A fault comes only
// when all nodes are well and have the same data, and the sentinels say so too.
//
// Each operation increments a counter of its own by one, and is repeated until it is
// answered: at fbfkv a CINCRBY with its opid, at Redis an INCR, which has none, or a script with its id. So what a counter
// holds in the end says what became of its operation: 0 it is lost, 2 it was counted twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fbfkv/fbfkv/tools/process"
)

// options are the flags.
type options struct {
	fbfkv, redis, cli, plot string
	deaths                  int
	clusters                bool
}

func main() {
	var o options
	flag.StringVar(&o.fbfkv, "fbfkv", "../fbfkv", "the program; make build makes it")
	flag.StringVar(&o.redis, "redis-server", "redis-server", "the program of Redis 7")
	flag.StringVar(&o.cli, "redis-cli", "redis-cli", "its client, which makes a cluster")
	flag.BoolVar(&o.clusters, "clusters", false, "three shards beside Redis Cluster; all faults in turn, each on the next shard")
	flag.StringVar(&o.plot, "plot", "", "the file for a plot of throughput and latency through a leader's death; with -clusters, of the counters' error,\nand a .csv beside it")
	flag.IntVar(&o.deaths, "deaths", 10, "how often there is each fault")
	match := flag.String("run", "", "only faults whose name matches this regular expression")
	flag.Parse()
	process.Main(func(ctx context.Context) { o.run(ctx, *match) })
}

func (o *options) run(ctx context.Context, match string) {
	wanted := process.Must(regexp.Compile(match))
	process.Check(errors.Join(process.Find("-fbfkv", o.fbfkv), process.Find("-redis-server", o.redis)))
	chosen := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !wanted.MatchString(f.name) })
	if o.clusters {
		o.compareClusters(ctx, chosen)
		return
	}
	fmt.Print(heading)
	var drawn []curve
	for _, f := range chosen {
		for _, s := range []subject{{"fbfkv", o.fbfkvCluster(1)}, {"Redis", o.sentinels()},
			{"Redis, min-replicas-to-write 1", o.sentinels("--min-replicas-to-write", "1")}} {
			t := o.try(ctx, []fault{f}, s)
			fmt.Print(t.row(0, f, s))
			if drawn = append(drawn, curve{s.name, t.first}); o.plot != "" && len(drawn) == 2 { // of the first fault
				process.Check(plotDeath(o.plot, drawn))
			}
		}
	}
}

const heading = "| fault | servers | times | longest time without an answer: median | worst | acknowledged | sent again | lost | counted twice |\n" +
	"| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"

// subject starts servers to be tried.
type subject struct {
	name  string
	start func(context.Context, *servers)
}

// fault is one way in which a leader goes.
type fault struct {
	name string
	down bool // the leader must be started again afterwards
	make func(ctx context.Context, s *servers, g group)
}

var faults = []fault{
	{"the leader is killed", true, func(_ context.Context, s *servers, g group) { s.all[g.leader].Kill() }},
	{"the leader is stopped (SIGTERM)", true, func(ctx context.Context, s *servers, g group) {
		process.Check(s.all[g.leader].Stop(ctx))
	}},
	{"the leader stands still for 1.2 s (SIGSTOP)", false, func(ctx context.Context, s *servers, g group) {
		process.Check(s.all[g.leader].Pause())
		process.Sleep(ctx, patience*6/5)
		process.Check(s.all[g.leader].Resume())
	}},
	{"the followers are killed, 1 s later the leader; the followers start again", true, func(ctx context.Context, s *servers, g group) {
		for _, i := range g.followers {
			s.all[i].Kill()
		}
		process.Sleep(ctx, time.Second)
		s.all[g.leader].Kill()
		for _, i := range g.followers {
			process.Check(s.all[i].Run(ctx))
		}
	}},
}

// Times of one fault, seconds: how long clients count before it, how long it is looked at at least, and
// how long clients must have counted again before the leader comes back.
const (
	quietTime  = 3 * time.Second
	drawnTime  = 5 * time.Second
	servedTime = time.Second
)

// trial is what clients saw of some kinds of faults, one after the other.
type trial struct {
	kinds   []sums            // by the kind of the last fault
	gaps    [][]time.Duration // for each fault of a kind the longest time without an answer, the shortest first
	first   []answer          // around the first fault
	began   time.Time         // the load
	faults  []time.Time
	answers []answer // all of them, in order
}

// row is a line of the table.
func (t *trial) row(kind int, f fault, s subject) string {
	gaps, sums := t.gaps[kind], t.kinds[kind]
	return fmt.Sprintf("| %s | %s | %d | %.2f s | %.2f s | %d | %d | %d | %d |\n", f.name, s.name, len(gaps),
		gaps[len(gaps)/2].Seconds(), gaps[len(gaps)-1].Seconds(), sums.acknowledged, sums.again, sums.lost, sums.twice)
}

// try has each kind of fault some times, on one group of servers after the other.
func (o *options) try(ctx context.Context, kinds []fault, of subject) (t trial) {
	logging.Disable() // that a server is gone is no news here
	s := new(servers)
	defer s.close()
	of.start(ctx, s)
	s.ready(ctx)
	t = trial{kinds: make([]sums, len(kinds)), gaps: make([][]time.Duration, len(kinds)), began: time.Now()}
	l := startLoad(ctx, s)
	defer l.halt()
	for n := range o.deaths * len(kinds) {
		kind := n % len(kinds)
		o.fault(ctx, s, l, &t, kinds[kind], kind)
		fmt.Fprintf(os.Stderr, "%s, fault %d of %d, %s: %.2f s\n", of.name, n+1, o.deaths*len(kinds), kinds[kind].name, t.gaps[kind][n/len(kinds)].Seconds())
	}
	s.settled(ctx)
	l.halt()
	for _, gaps := range t.gaps {
		slices.Sort(gaps)
	}
	t.answers = l.compare(ctx, s)
	t.sort()
	return t
}

// fault has one fault, and starts nodes that are down only after clients are served again.
func (o *options) fault(ctx context.Context, s *servers, l *load, t *trial, f fault, kind int) {
	s.settled(ctx)
	process.Sleep(ctx, quietTime)
	groups := s.settled(ctx)
	g := groups[len(t.faults)%len(groups)]
	began := time.Now()
	t.faults = append(t.faults, began)
	f.make(ctx, s, g)
	process.Check(l.awaitService(ctx))
	process.Sleep(ctx, time.Until(began.Add(drawnTime)))
	t.gaps[kind] = append(t.gaps[kind], l.gap(began, time.Now()))
	if t.first == nil {
		t.first = l.since(began)
	}
	if f.down {
		process.Check(s.all[g.leader].Run(ctx))
	}
}

// sort counts each operation under the last fault that began before it was answered, or a second after:
// an operation that was acknowledged just before a leader died may be lost with it.
func (t *trial) sort() {
	n := 0
	for _, a := range t.answers {
		for n+1 < len(t.faults) && !a.at.Before(t.faults[n+1].Add(-time.Second)) {
			n++
		}
		t.kinds[n%len(t.kinds)].add(a)
	}
}
