package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/store"
)

// clusterLoad is clients that count in a cluster. Each sends every operation until it is
// answered, to whoever answers.
type clusterLoad struct {
	t     testing.TB
	nodes []*redis.Client
	stop  atomic.Bool
	wait  sync.WaitGroup

	mu      sync.Mutex
	ops     map[string][]countedOp // by key
	retries int
	watch   *quietTime
}

// countedOp is an operation that was answered.
type countedOp struct {
	id    string
	value int64
}

// quietTime is the longest time without an answer to any operation on some keys, from one instant to the
// first answer after another.
type quietTime struct {
	keys    func(key string) bool
	longest time.Duration
	last    time.Time     // when an operation was answered
	over    bool          // with the next answer
	done    chan struct{} // closed then
}

// What a client of the load has.
const (
	loadPatience = 400 * time.Millisecond // then it asks another node
	loadCounters = 24
	loadClients  = 6
)

// startClusterLoad starts clients of nodes at these addresses.
func startClusterLoad(t testing.TB, addresses []string) *clusterLoad {
	l := &clusterLoad{t: t, ops: make(map[string][]countedOp)}
	for _, address := range addresses {
		c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1, DialTimeout: loadPatience / 2,
			ReadTimeout: loadPatience, DisableIdentity: true, PoolSize: 1000}) // so many refusals until it dials no more
		t.Cleanup(func() { c.Close() })
		l.nodes = append(l.nodes, c)
	}
	keys := evenKeys()
	for c := range loadClients {
		l.wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			var at [loadCounters]int // whom to ask for a counter
			for i := 0; !l.stop.Load(); i++ {
				k := r.IntN(loadCounters)
				l.count(&at[k], keys[k], fmt.Sprintf("%d-%d", c, i))
				time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// evenKeys returns the counters of the load, in turn in each of 16 equal ranges of slots: whatever partitions a shard
// has, it hears of some.
func evenKeys() (keys [loadCounters]string) {
	for i, n := 0, 0; i < loadCounters; n++ {
		if key := fmt.Sprint("k", n); int(store.Slot([]byte(key)))*16/16384 == i%16 {
			keys[i] = key
			i++
		}
	}
	return keys
}

// end returns when every operation is answered.
func (l *clusterLoad) end() {
	l.stop.Store(true)
	l.wait.Wait()
}

// count sends an operation until it is answered.
func (l *clusterLoad) count(at *int, key, id string) {
	value, err := l.ask(at, "CINCRBY", key, id, 1)
	if err != nil {
		l.t.Errorf("%s %s: %v", key, id, err)
		l.stop.Store(true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.ops[key] = append(l.ops[key], countedOp{id, value})
	}
	l.noted(key, err != nil)
}

// noted notes an answer for whoever listens. The last one ends listening. The lock is held.
func (l *clusterLoad) noted(key string, last bool) {
	w := l.watch
	if w == nil || !last && !w.keys(key) {
		return
	}
	now := time.Now()
	w.longest, w.last = max(w.longest, now.Sub(w.last)), now
	if w.over || last {
		close(w.done)
		l.watch = nil
	}
}

// ask sends a command to one node after the other until it is answered, the first one at *at.
func (l *clusterLoad) ask(at *int, args ...any) (value int64, err error) {
	for end := time.Now().Add(4 * patience); ; {
		value, err = l.nodes[*at].Do(context.Background(), args...).Int64()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		if err == nil || !again(err) || time.Now().After(end) {
			return value, err
		}
		l.mu.Lock()
		l.retries++
		l.mu.Unlock()
		*at = l.next(*at, err)
	}
}

// next returns whom to ask after an error, soon.
func (l *clusterLoad) next(at int, err error) int {
	if _, to, moved := strings.Cut(err.Error(), "MOVED "); moved {
		_, to, _ = strings.Cut(to, " ")
		if i := slices.IndexFunc(l.nodes, func(c *redis.Client) bool { return c.Options().Addr == to }); i >= 0 && i != at {
			return i
		}
	}
	time.Sleep(time.Duration(2+rand.IntN(8)) * time.Millisecond)
	return (at + 1) % len(l.nodes)
}

// again reports whether an operation that got an error is to be sent again with its opid.
func again(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true // the connection is gone, or there was no answer
	}
	for _, prefix := range []string{"MOVED ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ", "MISCONF "} {
		if strings.HasPrefix(answer.Error(), prefix) {
			return true
		}
	}
	return false
}

// listen begins to note how long nothing is answered that concerns some keys; the func that it returns ends
// that with the next answer.
func (l *clusterLoad) listen(keys func(key string) bool) (w *quietTime, end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = &quietTime{keys: keys, last: time.Now(), done: make(chan struct{})}
	l.watch = w
	return w, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		w.over = true
	}
}

// losses is what a load found.
type losses struct {
	operations, retries                int
	lost, doubled, answers, wrongAgain int
}

// verify compares what was answered with the counters: the answers are 1 to n, the counter is
// n, and whoever sends an operation again gets the same answer.
func (l *clusterLoad) verify() (found losses) {
	found.retries = l.retries
	for key, ops := range l.ops {
		at := 0
		found.operations += len(ops)
		value, err := l.ask(&at, "GET", key)
		if err != nil {
			l.t.Errorf("GET %s: %v", key, err)
		}
		found.lost += max(0, len(ops)-int(value))
		found.doubled += max(0, int(value)-len(ops))
		values := make([]int64, len(ops))
		for i, op := range ops {
			values[i] = op.value
		}
		slices.Sort(values)
		for i, v := range values {
			if v != int64(i+1) {
				found.answers++
			}
		}
		found.wrongAgain += l.sendAgain(&at, key, ops)
	}
	return found
}

// sendAgain sends a counter's operations again, and returns how many have another answer than
// at first.
func (l *clusterLoad) sendAgain(at *int, key string, ops []countedOp) (wrong int) {
	ctx, end := context.Background(), time.Now().Add(4*patience)
	for len(ops) > 0 {
		p, n := l.nodes[*at].Pipeline(), min(len(ops), 200)
		for _, op := range ops[:n] {
			p.Do(ctx, "CINCRBY", key, op.id, 1)
		}
		answers, err := p.Exec(ctx)
		for i := 0; i < n && err == nil; i++ {
			if v, _ := answers[i].(*redis.Cmd).Int64(); v != ops[i].value {
				wrong++
			}
		}
		if err == nil {
			ops = ops[n:]
		} else if *at = l.next(*at, err); time.Now().After(end) {
			l.t.Errorf("the operations on %s cannot be sent again: %v", key, err)
			return wrong
		}
	}
	return wrong
}

// The histories of a few clients that share a counter through a fault.
const (
	historyClients = 3
	historyOps     = 40
)

// historyOp is what one of them asks: an operation by its number, or the counter's value.
type historyOp struct{ read, id int }

// historyModel is a counter with opids. Its state is the opids in their order, a character
// each.
var historyModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(string), input.(historyOp), output.(int64)
		if in.read == 1 {
			return out == int64(len([]rune(s))), s
		}
		if i := slices.Index([]rune(s), rune(in.id)); i >= 0 {
			return out == int64(i+1), s
		}
		s += string(rune(in.id))
		return out == int64(len([]rune(s))), s
	},
}

