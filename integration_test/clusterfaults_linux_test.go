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
	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/store"
)

var (
	clusterFaultCount = flag.Int("cluster.faults", 6, "how many faults TestClusterFaults makes")
	clusterShards     = flag.Int("cluster.shards", 3, "how many shards of three nodes TestClusterFaults has")
	clusterFaultSeed  = flag.Uint64("cluster.seed", 0, "the seed by which TestClusterFaults chooses them; 0: draw one")
	clusterFaultFor   = flag.Duration("cluster.for", 24*time.Hour, "TestClusterFaults makes no more faults after this time, and checks what came of them")
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
	// shards are which of the nodes form each shard.
	shards [][]int
	ids    []string // of the shards
}

// clusterFaults are what may happen to a shard, given its leader and its other nodes, or to all. Each func
// breaks something and returns what mends it. Where it matters, ends is set: clients have to wait for a new leader.
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
	{"kill -9 of all, in any order", false, func(c *faultyCluster, _ int, _ []int) func() { return c.kill(c.rand.Perm(len(c.nodes))...) }},
	{"the leader stands still for 0.6 to 5 s", true, func(c *faultyCluster, leader int, _ []int) func() { return c.pause(leader) }},
	{"a follower stands still for 0.6 to 5 s", false, func(c *faultyCluster, _ int, others []int) func() { return c.pause(others[0]) }},
	{"the leader is cut off", true, func(c *faultyCluster, leader int, _ []int) func() {
		c.hosts.mute(leader, c.allBut(leader)...)
		c.hosts.deafen(leader, c.allBut(leader)...)
		return c.hosts.heal
	}},
	{"nobody hears the leader", true, func(c *faultyCluster, leader int, _ []int) func() {
		c.hosts.mute(leader, c.allBut(leader)...)
		return c.hosts.heal
	}},
	{"the leader hears nobody", true, func(c *faultyCluster, leader int, _ []int) func() {
		c.hosts.deafen(leader, c.allBut(leader)...)
		return c.hosts.heal
	}},
	{"the leader and a follower do not hear each other", false, func(c *faultyCluster, leader int, others []int) func() {
		c.hosts.deafen(leader, others[0])
		c.hosts.mute(leader, others[0])
		return c.hosts.heal
	}},
	{"a follower hears nobody", false, func(c *faultyCluster, _ int, others []int) func() {
		c.hosts.deafen(others[0], c.allBut(others[0])...)
		return c.hosts.heal
	}},
	{"the leader's disk is full", false, func(c *faultyCluster, leader int, _ []int) func() { return c.fill(leader) }},
	{"a follower's disk is full", false, func(c *faultyCluster, _ int, others []int) func() { return c.fill(others[0]) }},
	{"the leader's disk is wiped, and it is replaced", true, func(c *faultyCluster, leader int, _ []int) func() { return c.wipe(leader) }},
	{"a follower's disk is wiped, and it is replaced", false, func(c *faultyCluster, _ int, others []int) func() { return c.wipe(others[0]) }},
	{"rolling restart", false, func(c *faultyCluster, _ int, _ []int) func() {
		for _, i := range slices.Concat(c.shards...) {
			c.nodes[i].restart()
			c.settle()
		}
		return func() {}
	}},
}

