package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/fbfkv/fbfkv/commands"
	serving "github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// These tests hold what a node of a cluster shows to clients against what Redis Cluster shows. They
// use servers whose views of the cluster do not change, and whose data are their own.

// faceSlots are the slots of three shards, as redis-cli deals them out.
var faceSlots = []commands.SlotRange{{First: 0, Last: 5460}, {First: 5461, Last: 10922}, {First: 10923,
	Last: 16383}}

// hostname is the one of the first node; the others have none.
const hostname = "first.example"

// startFace starts three masters, and last a replica of the first one, and returns their
// addresses.
func startFace(t *testing.T) (addresses []string) {
	listeners := make([]net.Listener, len(faceSlots)+1)
	shards := make([]commands.ClusterShard, len(faceSlots))
	for i := range listeners {
		config := serving.DefaultConfig()
		config.Port = 0
		l, err := serving.Listen(config)
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l[0]
		addresses = append(addresses, l[0].Addr().String())
		s := &shards[i%len(shards)]
		s.ID, s.Slots, s.Ready, s.Term = fmt.Sprintf("%040x", 10+i%len(shards)),
			faceSlots[i%len(shards):][:1], true, uint64(i+1)
		s.Nodes = append(s.Nodes, commands.ClusterNode{ID: fmt.Sprintf("%040x", 20+i), Host: "127.0.0.1",
			Port: l[0].Addr().(*net.TCPAddr).Port, ClusterPort: 17000 + i})
	}
	shards[0].Nodes[0].Hostname = hostname
	for i, l := range listeners {
		view := commands.NewClusterView(commands.ClusterView{Node: fmt.Sprintf("%040x", 20+i),
			Shards: slices.Clone(shards)})
		serveFace(t, l, &commands.Cluster{
			View:    func() *commands.ClusterView { return view },
			Changed: func() <-chan struct{} { return nil },
		})
	}
	return addresses
}

// serveFace serves one node, with a store of its own.
func serveFace(t *testing.T, l net.Listener, cluster *commands.Cluster) {
	quiet := slog.New(slog.DiscardHandler)
	st, err := store.Open(store.Options{Dir: t.TempDir(), Fsync: store.No, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := serving.New(serving.Options{Store: st, Cluster: cluster, Logger: quiet})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop(true)
		if err := <-ended; !errors.Is(err, serving.ErrStopped) {
			t.Error(err)
		}
		if err := st.CloseNow(); err != nil {
			t.Error(err)
		}
	})
}

// startRedisCluster starts a cluster of Redis that looks the same.
func startRedisCluster(t *testing.T) (addresses []string) {
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	for range len(faceSlots) + 1 {
		bus, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(bus.Addr().String())
		bus.Close()
		args := []string{"--cluster-enabled", "yes", "--cluster-port", port, "--save", ""}
		if addresses == nil {
			args = append(args, "--cluster-announce-hostname", hostname)
		}
		addresses = append(addresses, startRedis(t, args...))
	}
	redisCLI(t, append([]string{"--cluster", "create"},
		append(addresses[:len(faceSlots):len(faceSlots)], "--cluster-yes")...)...)
	ctx := context.Background()
	master := redisClient(t, addresses[0], 0)
	id := master.Do(ctx, "CLUSTER", "MYID").Val()
	eventually(t, patience, "the masters know each other", func() bool {
		return strings.Contains(master.ClusterInfo(ctx).Val(), "cluster_state:ok")
	})
	redisCLI(t, "--cluster", "add-node", addresses[len(faceSlots)], addresses[0], "--cluster-slave",
		"--cluster-master-id", fmt.Sprint(id))
	for _, addr := range addresses {
		c := redisClient(t, addr, 0)
		eventually(t, patience, "the replica is ready", func() bool {
			shards := c.Do(ctx, "CLUSTER", "SHARDS").String()
			return strings.Count(shards, "online") == len(addresses) &&
				strings.Contains(shards, "role:replica") && strings.Contains(shards, hostname)
		})
	}
	eventually(t, patience, "the replica is in step", func() bool {
		return strings.Contains(master.Info(ctx, "replication").Val(), "state=online")
	})
	return addresses
}

// redisCLI runs redis-cli and returns what it prints.
func redisCLI(t *testing.T, args ...string) string {
	t.Helper()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
	}
	return regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(string(out), "")
}

