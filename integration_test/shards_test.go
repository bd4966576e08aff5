package integration

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/fbfkv/fbfkv/store"
)

// shards are those of a cluster: the nodes of each, in any order.
type shards [][]*server

// startShards makes a cluster of three shards of three nodes, so patient that a busy machine changes no
// leader.
func startShards(t testing.TB) (all []*server, groups shards) {
	t.Helper()
	all = startCluster(t, 9, "--cluster-node-timeout", "5000")
	byID := map[string]int{}
	for _, s := range all {
		id, err := redisAsk(s, "CLUSTER", "MYSHARDID")
		if err != nil {
			t.Fatal(err)
		}
		if _, known := byID[id]; !known {
			byID[id] = len(groups)
			groups = append(groups, nil)
		}
		groups[byID[id]] = append(groups[byID[id]], s)
	}
	return all, groups
}

// tablesOf returns the names of a node's tables.
func tablesOf(t *testing.T, s *server) (names []string) {
	t.Helper()
	c := s.client()
	defer c.Close()
	list, err := c.Do(t.Context(), "CTABLE", "LIST").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name := range list.(map[any]any) {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

// tableTest is CTABLE in a cluster of several shards.
type tableTest struct {
	*testing.T
	all    []*server
	groups shards
	want   []string // the names of the tables
}

// everywhere expects the tables of the leader of every shard.
func (t *tableTest) everywhere() {
	t.Helper()
	slices.Sort(t.want)
	for _, g := range t.groups {
		if got := tablesOf(t.T, leaderOf(t, g...)); !slices.Equal(got, t.want) {
			t.Errorf("a leader has the tables %q, want %q", got, t.want)
		}
	}
}

// do sends CTABLE to a node, until it need not be tried again, and expects OK or an error.
func (t *tableTest) do(s *server, want string, args ...any) {
	t.Helper()
	var got string
	eventually(t, patience, fmt.Sprint("an answer to CTABLE ", args), func() bool {
		var err error
		if got, err = redisAsk(s, append([]any{"CTABLE"}, args...)...); err != nil {
			got = err.Error()
		}
		return !strings.HasPrefix(got, "TRYAGAIN")
	})
	if !strings.Contains(got, want) {
		t.Errorf("CTABLE %v: %s, want %s", args, got, want)
	}
}

// create creates a table.
func (t *tableTest) create(s *server, name string) {
	t.Helper()
	t.do(s, "OK", "CREATE", name, "PREFIX", name+":")
}

// TestTablesOfShards: whichever node CTABLE is sent to, when it answers OK the leader of every shard
// goes by it, whoever leads afterwards. A shard without a majority makes it say TRYAGAIN, and comes
// later.
func TestTablesOfShards(t *testing.T) {
	t.Parallel()
	all, groups := startShards(t)
	tt := &tableTest{t, all, groups, []string{"default"}}
	for i, s := range all { // leaders and replicas
		name := fmt.Sprint("t", i)
		tt.create(s, name)
		tt.want = append(tt.want, name)
		tt.everywhere()
	}
	tt.again()
	tt.atOnce()
	tt.killed()
	tt.late()

	// A new shard has them before it has partitions.
	fresh := startNode(t, "--cluster-node-timeout", "3000")
	operate(t, 0, "", "add-node", "--new-shard", fresh.address(), all[0].address())
	tt.groups = append(tt.groups, []*server{fresh})
	tt.do(fresh, "OK", "DROP", "late")
	tt.want = slices.DeleteFunc(tt.want, func(s string) bool { return s == "late" })
	tt.everywhere()
}

// again asks for what is so already, and for what cannot be.
func (t *tableTest) again() {
	for i, s := range t.all {
		t.create(s, "t0")
		t.do(s, "table or prefix exists", "CREATE", "t0", "PREFIX", "other:")
		t.do(s, "OOM", "CREATE", "u", "PREFIX", "u:", "CAPACITY", 1<<39)
		t.do(s, "table default cannot be dropped", "DROP", "default")
		t.do(s, "no such table", "ALTER", "nosuch", "WINDOW", 5000)
		t.do(s, "OK", "ALTER", "t1", "WINDOW", 70000+i/3)
		t.do(s, "window:"+fmt.Sprint(70000+i/3), "INFO", "t1")
	}
	// The one that was dropped last may be dropped again, whoever is asked.
	for _, s := range t.all {
		t.do(s, "OK", "DROP", "t2")
	}
	t.create(t.all[0], "t2")
	t.do(t.all[1], "OK", "DROP", "t2")
	t.do(t.all[2], "OK", "ALTER", "t1", "WINDOW", 80000)
	t.do(t.all[3], "no such table", "DROP", "t2")
	t.want = slices.DeleteFunc(t.want, func(s string) bool { return s == "t2" })
	t.everywhere()
}

// atOnce creates tables on all nodes at the same time.
func (t *tableTest) atOnce() {
	var running sync.WaitGroup
	for i, s := range t.all {
		names := []string{fmt.Sprint("at-once-a-", i), fmt.Sprint("at-once-b-", i)}
		running.Go(func() {
			t.create(s, names[0])
			t.create(s, names[1])
		})
		t.want = append(t.want, names...)
	}
	running.Wait()
	t.everywhere()
}

// killed kills a leader in the middle.
func (t *tableTest) killed() {
	killed, other := leaderOf(t, t.groups[1]...), leaderOf(t, t.groups[0]...)
	var running sync.WaitGroup
	for i := range 10 {
		t.want = append(t.want, fmt.Sprint("killed-", i))
	}
	running.Go(func() {
		for i := range 10 {
			t.create(other, fmt.Sprint("killed-", i))
		}
	})
	eventually(t, patience, "the first of them", func() bool { return slices.Contains(tablesOf(t.T, killed), "killed-0") })
	killed.kill()
	running.Wait()
	t.groups[1] = without(t.groups[1], killed)
	t.everywhere()
	killed.start()
	t.groups[1] = append(t.groups[1], killed)
}

// late asks while a shard has no majority.
func (t *tableTest) late() {
	other, left := leaderOf(t, t.groups[0]...), leaderOf(t, t.groups[2]...)
	id, err := redisAsk(left, "CLUSTER", "MYSHARDID")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range without(t.groups[2], left) {
		s.kill()
	}
	for range 2 {
		_, err := redisAsk(other, "CTABLE", "CREATE", "late", "PREFIX", "late:")
		if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") || !strings.Contains(err.Error(), "shard "+id[:8]) {
			t.Errorf("a shard has no majority: %v", err)
		}
	}
	if got := tablesOf(t.T, other); !slices.Contains(got, "late") {
		t.Errorf("a shard with a majority does not have it: %q", got)
	}
	for _, s := range without(t.groups[2], left) {
		s.start()
	}
	eventually(t, patience, "the shard has it, without being asked again", func() bool {
		return slices.Contains(tablesOf(t.T, leaderOf(t, t.groups[2]...)), "late")
	})
	t.create(other, "late")
	t.want = append(t.want, "late")
	t.everywhere()
}

// TestShardsAnswerForThemselves: what concerns no key concerns the node that is asked, as in Redis Cluster; what
// concerns keys of several slots is refused, and the helpers of clients divide it.
func TestShardsAnswerForThemselves(t *testing.T) {
	t.Parallel()
	all, groups := startShards(t)
	ctx := context.Background()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses(all...), MaxRedirects: 100, MaxRetryBackoff: 100 * time.Millisecond,
		ClusterStateReloadInterval: 500 * time.Millisecond})
	defer c.Close()
	for i := range shardKeys {
		if err := c.Do(ctx, "CINCRBY", fmt.Sprint("k", i), "op", i).Err(); err != nil {
			t.Fatal(err)
		}
	}
	leaders, two := ownKeys(t, groups)
	wantCrossed(t, leaders, two)
	t.Run("go-redis", func(t *testing.T) { goredisHelpers(t, c) })
	t.Run("rueidis", func(t *testing.T) { rueidisHelpers(t, addresses(all...)) })
	t.Run("redis-py", func(t *testing.T) {
		command := pythonScript("clients/python/shards.py")(t)
		if out, err := exec.Command(command[0], append(command[1:], all[4].address())...).CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})

	// FLUSHALL empties the leader's shard, and that alone; a replica names the leader.
	before := c.DBSize(ctx).Val()
	var own int64
	eventually(t, patience, "FLUSHALL of a shard", func() bool {
		leader := leaderOf(t, groups[1]...)
		own = leader.client().DBSize(ctx).Val()
		_, err := redisAsk(without(groups[1], leader)[0], "FLUSHALL")
		if err == nil || !strings.HasPrefix(err.Error(), "MOVED") || !strings.HasSuffix(err.Error(), leader.address()) {
			return false // another one leads now
		}
		_, err = redisAsk(leader, "FLUSHALL")
		return err == nil
	})
	if n := c.DBSize(ctx).Val(); n != before-own || own == 0 {
		t.Errorf("%d keys are left of %d, the shard had %d", n, before, own)
	}
	if err := c.FlushAll(ctx).Err(); err != nil {
		t.Errorf("FLUSHALL by the client: %v", err)
	}
	if n := c.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// shardKeys is how many counters there are: k0 is 0, k1 is 1, and so on.
