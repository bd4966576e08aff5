package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startNode starts a server that may become a node of a cluster, on ports that stay.
func startNode(t testing.TB, args ...string) *server {
	t.Helper()
	return startServer(t, append([]string{"--cluster-enabled", "yes", "--port", fmt.Sprint(freePorts(t, 1))},
		args...)...)
}

// startNodes starts some.
func startNodes(t testing.TB, n int, args ...string) (all []*server) {
	for range n {
		all = append(all, startNode(t, args...))
	}
	return all
}

// addresses are where clients reach servers.
func addresses(all ...*server) (list []string) {
	for _, s := range all {
		list = append(list, s.address())
	}
	return list
}

// operate runs `fbfkv cluster` without asking and expects its exit status and a text in what it
// prints; of status, and of a command that has little patience, in the end.
func operate(t testing.TB, code int, want string, args ...string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		out, got := fbfkv(t, append([]string{"cluster", args[0], "--yes"}, args[1:]...)...)
		if got == code && strings.Contains(out, want) {
			return out
		}
		// The status is of a moment, in which an election may be under way. And a node may be about to start
		// again, with files that it has fetched.
		moment := args[0] == "status" || slices.Contains(args, "--patience") ||
			code == 0 && strings.Contains(out, "connection refused")
		if !moment || time.Now().After(end) {
			t.Fatalf("fbfkv cluster %s: exit status %d, want %d with %q:\n%s", strings.Join(args, " "), got,
				code, want, out)
		}
	}
}

// startCluster makes a cluster of servers.
func startCluster(t testing.TB, n int, args ...string) []*server {
	all := startNodes(t, n, args...)
	operate(t, 0, "is complete", append([]string{"create"}, addresses(all...)...)...)
	return all
}

// byShard returns which servers are the nodes of each shard, as the first one says.
func byShard(t testing.TB, all ...*server) (shards [][]*server) {
	t.Helper()
	c := all[0].client()
	defer c.Close()
	answer, err := c.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range answer {
		var nodes []*server
		for _, s := range all {
			if slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool {
				return s.address() == net.JoinHostPort(n.IP, strconv.FormatInt(n.Port, 10))
			}) {
				nodes = append(nodes, s)
			}
		}
		shards = append(shards, nodes)
	}
	return shards
}

// holderOf returns the server that leads the shard of a key.
func holderOf(t testing.TB, key string, all ...*server) (holder *server) {
	t.Helper()
	eventually(t, patience, "the key has a leader", func() bool {
		_, err := redisAsk(all[0], "CGET", key)
		if err == nil || errors.Is(err, redis.Nil) {
			holder = all[0]
			return true
		}
		f := strings.Fields(err.Error())
		i := slices.IndexFunc(all, func(s *server) bool { return f[0] == "MOVED" && s.address() == f[2] })
		if i >= 0 {
			holder = all[i]
		}
		return i >= 0
	})
	return holder
}

// leaderOf waits until one of the servers leads, and returns it.
func leaderOf(t testing.TB, all ...*server) (leader *server) {
	t.Helper()
	eventually(t, patience, "a leader", func() bool {
		for _, s := range all {
			c, err := net.DialTimeout("tcp", s.address(), time.Second) // or later
			if err != nil {
				continue
			}
			c.Close()
			if out, _ := redisAsk(s, "ROLE"); strings.HasPrefix(out, "[master") {
				leader = s
				return true
			}
		}
		return false
	})
	return leader
}

// redisAsk sends a command to one server, wherever the keys are.
func redisAsk(s *server, args ...any) (string, error) {
	c := s.client()
	defer c.Close()
	v, err := c.Do(s.t.Context(), args...).Result()
	return fmt.Sprint(v), err
}

// counts expects a counter's next value of the leader.
func counts(t *testing.T, want int, opid string, all ...*server) {
	t.Helper()
	eventually(t, patience, "the counter is counted", func() bool {
		out, err := redisAsk(leaderOf(t, all...), "CINCRBY", "k", opid, 1)
		return err == nil && out == fmt.Sprint(want)
	})
}

