package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/store"
)

// asker sends commands to a region, be it a server or a cluster.
type asker interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// twoRegionLoad is clients that send each operation to two regions, until both have answered.
type twoRegionLoad struct {
	t       *testing.T
	regions [2]asker
	keys    int
	stop    chan struct{}
	wait    sync.WaitGroup
	sent    [4]atomic.Int64 // operations that each client has finished
}

func startTwoRegionLoad(t *testing.T, a, b asker) *twoRegionLoad {
	l := &twoRegionLoad{t: t, regions: [2]asker{a, b}, keys: 24, stop: make(chan struct{})}
	for n := range l.sent {
		l.wait.Go(func() { l.run(n) })
	}
	t.Cleanup(l.end)
	return l
}

// operation is what a client does as its ith.
func (l *twoRegionLoad) operation(client, i int) (key, id string) {
	return fmt.Sprint("both", (client+i)%l.keys), fmt.Sprintf("op-%d-%d", client, i)
}

func (l *twoRegionLoad) run(client int) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		default:
		}
		key, id := l.operation(client, i)
		for at := range l.regions { // the second one may have heard of it
			l.send(l.regions[(client+at)%2], key, id)
		}
		l.sent[client].Add(1)
	}
}

// send sends an operation until it is answered.
func (l *twoRegionLoad) send(to asker, key, id string) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := to.Do(context.Background(), "CINCRBY", key, id, 3).Int()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			l.t.Errorf("%s %s: %v", key, id, err)
			return
		}
	}
}

// more waits until each client has finished so many more operations.
func (l *twoRegionLoad) more(n int64) {
	l.t.Helper()
	var want [len(l.sent)]int64
	for i := range l.sent {
		want[i] = l.sent[i].Load() + n
	}
	eventually(l.t, patience, "operations are answered", func() bool {
		for i := range l.sent {
			if l.sent[i].Load() < want[i] {
				return false
			}
		}
		return true
	})
}

func (l *twoRegionLoad) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wait.Wait()
}

// check expects that every operation counts once, in all regions.
func (l *twoRegionLoad) check(all ...asker) {
	l.t.Helper()
	l.end()
	sums := make(map[string]int)
	for client := range l.sent {
		for i := range int(l.sent[client].Load()) {
			key, _ := l.operation(client, i)
			sums[key] += 3
		}
	}
	for at, r := range all {
		for key, want := range sums {
			last := 0
			eventually(l.t, patience, fmt.Sprintf("region %d has %d in %s, and not %d", at, want, key, last), func() bool {
				last, _ = r.Do(l.t.Context(), "GET", key).Int()
				return last == want
			})
		}
	}
	for at, r := range all { // and it stays so, whoever answers: the operations are known
		for client := range l.sent {
			key, id := l.operation(client, 0)
			eventually(l.t, patience, "a retry is answered", func() bool {
				got, err := r.Do(l.t.Context(), "CINCRBY", key, id, 3, "WITHSTATUS").Slice()
				if err == nil && got[1] != int64(0) {
					l.t.Fatalf("region %d has applied %s of %s again", at, id, key)
				}
				return err == nil
			})
		}
		for key, want := range sums {
			eventually(l.t, patience, "a sum is answered", func() bool {
				got, err := r.Do(l.t.Context(), "GET", key).Int()
				if err == nil && got != want {
					l.t.Fatalf("region %d: %s is %d in the end, and not %d", at, key, got, want)
				}
				return err == nil
			})
		}
	}
}

// verified waits until a region and the others agree.
func verified(t *testing.T, at *server) {
	t.Helper()
	eventually(t, patience, "the regions agree", func() bool {
		_, code := fbfkv(t, "region", "verify", at.address())
		return code == 0
	})
}