const shardKeys = 300

// ownKeys expects that each leader has keys of its own, whatever it is asked by, and returns the leaders, and two keys
// of the first one's.
func ownKeys(t *testing.T, groups shards) (leaders []*server, two []string) {
	ctx := context.Background()
	owner := map[string]*server{}
	for _, g := range groups {
		leader := leaderOf(t, g...)
		leaders = append(leaders, leader)
		node := leader.client()
		own, err := node.Keys(ctx, "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if n := node.DBSize(ctx).Val(); n != int64(len(own)) || n == 0 {
			t.Errorf("DBSIZE %d, KEYS has %d", n, len(own))
		}
		var scanned []string
		for iter := node.Scan(ctx, 0, "", 7).Iterator(); iter.Next(ctx); {
			scanned = append(scanned, iter.Val())
		}
		slices.Sort(own)
		slices.Sort(scanned)
		if !slices.Equal(own, scanned) {
			t.Errorf("SCAN has %q, KEYS %q", scanned, own)
		}
		for _, key := range own {
			if owner[key] != nil {
				t.Errorf("%s is in two shards", key)
			}
			owner[key] = leader
		}
		if key := node.RandomKey(ctx).Val(); owner[key] != leader {
			t.Errorf("RANDOMKEY %q", key)
		}
		replica := without(g, leader)[0].client()
		eventually(t, patience, "the replica has as many", func() bool { return replica.DBSize(ctx).Val() == int64(len(own)) })
	}
	if len(owner) != shardKeys {
		t.Errorf("the leaders have %d keys, not %d", len(owner), shardKeys)
	}
	for key, s := range owner {
		if s == leaders[0] && len(two) < 2 {
			two = append(two, key)
		}
	}
	return leaders, two
}

