package sim

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/internal/raced"
)

var (
	scenario = flag.String("sim.scenario", "", "cluster, regions, or regioncluster: one of the regions is "+
		"a cluster; TestSeeds: one after the other")
	seed   = flag.Uint64("sim.seed", 0, "run the world of this seed, and end the process")
	faults = flag.Int("sim.faults", max(10, 40/raced.Slowdown), "how many faults strike")
	every  = flag.Duration("sim.every", 400*time.Millisecond, "mean time between two faults")
	only   = flag.String("sim.only", "", "names of faults, separated by commas: no others strike")
	work   = flag.String("sim.work", "", "what clients do, separated by commas, and not everything")
	shards = flag.Int("sim.shards", 1, "how many shards of three nodes a cluster has")
	swarm  = flag.Bool("sim.swarm", false, "a third of the kinds of faults strike")
	tills  = flag.Int("sim.accounts", 0, "among how many accounts money moves, and how many stocks there are; 0: a few")
	deals  = flag.Int("sim.deals", 0, "how many operations of money, stock and limits there are at least, in a "+
		"cluster; with -sim.work clients do little else")
	users  = flag.Int("sim.clients", 0, "how many clients a cluster has; 0: a few")
	trace  = flag.Bool("sim.trace", false, "write the log to standard error as it grows")
	worlds = flag.Int("sim.worlds", 3, "how many worlds TestSeeds runs")
	keep   = flag.String("sim.log", "", "a file that gets the log of a world that fails")
)

// TestWorld runs one world and ends the process: one that has run a world can run no other.
func TestWorld(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -sim.seed")
	}
	cryptotest.SetGlobalRandom(t, *seed)
	o := Options{Seed: *seed, Faults: *faults, Every: *every, Only: *only, Work: *work, Swarm: *swarm,
		Shards: *shards, Accounts: *tills, Deals: *deals, Clients: *users}
	if *trace {
		o.Log = os.Stderr
	}
	run := RunRegions
	switch *scenario {
	case "", "cluster":
		run = RunCluster
	case "regions":
		o.Shards = 0
	case "regioncluster":
	default:
		t.Fatalf("there is no scenario %q", *scenario)
	}
	end, began := make(chan func()), time.Now()
	o.Begun = func(w *World) { begun.Store(w) }
	go func() { // outside the bubble
		select {
		case end := <-end:
			end()
		case stacks := <-frozen():
			begun.Load().Fail("frozen: all goroutines wait, and one of them for a mutex, for which "+
				"virtual time stands still:\n%s", locked(stacks))
			report(Result{World: begun.Load()}, 0, time.Since(began), stacks)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		r := run(o)
		virtual, stacks := r.World.Now(), []byte(nil)
		if r.World.Failure() != "" {
			stacks = make([]byte, 8<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
		}
		end <- func() { report(r, virtual, time.Since(began), stacks) }
		for {
			time.Sleep(time.Hour) // so that the bubble is not deadlocked
		}
	})
}

// begun is the world that runs.
var begun atomic.Pointer[World]

// frozen gets the stacks of all goroutines once those of the bubble have waited for long, without
// virtual time: one waits for a mutex that another one holds while it waits for time. A busy
// machine is another matter: its goroutines would run if they could.
func frozen() <-chan []byte {
	found := make(chan []byte, 1)
	go func() {
		for still := 0; ; time.Sleep(5 * time.Second) {
			stacks := make([]byte, 32<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			if still++; active.Match(stacks) || !bytes.Contains(stacks, []byte("synctest bubble")) {
				still = 0
			}
			if still == 4 {
				found <- stacks
				return
			}
		}
	}()
	return found
}

// active matches the stack of a goroutine of a bubble that runs, or could.
var active = regexp.MustCompile(`(?m)^goroutine \d+ .*\[(running|runnable|syscall|copystack|preempted|GC |IO wait)[^\]]*synctest bubble`)

// locked returns the functions of a goroutine of a bubble that waits for a mutex, the innermost first.
func locked(stacks []byte) string {
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if head, calls, _ := bytes.Cut(stack, []byte("\n")); bytes.Contains(head, []byte("synctest bubble")) &&
			(bytes.Contains(head, []byte("[sync.Mutex.")) || bytes.Contains(head, []byte("[sync.RWMutex."))) {
			return string(called.ReplaceAll(calls, []byte("$1")))
		}
	}
	return ""
}

// called matches a call in a stack, with the line of the file behind it.
var called = regexp.MustCompile(`(?m)^(\S+)\(.*\n\t.*$`)

// TestSeeds runs a few worlds of fresh seeds, each in a process of its own.
func TestSeeds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range *worlds {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			kind := cmp.Or(*scenario, []string{"cluster", "regions", "regioncluster", "cluster"}[i%4])
			shards := 1
			if i%4 == 3 {
				shards = 3
			}
			strikes := *faults
			if kind == "regioncluster" { // a fault there costs four times as much as in the others
				strikes = max(10, strikes/4)
			}
			args := []string{"-sim.scenario", kind, "-sim.seed", strconv.FormatUint(rand.Uint64N(1<<40), 10),
				"-sim.faults", strconv.Itoa(strikes),
				"-sim.shards", strconv.Itoa(shards), "-sim.only", *only, "-sim.work", *work, "-sim.swarm=" +
					strconv.FormatBool(i%2 == 1)}
			limit := time.Duration(0)
			if end, ok := t.Deadline(); ok { // a busy machine is no failure before that of all tests
				limit = time.Until(end) - 5*time.Second
			}
			out, err := exec.Command(self, append(args, "-test.run", "^TestWorld$", "-test.timeout",
				limit.String())...).CombinedOutput()
			if err != nil {
				t.Errorf("%v fails: %v\n%.4000s", args, err, out)
			}
			t.Logf("%.400s", out)
		})
	}
}

// report prints what became of a world, and ends the process.
func report(r Result, virtual, real time.Duration, stacks []byte) {
	result := "ok"
	if f := r.World.Failure(); f != "" {
		result = "FAILURE " + f
	}
	fmt.Printf("seed=%d faults=%d virtual=%.1fs real=%.2fs answered=%d again=%d reads=%d deals=%d holds=%d work=%s "+
		"kinds=%s\n%s\n",
		*seed, r.Faults, virtual.Seconds(), real.Seconds(), r.Answered, r.AnsweredAgain, r.Read,
		r.Deals, r.Holds, r.Work, r.Kinds, result)
	pprof.StopCPUProfile() // of -test.cpuprofile, which the end of the process would leave empty
	if result == "ok" {
		os.Exit(0)
	}
	if *keep != "" {
		if f, err := os.Create(*keep); err == nil {
			_ = r.World.WriteLog(f)
			_, _ = f.Write(stacks)
			_ = f.Close()
		}
	}
	os.Exit(1)
}