// TestRegionIsCluster: three nodes are a region beside a server. Each operation is sent to both while the
// leader is killed, twice, and a node is away: it counts once everywhere.
func TestRegionIsCluster(t *testing.T) {
	t.Parallel()
	all := startCluster(t, 3)
	us := startServer(t, "--port", fmt.Sprint(freePorts(t, 1)))
	region(t, 0, "is the region eu", "create", all[1].address(), "eu")
	region(t, 0, "is the region eu already", "create", all[1].address(), "eu")
	region(t, 1, "is the region eu already", "create", all[0].address(), "asia")
	region(t, 0, "has caught up with eu", "join", us.address(), "us", all[2].address())
	c, single := clusterClient(t, all...), us.client()
	defer single.Close()
	load := startTwoRegionLoad(t, c, single)
	load.more(20)
	for range 2 {
		lost := leaderOf(t, all...)
		lost.kill()
		load.more(20)
		lost.start()
		load.more(20)
	}
	load.check(c, single)
	for _, s := range append([]*server{us}, all...) {
		region(t, 0, "one of 2", "status", s.address())
	}
	verified(t, us)
	verified(t, all[0])
	eventually(t, patience, "each node says who reads the others", func() bool {
		leader := leaderOf(t, all...)
		for _, s := range all {
			want := "region_reads:0\r\nregion_reader:" + leader.address()
			if s == leader {
				want = "region_reads:1\r\nregion0:name=us"
			}
			if info, _ := redisAsk(s, "INFO", "regions"); !strings.Contains(info, want) {
				return false
			}
		}
		return true
	})
	all[1].kill() // the one that us was told of
	us.restart()
	load.send(c, "later", "a")
	eventually(t, patience, "us reads another node", func() bool { n, _ := single.Do(t.Context(), "GET", "later").Int(); return n == 3 })
	all[1].start()

	region(t, 0, "era 1 begins", "flush", all[0].address())
	for _, r := range []asker{c, single} {
		eventually(t, patience, "all is deleted", func() bool { _, err := r.Do(t.Context(), "GET", "both0").Int(); return errors.Is(err, redis.Nil) })
	}
}

// TestRegionIsShards: two clusters are regions, and both have other numbers of shards, of partitions and of
// replicas. Every node tells what is asked of its shard, and partitions stay where they are.
func TestRegionIsShards(t *testing.T) {
	t.Parallel()
	one := startNodes(t, 2)
	operate(t, 0, "is complete", append([]string{"create", "--replicas", "0", "--partitions", "8"}, addresses(one...)...)...)
	other := startNodes(t, 6)
	operate(t, 0, "is complete", append([]string{"create", "--replicas", "2", "--partitions", "32"}, addresses(other...)...)...)
	a, b := clusterClient(t, one...), clusterClient(t, other...)
	countsEverywhere(t, a, "before", 1)
	countsEverywhere(t, b, "early", 1)
	region(t, 0, "is the region eu", "create", one[0].address(), "eu")
	region(t, 0, "has caught up with eu", "join", other[4].address(), "us", one[1].address())
	load := startTwoRegionLoad(t, a, b)
	load.more(20)
	for _, nodes := range byShard(t, other...) {
		lost := leaderOf(t, nodes...)
		lost.kill()
		load.more(20)
		lost.start()
	}
	load.check(a, b)
	countsEverywhere(t, b, "before", 1) // retries of what the other one has done
	countsEverywhere(t, a, "early", 1)
	countsEverywhere(t, a, "late", 3)
	verified(t, one[1])
	verified(t, other[0])
	asEveryNode(t, other)
	operate(t, 1, "partitions of a region cannot be moved yet", "move", one[0].address(), "--partitions", "0", "--to", shardsOf(t, one[0])[1])

	for _, s := range one {
		s.kill()
	}
	region(t, 1, "cannot be read", "status", other[0].address())
	region(t, 0, "us: looks after what eu has counted", "remove", other[3].address(), "eu", "--heir", "us")
	countsEverywhere(t, b, "late", 3)
	countsEverywhere(t, b, "last", 4)
	for _, s := range one {
		s.start()
	}
	refusesWrites(t, "the other regions have removed this one", one...)
}

// asEveryNode asks each node of a cluster, as another region, for what its shard has done.
func asEveryNode(t *testing.T, all []*server) {
	t.Helper()
	for _, s := range all {
		var set store.RegionSet
		members, err := redisAsk(s, "REGION", "MEMBERS")
		if err == nil {
			err = json.Unmarshal([]byte(members), &set)
		}
		if err != nil {
			t.Fatal(err)
		}
		own, _ := set.Member(set.Self)
		var shards []regions.Shard
		answer, err := redisAsk(s, "REGION.PULL", "SHARDS", set.Group, 0)
		if err == nil {
			err = json.Unmarshal([]byte(answer), &shards)
		}
		i := slices.IndexFunc(shards, func(s regions.Shard) bool { return s.Own })
		if err != nil || len(shards) != 2 || i < 0 || len(shards[i].Nodes) != 3 {
			t.Fatalf("%s answers %q, %v", s.address(), answer, err)
		}
		first := int(shards[i].Partitions[0][0]) // of 32; the one that asks has 8
		slots := 16384 / own.Partitions
		pull := []any{"REGION.PULL", set.Group, 0, own.Incarnation, "MAX", 1 << 20, "BLOCK", 0, first, first * slots, (first+1)*slots - 1, 1 << 40, 0}
		if answer, err := redisAsk(s, pull...); err != nil || strings.Contains(answer, "REFUSED") {
			t.Errorf("%s answers %q, %v", s.address(), answer, err)
		}
	}
}
