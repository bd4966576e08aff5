package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var moveCount = flag.Int("cluster.moves", 2, "how often TestPartitionsMove has partitions move and kills "+
	"something meanwhile")

// moveLoad counts on many keys until it is stopped. Every operation is sent until it is answered.
type moveLoad struct {
	t       testing.TB
	c       *redis.ClusterClient
	answers [][]int64 // by client: those to its operations, in order
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	slowest time.Duration // of all operations since it was asked last
}

const moveKeys = 64

// movePause is between two operations of a client.
const movePause = 5 * time.Millisecond

// operation returns the key and the id of a client's operation.
func (l *moveLoad) operation(client, i int) (key, opid string) {
	return fmt.Sprint("key", (i*5+client)%moveKeys), fmt.Sprint(client, "-", i)
}

func startMoveLoad(t testing.TB, c *redis.ClusterClient, clients int) *moveLoad {
	l := &moveLoad{t: t, c: c, answers: make([][]int64, clients)}
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	for n := range clients {
		l.running.Go(func() {
			for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
				l.one(n, i)
				time.Sleep(movePause)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		l.running.Wait()
	})
	return l
}

func (l *moveLoad) one(client, i int) {
	key, opid := l.operation(client, i)
	began := time.Now()
	for {
		v, err := l.c.Do(context.Background(), "CINCRBY", key, opid, 1).Int64()
		if err == nil {
			l.answers[client] = append(l.answers[client], v)
			break
		}
		if errors.Is(err, redis.ErrClosed) || time.Since(began) > patience {
			l.t.Errorf("%s %s: %v", key, opid, err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, time.Since(began))
}

// slow returns how long the slowest operation took since the last call.
func (l *moveLoad) slow() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slowest := l.slowest
	l.slowest = 0
	return slowest.Round(time.Millisecond)
}

// finish ends the load, and returns what was acknowledged.
func (l *moveLoad) finish() map[string]int64 {
	l.stop()
	l.running.Wait()
	want := map[string]int64{}
	for client, answers := range l.answers {
		for i := range answers {
			key, _ := l.operation(client, i)
			want[key]++
		}
	}
	return want
}

// check ends the load: each counter is what was acknowledged, and every operation that is sent
// again is answered as it was.
func (l *moveLoad) check() {
	l.t.Helper()
	want, sent := l.finish(), 0
	for client, answers := range l.answers {
		for from := 0; from < len(answers); from += 256 {
			batch := answers[from:min(from+256, len(answers))]
			eventually(l.t, patience, "what was acknowledged is answered again", func() bool {
				pipe := l.c.Pipeline()
				for i := range batch {
					key, opid := l.operation(client, from+i)
					pipe.Do(l.t.Context(), "CINCRBY", key, opid, 1)
				}
				again, err := pipe.Exec(l.t.Context())
				for i := range again {
					key, opid := l.operation(client, from+i)
					if v, err := again[i].(*redis.Cmd).Int64(); err == nil && v != batch[i] {
						l.t.Fatalf("%s %s is answered %d, and was %d", key, opid, v, batch[i])
					}
				}
				return err == nil
			})
		}
		sent += len(answers)
	}
	for key, n := range want {
		var v int64
		eventually(l.t, patience, key+" is read", func() (read bool) {
			answer, err := l.c.Do(l.t.Context(), "CGET", key).Int64()
			v = answer
			return err == nil
		})
		if v != n {
			l.t.Errorf("%s is %d, and %d were acknowledged", key, v, n)
		}
	}
	l.t.Logf("%d operations, each sent again", sent)
}

// handOvers collects from the logs of servers for how long partitions were out of reach, ms.
type handOvers struct {
	ms   []int
	seen map[*logBuffer]int // how many of a log were taken
}

var handOverLine = regexp.MustCompile(`msg="a partition has arrived".* hand_over_ms=(\d+)`)

func (h *handOvers) take(all ...*server) {
	for _, s := range all {
		found := handOverLine.FindAllStringSubmatch(s.log.String(), -1)
		for _, line := range found[h.seen[s.log]:] {
			ms, _ := strconv.Atoi(line[1])
			h.ms = append(h.ms, ms)
		}
		h.seen[s.log] = len(found)
	}
	slices.Sort(h.ms)
}

// TestPartitionsMove moves partitions to a shard that is new, and back until that is empty, under
// load, while what takes part is killed: the leaders of both shards, a replica of the target, the
// command. Every operation counts once, and a command that is run again comes to the same end.
func TestPartitionsMove(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 6)
	one, two := all[:3], all[3:]
	any := one[0].address()
	operate(t, 0, "is complete", append([]string{"create", "--partitions", "8"}, addresses(one...)...)...)
	only, _ := redisAsk(one[0], "CLUSTER", "MYSHARDID")
	operate(t, 1, "is the only one that can have partitions", "rebalance", "--empty", only, any)
	changeTables(t, one[0], "ALTER", "default", "WINDOW", 3600000)
	l := startMoveLoad(t, clusterClient(t, one...), 4)
	operate(t, 0, "form a new shard", "add-node", "--new-shard", strings.Join(addresses(two...), ","), any)
	id := shardsOf(t, one[0])[1]
	times := handOvers{seen: map[*logBuffer]int{}}
	l.slow()
	began := time.Now()
	operate(t, 0, "in place", "move", "--partitions", "6-7", "--to", id, any)
	operate(t, 0, "in place", "rebalance", any)
	operate(t, 0, "nothing is to be moved", "rebalance", any)
	times.take(all...)
	t.Logf("4 partitions have moved in %v, out of reach for %v ms; the slowest operation took %v",
		time.Since(began).Round(time.Millisecond), times.ms, l.slow())
	if out, _ := fbfkv(t, "cluster", "status", any); !strings.Contains(out, "partitions 4-7, slots") {
		t.Errorf("the partitions are elsewhere:\n%s", out)
	}

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	victims := []string{"the leader of the source", "the leader of the target",
		"another replica of the target", "the command"}
	for round := range *moveCount {
		args, source, target := []string{"rebalance", any}, one, two
		if round%2 == 0 {
			args, source, target = []string{"rebalance", "--empty", id, any}, two, one
		}
		moving := background(t, append([]string{"cluster", args[0], "--yes"}, args[1:]...)...)
		eventually(t, patience, "partitions are on their way, or there", func() bool {
			select {
			case <-moving.done:
				return true
			default:
			}
			out, _ := fbfkv(t, "cluster", "status", any)
			return strings.Contains(out, "is on its way")
		})
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		var victim *server
		if round%len(victims) == 0 {
			r.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		}
		what := victims[round%len(victims)]
		switch {
		case strings.HasSuffix(what, "of the source"):
			victim = leaderOf(t, source...)
		case strings.HasSuffix(what, "leader of the target"):
			victim = leaderOf(t, target...)
		case strings.HasSuffix(what, "replica of the target"):
			victim = without(target, leaderOf(t, target...))[r.IntN(2)]
		}
		if victim != nil {
			times.take(victim)
			victim.kill()
			time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
			victim.start()
		}
		moving.cmd.Process.Kill() // the nodes do not need it
		<-moving.done
		operate(t, 0, "", args...)
		t.Logf("%s was killed; the slowest operation took %v", what, l.slow())
	}
	operate(t, 0, "", "rebalance", "--empty", id, any)
	for _, s := range two {
		operate(t, 0, "is no longer a member", "remove-node", any, s.address())
	}
	times.take(all...)
	t.Logf("%d moves, out of reach for %d ms in the median, at most %d ms", len(times.ms),
		times.ms[len(times.ms)/2], times.ms[len(times.ms)-1])
	l.check()
	eventually(t, patience, "all are well", func() bool {
		_, code := fbfkv(t, "cluster", "status", any)
		return code == 0
	})
}

// TestMoveWithoutLeader: a move to a shard that has no leader is waited for no longer than the
// command was told; a partition on its way there cannot be sent elsewhere; and when the shard has a
// leader again, the move goes on.
func TestMoveWithoutLeader(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	any := all[0].address()
	operate(t, 1, "is not a number of replicas", "create", "--replicas=-1", any)
	operate(t, 0, "is complete", append([]string{"create", "--replicas", "0", "--partitions", "4"},
		addresses(all...)...)...)
	ids := shardsOf(t, all[0])
	if len(ids) != 3 {
		t.Fatalf("three nodes without replicas are the shards %v", ids)
	}
	all[2].kill()
	operate(t, 1, "the shard "+ids[2][:8]+" has no leader", "move", "--patience", "5s", "--partitions", "0",
		"--to", ids[2], any)
	operate(t, 1, "is on its way to the shard "+ids[2][:8], "move", "--partitions", "0", "--to", ids[0], any)
	operate(t, 1, "is on its way to the shard "+ids[2][:8], "move", "--partitions", "0", "--to", ids[1], any)
	operate(t, 1, "; it waits for a leader", "status", any)
	// It can be taken back, and goes anywhere then.
	operate(t, 0, "taken back: partition 0\n", "move", "--partitions", "0-3", "--cancel", any)
	operate(t, 0, "none of these partitions is on its way", "move", "--partitions", "0-3", "--cancel", any)
	if _, code := fbfkv(t, "cluster", "move", any, "--partitions", "0", "--cancel", "--to",
		ids[1]); code == 0 {
		t.Error("a partition is to move and to stay")
	}
	operate(t, 0, "partition 0 is in the shard "+ids[1][:8]+": 1 of 1\nall partitions are in place", "move",
		"--partitions", "0", "--to", ids[1], any)
	operate(t, 0, "in place", "move", "--partitions", "0", "--to", ids[0], any)
	operate(t, 1, "cannot be replaced", "status", any)
	operate(t, 1, "the shard "+ids[2][:8]+" has no leader", "move", "--patience", "5s", "--partitions", "0",
		"--to", ids[2], any)
	all[2].start()
	operate(t, 0, "", "move", "--partitions", "0", "--to", ids[2], any) // it may be there already
	operate(t, 0, "nothing is to be moved", "move", "--partitions", "0", "--to", ids[2], any)
	operate(t, 0, "in place", "rebalance", "--empty", ids[2], any)
	operate(t, 0, "is no longer a member", "remove-node", any, all[2].address())
}
