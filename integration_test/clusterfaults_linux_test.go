package integration

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

var (
	clusterFaultCount = flag.Int("cluster.faults", 6, "how many faults TestClusterFaults makes")
	clusterFaultSeed  = flag.Uint64("cluster.seed", 0, "the seed by which TestClusterFaults chooses them; 0: draw one")
	clusterFaultKind  = flag.String("cluster.fault", "", "the only kinds of faults that TestClusterFaults makes: a regular expression")
)

// faultyCluster is a cluster whose nodes have a network and a disk each, that can fail.
type faultyCluster struct {
	t     *testing.T
	rand  *rand.Rand
	hosts *hosts
	disks []string // where a node's file system is mounted; its data directory is in it
	nodes []*server
	load  *clusterLoad
	fault int
}

// clusterFaults are what may happen to a cluster. Each func breaks something and returns what
// mends it. Where it matters, ends is set: clients have to wait for a new leader.
var clusterFaults = []struct {
	kind string
	ends bool
	make func(c *faultyCluster, leader int, others []int) (mend func())
}{
	{"kill -9 of the leader", true, func(c *faultyCluster, leader int, _ []int) func() { return c.kill(leader) }},
	{"kill -9 of a follower", false, func(c *faultyCluster, _ int, others []int) func() { return c.kill(others[0]) }},
	{"kill -9 of both followers, then of the leader", false, func(c *faultyCluster, leader int, others []int) func() {
		return c.kill(others[0], others[1], leader)
	}},
	{"kill -9 of all, in any order", false, func(c *faultyCluster, _ int, _ []int) func() { return c.kill(c.rand.Perm(3)...) }},
	{"the leader stands still for 0.6 to 5 s", true, func(c *faultyCluster, leader int, _ []int) func() { return c.pause(leader) }},
	{"a follower stands still for 0.6 to 5 s", false, func(c *faultyCluster, _ int, others []int) func() { return c.pause(others[0]) }},
	{"the leader is cut off", true, func(c *faultyCluster, leader int, others []int) func() {
		c.hosts.mute(leader, others...)
		c.hosts.deafen(leader, others...)
		return c.hosts.heal
	}},
	{"nobody hears the leader", true, func(c *faultyCluster, leader int, others []int) func() {
		c.hosts.mute(leader, others...)
		return c.hosts.heal
	}},
	{"the leader hears nobody", true, func(c *faultyCluster, leader int, others []int) func() {
		c.hosts.deafen(leader, others...)
		return c.hosts.heal
	}},
	{"the leader and a follower do not hear each other", false, func(c *faultyCluster, leader int, others []int) func() {
		c.hosts.deafen(leader, others[0])
		c.hosts.mute(leader, others[0])
		return c.hosts.heal
	}},
	{"a follower hears nobody", false, func(c *faultyCluster, leader int, others []int) func() {
		c.hosts.deafen(others[0], leader, others[1])
		return c.hosts.heal
	}},
	{"the leader's disk is full", false, func(c *faultyCluster, leader int, _ []int) func() { return c.fill(leader) }},
	{"a follower's disk is full", false, func(c *faultyCluster, _ int, others []int) func() { return c.fill(others[0]) }},
	{"the leader's disk is wiped, and it is replaced", true, func(c *faultyCluster, leader int, _ []int) func() { return c.wipe(leader) }},
	{"a follower's disk is wiped, and it is replaced", false, func(c *faultyCluster, _ int, others []int) func() { return c.wipe(others[0]) }},
	{"rolling restart", false, func(c *faultyCluster, leader int, others []int) func() {
		for _, i := range append(others, leader) {
			c.nodes[i].restart()
			c.settle()
		}
		return func() {}
	}},
}

// TestClusterFaults lets machines, networks and disks fail under the nodes of a cluster, while
// clients count. Nothing that was answered is lost, nothing is counted twice, and whoever sends
// an operation again gets the answer that it had (G1, G2). For 1000 faults, which takes hours:
//
//	go test ./integration_test -run TestClusterFaults -cluster.faults 1000 -timeout 6h -v
func TestClusterFaults(t *testing.T) {
	seed := *clusterFaultSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-cluster.seed=%d", seed)
	c := newFaultyCluster(t, rand.New(rand.NewPCG(seed, 0)))
	kinds := regexp.MustCompile(*clusterFaultKind)
	tally, undecided := make(map[string][]time.Duration), 0
	var order []int
	for c.fault = 0; c.fault < *clusterFaultCount && !t.Failed(); c.fault++ {
		if len(order) == 0 {
			order = c.rand.Perm(len(clusterFaults))
		}
		f := clusterFaults[order[0]]
		if order = order[1:]; !kinds.MatchString(f.kind) {
			c.fault--
			continue
		}
		leader := c.settle()
		others := slices.DeleteFunc(c.rand.Perm(len(c.nodes)), func(i int) bool { return i == leader })
		began := time.Now()
		check := c.load.history(fmt.Sprint("history-", c.fault))
		quiet, end := c.load.listen()
		mend := f.make(c, leader, others)
		c.wait(600*time.Millisecond, 5*time.Second/2) // an election takes half a second
		end()
		mend()
		leads := c.settle()
		<-quiet.done
		tally[f.kind] = append(tally[f.kind], quiet.longest)
		switch check() {
		case porcupine.Illegal:
			t.Errorf("fault %d: what clients saw has no order", c.fault)
		case porcupine.Unknown:
			undecided++
		}
		t.Logf("%d: %s: node %d, then %d leads; %v, of which nothing was acknowledged for %v", c.fault, f.kind, leader, leads,
			time.Since(began).Round(time.Millisecond), quiet.longest.Round(time.Millisecond))
		if quiet.longest > 10*time.Second {
			for i, n := range c.nodes {
				t.Logf("end of the log of node %d:\n%s", i, tail(n.log.String(), 4000))
			}
		}
	}
	c.load.end()
	found := c.load.verify()
	report(t, tally, found)
	if undecided > 0 {
		t.Logf("%d histories were too intricate to decide", undecided)
	}
	if bad := found; bad.lost+bad.doubled+bad.answers+bad.wrongAgain > 0 {
		t.Errorf("%+v", bad)
	}
}

