package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestDuplicatesAtOnce sends the same operations on many connections at the
// same time, as clients do that all lost patience. One of each is applied
// (G1), and in EXACT tables every reply is the original result (G5).
func TestDuplicatesAtOnce(t *testing.T) {
	t.Parallel()
	const connections, pipelines, length = 50, 8, 32
	s := startServer(t, "--appendfsync", "everysec")
	if r := s.dial().do("CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX", "ERROR",
		"0.000000001"); r != "+OK" {
		t.Fatal(r)
	}
	for _, prefix := range []string{"exact:", "approx:"} {
		var outcomes tally
		var clients sync.WaitGroup
		begin := make(chan struct{})
		for range connections {
			clients.Go(func() {
				c := s.client(func(o *redis.Options) { o.PoolSize = 1 })
				defer c.Close()
				<-begin
				for p := range pipelines {
					outcomes.sendPipeline(t, c, prefix, p*length, length)
				}
			})
		}
		close(begin)
		clients.Wait()
		outcomes.check(t, connections, pipelines*length, prefix == "exact:")
		want := strconv.Itoa(pipelines * length)
		for _, key := range []string{"hot", "hotter"} {
			if got := s.dial().do("GET", prefix+key); got != strconv.Quote(want) {
				t.Errorf("%s%s is %s, want %s", prefix, key, got, want)
			}
		}
	}
}

// tally counts the replies to each operation.
type tally struct {
	mu      sync.Mutex
	applied map[string]int
	values  map[string]map[string]int // by operation, by value
}

// sendPipeline sends increments of a counter, and two-counter increments, with
// ids that every connection uses.
func (y *tally) sendPipeline(t *testing.T, c *redis.Client, prefix string, first, n int) {
	pipeline := c.Pipeline()
	replies := map[string]*redis.Cmd{}
	for i := first; i < first+n; i++ {
		one, two := fmt.Sprintf("one-%d", i), fmt.Sprintf("two-%d", i)
		if i%2 == 0 {
			replies[one] = pipeline.Do(context.Background(), "CINCR", prefix+"hot", one, "WITHSTATUS")
			replies[two] = pipeline.Do(context.Background(), "CINCR", prefix+"hotter", one, "WITHSTATUS")
		} else {
			replies[one] = pipeline.Do(context.Background(), "CMINCRBY", one, 2, prefix+"hot", 1,
				prefix+"hotter", 1, "WITHSTATUS")
		}
	}
	if _, err := pipeline.Exec(context.Background()); err != nil {
		t.Error(err)
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.applied == nil {
		y.applied, y.values = map[string]int{}, map[string]map[string]int{}
	}
	for op, reply := range replies {
		r := reply.Val().([]any)
		y.applied[op] += int(r[1].(int64))
		if y.values[op] == nil {
			y.values[op] = map[string]int{}
		}
		y.values[op][fmt.Sprint(r[0])]++
	}
}

// check expects each operation to have been applied once, and if exact all its
// replies to be equal.
func (y *tally) check(t *testing.T, connections, operations int, exact bool) {
	if len(y.applied) < operations {
		t.Errorf("%d operations, want at least %d", len(y.applied), operations)
	}
	for op, n := range y.applied {
		if n != 1 {
			t.Errorf("%s was applied %d times", op, n)
		}
		if exact && len(y.values[op]) != 1 {
			t.Errorf("%s was answered differently: %v", op, y.values[op])
		}
		total := 0
		for _, n := range y.values[op] {
			total += n
		}
		if total != connections {
			t.Errorf("%s: %d replies, want %d", op, total, connections)
		}
	}
}