// TestClusterLifecycle makes a cluster, loses its leader, replaces what lost its directory,
// grows and shrinks. Each command ends with 0 when it is sent again, and nothing is done
// without a yes.
func TestClusterLifecycle(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	create := append([]string{"create"}, addresses(all...)...)
	if out, code := fbfkv(t, append([]string{"cluster"}, create...)...); code != 1 ||
		!strings.Contains(out, "nothing was done") {
		t.Fatalf("without a yes: %d %s", code, out)
	}
	if out, err := redisAsk(all[0], "SET", "k", 1); err == nil ||
		!strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		t.Errorf("before there is a cluster: %s %v", out, err)
	}
	operate(t, 0, "is complete", create...)
	if !slices.ContainsFunc(all, func(s *server) bool {
		out, err := redisAsk(s, "CLUSTER", "FBFKV", "info", "{}")
		return err == nil && strings.Contains(out, `"settled":true`)
	}) {
		t.Error("the cluster would not survive the loss of a node yet")
	}
	operate(t, 0, "exists already", create...)
	eventually(t, patience, "the log tells of the act", func() bool {
		return strings.Contains(all[0].log.String(), `"CLUSTER FBFKV init `)
	})
	if strings.Contains(all[0].log.String(), `"CLUSTER FBFKV info `) {
		t.Error("the log tells of looks at the node as of acts")
	}
	counts(t, 1, "a", all...)

	leader := leaderOf(t, all...)
	leader.kill()
	rest := without(all, leader)
	counts(t, 1, "a", rest...)
	counts(t, 2, "b", rest...)
	any := rest[0].address()
	operate(t, 1, "is lost", "status", any)
	leader.start()
	counts(t, 2, "b", all...)
	eventually(t, patience, "all are well", func() bool {
		_, code := fbfkv(t, "cluster", "status", any)
		return code == 0
	})

	// The directory is lost: what comes back at the address is another node.
	leader.kill()
	if err := os.RemoveAll(leader.dir); err != nil {
		t.Fatal(err)
	}
	leader.start()
	operate(t, 1, "answers with an empty directory", "status", any)
	replace := []string{"replace", any, leader.address(), leader.address()}
	operate(t, 0, "has caught up and votes", replace...)
	operate(t, 0, "nothing to replace", replace...)
	counts(t, 2, "b", all...)

	// Another one takes a living one's place, the leader's.
	fresh, gone := startNode(t), leaderOf(t, all...)
	any = without(all, gone)[0].address()
	operate(t, 0, "has caught up and votes", "replace", any, gone.address(), fresh.address())
	if code := gone.exitCode(); code != 0 {
		t.Errorf("the node that was replaced ends with %d:\n%s", code, gone.log)
	}
	operate(t, 0, "nothing to replace", "replace", any, gone.address(), fresh.address())
	gone.launch()
	if code := gone.exitCode(); code != 1 ||
		!strings.Contains(gone.log.String(), "removed from its cluster") {
		t.Errorf("started again it ends with %d:\n%s", code, gone.log)
	}
	all = append(without(all, gone), fresh)
	counts(t, 3, "c", all...)

	operate(t, 1, "is a node of the cluster already", "replace", any, all[0].address(), fresh.address())
	operate(t, 0, "3 nodes", "status", any)

	two := startNodes(t, 2)
	add := []string{"add-node", strings.Join(addresses(two...), ","), any}
	operate(t, 0, "votes", add...)
	operate(t, 0, "already", add...)
	operate(t, 0, "5 nodes", "status", any)
	remove := []string{"remove-node", any, two[0].address()}
	operate(t, 0, "is no longer a member", remove...)
	operate(t, 0, "has no node", remove...)
	operate(t, 0, "4 nodes", "status", any)
	counts(t, 3, "c", append(all, two[1])...)
	counts(t, 4, "d", append(all, two[1])...)
}

// TestLeaderIsFound has add-node wait for a yes until a node leads that has joined meanwhile: it
// finds that node all the same. The one that is meant to lead is lost.
func TestLeaderIsFound(t *testing.T) {
	t.Parallel()
	all, third, fourth := startCluster(t, 2), startNode(t), startNode(t)
	known := all[1].address()
	cmd := exec.Command(program, "cluster", "add-node", fourth.address(), known)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	add := start(t, cmd)
	if !add.log.await(regexp.MustCompile(`Type "yes"`), add.done) {
		t.Fatalf("it does not ask:\n%s", add.log)
	}
	operate(t, 0, "has caught up and votes", "add-node", third.address(), known)
	all[0].kill()
	id, err := redisAsk(third, "CLUSTER", "MYID")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the third node leads", func() bool {
		leader := leaderOf(t, all[1], third)
		if leader != third {
			// else it is tried again
			_, _ = redisAsk(leader, "CLUSTER", "FBFKV", "hand-over", fmt.Sprintf(`{"id":%q}`, id))
		}
		return leader == third
	})
	fmt.Fprintln(in, "yes")
	if code := add.exitCode(); code != 0 || !strings.Contains(add.log.String(), "has caught up and votes") {
		t.Fatalf("exit status %d:\n%s", code, add.log)
	}
	counts(t, 1, "a", all[1], third, fourth)
}

