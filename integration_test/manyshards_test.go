package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterClient is a client of a cluster that knows some of its nodes. Unless told to ask sooner, it goes
// on trying a leader that is gone for a minute.
func clusterClient(t testing.TB, of ...*server) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses(of...), MaxRedirects: 16,
		MaxRetryBackoff:            200 * time.Millisecond,
		ClusterStateReloadInterval: 500 * time.Millisecond})
	t.Cleanup(func() { c.Close() })
	return c
}

// countsEverywhere adds 1 under an opid to many keys, so that all shards have some, and expects a
// value of each.
func countsEverywhere(t testing.TB, c *redis.ClusterClient, opid string, want int) {
	t.Helper()
	for i := range 32 {
		eventually(t, patience, "a key is counted", func() bool {
			got, err := c.Do(t.Context(), "CINCRBY", fmt.Sprint("key", i), opid, 1).Int()
			if err == nil && got != want {
				t.Fatalf("key%d is %d, want %d", i, got, want)
			}
			return err == nil
		})
	}
}

// shardsOf returns the ids of a cluster's shards as `status` shows them.
func shardsOf(t testing.TB, s *server) (ids []string) {
	out, _ := fbfkv(t, "cluster", "status", s.address())
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "shard "); ok {
			ids = append(ids, rest[:8])
		}
	}
	return ids
}

// TestManyShards makes two shards while the command is killed, loses a leader and a majority of one
// of them, which the other does not notice, and adds and ends a shard. A table is created
// meanwhile: without the majority the answer is TRYAGAIN, and all shards have it in the end.
func TestManyShards(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 6)
	create := append([]string{"create", "--replicas", "2"}, addresses(all...)...)
	for _, after := range []time.Duration{700, 1500} {
		first := background(t, append([]string{"cluster", "create", "--yes"}, create[1:]...)...)
		time.Sleep(after * time.Millisecond)
		first.cmd.Process.Kill()
		<-first.done
	}
	operate(t, 0, "", create...)
	operate(t, 0, "exists already", create...)
	operate(t, 0, "2 shards, 32 partitions", "status", all[0].address())
	ids := shardsOf(t, all[0])
	if len(ids) != 2 {
		t.Fatalf("the shards are %q", ids)
	}
	shards := byShard(t, all...) // in the same order
	one, two := shards[0], shards[1]
	if len(one) != 3 || len(two) != 3 {
		t.Fatalf("the shards have %d and %d nodes", len(one), len(two))
	}

	c := clusterClient(t, all...)
	countsEverywhere(t, c, "a", 1)
	lost := leaderOf(t, two...)
	lost.kill()
	countsEverywhere(t, c, "a", 1) // retries
	countsEverywhere(t, c, "b", 2)
	operate(t, 1, "is lost", "status", one[0].address())

	// Without a majority a shard serves nobody; the other one goes on, and its configuration too: of five
	// voters three are left.
	rest := without(two, lost)
	rest[0].kill()
	eventually(t, patience, "the shard has no leader", func() bool {
		out, code := fbfkv(t, "cluster", "status", one[0].address())
		return code == 1 && strings.Contains(out, "1 shard without a leader: "+ids[1])
	})
	served := 0
	for i := range 32 {
		eventually(t, patience, fmt.Sprintf("key%d is counted, or elsewhere", i), func() bool {
			_, err := redisAsk(leaderOf(t, one...), "CINCRBY", fmt.Sprint("key", i), "c", 1)
			if err == nil {
				served++
			}
			return err == nil || strings.HasPrefix(err.Error(), "MOVED")
		})
	}
	if served == 0 || served == 32 {
		t.Errorf("%d of 32 keys are in one shard", served)
	}
	eventually(t, patience, "the answer names the shard without a majority", func() bool {
		_, err := redisAsk(leaderOf(t, one...), "CTABLE", "CREATE", "late", "PREFIX", "late:")
		if err == nil {
			t.Fatal("a table is made while a shard has no majority")
		}
		return strings.HasPrefix(err.Error(), "TRYAGAIN") && strings.Contains(err.Error(), "shard "+ids[1])
	})
	lost.start()
	rest[0].start()
	countsEverywhere(t, c, "c", 3)
	for _, shard := range shards { // also without being asked again
		eventually(t, patience, "the shard has the table", func() bool {
			return slices.Contains(tablesOf(t, leaderOf(t, shard...)), "late")
		})
	}
	eventually(t, patience, "a replica answers for the table", func() bool {
		_, err := redisAsk(without(one, leaderOf(t, one...))[0], "CTABLE", "CREATE", "late", "PREFIX",
			"late:")
		return err == nil
	})

	fresh := startNode(t)
	add := []string{"add-node", "--new-shard", fresh.address(), one[0].address()}
	operate(t, 0, "form a new shard", add...)
	operate(t, 0, "already", add...)
	operate(t, 0, "3 shards", "status", fresh.address())
	eventually(t, patience, "the new shard sends clients on", func() bool {
		_, err := redisAsk(fresh, "CINCRBY", "key1", "c", 1)
		return err != nil && strings.HasPrefix(err.Error(), "MOVED")
	})
	if got := tablesOf(t, fresh); !slices.Contains(got, "late") {
		t.Errorf("the new shard has the tables %q", got)
	}
	operate(t, 0, "is no longer a member", "remove-node", one[0].address(), fresh.address())
	operate(t, 0, "2 shards", "status", one[0].address())

	more := startNode(t)
	operate(t, 0, "votes", "add-node", "--shard", ids[1], more.address(), one[0].address())
	gone := leaderOf(t, two...)
	operate(t, 0, "is no longer a member", "remove-node", one[0].address(), gone.address())
	countsEverywhere(t, clusterClient(t, append(one, more)...), "d", 4)

	backup := filepath.Join(t.TempDir(), "backup")
	operate(t, 0, "is backed up", "backup", one[0].address(), backup)
	for _, id := range ids {
		if out, code := fbfkv(t, "check", filepath.Join(backup, id)); code != 0 {
			t.Errorf("the backup of the shard %s: %d %s", id, code, out)
		}
	}
}
