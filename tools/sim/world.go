package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// worldLimit bounds the real time of one world, so that none runs for ever: they take seconds on a quiet machine. One that has not
// ended then is slow, and not a failure. A frozen one fails by itself.
const worldLimit = 15 * time.Minute

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

	accounts, deals, clients int // 0: as the simulator's default
}

// args returns the flags of the test binary, and of this command.
func (w world) args(prefix string) []string {
	a := []string{prefix + "scenario", w.scenario, prefix + "seed", strconv.FormatUint(w.seed, 10), prefix + "shards", strconv.Itoa(w.shards), prefix + "faults", strconv.Itoa(w.faults)}
	for _, f := range []struct {
		name string
		n    int
	}{{"accounts", w.accounts}, {"deals", w.deals}, {"clients", w.clients}} {
		if f.n > 0 {
			a = append(a, prefix+f.name, strconv.Itoa(f.n))
		}
	}
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

// command returns the command that runs the world.
func (w world) command() string { return "go -C tools run ./sim " + strings.Join(w.args("-"), " ") }

// runner runs worlds.
type runner struct {
	binary string
	logs   string // the folder of the logs of those that fail
	spent  atomic.Int64
}

// build builds the simulator of the product in a directory; "": in the one that this command's module names.
func (r *runner) build(tree string) error {
	if tree == "" {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/fbfkv/fbfkv").Output()
		if err != nil {
			return fmt.Errorf("where the product is: %w", err)
		}
		tree = strings.TrimSpace(string(out))
	}
	c := exec.Command("go", "test", "-c", "-o", r.binary, "github.com/fbfkv/fbfkv/internal/sim")
	c.Dir, c.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	r.spend(c)
	if err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// spend counts the CPU time of a process that has ended, and of its own.
func (r *runner) spend(c *exec.Cmd) (took time.Duration) {
	if s := c.ProcessState; s != nil {
		took = s.UserTime() + s.SystemTime()
	}
	r.spent.Add(int64(took))
	return took
}

// verdict is what became of a world.
type verdict int

const (
	sound  verdict = iota
	failed         // a promise was broken, or the simulator panics
	slow           // it did not end within worldLimit
)

// result is what is known of a world that was run.
type result struct {
	verdict verdict
	text    string        // what it printed
	took    time.Duration // of CPU time
	struck  int           // how many faults had struck
	deals   int           // operations of money, stock and limits
	holds   int           // that were opened
	work    string
	kinds   []string
}

// summary matches the line that a world prints at its end.
var summary = regexp.MustCompile(`faults=(\d+) .*deals=(\d+) holds=(\d+) work=(\S*) kinds=(\S*)`)

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
	res := result{text: out.String(), took: r.spend(c)}
	switch {
	case err == nil:
		return res.summed()
	case ctx.Err() != nil:
		res.verdict = slow
		res.text = fmt.Sprintf("slow: it has not ended within %v of real time, and took %v of CPU time: the machine is busy, or the world has no end\n", worldLimit, res.took.Round(time.Second)) + res.text
	default:
		res.verdict = failed
		if !summary.MatchString(res.text) { // not even the world says why
			res.text = fmt.Sprintf("FAILURE the process ends with %v\n", err) + res.text
		}
	}
	return res.summed()
}

// summed reads the summary of a world.
func (res result) summed() result {
	if m := summary.FindStringSubmatch(res.text); m != nil {
		res.struck, _ = strconv.Atoi(m[1])
		res.deals, _ = strconv.Atoi(m[2])
		res.holds, _ = strconv.Atoi(m[3])
		res.work = m[4]
		if m[5] != "" {
			res.kinds = strings.Split(m[5], ",")
		}
	}
	return res
}

func (r *runner) log(w world) string {
	return filepath.Join(r.logs, fmt.Sprintf("fbfkv-sim-%d.log", w.seed))
}

// report prints a world that failed, and how to run it again.
func (r *runner) report(w world, res result) {
	text := res.text
	if len(text) > 4000 {
		text = text[:4000] + "…"
	}
	fmt.Printf("%s\nagain: %s\nlog:   %s\n", strings.TrimSuffix(text, "\n"), w.command(), r.log(w))
}
