package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// killPoints are the named instants at which the server kills itself, and how
// often at most it passes them before.
var killPoints = []struct {
	name   string
	passes int
}{
	{"before-commit", 400}, {"after-commit", 400},
	{"snapshot", 12}, {"before-rename", 12}, {"after-rename", 12}, {"before-trim", 12}, {"trim", 12},
}

// TestKillPoints kills the server with SIGKILL at named instants around commits,
// snapshots and trimming of the log, and at random ones in between, while
// go-redis clients send operations and retry on their own until each is
// acknowledged. Under every policy nothing is lost and nothing counted twice
// (G1, G2, G4).
func TestKillPoints(t *testing.T) {
	t.Parallel()
	armed := buildWithKillPoints(t)
	for _, fsync := range []string{"always", "everysec", "no"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			s := &server{t: t, dir: t.TempDir(),
				args: []string{"--appendfsync", fsync, "--port", fixedPort(t)}, program: armed}
			t.Cleanup(s.cleanup)
			s.start()
			if r := s.dial().do("CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX", "ERROR",
				"0.000000001"); r != "+OK" {
				t.Fatal(r)
			}
			k := &retriers{s: s, sums: make(map[string]int64), stop: make(chan struct{})}
			k.start()
			for _, i := range rand.Perm(len(killPoints)) {
				p := killPoints[i]
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				s.kill()
				s.env = []string{fmt.Sprintf("FBFKV_KILLPOINT=%s=%d", p.name, 20+rand.IntN(p.passes))}
				if p.passes < 100 {
					s.env = []string{fmt.Sprintf("FBFKV_KILLPOINT=%s=%d", p.name, 1+rand.IntN(p.passes))}
				}
				s.start()
				k.saveUntilKilled()
				if !strings.Contains(s.log.String(), "killed at "+p.name) {
					t.Errorf("not killed at %s", p.name)
				}
				s.env = nil
				s.start()
			}
			k.finish()
		})
	}
}

// fixedPort returns a port for all lives of a server: one that no other program
// is given in between, so that clients which find nobody there keep asking the
// right one.
func fixedPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		// Below the range from which the system takes ports.
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
	t.Fatal("no free port")
	return ""
}

// killPointsOnce builds the program once more, with its kill points, beside the one under test.
var killPointsOnce = sync.OnceValues(func() (path string, err error) {
	path = program + "-killpoints"
	out, err := exec.Command("go", "build", "-tags", "killpoints", "-o", path,
		"github.com/fbfkv/fbfkv/cmd/fbfkv").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v\n%s", err, out)
	}
	return path, err
})

// buildWithKillPoints returns the path of the program with its kill points.
func buildWithKillPoints(t *testing.T) string {
	t.Helper()
	path, err := killPointsOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// retriers are clients that send one operation after another and leave it to
// go-redis to send it again, with the same opid, until it is acknowledged.
type retriers struct {
	s       *server
	stop    chan struct{}
	running sync.WaitGroup
	acked   atomic.Int64

	mu   sync.Mutex
	sums map[string]int64
}

func (k *retriers) start() {
	for n := range 6 {
		c := k.s.client(func(o *redis.Options) {
			// More retries would not help: go-redis makes them also on a connection that died
			// during HELLO.
			o.PoolSize, o.MaxRetries, o.ReadTimeout = 1, 10, 5*time.Second
			o.MinRetryBackoff, o.MaxRetryBackoff = time.Millisecond, 20*time.Millisecond
		})
		k.running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-k.stop:
					return
				case <-time.After(time.Millisecond): // the others need the processor
				}
				if err := k.send(c, fmt.Sprintf("%d-%d", n, i)); err != nil {
					k.s.t.Errorf("client %d: %v", n, err)
					return
				}
			}
		})
	}
}

// send sends one operation and notes it once it is acknowledged.
func (k *retriers) send(c *redis.Client, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	table := []string{"exact:", "approx:"}[rand.IntN(2)]
	one, two := fmt.Sprintf("%s%d", table, rand.IntN(10)), fmt.Sprintf("%stwin-%d", table, rand.IntN(10))
	delta := rand.Int64N(100) + 1
	args, keys := []any{"CINCRBY", one, id, delta}, []string{one}
	if rand.IntN(3) == 0 {
		args, keys = []any{"CMINCRBY", id, 2, one, delta, two, delta}, []string{one, two}
	}
	var reply redis.Error
	for err := c.Do(ctx, args...).Err(); err != nil; err = c.Do(ctx, args...).Err() {
		// go-redis has retried and given up for the moment: the server is down.
		if ctx.Err() != nil || errors.As(err, &reply) {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	k.acked.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.sums[key] += delta
	}
	return nil
}

// saveUntilKilled asks for snapshots until the server is gone.
func (k *retriers) saveUntilKilled() {
	k.s.t.Helper()
	c := k.s.client(func(o *redis.Options) { o.PoolSize = 1 })
	defer c.Close()
	for deadline := time.Now().Add(patience); !gone(k.s); time.Sleep(5 * time.Millisecond) {
		c.Do(context.Background(), "BGSAVE")
		if time.Now().After(deadline) {
			k.s.t.Fatalf("the server was not killed at %v", k.s.env)
		}
	}
	k.s.checkLog()
}

// finish waits for the operations under way and compares every counter with the sum of its
// operations.
func (k *retriers) finish() {
	t := k.s.t
	eventually(t, patience, "enough operations are acknowledged", func() bool { return k.acked.Load() >= 100 })
	close(k.stop)
	k.running.Wait()
	c := k.s.client()
	for key, want := range k.sums {
		got, err := c.Get(context.Background(), key).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s is %d, want %d: off by %d", key, got, want, got-want)
		}
	}
	t.Logf("%d operations", k.acked.Load())
	k.s.stop()
	if out, code := fbfkv(t.(*testing.T), "check", k.s.dir); code != 0 {
		t.Errorf("check: %s", out)
	}
}