// What differs from cluster to cluster in a reply.
var (
	anID     = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	aNumber  = regexp.MustCompile(`-?\b[0-9]+\b`)
	messages = regexp.MustCompile(`cluster_stats_messages_(ping|pong|meet|update|fail|publish\w*|auth-\w+|module|mfstart)_(sent|received):N\\r\\n`)
	versions = regexp.MustCompile(`"(version|id)" ("N\.N\.N"|:N)`)
)

// shape is a reply without what differs, the parts of an array of arrays or lines in
// alphabetical order.
func shape(r reply) string {
	if r.kind == '$' || r.kind == '=' {
		lines := strings.SplitAfter(strings.TrimPrefix(r.text, "txt:"), "\n")
		if !strings.HasPrefix(r.text, "#") && !strings.Contains(r.text, ":ok") {
			for i := range lines {
				lines[i] = maskNumbers(lines[i])
			}
			slices.Sort(lines)
		}
		r.text = strings.Join(lines, "")
	}
	if len(r.elements) > 0 && r.elements[0].kind != ':' {
		parts := make([]string, len(r.elements))
		nested := false
		for i, e := range r.elements {
			parts[i] = shape(e)
			nested = nested || len(e.elements) > 0
		}
		if nested && r.elements[0].kind != '$' {
			slices.Sort(parts)
		}
		marks := aggregates[r.kind]
		return marks[0] + strings.Join(parts, " ") + marks[1]
	}
	return maskNumbers(r.String())
}

func maskNumbers(s string) string {
	s = strings.ReplaceAll(s, "127.0.0.1", "HOST")
	return aNumber.ReplaceAllString(anID.ReplaceAllString(s, "ID"), "N")
}

// ask sends a request over a connection of its own and returns the reply.
func ask(t *testing.T, addr, proto, line string) reply {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(frame("HELLO", proto) + frame(strings.Fields(line)...))); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	if _, err = readTree(in); err != nil {
		t.Fatal(err)
	}
	r, err := readTree(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestClusterShapes asks both clusters the same: the replies differ in ids, numbers and the
// figures of features that only one of them has.
func TestClusterShapes(t *testing.T) {
	t.Parallel()
	real, ours := startRedisCluster(t), startFace(t)
	var ids []string
	for _, addr := range []string{real[0], ours[0]} {
		ids = append(ids, ask(t, addr, "2", "CLUSTER MYID").text)
	}
	compare := func(line, proto string, node int) {
		want := shape(ask(t, real[node], proto, strings.ReplaceAll(line, "ME", ids[0])))
		got := shape(ask(t, ours[node], proto, strings.ReplaceAll(line, "ME", ids[1])))
		for _, drop := range []*regexp.Regexp{messages, versions} {
			want, got = drop.ReplaceAllString(want, ""), drop.ReplaceAllString(got, "")
		}
		if got != want {
			t.Errorf("RESP%s, node %d, %s\n got %s\nwant %s", proto, node, line, got, want)
		}
	}
	for _, line := range []string{
		"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER INFO", "CLUSTER MYID",
		"CLUSTER KEYSLOT {bar}x", "CLUSTER REPLICAS ME",
		"CLUSTER REPLICAS nobody",
		"CLUSTER COUNTKEYSINSLOT 1", "CLUSTER COUNTKEYSINSLOT x", "CLUSTER COUNTKEYSINSLOT 16384",
		"CLUSTER GETKEYSINSLOT 1 10",
		"CLUSTER GETKEYSINSLOT 1 x", "CLUSTER GETKEYSINSLOT -1 1", "CLUSTER GETKEYSINSLOT 1 -1",
		"CLUSTER NOSUCH", "CLUSTER KEYSLOT", "CLUSTER",
		"READONLY", "READWRITE", "ASKING", "ROLE", "SELECT 1", "REPLICAOF NO ONE", "HELLO", "WAIT 1 1",
		"GET {bar}", "GET foo", "MGET {bar} aa", "INFO replication",
	} {
		for _, proto := range []string{"2", "3"} {
			for node := range real {
				compare(line, proto, node)
			}
		}
	}
	for _, name := range []string{"hostname", "unknown-endpoint", "ip"} {
		for _, addr := range []string{real[0], ours[0]} {
			if got := ask(t, addr, "2",
				"CONFIG SET cluster-preferred-endpoint-type "+name).String(); got != "+OK" {
				t.Fatal(got)
			}
		}
		for _, line := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "GET foo", "ROLE"} {
			compare(line, "2", 0)
			compare(line, "3", 0)
		}
	}
}