// without returns the servers but one.
func without(all []*server, one *server) (rest []*server) {
	for _, s := range all {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}

// TestClusterRefusals names servers that do not fit the command. Each answer says why, and nothing
// has changed.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	alone, free, full, spare := startServer(t), startNode(t), startNode(t), startNode(t)
	secret := startNode(t, "--cluster-secret", "another secret than that of the others")
	one, other := startCluster(t, 1)[0], startCluster(t, 1)[0]
	giveData(t, full)
	a := func(s *server) string { return s.address() }
	_, port, _ := net.SplitHostPort(a(free))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"create", a(free), a(alone)}, "was started without a cluster"},
		{[]string{"create", a(free), a(full)}, "has data"},
		{[]string{"create", a(free), a(one)}, "belongs to the cluster"},
		{[]string{"create", a(one), a(other)}, "another cluster"},
		{[]string{"create", a(free), "127.0.0.1:1"}, "cannot be reached"},
		{[]string{"create", a(free), a(free)}, "twice"},
		{[]string{"create", a(free), "localhost:" + port}, "the same node"},
		{[]string{"create", a(free), "10.0.0.1:" + port}, "the others cannot reach"},
		{[]string{"create", "nonsense"}, "is not HOST:PORT"},
		{[]string{"create", "--replicas", "1", "--partitions", "1", a(free), a(full), a(one), a(other)},
			"2 shards"},
		{[]string{"create", "--replicas", "2", a(free), a(full)}, "cannot be divided"},
		{[]string{"create", "--partitions", "5", a(free)}, "not a power of two"},
		{[]string{"create", "--replicas", "1", a(one), a(free), a(spare), a(secret)},
			"to let it grow, see add-node"},
		{[]string{"status", a(free)}, "belongs to no cluster"},
		{[]string{"status", a(alone)}, "was started without a cluster"},
		{[]string{"add-node", a(other), a(one)}, "another cluster"},
		{[]string{"add-node", a(full), a(one)}, "has data"},
		{[]string{"add-node", a(free), a(full)}, "belongs to no cluster"},
		{[]string{"replace", a(one), a(free), a(other)}, "another cluster"},
		{[]string{"replace", a(one), a(full), a(free)}, "has no node"},
		{[]string{"remove-node", a(one), a(one)}, "is the last node"},
		{[]string{"nonsense"}, "has no command"},
	} {
		args := append([]string{"cluster"}, tt.args...)
		if args[1] != "nonsense" {
			args = append(args, "--yes")
		}
		if out, code := fbfkv(t, args...); code != 1 || !strings.Contains(out, tt.want) {
			t.Errorf("fbfkv %s: exit status %d, want %q:\n%s", strings.Join(args, " "), code, tt.want, out)
		}
	}
	operate(t, 1, "secret", "add-node", "--patience", "1s", a(secret), a(one))
	operate(t, 1, "has not joined", "status", a(one))
	// it was admitted, and could not join
	operate(t, 0, "is no longer a member", "remove-node", a(one), a(secret))
	operate(t, 0, "exists already", "create", a(one))
	one.stop()
	s := &server{t: t, dir: one.dir}
	s.launch()
	if code := s.exitCode(); code != 1 ||
		!strings.Contains(s.log.String(), "belongs to a node of a cluster") {
		t.Errorf("a member's directory without its cluster: %d\n%s", code, s.log)
	}
}

