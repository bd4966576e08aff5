package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// operation is one increment of a load and what became of it.
type operation struct {
	key, opid string
	delta     int64

	acked bool
	value int64 // of the acknowledgement
}

// load is a set of operations on a few counters. It knows what every counter
// must be, whatever happened to connections and processes in between.
type load struct {
	t    *testing.T
	s    *server
	name string

	mu  sync.Mutex // guards ops while workers run
	ops []*operation
}

const (
	loadWorkers  = 8
	loadKeys     = 40 // counters per load
	loadPipeline = 32
)

// newLoad returns a load on the counters whose keys begin with prefix.
func newLoad(t *testing.T, s *server, prefix string) *load {
	return &load{t: t, s: s, name: prefix}
}

// key is the name of the i-th counter.
func (l *load) key(i int) string { return fmt.Sprintf("%scounter-%d", l.name, i) }

// run sends new operations on several connections until stop is closed or a
// connection breaks. Every acknowledgement is noted.
func (l *load) run(stop <-chan struct{}) {
	var workers sync.WaitGroup
	for range loadWorkers {
		workers.Go(func() {
			c := l.s.client(func(o *redis.Options) { o.PoolSize = 1 })
			defer c.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := l.send(c, l.fresh()); err != nil {
					return
				}
			}
		})
	}
	workers.Wait()
}

// fresh makes the operations of one pipeline.
func (l *load) fresh() []*operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := len(l.ops)
	for range loadPipeline {
		n := len(l.ops)
		l.ops = append(l.ops, &operation{
			key:   l.key(rand.IntN(loadKeys)),
			opid:  "op-" + strconv.Itoa(n),
			delta: rand.Int64N(1000) + 1,
		})
	}
	return l.ops[first:]
}

// send sends operations in one pipeline. An operation that was acknowledged
// before must be answered as it was then.
func (l *load) send(c *redis.Client, ops []*operation) error {
	pipeline := c.Pipeline()
	replies := make([]*redis.Cmd, len(ops))
	for i, op := range ops {
		replies[i] = pipeline.Do(context.Background(), "CINCRBY", op.key, op.opid, op.delta)
	}
	_, err := pipeline.Exec(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, op := range ops {
		value, err := replies[i].Int64()
		if err == nil {
			op.acked, op.value = true, value
		}
	}
	return err
}

// resendAll sends every operation again, each on two connections at once and
// in another order than at first. If original is true, the replies to those
// that were acknowledged must be what they were (G5, MODE EXACT). It returns
// the first error of a connection, after which not everything was re-sent.
func (l *load) resendAll(original bool) error {
	const twice = 2
	const shares = loadWorkers / twice
	results := make(chan error, loadWorkers)
	for w := range loadWorkers {
		go func() {
			c := l.s.client(func(o *redis.Options) { o.PoolSize = 1 })
			defer c.Close()
			var err error
			for _, i := range rand.Perm((len(l.ops) + loadPipeline - 1) / loadPipeline) {
				if i%shares == w%shares && err == nil {
					err = l.resend(c, l.ops[i*loadPipeline:min((i+1)*loadPipeline, len(l.ops))], original)
				}
			}
			results <- err
		}()
	}
	var first error
	for range loadWorkers {
		if err := <-results; first == nil {
			first = err
		}
	}
	return first
}

// resend sends operations again.
func (l *load) resend(c *redis.Client, ops []*operation, original bool) error {
	again := make([]*operation, len(ops))
	l.mu.Lock()
	for i, op := range ops {
		again[i] = &operation{key: op.key, opid: op.opid, delta: op.delta}
	}
	l.mu.Unlock()
	err := l.send(c, again)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, op := range ops {
		if !again[i].acked {
			continue
		}
		if original && op.acked && op.value != again[i].value {
			l.t.Errorf("%s: %s %s was answered %d at first and %d when re-sent",
				l.name, op.key, op.opid, op.value, again[i].value)
		}
		op.acked, op.value = true, again[i].value
	}
	return err
}

// sums returns for every counter the sum of the operations that count.
func (l *load) sums(counts func(*operation) bool) map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := map[string]int64{}
	for i := range loadKeys {
		sums[l.key(i)] = 0
	}
	for _, op := range l.ops {
		if counts(op) {
			sums[op.key] += op.delta
		}
	}
	return sums
}

// values reads every counter; one that does not exist is 0.
func (l *load) values() map[string]int64 {
	l.t.Helper()
	values := map[string]int64{}
	c := l.s.client()
	defer c.Close()
	for i := range loadKeys {
		v, err := c.Get(context.Background(), l.key(i)).Int64()
		if err != nil && err != redis.Nil {
			l.t.Fatalf("GET %s: %v", l.key(i), err)
		}
		values[l.key(i)] = v
	}
	return values
}

// checkNothingLost expects that every acknowledged operation is in the
// counters (G2), and nothing that was never sent.
func (l *load) checkNothingLost() {
	l.t.Helper()
	acked := l.sums(func(op *operation) bool { return op.acked })
	sent := l.sums(func(*operation) bool { return true })
	for key, v := range l.values() {
		if v < acked[key] || v > sent[key] {
			l.t.Errorf("%s is %d; %d were acknowledged and %d sent", key, v, acked[key], sent[key])
		}
	}
}

// checkExact expects every operation exactly once in the counters (G1).
func (l *load) checkExact() {
	l.t.Helper()
	want := l.sums(func(*operation) bool { return true })
	for key, v := range l.values() {
		if v != want[key] {
			l.t.Errorf("%s is %d, want %d: off by %d", key, v, want[key], v-want[key])
		}
	}
}

// during runs the loads for a while, then end, which stops the server or just
// returns, and waits for the workers.
func during(loads []*load, d time.Duration, end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, l := range loads {
		running.Go(func() { l.run(stop) })
	}
	time.Sleep(d)
	end()
	close(stop)
	running.Wait()
}
