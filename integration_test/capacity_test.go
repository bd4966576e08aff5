package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestMemoryCap fills a table up to its MAXMEMORY. An APPROX table then refuses
// new operations, which consumes no opid, and goes on recognising the old ones;
// an EXACT table goes on.
func TestMemoryCap(t *testing.T) {
	t.Parallel()
	const most = 600_000
	s := startServer(t, "--appendfsync", "no")
	c := s.dial()
	c.want("+OK", "CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX", "MAXMEMORY", "1048576")
	c.want("+OK", "CTABLE", "CREATE", "exact", "PREFIX", "exact:", "MAXMEMORY", "1048576")
	refused := fill(t, s.client(), "approx:", most)
	if refused < 0 {
		t.Fatalf("nothing was refused in %d operations", most)
	}
	key, id := fmt.Sprintf("approx:%d", refused%100), fmt.Sprint(refused)
	if got := c.do("CINCRBY", key, id, "1"); !strings.HasPrefix(got, "-OOM ") {
		t.Errorf("at the cap: %s", got)
	}
	c.want("$-1", "CSEEN", key, id)
	for i := range 100 {
		if got := c.do("CINCRBY", fmt.Sprintf("approx:%d", i), fmt.Sprint(i), "1",
			"WITHSTATUS"); !strings.HasSuffix(got, " :0]") {
			t.Errorf("at the cap a retry is answered %s", got)
		}
	}
	if info := c.do("CTABLE", "INFO", "approx"); !strings.Contains(info, `"applied" :`+fmt.Sprint(refused)) {
		t.Logf("CTABLE INFO approx: %s", info)
	}
	if at := fill(t, s.client(), "exact:", refused+refused/4); at >= 0 {
		t.Errorf("the EXACT table refuses operation %d", at)
	}
}

// fill applies operations one after the other until one is refused with OOM,
// and returns its number, or -1 if none was.
func fill(t *testing.T, c *redis.Client, prefix string, n int) int {
	t.Helper()
	const batch = 1000
	for first := 0; first < n; first += batch {
		pipeline := c.Pipeline()
		for i := first; i < first+batch; i++ {
			pipeline.Do(context.Background(), "CINCRBY", fmt.Sprintf("%s%d", prefix, i%100), i, 1)
		}
		replies, _ := pipeline.Exec(context.Background()) // errors are in the replies
		for i, r := range replies {
			if err := r.Err(); err != nil {
				if !strings.HasPrefix(err.Error(), "OOM ") {
					t.Fatalf("operation %d: %v", first+i, err)
				}
				return first + i
			}
		}
	}
	return -1
}

// TestDiskNearlyFull asks for more free disk space than there is: writes are
// refused in words that say that nothing happened, and reads go on.
func TestDiskNearlyFull(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.dial().want(":1", "CINCRBY", "k", "op-1", "1")
	s.restart("--min-free-disk", "1000000gb")
	c := s.dial()
	const refusal = "-MISCONF writes are refused, nothing was applied: "
	eventually(t, patience, "writes are refused", func() bool {
		return strings.HasPrefix(c.do("SET", "other", "1"), refusal)
	})
	if got := c.do("CINCRBY", "k", "op-2", "1"); !strings.HasPrefix(got, refusal) {
		t.Errorf("a write is answered %s", got)
	}
	c.want(":1", "CGET", "k")
	s.restart()
	c = s.dial()
	c.want("[:2 :1]", "CINCRBY", "k", "op-2", "1", "WITHSTATUS")
}

// TestStartupMessages expects a start to tell where the server is, which
// directory it uses, and what it recovered in what time.
func TestStartupMessages(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for i := range 30 {
		s.dial().want(":1", "CINCRBY", fmt.Sprintf("k%d", i), "op", "1")
	}
	s.crash()
	log := s.log.String()
	for _, want := range []string{s.address(), s.dir, "appendfsync=always", "keys=30", "redone=", "took="} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not tell %q:\n%s", want, log)
		}
	}
	s.stop()
	if log := s.log.String(); !strings.Contains(log, "stopped") {
		t.Errorf("the log does not tell of the end:\n%s", log)
	}
}
