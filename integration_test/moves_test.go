package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// moveLoad counts on many keys until it is stopped. Every operation is sent until it is answered.
type moveLoad struct {
	c       *redis.ClusterClient
	counts  [64]atomic.Int64
	last    [64]atomic.Pointer[string] // an id that was acknowledged, and its answer
	slowest atomic.Int64
	stop    context.CancelFunc
	running sync.WaitGroup
}

func startMoveLoad(t testing.TB, c *redis.ClusterClient, clients int) *moveLoad {
	l := &moveLoad{c: c}
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	for n := range clients {
		l.running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l.one(t, (i*5+n)%len(l.counts), fmt.Sprint(n, "-", i))
			}
		})
	}
	return l
}

func (l *moveLoad) one(t testing.TB, k int, opid string) {
	began := time.Now()
	for {
		v, err := l.c.Do(context.Background(), "CINCRBY", fmt.Sprint("key", k), opid, 1).Int()
		if err == nil {
			l.counts[k].Add(1)
			said := fmt.Sprint(opid, " ", v)
			l.last[k].Store(&said)
			break
		}
		if errors.Is(err, redis.ErrClosed) || time.Since(began) > patience {
			t.Errorf("key%d %s: %v", k, opid, err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := int64(time.Since(began))
	for was := l.slowest.Load(); took > was && !l.slowest.CompareAndSwap(was, took); was = l.slowest.Load() {
	}
}

// check ends the load: each counter is what was acknowledged, and what is sent again is answered as it was.
func (l *moveLoad) check(t testing.TB) {
	t.Helper()
	l.stop()
	l.running.Wait()
	for k := range l.counts {
		key, want := fmt.Sprint("key", k), l.counts[k].Load()
		v, err := l.c.Do(t.Context(), "CGET", key).Int64()
		if err != nil || v != want {
			t.Errorf("%s is %d, and %d were acknowledged: %v", key, v, want, err)
		}
		if said := l.last[k].Load(); said != nil {
			opid, answer, _ := strings.Cut(*said, " ")
			again, err := l.c.Do(t.Context(), "CINCRBY", key, opid, 1).Int()
			if err != nil || fmt.Sprint(again) != answer {
				t.Errorf("%s %s is answered %d, and was %s: %v", key, opid, again, answer, err)
			}
		}
	}
}

// TestPartitionsMove moves partitions to a shard that is new, and back until that is empty, under load, while nodes of
// both shards are killed. Every operation counts once.
func TestPartitionsMove(t *testing.T) {
	t.Parallel()
	one := startCluster(t, 3)
	two := startNodes(t, 3)
	any := one[0].address()
	l := startMoveLoad(t, clusterClient(t, one...), 4)
	operate(t, 0, "form a new shard", "add-node", "--new-shard", strings.Join(addresses(two...), ","), any)
	id := shardsOf(t, one[0])[1]
	began := time.Now()
	operate(t, 0, "where they are to be", "rebalance", any)
	t.Logf("8 partitions have moved in %v, the slowest operation took %v", time.Since(began), time.Duration(l.slowest.Load()))
	operate(t, 0, "nothing is to be moved", "rebalance", any)
	if out, _ := fbfkv(t, "cluster", "status", any); !strings.Contains(out, "partitions 8-15, slots") {
		t.Errorf("the partitions are elsewhere:\n%s", out)
	}

	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for round := range 4 {
		args := []string{"rebalance", any}
		if round%2 == 0 {
			args = []string{"rebalance", "--empty", id, any}
		}
		moving := background(t, append([]string{"cluster", args[0], "--yes"}, args[1:]...)...)
		time.Sleep(time.Duration(200+r.IntN(800)) * time.Millisecond)
		victims := []*server{leaderOf(t, one...), leaderOf(t, two...), without(two, leaderOf(t, two...))[0]}
		victim := victims[r.IntN(3)]
		t.Logf("round %d: %s is killed", round, victim.address())
		victim.kill()
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		victim.start()
		moving.cmd.Process.Kill() // the nodes do not need it
		<-moving.done
		operate(t, 0, "", args...)
	}
	l.check(t)
	operate(t, 0, "", "rebalance", "--empty", id, any)
	for _, s := range two {
		operate(t, 0, "is no member any more", "remove-node", any, s.address())
	}
	l.check(t)
	eventually(t, patience, "all are well", func() bool { _, code := fbfkv(t, "cluster", "status", any); return code == 0 })
}
