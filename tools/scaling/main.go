// Command scaling measures how the throughput of a cluster grows with its shards. Every server process may use an equal
// slice of one processor (a control group), so small that all of them and the clients, which are not in a slice, leave
// the machine's processors idle at times. So one machine tells what as many would do, as far as processors go: the disk
// and the network are shared.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

const help = `Measures the throughput of clusters of some shards, each process with an equal slice of a processor:

	make build && go -C tools run ./scaling -plot ../docs/performance/scaling.svg

Clients count with CINCRBY; a pipeline has %d operations for each shard, on keys of all slots. Each layout gets new
servers, in turn: 1x1, 2x1, ..., and again. TMPDIR says where their data is.

`

const (
	depth    = 16     // operations of a pipeline for each shard, on average
	counters = 10_000 // for each shard
)

// options are the flags.
type options struct {
	fbfkv, layouts, plot string
	slice                float64
	rounds               int
	clients, partitions  int
	warmup, duration     time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.fbfkv, "fbfkv", "../fbfkv", "the `program`; make build makes it")
	flag.StringVar(&o.layouts, "layouts", "1x1,2x1,3x1,1x3,2x3,3x3", "what is measured: shards x nodes of each")
	flag.Float64Var(&o.slice, "slice", 10, "each process' part of one processor, `percent`; 0 for no bound")
	flag.IntVar(&o.clients, "clients", 256, "how many clients count, each with a connection to each leader")
	flag.IntVar(&o.partitions, "partitions", 0, "of every cluster, as if it had grown from one shard; "+
		"0: 16 for each shard, or the next power of two")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each layout is measured")
	flag.DurationVar(&o.warmup, "warmup", 3*time.Second, "how long each runs before")
	flag.DurationVar(&o.duration, "duration", 8*time.Second, "how long each is measured")
	flag.StringVar(&o.plot, "plot", "", "the `file` for a plot, .svg or .png")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), help, depth)
		flag.PrintDefaults()
	}
	flag.Parse()
	process.Main(o.run)
}

// A node that waits for its next slice is late with its heartbeats: it must not count as dead. A measurement
// in which a leader is lost nevertheless is taken again, so often in all.
const (
	nodeTimeout = "10000" // ms
	tries       = 3
)

// layout is a number of shards of so many nodes each.
type layout struct{ shards, nodes int }

// parseLayouts reads the flag.
func parseLayouts(text string) (all []layout, err error) {
	for word := range strings.SplitSeq(text, ",") {
		var l layout
		_, err := fmt.Sscanf(word, "%dx%d", &l.shards, &l.nodes)
		if err != nil || l.shards < 1 || l.nodes < 1 || word != fmt.Sprintf("%dx%d", l.shards, l.nodes) {
			return nil, fmt.Errorf("-layouts: %q is not SHARDSxNODES", word)
		}
		all = append(all, l)
	}
	return all, nil
}

func (l layout) String() string { return fmt.Sprintf("%d shards of %d nodes", l.shards, l.nodes) }

func (o *options) run(ctx context.Context) {
	layouts := process.Must(parseLayouts(o.layouts))
	process.Check(process.Find("-fbfkv", o.fbfkv))
	if o.slice != 0 && !(o.slice >= 5 && o.slice <= 100) || o.rounds < 1 || o.clients < 1 || o.duration <= 0 {
		process.Check(errors.New("-slice is 0, or 5 to 100 percent; -rounds, -duration and -clients are above 0"))
	}
	rounds, again := make([][]measured, len(layouts)), 0
	for round := range o.rounds {
		for i, l := range layouts {
			m, err := o.measure(ctx, l)
			for try := 1; errors.Is(err, process.ErrMoved) && try < tries; try++ {
				again++
				m, err = o.measure(ctx, l)
			}
			process.Check(err)
			rounds[i] = append(rounds[i], m)
			fmt.Fprintf(os.Stderr, "round %d of %d, %s: %s\n", round+1, o.rounds, l, m)
		}
	}
	fmt.Print(report(layouts, rounds, o.slice))
	if again > 0 {
		fmt.Printf("%d measurements were taken again, since a leader was lost.\n", again)
	}
	if o.plot != "" {
		process.Check(plotScaling(o.plot, layouts, rounds, o.slice))
	}
}

// measured is one measurement.
type measured struct {
	rate    float64   // operations per second
	cpu     float64   // processor time of all servers, µs an operation
	leaders []float64 // processor time of the leaders, % of one processor
	load    float64   // the machine's load average over a minute
}

func (m measured) String() string {
	return fmt.Sprintf("%.0f operations/s, leaders %.1f %% of a processor, load average %.1f", m.rate, m.leaders, m.load)
}