// giveData gives data to a server outside a cluster, which it runs alone for that.
func giveData(t *testing.T, s *server) {
	t.Helper()
	s.stop()
	alone := &server{t: t, dir: s.dir}
	alone.start()
	for i := range 100 {
		if _, err := redisAsk(alone, "CINCRBY", fmt.Sprint("old", i), "op", i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := redisAsk(alone, "CTABLE", "CREATE", "old", "PREFIX", "older"); err != nil {
		t.Fatal(err)
	}
	alone.stop()
	s.start()
}

// TestClusterIsInterrupted kills `fbfkv cluster create`, and the servers that it is about to change, at
// different times. Sent again it completes the cluster.
func TestClusterIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{20, 60, 150, 400, 900} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 3)
			args := append([]string{"create"}, addresses(all...)...)
			first := background(t, append([]string{"cluster", "create", "--yes"}, args[1:]...)...)
			time.Sleep(after * time.Millisecond)
			first.cmd.Process.Kill()
			<-first.done
			all[after%3].crash()
			operate(t, 0, "", args...)
			operate(t, 0, "exists already", args...)
			counts(t, 1, "a", all...)
		})
	}
}

// TestClusterLocal runs a cluster on this machine, ends it and starts it again.
func TestClusterLocal(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePorts(t, 2)
	for want := range 2 {
		s := background(t, "cluster", "local", "--nodes", "2", "--dir", dir, "--port", fmt.Sprint(port))
		if !s.log.await(regexp.MustCompile("Ctrl-C"), s.done) {
			t.Fatalf("not complete:\n%s", s.log)
		}
		s.addr = fmt.Sprintf("127.0.0.1:%d", port)
		if out, err := redisAsk(s, "CLUSTER", "INFO"); err != nil ||
			!strings.Contains(out, "cluster_state:ok") {
			t.Errorf("start %d: %v %s", want, err, out)
		}
		s.cmd.Process.Signal(syscall.SIGTERM)
		if code := s.exitCode(); code != 0 {
			t.Errorf("exit status %d:\n%s", code, s.log)
		}
	}
}

// background starts the program with these arguments alone, and ends it with the test.
func background(t *testing.T, args ...string) *server {
	t.Helper()
	return start(t, exec.Command(program, args...))
}

// start starts a process, and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s := &server{t: t, log: newLogBuffer(), done: make(chan struct{}), cmd: cmd}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.cmd.Process.Signal(syscall.SIGTERM)
		<-s.done
	})
	return s
}

// freePorts returns the first of n consecutive ports. Nobody listens on them, nor on the ports
// 10000 higher. None of them is one that the system gives to dialing sockets. None was drawn
// before, since a node that is down keeps its port.
func freePorts(t testing.TB, n int) (first int) {
	t.Helper()
	drawnPorts.Lock()
	defer drawnPorts.Unlock()
	eventually(t, patience, "free ports", func() bool {
		first = 12000 + rand.IntN(9960)
		for p := first; p < first+n; p++ {
			if drawnPorts.are[p] {
				return false
			}
		}
		for i := range 2 * n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i/2+i%2*10000))
			if err != nil {
				return false
			}
			l.Close()
		}
		return true
	})
	for p := first; p < first+n; p++ {
		drawnPorts.are[p] = true
	}
	return first
}

// drawnPorts are those that freePorts has given.
var drawnPorts = struct {
	sync.Mutex
	are map[int]bool
}{are: map[int]bool{}}

// TestClusterOfOneServersData makes a cluster whose first node has data. The others have its
// counters and its opids when it is lost, and so has a cluster that is made from a backup.
func TestClusterOfOneServersData(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	giveData(t, all[0])
	operate(t, 0, "brings its data", append([]string{"create"}, addresses(all...)...)...)
	counts(t, 1, "new", all...)
	all[0].kill()
	isGiven(t, all[1:]...)
	counts(t, 1, "new", all[1:]...)
	operate(t, 1, "is lost", "status", all[1].address())

	backup := filepath.Join(t.TempDir(), "backup")
	operate(t, 0, "is backed up", "backup", all[2].address(), backup)
	restored := startNodes(t, 3)
	restore := append([]string{"restore", backup}, addresses(restored...)...)
	operate(t, 0, "is complete", restore...)
	operate(t, 0, "exists already", restore...)
	restored[0].kill()
	isGiven(t, restored[1:]...)
	counts(t, 1, "new", restored[1:]...)
	operate(t, 1, "no such file", "restore", backup+"-not", startNode(t).address())
}

