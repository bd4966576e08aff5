package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// options are what the command is told.
type options struct {
	world   world
	known   bool
	length  time.Duration
	shrink  time.Duration
	workers int
	trace   bool
	tree    string
}

func main() {
	var o options
	w := &o.world
	flag.StringVar(&w.scenario, "scenario", "", "cluster, regions, or regioncluster: one of the regions is a cluster; with fresh seeds also some of them, separated by commas; \"\": all, or with a seed cluster")
	flag.Uint64Var(&w.seed, "seed", 0, "run the world of this seed; 0: worlds of fresh seeds")
	flag.IntVar(&w.shards, "shards", 0, "how many shards of three nodes a cluster has; 0: three in every second cluster of fresh seeds, else one")
	flag.IntVar(&w.faults, "faults", 100, "how many faults strike in a world")
	flag.StringVar(&w.only, "only", "", "names of faults, separated by commas: no others strike")
	flag.StringVar(&w.work, "work", "", "what clients do, separated by commas: nothing else but counting")
	flag.IntVar(&w.accounts, "accounts", 0, "among how many accounts money moves, and how many stocks there are; 0: a few")
	flag.IntVar(&w.deals, "deals", 0, "how many operations of money, stock and limits each world of a cluster has at least; with -work clients do little else")
	flag.IntVar(&w.clients, "clients", 0, "how many clients a cluster has; 0: a few")
	flag.BoolVar(&w.swarm, "swarm", false, "a third of the kinds of faults strike; with fresh seeds in each second world")
	flag.BoolVar(&o.known, "known", false, "first run the worlds that once failed")
	flag.DurationVar(&o.length, "for", time.Minute, "begin worlds of fresh seeds until all of them have taken so much CPU time")
	flag.DurationVar(&o.shrink, "shrink", 10*time.Minute, "CPU time for making a world smaller that fails")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "how many worlds run at a time")
	flag.BoolVar(&o.trace, "trace", false, "print the log of the world as it grows")
	flag.StringVar(&o.tree, "tree", "", "the directory of the product; \"\": the one of this command")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &runner{binary: filepath.Join(dir, "sim.test"), logs: os.TempDir()}
	if err := r.build(o.tree); err != nil {
		return err
	}
	if w := o.world; w.seed != 0 {
		w.shards, w.scenario = max(w.shards, 1), cmp.Or(w.scenario, scenarios[0])
		res := r.run(w, o.trace)
		fmt.Print(res.text)
		if res.verdict != sound {
			return fmt.Errorf("the world of seed %d fails; its log: %s", w.seed, r.log(w))
		}
		return nil
	}
	if o.known {
		fmt.Printf("%d worlds that once failed\n", len(known))
		if err := r.all(o, func(i int) (w world, is bool) {
			if i < len(known) {
				return known[i], true
			}
			return w, false
		}); err != nil {
			return err
		}
	}
	for s := range strings.SplitSeq(o.world.scenario, ",") {
		if s != "" && !slices.Contains(scenarios, s) {
			return fmt.Errorf("there is no scenario %q", s)
		}
	}
	first, until := rand.Uint64N(1<<40), r.spent.Load()+int64(o.length)
	fmt.Printf("worlds of fresh seeds, from %d on, %d faults each\n", first, o.world.faults)
	return r.all(o, func(i int) (world, bool) { return o.fresh(first, i), r.spent.Load() < until })
}

// fresh returns the i-th world of fresh seeds. All scenarios come in turn, with and without swarm.
func (o options) fresh(first uint64, i int) world {
	turns := []world{{scenario: "cluster", shards: 1}, {scenario: "regions", shards: 1}, {scenario: "regioncluster", shards: 1}, {scenario: "cluster", shards: 3}}
	if some := strings.Split(o.world.scenario, ","); some[0] != "" {
		turns = slices.DeleteFunc(turns, func(w world) bool { return !slices.Contains(some, w.scenario) })
	}
	w, turn := o.world, turns[i%len(turns)]
	w.scenario, w.shards = turn.scenario, cmp.Or(w.shards, turn.shards)
	w.seed, w.swarm = first+uint64(i), w.swarm || (i+i/len(turns))%2 == 1
	if len(turns) == 1 {
		w.swarm = o.world.swarm || i%2 == 1
	}
	return w
}

// all runs worlds, as many at a time as there are workers, until there is no next one or one fails. One that fails is made smaller.
func (r *runner) all(o options, next func(i int) (w world, is bool)) error {
	var mu sync.Mutex
	var begun, ended, faults, deals, holds, late int
	var bad *world
	var badResult result
	began, spent := time.Now(), r.spent.Load()
	took := func() string {
		return fmt.Sprintf("%v of CPU time, %v of real time", time.Duration(r.spent.Load()-spent).Round(time.Second), time.Since(began).Round(time.Second))
	}
	work := func() {
		for {
			mu.Lock()
			w, is := next(begun)
			begun++
			is = is && bad == nil
			mu.Unlock()
			if !is {
				return
			}
			res := r.run(w, false)
			mu.Lock()
			ended++
			faults, deals, holds = faults+res.struck, deals+res.deals, holds+res.holds
			switch {
			case res.verdict == slow:
				late++
				fmt.Printf("%s: %s", w.command(), res.text)
			case res.verdict == failed && bad == nil:
				bad, badResult = &w, res
			}
			if ended%100 == 0 {
				fmt.Printf("%d worlds, %d faults, %d deals, %d holds, %s\n", ended, faults, deals, holds, took())
			}
			mu.Unlock()
		}
	}
	var running sync.WaitGroup
	for range o.workers {
		running.Go(work)
	}
	running.Wait()
	if bad == nil {
		fmt.Printf("%d worlds, of which %d are slow, %d faults, %d deals, %d holds, %s: each operation counted once\n",
			ended, late, faults, deals, holds, took())
		return nil
	}
	r.report(*bad, badResult)
	if o.shrink > 0 {
		s := shrinker{runner: r, until: time.Duration(r.spent.Load()) + o.shrink, world: *bad, res: badResult}
		fmt.Println("it is made smaller …")
		if s.shrink(); s.world != *bad {
			r.report(s.world, s.res)
		} else {
			fmt.Println("no smaller one fails")
		}
	}
	return fmt.Errorf("the world of seed %d fails", bad.seed)
}