// wantCrossed expects that keys of two slots are refused, also if they are of one shard, whichever node is asked.
func wantCrossed(t *testing.T, leaders []*server, two []string) {
	const crossed = "-CROSSSLOT Keys in request don't hash to the same slot"
	for _, s := range leaders {
		conn := s.dial()
		for _, args := range [][]string{
			{"CMINCRBY", "id", "2", two[0], "1", two[1], "1"}, {"MGET", two[0], two[1]}, {"CMGET", two[0], two[1]}, {"MSET", two[0], "1", two[1], "1"},
			{"DEL", two[0], two[1]}, {"EXISTS", two[0], two[1]}, {"WATCH", two[0], two[1]}, {"CMS.MERGE", two[0], "1", two[1]},
		} {
			conn.want(crossed, args...)
		}
	}
	conn := leaders[0].dial()
	for _, begin := range []string{"MULTI", "CMULTI"} {
		conn.want("+OK", begin)
		conn.want("+QUEUED", "CINCRBY", two[0], "in-multi", "1")
		conn.want("+QUEUED", "CINCRBY", two[1], "in-multi", "1")
		conn.want(crossed, "EXEC")
	}
	if got := conn.do("EVAL", "return 1", "2", two[0], two[1]); !strings.HasPrefix(got, "-ERR") {
		t.Errorf("EVAL: %s", got)
	}
}

