package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// worldLimit bounds the real time of one world. Virtual time cannot stand still for so long unless a goroutine that
// holds a mutex waits for it.
const worldLimit = 5 * time.Minute

// tries is how often a smaller world may pass before it counts as sound.
const tries = 3

// scenarios are those that there are.
var scenarios = []string{"cluster", "regions", "regioncluster"}

// world says which world is run.
type world struct {
	scenario string
	seed     uint64
	shards   int
	faults   int
	only     string
	work     string
	swarm    bool
}

// args returns the flags of the test binary, and of this command.
func (w world) args(prefix string) []string {
	a := []string{prefix + "scenario", w.scenario, prefix + "seed", strconv.FormatUint(w.seed, 10), prefix + "shards", strconv.Itoa(w.shards), prefix + "faults", strconv.Itoa(w.faults)}
	if w.only != "" {
		a = append(a, prefix+"only", w.only)
	}
	if w.work != "" {
		a = append(a, prefix+"work", w.work)
	}
	if w.swarm {
		a = append(a, prefix+"swarm")
	}
	return a
}

// runner runs worlds.
type runner struct {
	binary string
	logs   string // the folder of the logs of those that fail
}

// result is what became of one.
type result struct {
	ok     bool
	text   string // what it printed
	struck int    // how many faults had struck
	work   string
	kinds  []string
}

func (r *runner) run(w world, trace bool) result {
	ctx, cancel := context.WithTimeout(context.Background(), worldLimit)
	defer cancel()
	args := append([]string{"-test.run", "^TestWorld$", "-test.timeout", "0", "-sim.log", r.log(w)}, w.args("-sim.")...)
	c := exec.CommandContext(ctx, r.binary, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if trace {
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.Args = append(c.Args, "-sim.trace")
	}
	err := c.Run()
	res := result{ok: err == nil, text: out.String()}
	if ctx.Err() != nil {
		res.text += fmt.Sprintf("it did not end within %v of real time\n", worldLimit)
	}
	if m := regexp.MustCompile(`faults=(\d+) .*work=(\S+) kinds=(\S+)`).FindStringSubmatch(res.text); m != nil {
		res.struck, _ = strconv.Atoi(m[1])
		res.work, res.kinds = m[2], strings.Split(m[3], ",")
	}
	return res
}

func (r *runner) log(w world) string {
	return filepath.Join(r.logs, fmt.Sprintf("fbfkv-sim-%d.log", w.seed))
}

// fails reports whether a world fails in one of a few tries.
func (r *runner) fails(w world) (result, bool) {
	for range tries {
		if res := r.run(w, false); !res.ok {
			return res, true
		}
	}
	return result{}, false
}

// shrink returns a smaller world that fails, too, and what became of it.
func (r *runner) shrink(w world, res result) (world, result) {
	if res.struck > 0 && res.struck < w.faults {
		w.faults = res.struck
	}
	for by := w.faults / 2; by > 0; by /= 2 {
		less := w
		if less.faults -= by; less.faults < 1 {
			continue
		}
		if got, failed := r.fails(less); failed {
			w, res = less, got
		}
	}
	for i := 0; i < len(res.kinds) && len(res.kinds) > 1; {
		less := w
		less.swarm, less.work, less.only = false, res.work, strings.Join(append(append([]string(nil), res.kinds[:i]...), res.kinds[i+1:]...), ",")
		if got, failed := r.fails(less); failed {
			w, res = less, got
			continue
		}
		i++
	}
	for names := strings.Split(res.work, ","); len(names) > 1; names = names[:len(names)-1] { // the first one always counts
		less := w
		less.work = strings.Join(names[:len(names)-1], ",")
		got, failed := r.fails(less)
		if !failed {
			break
		}
		w, res = less, got
	}
	return w, res
}

// report prints a world that failed, and how to run it again.
func (r *runner) report(w world, res result) {
	text := res.text
	if len(text) > 4000 {
		text = text[:4000] + "…"
	}
	fmt.Printf("%s\nagain: go -C tools run ./sim %s\nlog:   %s\n", text, strings.Join(w.args("-"), " "), r.log(w))
}

func main() {
	var w world
	flag.StringVar(&w.scenario, "scenario", "", "cluster, regions, or regioncluster: one of the regions is a cluster; \"\": with fresh seeds one after the other, else cluster")
	flag.Uint64Var(&w.seed, "seed", 0, "run the world of this seed; 0: worlds of fresh seeds")
	flag.IntVar(&w.shards, "shards", 0, "how many shards of three nodes a cluster has; 0: three in each fourth world of fresh seeds, else one")
	flag.IntVar(&w.faults, "faults", 100, "how many faults strike in a world")
	flag.StringVar(&w.only, "only", "", "names of faults, separated by commas: no others strike")
	flag.StringVar(&w.work, "work", "", "what clients do, separated by commas: nothing else but counting")
	flag.BoolVar(&w.swarm, "swarm", false, "a third of the kinds of faults strike; with fresh seeds in each second world")
	length := flag.Duration("for", time.Minute, "for how long worlds of fresh seeds are begun")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "how many worlds run at a time")
	trace := flag.Bool("trace", false, "print the log of the world as it grows")
	flag.Parse()
	if err := run(w, *length, *workers, *trace); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(w world, length time.Duration, workers int, trace bool) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &runner{binary: filepath.Join(dir, "sim.test"), logs: os.TempDir()}
	build := exec.Command("go", "test", "-c", "-o", r.binary, "github.com/fbfkv/fbfkv/internal/sim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	if w.seed != 0 {
		w.shards, w.scenario = max(w.shards, 1), cmp.Or(w.scenario, scenarios[0])
		res := r.run(w, trace)
		fmt.Print(res.text)
		if !res.ok {
			return fmt.Errorf("the world of seed %d fails; its log: %s", w.seed, r.log(w))
		}
		return nil
	}
	return r.fresh(w, length, workers)
}

// fresh runs worlds of fresh seeds until the time is over or one fails.
func (r *runner) fresh(w world, length time.Duration, workers int) error {
	began := time.Now()
	var mu sync.Mutex
	var worlds, faults int
	var bad *world
	var badResult result
	first := rand.Uint64N(1 << 40)
	fmt.Printf("worlds of seeds from %d on, %d faults each\n", first, w.faults)
	work := func() {
		for {
			mu.Lock()
			next := w
			next.seed, next.swarm = first+uint64(worlds), w.swarm || worlds%2 == 1
			next.scenario = cmp.Or(w.scenario, scenarios[worlds%len(scenarios)])
			if next.shards == 0 && worlds%4 == 3 && next.scenario == scenarios[0] {
				next.shards = 3
			}
			next.shards = max(next.shards, 1)
			done := bad != nil || time.Since(began) > length
			worlds++
			mu.Unlock()
			if done {
				return
			}
			res := r.run(next, false)
			mu.Lock()
			faults += res.struck
			if !res.ok && bad == nil {
				bad, badResult = &next, res
			}
			if worlds%100 == 0 {
				fmt.Printf("%v: %d worlds, %d faults\n", time.Since(began).Round(time.Second), worlds, faults)
			}
			mu.Unlock()
		}
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(work)
	}
	running.Wait()
	if bad == nil {
		fmt.Printf("%d faults in %v, and each operation counted once\n", faults, time.Since(began).Round(time.Second))
		return nil
	}
	r.report(*bad, badResult)
	fmt.Println("it is made smaller …")
	small, res := r.shrink(*bad, badResult)
	r.report(small, res)
	return fmt.Errorf("the world of seed %d fails", bad.seed)
}