// TestClusterCLI uses redis-cli on a cluster as an operator does.
func TestClusterCLI(t *testing.T) {
	t.Parallel()
	nodes := startFace(t)
	_, port, _ := net.SplitHostPort(nodes[3])
	check := redisCLI(t, "--cluster", "check", nodes[3])
	for _, want := range []string{"[OK] All nodes agree about slots configuration.",
		"[OK] All 16384 slots covered.", "1 additional replica(s)"} {
		if !strings.Contains(check, want) || strings.Contains(check, "WARNING") ||
			strings.Contains(check, "ERR") {
			t.Fatalf("redis-cli --cluster check lacks %q:\n%s", want, check)
		}
	}
	if info := redisCLI(t, "--cluster", "info", nodes[0]); !strings.Contains(info,
		"[OK] 0 keys in 3 masters.") {
		t.Errorf("redis-cli --cluster info:\n%s", info)
	}
	if call := redisCLI(t, "--cluster", "call", nodes[0], "PING"); strings.Count(call, ": PONG") != 4 {
		t.Errorf("redis-cli --cluster call:\n%s", call)
	}
	for i := range 10 {
		key := "cli:" + strconv.Itoa(i)
		if got := redisCLI(t, "-c", "-p", port, "CINCRBY", key, "op", "2"); got != "2\n" {
			t.Errorf("redis-cli -c: %q", got)
		}
	}
	if n := strings.Count(redisCLI(t, "--cluster", "call", nodes[0], "CLUSTER", "COUNTKEYSINSLOT", "0",
		"--cluster-only-masters"), ": 0"); n != 3 {
		t.Errorf("%d masters answered", n)
	}
}

// TestClusterClients counts over the cluster clients of go-redis, rueidis, redis-py, node-redis and
// ioredis.
func TestClusterClients(t *testing.T) {
	t.Parallel()
	nodes := startFace(t)
	ctx := context.Background()
	t.Run("go-redis", func(t *testing.T) {
		for _, o := range []redis.ClusterOptions{{}, {Protocol: 2}, {ReadOnly: true}} {
			o.Addrs = nodes[3:]
			c := redis.NewClusterClient(&o)
			defer c.Close()
			for i := range 30 {
				key := fmt.Sprint("go", o.Protocol, o.ReadOnly, i)
				for range 2 {
					if n, err := c.Do(ctx, "CINCRBY", key, "op", 2).Int(); n != 2 || err != nil {
						t.Fatalf("%+v: %d, %v", o, n, err)
					}
				}
				if _, err := c.Get(ctx, key).Int(); err != nil && !(o.ReadOnly && errors.Is(err, redis.Nil)) {
					t.Fatal(err)
				}
			}
			var masters, replicas atomic.Int32 // they are asked at the same time
			c.ForEachMaster(ctx, func(context.Context, *redis.Client) error { masters.Add(1); return nil })
			c.ForEachSlave(ctx, func(context.Context, *redis.Client) error { replicas.Add(1); return nil })
			if masters.Load() != 3 || replicas.Load() != 1 {
				t.Errorf("%d masters, %d replicas", masters.Load(), replicas.Load())
			}
		}
	})
	t.Run("rueidis", func(t *testing.T) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: nodes[3:], DisableCache: true,
			ShuffleInit: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.Mode() != rueidis.ClientModeCluster || len(c.Nodes()) != 4 {
			t.Errorf("mode %s, %d nodes", c.Mode(), len(c.Nodes()))
		}
		for i := range 30 {
			key := fmt.Sprint("rueidis", i)
			if n, err := c.Do(ctx,
				c.B().Arbitrary("CINCRBY").Keys(key).Args("op", "2").Build()).ToInt64(); n != 2 ||
				err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
	})
	for name, program := range map[string]func(*testing.T) []string{
		"redis-py": pythonScript("clients/python/cluster.py"), "node": nodeScript("cluster.js"),
	} {
		t.Run(name, func(t *testing.T) {
			command := program(t)
			out, err := exec.Command(command[0], append(command[1:], nodes[3])...).CombinedOutput()
			if err != nil || string(out) != "ok\n" {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}