// measure measures new servers once.
func (o *options) measure(ctx context.Context, l layout) (m measured, err error) {
	all := process.Must(process.Cluster(ctx, o.fbfkv, l.shards, l.nodes, o.partitions, "--cluster-node-timeout", nodeTimeout))
	var bounds []*slice
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
		for _, s := range bounds {
			err = errors.Join(err, s.close())
		}
	}()
	counting := o.newLoad(ctx, all[0].Address)
	if len(counting.Leaders) != l.shards {
		process.Check(fmt.Errorf("%d nodes lead", len(counting.Leaders)))
	}
	for _, p := range all {
		if o.slice == 0 {
			break
		}
		bounds = append(bounds, process.Must(newSlice(p.PID(), o.slice)))
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- counting.Run(running) }()
	process.Sleep(ctx, o.warmup)
	before := look(all, counting)
	process.Sleep(ctx, o.duration)
	m = look(all, counting).since(before, all, counting.Leaders)
	stop()
	return m, errors.Join(<-ended, ctx.Err())
}

// newLoad finds out who leads what.
func (o *options) newLoad(ctx context.Context, address string) *process.Load {
	ranges := process.Must(process.Slots(ctx, address))
	l := &process.Load{Leaders: process.Leaders(ranges), Clients: o.clients, Depth: depth}
	var owner [16384]int
	for _, r := range ranges {
		for slot := r.Start; slot <= r.End; slot++ {
			owner[slot] = slices.Index(l.Leaders, r.Nodes[0].Addr)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: address, DisableIdentity: true})
	defer c.Close()
	l.Keys = process.Keys(counters * len(l.Leaders))
	asked := c.Pipeline()
	for _, k := range l.Keys {
		asked.ClusterKeySlot(ctx, k.Name)
	}
	for i, a := range process.Must(asked.Exec(ctx)) {
		l.Keys[i].Leader = owner[a.(*redis.IntCmd).Val()]
	}
	return l
}

// moment is what counters of the system say.
type moment struct {
	at      time.Time
	done    int64
	servers []float64 // their processor time, seconds
}

func look(all []*process.Process, l *process.Load) (m moment) {
	m = moment{at: time.Now(), done: l.Done.Load()}
	for _, p := range all {
		m.servers = append(m.servers, p.CPU())
	}
	return m
}

// since compares with an earlier moment.
func (m moment) since(before moment, all []*process.Process, leaders []string) (d measured) {
	seconds := m.at.Sub(before.at).Seconds()
	percent := func(now, then float64) float64 { return 100 * (now - then) / seconds }
	d = measured{rate: float64(m.done-before.done) / seconds}
	sum := 0.0
	for i, p := range all {
		used := percent(m.servers[i], before.servers[i])
		sum += used
		if slices.Contains(leaders, p.Address) {
			d.leaders = append(d.leaders, used)
		}
	}
	d.cpu = sum / 100 / d.rate * 1e6
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &d.load) // the kernel writes a number
	}
	return d
}

// slicePeriod is how often a slice of the processor begins anew, µs: short beside the time-outs of a cluster.
const slicePeriod = 20_000

// slice is a control group that may use a part of one processor.
type slice struct{ dir string }

// newSlice puts a process with all its threads into a group that may use so many percent of a processor, and gets them
// before what else the machine does. Only root may.
func newSlice(pid int, percent float64) (*slice, error) {
	quota := strconv.Itoa(int(percent / 100 * slicePeriod))
	parent, settings := "/sys/fs/cgroup/cpu", [][2]string{{"cpu.cfs_period_us", strconv.Itoa(slicePeriod)}, {"cpu.cfs_quota_us", quota}, {"cpu.shares", "262144"}}
	if b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil && strings.Contains(string(b), "cpu") { // version 2
		parent, settings = "/sys/fs/cgroup", [][2]string{{"cpu.max", fmt.Sprint(quota, " ", slicePeriod)}, {"cpu.weight", "10000"}}
		process.Check(os.WriteFile(parent+"/cgroup.subtree_control", []byte("+cpu"), 0))
	}
	s := &slice{filepath.Join(parent, fmt.Sprintf("fbfkv-scaling-%d", pid))}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("a slice of the processor: %w (only root can make one; -slice 0 measures without)", err)
	}
	for _, set := range append(settings, [2]string{"cgroup.procs", strconv.Itoa(pid)}) {
		if err := os.WriteFile(filepath.Join(s.dir, set[0]), []byte(set[1]), 0); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// close removes the group, whose process has ended.
func (s *slice) close() error { return os.Remove(s.dir) }