// goredisHelpers asks by go-redis for keys of several shards.
func goredisHelpers(t *testing.T, c *redis.ClusterClient) {
	ctx := context.Background()
	c.SetCommandInfoResolver(c.NewDynamicResolver()) // which goes by what COMMAND says
	some := []string{"k1", "k2", "k3", "k4", "k5", "k6", "k7"}
	if got, err := c.MGet(ctx, some...).Result(); err != nil || !slices.Equal(got, []any{"1", "2", "3", "4", "5", "6", "7"}) {
		t.Errorf("MGET: %v, %v", got, err)
	}
	if n, err := c.Exists(ctx, some...).Result(); err != nil || n != int64(len(some)) {
		t.Errorf("EXISTS: %d, %v", n, err)
	}
	if n, err := c.DBSize(ctx).Result(); err != nil || n != shardKeys {
		t.Errorf("DBSIZE: %d, %v", n, err)
	}
	if err := c.MSet(ctx, "m1", "1", "m2", "2", "m3", "3", "m4", "4").Err(); err != nil {
		t.Errorf("MSET: %v", err)
	}
	if n, err := c.Del(ctx, "m1", "m2", "m3", "m4").Result(); err != nil || n != 4 {
		t.Errorf("DEL: %d, %v", n, err)
	}
	if err := c.Do(ctx, "CTABLE", "CREATE", "go", "PREFIX", "go:").Err(); err != nil {
		t.Errorf("CTABLE: %v", err)
	}
}

// rueidisHelpers does the same by rueidis.
func rueidisHelpers(t *testing.T, nodes []string) {
	ctx := context.Background()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: nodes, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	values, err := rueidis.MGet(c, ctx, []string{"k11", "k12", "k13", "k14", "k15"})
	if err != nil || len(values) != 5 {
		t.Fatalf("MGET: %v, %v", values, err)
	}
	for key, v := range values {
		if s, err := v.ToString(); err != nil || "k"+s != key {
			t.Errorf("%s: %s, %v", key, s, err)
		}
	}
	for key, err := range rueidis.MSet(c, ctx, map[string]string{"r1": "1", "r2": "2", "r3": "3"}) {
		if err != nil {
			t.Errorf("MSET %s: %v", key, err)
		}
	}
	for key, err := range rueidis.MDel(c, ctx, []string{"r1", "r2", "r3"}) {
		if err != nil {
			t.Errorf("DEL %s: %v", key, err)
		}
	}
	if err := c.Do(ctx, c.B().Arbitrary("CTABLE", "DROP", "go").Build()).Error(); err != nil {
		t.Errorf("CTABLE: %v", err)
	}
}

// evenKeys returns 24 keys, in turn in each of 16 equal ranges of slots: whatever partitions a shard has, it has some of them.
func evenKeys() (keys []string) {
	for n := 0; len(keys) < 24; n++ {
		if key := fmt.Sprint("k", n); int(store.Slot([]byte(key)))*16/16384 == len(keys)%16 {
			keys = append(keys, key)
		}
	}
	return keys
}