// TestClusterFaults lets machines, networks and disks fail under the nodes of a cluster, while
// clients count and partitions move. Nothing that was answered is lost, nothing is counted twice, and whoever sends
// an operation again gets the answer that it had (G1, G2). For 1000 faults, which takes hours, in one shard
// or in three:
//
//	go test ./integration_test -run TestClusterFaults -cluster.faults 1000 -cluster.shards 1 -timeout 6h -v
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
	began := time.Now()
	for c.fault = 0; c.fault < *clusterFaultCount && time.Since(began) < *clusterFaultFor && !t.Failed(); c.fault++ {
		if len(order) == 0 {
			order = c.rand.Perm(len(clusterFaults))
		}
		f := clusterFaults[order[0]]
		if order = order[1:]; !kinds.MatchString(f.kind) {
			c.fault--
			continue
		}
		shard := c.rand.IntN(len(c.shards))
		leader := c.settle()[shard]
		others := slices.DeleteFunc(slices.Clone(c.shards[shard]), func(i int) bool { return i == leader })
		c.rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		began := time.Now()
		keys, shared := c.keysOf(shard), fmt.Sprint("history-", c.fault)
		for !keys(shared) {
			shared += "-"
		}
		check := c.load.history(shared)
		quiet, end := c.load.listen(keys)
		arrive := c.move(shared)
		mend := f.make(c, leader, others)
		c.wait(600*time.Millisecond, 5*time.Second/2) // an election takes half a second
		end()
		mend()
		leads := c.settle()[shard]
		arrive()
		<-quiet.done
		tally[f.kind] = append(tally[f.kind], quiet.longest)
		switch check() {
		case porcupine.Illegal:
			t.Errorf("fault %d: what clients saw has no order", c.fault)
		case porcupine.Unknown:
			undecided++
		}
		t.Logf("%d: %s: node %d, then %d leads; %v, of which nothing was acknowledged in this shard for %v", c.fault, f.kind, leader, leads,
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

// newFaultyCluster makes one of three nodes for each shard, with clients that count.
func newFaultyCluster(t *testing.T, r *rand.Rand) *faultyCluster {
	n := 3 * *clusterShards
	c := &faultyCluster{t: t, rand: r, hosts: newHosts(t, n)}
	for i := range n {
		disk := smallDisk(t, fmt.Sprint(640+2**clusterFaultCount, "m")) // ids are remembered until the end
		s := &server{t: t, dir: filepath.Join(disk, "data"), namespace: c.hosts.namespace(i), args: []string{"--cluster-enabled", "yes",
			"--cluster-secret", "a secret among the nodes", "--bind", c.hosts.address(i), "--port", "7000", "--protected-mode", "no"}}
		s.start()
		t.Cleanup(s.cleanup)
		c.disks, c.nodes = append(c.disks, disk), append(c.nodes, s)
	}
	operate(t, 0, "is complete", append([]string{"create", "--replicas", "2", "--partitions", fmt.Sprint(faultyPartitions)}, addresses(c.nodes...)...)...)
	for _, shard := range byShard(t, c.nodes...) {
		if _, err := redisAsk(leaderOf(t, shard...), "CTABLE", "ALTER", "default", "WINDOW", 24*3600*1000); err != nil {
			t.Fatal(err)
		}
		var nodes []int
		for _, s := range shard {
			nodes = append(nodes, slices.Index(c.nodes, s))
		}
		c.shards = append(c.shards, nodes)
	}
	c.ids = shardsOf(t, c.nodes[0])
	c.load = startClusterLoad(t, addresses(c.nodes...))
	return c
}

// allBut returns all nodes but one.
func (c *faultyCluster) allBut(one int) []int {
	return slices.DeleteFunc(slices.Concat(c.shards...), func(i int) bool { return i == one })
}

// keysOf returns which keys a shard has at present.
func (c *faultyCluster) keysOf(shard int) (has func(key string) bool) {
	c.t.Helper()
	ranges, err := c.load.nodes[0].ClusterSlots(context.Background()).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	ranges = slices.DeleteFunc(ranges, func(r redis.ClusterSlot) bool {
		return !slices.ContainsFunc(c.shards[shard], func(i int) bool { return c.nodes[i].address() == r.Nodes[0].Addr })
	})
	return func(key string) bool {
		slot := int(store.Slot([]byte(key)))
		return slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool { return r.Start <= slot && slot <= r.End })
	}
}

// settle waits until one node of each shard leads, and the others have what was committed when it began to, and
// returns the leaders.
func (c *faultyCluster) settle() (leaders []int) {
	c.t.Helper()
	targets, why := make([]int64, len(c.shards)), ""
	defer func() {
		if c.t.Failed() {
			c.t.Log(why)
		}
	}()
	eventually(c.t, 2*patience, "one node of each shard leads and the others follow", func() bool {
		leaders, why = nil, ""
		for s, shard := range c.shards {
			have := 0
			for _, i := range shard {
				role, err := c.load.nodes[i].Do(context.Background(), "ROLE").Slice()
				why += fmt.Sprintln(i, role, err)
				switch {
				case err != nil || len(role) < 3:
					return false
				case role[0] == "master":
					leaders = append(leaders, i)
					targets[s] = cmp.Or(targets[s], role[1].(int64))
					for _, replica := range role[2].([]any) {
						if at, _ := strconv.ParseInt(fmt.Sprint(replica.([]any)[2]), 10, 64); at >= targets[s] {
							have++
						}
					}
				}
			}
			if len(leaders) != s+1 || have != len(shard)-1 {
				return false
			}
		}
		return true
	})
	return leaders
}

// move begins to move the partition of a key, and another one, to some shard, or to divide all evenly again, and returns what
// waits until that is done.
func (c *faultyCluster) move(key string) (arrive func()) {
	if len(c.shards) == 1 {
		return func() {}
	}
	args := []string{"cluster", "rebalance", "--yes", c.nodes[c.rand.IntN(len(c.nodes))].address()}
	if c.fault%2 == 0 {
		of := int(store.Slot([]byte(key))) * faultyPartitions / 16384
		other := (of + 1 + c.rand.IntN(faultyPartitions-1)) % faultyPartitions
		args[1] = "move"
		args = append(args, "--partitions", fmt.Sprintf("%d,%d", of, other), "--to", c.ids[c.rand.IntN(len(c.ids))])
	}
	moving := background(c.t, args...)
	return func() {
		c.t.Helper()
		moving.cmd.Process.Kill() // the nodes do not need it
		<-moving.done
		eventually(c.t, 2*patience, "partitions have moved", func() bool {
			_, code := fbfkv(c.t, args...)
			return code == 0
		})
	}
}

// faultyPartitions is how many partitions a cluster of several shards has.
const faultyPartitions = 16

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