// history begins clients that share a counter. The func that it returns waits until they are
// done and checks that what they saw has an order.
func (l *clusterLoad) history(key string) (check func() porcupine.CheckResult) {
	began, clients := time.Now(), sync.WaitGroup{}
	var mu sync.Mutex
	var ops []porcupine.Operation
	newest := 0
	for c := range historyClients {
		clients.Go(func() {
			r, at := rand.New(rand.NewPCG(uint64(c), 3)), c%len(l.nodes)
			for range historyOps {
				var in historyOp
				args := []any{"GET", key}
				mu.Lock()
				switch p := r.IntN(6); {
				case p < 2:
					in.read = 1
				case p < 4 && newest > 0:
					in.id = max(1, newest-r.IntN(4)) // which may be under way
				default:
					newest++
					in.id = newest
				}
				mu.Unlock()
				if in.read == 0 {
					args = []any{"CINCRBY", key, fmt.Sprint("op", in.id), 1}
				}
				call := time.Since(began).Nanoseconds()
				out, err := l.ask(&at, args...)
				if err != nil {
					l.t.Errorf("%v: %v", args, err)
					return
				}
				mu.Lock()
				ops = append(ops, porcupine.Operation{ClientId: c, Input: in, Output: out, Call: call, Return: time.Since(began).Nanoseconds()})
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
		})
	}
	return func() porcupine.CheckResult {
		clients.Wait()
		return porcupine.CheckOperationsTimeout(historyModel, ops, 10*time.Second)
	}
}
