package integration

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// shards are the shards of a cluster: the nodes of each, in any order.
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

// changeTables sends CTABLE to a node of a cluster, until it need not be sent again: on a busy
// machine a group may have no leader at any time.
func changeTables(t testing.TB, s *server, args ...any) {
	t.Helper()
	eventually(t, patience, fmt.Sprint("CTABLE ", args), func() bool {
		_, err := redisAsk(s, append([]any{"CTABLE"}, args...)...)
		if err != nil && !strings.HasPrefix(err.Error(), "TRYAGAIN") {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestShardsAnswerForThemselves: what concerns no key concerns the node that is asked, as in Redis
// Cluster; what concerns keys of several slots is refused, and the helpers of clients divide it.
func TestShardsAnswerForThemselves(t *testing.T) {
	t.Parallel()
	all, groups := startShards(t)
	ctx := context.Background()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses(all...), MaxRedirects: 100,
		MaxRetryBackoff:            100 * time.Millisecond,
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
		if out, err := exec.Command(command[0],
			append(command[1:], all[4].address())...).CombinedOutput(); err != nil || string(out) != "ok\n" {
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
		if err == nil || !strings.HasPrefix(err.Error(), "MOVED") ||
			!strings.HasSuffix(err.Error(), leader.address()) {
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

// ownKeys expects that each leader has keys of its own, whatever it is asked by, and returns the
// leaders, and two keys of the first one's.
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
		eventually(t, patience, "the replica has as many", func() bool {
			return replica.DBSize(ctx).Val() == int64(len(own))
		})
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

// wantCrossed expects that keys of two slots are refused, also if they are of one shard, whichever
// node is asked.
func wantCrossed(t *testing.T, leaders []*server, two []string) {
	const crossed = "-CROSSSLOT Keys in request don't hash to the same slot"
	for _, s := range leaders {
		conn := s.dial()
		for _, args := range [][]string{
			{"CMINCRBY", "id", "2", two[0], "1", two[1], "1"}, {"MGET", two[0], two[1]},
			{"CMGET", two[0], two[1]}, {"MSET", two[0], "1", two[1], "1"},
			{"DEL", two[0], two[1]}, {"EXISTS", two[0], two[1]}, {"WATCH", two[0], two[1]},
			{"CMS.MERGE", two[0], "1", two[1]},
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
	if got, err := c.MGet(ctx, some...).Result(); err != nil ||
		!slices.Equal(got, []any{"1", "2", "3", "4", "5", "6", "7"}) {
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
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: nodes, DisableCache: true,
		ConnWriteTimeout: patience})
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