// report prints what came of the faults.
func report(t *testing.T, tally map[string][]time.Duration, found losses) {
	var b strings.Builder
	b.WriteString("| fault | times | longest time without an acknowledged write: median | 99th percentile |\n| --- | --- | --- | --- |\n")
	row := func(kind string, took []time.Duration) {
		if slices.Sort(took); len(took) > 0 {
			fmt.Fprintf(&b, "| %s | %d | %.2f s | %.2f s |\n", kind, len(took), took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds())
		}
	}
	var all, elected []time.Duration
	for _, f := range clusterFaults {
		row(f.kind, tally[f.kind])
		if all = append(all, tally[f.kind]...); f.ends {
			elected = append(elected, tally[f.kind]...)
		}
	}
	row("**all after which there must be a new leader**", elected)
	row("**all**", all)
	t.Logf("\n%s\n%d operations, sent again %d times meanwhile; lost %d, counted twice %d, answers out of order %d, wrong original answers %d",
		&b, found.operations, found.retries, found.lost, found.doubled, found.answers, found.wrongAgain)
}

// newFaultyCluster makes one of three nodes, with clients that count.
func newFaultyCluster(t *testing.T, r *rand.Rand) *faultyCluster {
	c := &faultyCluster{t: t, rand: r, hosts: newHosts(t, 3)}
	for i := range 3 {
		disk := smallDisk(t, fmt.Sprint(640+2**clusterFaultCount, "m")) // ids are remembered until the end
		s := &server{t: t, dir: filepath.Join(disk, "data"), namespace: c.hosts.namespace(i), args: []string{"--cluster-enabled", "yes",
			"--cluster-secret", "a secret among the nodes", "--bind", c.hosts.address(i), "--port", "7000", "--protected-mode", "no"}}
		s.start()
		t.Cleanup(s.cleanup)
		c.disks, c.nodes = append(c.disks, disk), append(c.nodes, s)
	}
	operate(t, 0, "is complete", append([]string{"create"}, addresses(c.nodes...)...)...)
	if _, err := redisAsk(leaderOf(t, c.nodes...), "CTABLE", "ALTER", "default", "WINDOW", 24*3600*1000); err != nil {
		t.Fatal(err)
	}
	c.load = startClusterLoad(t, addresses(c.nodes...))
	return c
}

// settle waits until one node leads, and the others have what was committed when it began to, and
// returns the leader.
func (c *faultyCluster) settle() (leader int) {
	c.t.Helper()
	target, why := int64(0), ""
	defer func() {
		if c.t.Failed() {
			c.t.Log(why)
		}
	}()
	eventually(c.t, 2*patience, "one node leads and the others follow", func() bool {
		leaders, have := 0, 0
		why = ""
		for i, n := range c.load.nodes {
			role, err := n.Do(context.Background(), "ROLE").Slice()
			why += fmt.Sprintln(i, role, err)
			switch {
			case err != nil || len(role) < 3:
				return false
			case role[0] == "master":
				leader, leaders = i, leaders+1
				target = cmp.Or(target, role[1].(int64))
				for _, replica := range role[2].([]any) {
					if at, _ := strconv.ParseInt(fmt.Sprint(replica.([]any)[2]), 10, 64); at >= target {
						have++
					}
				}
			}
		}
		return leaders == 1 && have == len(c.nodes)-1
	})
	return leader
}

// wait lets some time pass, up to a limit.
func (c *faultyCluster) wait(least, limit time.Duration) {
	time.Sleep(least + time.Duration(c.rand.Int64N(int64(limit-least))))
}

// kill ends nodes as kill -9 does, one soon after the other.
func (c *faultyCluster) kill(nodes ...int) (start func()) {
	for _, i := range nodes {
		c.nodes[i].kill()
	}
	return func() {
		for _, i := range nodes {
			c.nodes[i].start()
		}
	}
}

// pause stops a process.
func (c *faultyCluster) pause(i int) (mend func()) {
	p := c.nodes[i].cmd.Process
	p.Signal(syscall.SIGSTOP)
	c.wait(0, 5*time.Second/2)
	return func() { p.Signal(syscall.SIGCONT) }
}

// fill fills a node's disk.
func (c *faultyCluster) fill(i int) (mend func()) {
	neighbour := filepath.Join(c.disks[i], "neighbour")
	fillDisk(c.t, neighbour)
	return func() {
		if err := os.Remove(neighbour); err != nil {
			c.t.Error(err)
		}
		select {
		case <-c.nodes[i].done: // it had no space to go on: somebody starts it again
			c.nodes[i].start()
		default:
		}
	}
}

// wipe takes a node's disk, and puts a new one in its place.
func (c *faultyCluster) wipe(i int) (mend func()) {
	s := c.nodes[i]
	s.kill()
	return func() {
		if err := os.RemoveAll(s.dir); err != nil {
			c.t.Error(err)
		}
		s.start()
		other := c.nodes[(i+1)%len(c.nodes)].address()
		operate(c.t, 0, "has caught up and votes", "replace", other, s.address(), s.address())
	}
}