// TestClusterIsRecovered loses two of three nodes for ever. The data of the third becomes a new
// cluster.
func TestClusterIsRecovered(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 3)
	counts(t, 1, "a", all...)
	counts(t, 2, "b", all...)
	left := leaderOf(t, all...)
	for _, s := range all {
		s.kill()
	}
	to := filepath.Join(t.TempDir(), "new")
	full := filepath.Join(left.dir, "..")
	operate(t, 1, "is not empty", "recover", left.dir, "--to", full)
	for _, s := range all { // nothing has changed
		s.start()
	}
	counts(t, 2, "b", all...)
	for _, s := range all {
		s.kill()
	}
	operate(t, 1, "is not the data directory of a node", "recover", aloneDir(t), "--to", to)
	operate(t, 0, "is complete", "recover", without(all, left)[0].dir, left.dir, "--to", to)
	for _, s := range []*server{without(all, left)[0], left} {
		s.launch()
		if code := s.exitCode(); code != 1 ||
			!strings.Contains(s.log.String(), "never takes part in its cluster again") {
			t.Errorf("a directory that was recovered: %d\n%s", code, s.log)
		}
	}
	operate(t, 0, "is complete", "recover", left.dir, "--to", to+"-again")
	first := startNode(t)
	first.stop()
	first.dir = to
	first.start()
	fresh := append([]*server{first}, startNodes(t, 2)...)
	operate(t, 0, "brings its data", append([]string{"create"}, addresses(fresh...)...)...)
	counts(t, 2, "b", fresh...)
	counts(t, 3, "c", fresh...)
}

// isGiven expects what giveData counted, with its opids, and its table, of the leader.
func isGiven(t *testing.T, all ...*server) {
	t.Helper()
	at := 0 // the node that led lately
	for i := range 100 {
		eventually(t, patience, "the counter is the old one", func() bool {
			out, err := redisAsk(all[at], "CINCRBY", fmt.Sprint("old", i), "op", i)
			if err != nil {
				at = (at + 1) % len(all) // another one leads, or will
			} else if out != fmt.Sprint(i) {
				t.Fatalf("counter %d: %s: the opid was forgotten", i, out)
			}
			return err == nil
		})
	}
	for _, args := range [][]any{{"CREATE", "old", "PREFIX", "older"}, {"ALTER", "default", "WINDOW", "1h"}} {
		eventually(t, patience, "the table is the old one, and others can be changed", func() bool {
			_, err := redisAsk(all[0], append([]any{"CTABLE"}, args...)...)
			return err == nil
		})
	}
}

// aloneDir is the directory of a server that stood alone.
func aloneDir(t *testing.T) string {
	s := startServer(t)
	s.stop()
	return s.dir
}

// TestLeadersAreShown takes from six nodes first one shard's, then the majority of the meta group's
// voters. Those that are left say what is without a leader.
func TestLeadersAreShown(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 6)
	operate(t, 0, "is complete", append([]string{"create", "--replicas", "2"}, addresses(all...)...)...)
	shown := func(s *server, meta, without string) {
		t.Helper()
		eventually(t, patience, "what is shown", func() bool {
			info, err := redisAsk(s, "INFO", "cluster")
			return err == nil && strings.Contains(info,
				"cluster_meta_has_leader:"+meta+"\r\ncluster_shards_without_leader:"+without+"\r\n")
		})
	}
	for i, s := range all {
		shown(s, "1", "0")
		eventually(t, patience, "each node changes a SCALE", func() bool {
			_, err := redisAsk(s, "CTABLE", "CREATE", fmt.Sprint("t", i), "PREFIX", fmt.Sprint("t", i, ":"), "SCALE", "2")
			return err == nil
		})
	}
	shard, err := redisAsk(all[0], "CLUSTER", "MYSHARDID")
	if err != nil {
		t.Fatal(err)
	}
	var here, there []*server
	for _, s := range all {
		if id, err := redisAsk(s, "CLUSTER", "MYSHARDID"); err == nil && id == shard {
			here = append(here, s)
		} else {
			there = append(there, s)
		}
	}
	there[0].kill()
	there[1].kill()
	for _, s := range append(here, there[2]) {
		shown(s, "1", "1") // three of five voters at least are left, or others vote instead of them
	}
	there[2].kill()
	here[0].kill()
	here[1].kill()
	shown(here[2], "0", "2")
	for _, s := range append(there, here[:2]...) {
		s.start()
	}
	for _, s := range all {
		shown(s, "1", "0")
	}
}
