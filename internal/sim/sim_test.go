package sim

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	scenario = flag.String("sim.scenario", "", "cluster, regions, or regioncluster: one of the regions is a cluster; TestSeeds: one after the other")
	seed     = flag.Uint64("sim.seed", 0, "run the world of this seed, and end the process")
	faults   = flag.Int("sim.faults", 40, "how many faults strike")
	every    = flag.Duration("sim.every", 400*time.Millisecond, "mean time between two faults")
	only     = flag.String("sim.only", "", "names of faults, separated by commas: no others strike")
	work     = flag.String("sim.work", "", "what clients of a cluster do, separated by commas, and not everything")
	shards   = flag.Int("sim.shards", 1, "how many shards of three nodes a cluster has")
	swarm    = flag.Bool("sim.swarm", false, "a third of the kinds of faults strike")
	trace    = flag.Bool("sim.trace", false, "write the log to standard error as it grows")
	worlds   = flag.Int("sim.worlds", 3, "how many worlds TestSeeds runs")
	keep     = flag.String("sim.log", "", "a file that gets the log of a world that fails")
)

// TestWorld runs one world and ends the process: one that has run a world can run no other.
func TestWorld(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -sim.seed")
	}
	cryptotest.SetGlobalRandom(t, *seed)
	o := Options{Seed: *seed, Faults: *faults, Every: *every, Only: *only, Work: *work, Swarm: *swarm, Shards: *shards}
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
	go func() { (<-end)() }() // outside the bubble
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
			args := []string{"-sim.scenario", kind, "-sim.seed", strconv.FormatUint(rand.Uint64N(1<<40), 10), "-sim.faults", strconv.Itoa(*faults),
				"-sim.shards", strconv.Itoa(shards), "-sim.only", *only, "-sim.work", *work, "-sim.swarm=" + strconv.FormatBool(i%2 == 1)}
			if out, err := exec.Command(self, append(args, "-test.run", "^TestWorld$", "-test.timeout", "5m")...).CombinedOutput(); err != nil {
				t.Errorf("%v fails: %v\n%.4000s", args, err, out)
			}
		})
	}
}

// report prints what became of a world, and ends the process.
func report(r Result, virtual, real time.Duration, stacks []byte) {
	result := "ok"
	if f := r.World.Failure(); f != "" {
		result = "FAILURE " + f
	}
	fmt.Printf("seed=%d faults=%d virtual=%.1fs real=%.2fs answered=%d again=%d reads=%d work=%s kinds=%s\n%s\n",
		*seed, r.Faults, virtual.Seconds(), real.Seconds(), r.Answered, r.AnsweredAgain, r.Read, r.Work, r.Kinds, result)
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
