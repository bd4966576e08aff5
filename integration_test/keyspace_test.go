package integration

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestScan walks a key space that is larger than the part in memory, while other keys come and go,
// and finds every key that exists throughout; also after a restart and a crash.
func TestScan(t *testing.T) {
	t.Parallel()
	const n = 3000
	s := startServer(t, "--appendfsync", "everysec", "--hot-counters", "1000", "--save", "1 1")
	c := s.client()
	var want []string
	pipeline := c.Pipeline()
	for i := range n {
		key := "key:" + strconv.Itoa(i)
		want = append(want, key)
		pipeline.Do(context.Background(), "CINCRBY", key, "op", i)
		if i%10 == 0 {
			pipeline.Do(context.Background(), "FBF.ADD", "filter:"+strconv.Itoa(i), "x")
		}
	}
	if _, err := pipeline.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
	sort.Strings(want)
	for name, again := range map[string]func(){"a snapshot": func() { c.Do(context.Background(), "SAVE") },
		"a restart": func() { s.restart() }, "a crash": s.crash} {
		for range 2 {
			checkScan(t, c, want, n/10)
			again()
			if t.Failed() {
				t.Fatalf("before %s", name)
			}
		}
	}
	checkScan(t, c, want, n/10)
	checkMGet(t, c, n)
}

// checkScan compares SCAN, KEYS and DBSIZE with the keys that must be there.
func checkScan(t *testing.T, c *redis.Client, want []string, filters int) {
	t.Helper()
	ctx := context.Background()
	stop := make(chan struct{})
	churned := make(chan struct{})
	go func() { // other keys come and go
		defer close(churned)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				key := "other:" + strconv.Itoa(i%100)
				c.Set(ctx, key, i, 0)
				c.Del(ctx, key)
			}
		}
	}()
	found := map[string]bool{}
	for it := c.Scan(ctx, 0, "key:*", 100).Iterator(); it.Next(ctx); {
		found[it.Val()] = true
	}
	for it := c.ScanType(ctx, 0, "", 500, "fbf").Iterator(); it.Next(ctx); {
		if !strings.HasPrefix(it.Val(), "filter:") {
			t.Errorf("SCAN TYPE fbf returns %s", it.Val())
		}
	}
	close(stop)
	<-churned
	for _, key := range want {
		if !found[key] {
			t.Errorf("SCAN does not return %s", key)
		}
		delete(found, key)
	}
	if len(found) > 0 {
		t.Errorf("SCAN MATCH key:* returns other keys: %v", found)
	}
	keys := c.Keys(ctx, "key:*").Val()
	sort.Strings(keys)
	if !slices.Equal(keys, want) {
		t.Errorf("KEYS returns %d keys, want %d", len(keys), len(want))
	}
	if size := c.DBSize(ctx).Val(); size != int64(len(want)+filters) {
		t.Errorf("DBSIZE is %d, want %d", size, len(want)+filters)
	}
}

// checkMGet reads all counters, most of them from disk.
func checkMGet(t *testing.T, c *redis.Client, n int) {
	for first := 0; first < n; first += 500 {
		var keys []string
		for i := first; i < first+500; i++ {
			keys = append(keys, "key:"+strconv.Itoa(i))
		}
		for i, v := range c.MGet(context.Background(), keys...).Val() {
			if v != strconv.Itoa(first+i) {
				t.Errorf("key:%d is %v", first+i, v)
			}
		}
	}
}

// TestExpiry lets keys expire: by themselves, found by reads and by the server
// alone, also one that was started since; the opids stay.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	const short, long = 200, 600_000 // ms
	for _, ms := range []int{short, long} {
		for i := range 20 {
			key := fmt.Sprintf("k%d-%d", ms, i)
			c.want(":7", "CINCRBY", key, "op", "7")
			c.want(":1", "PEXPIRE", key, strconv.Itoa(ms))
		}
	}
	c.want("+OK", "SET", "stays", "1")
	eventually(t, patience, "the keys of 200 ms are counted no more", func() bool {
		return c.do("DBSIZE") == ":21"
	})
	for i := range 20 {
		key := fmt.Sprintf("k200-%d", i)
		c.want("$-1", "GET", key)
		// A late retry does not bring the counter back.
		c.want("[:7 :0]", "CINCRBY", key, "op", "7", "WITHSTATUS")
		c.want(":0", "EXISTS", key)
	}
	s.crash()
	c = s.dial()
	for i := range 20 {
		key := fmt.Sprintf("k600000-%d", i)
		if ttl := number(c.do("PTTL", key)); ttl > long || ttl <= 0 {
			t.Errorf("after a crash PTTL of %s is %d", key, ttl)
		}
		c.want(":1", "PEXPIRE", key, strconv.Itoa(short))
	}
	s.restart()
	c = s.dial()
	eventually(t, patience, "all keys but one are gone", func() bool { return c.do("DBSIZE") == ":1" })
	c.want(`"1"`, "GET", "stays")
	c.want("$-1", "GET", "k600000-3")
}

// TestFilterKeysSurvive finds what was added to FBF keys after a restart and a
// crash.
func TestFilterKeysSurvive(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	c.want("+OK", "FBF.RESERVE", "fixed", "BITS", "100000", "HASHES", "4", "REFRESH", "3600000")
	for i := range 300 {
		item := strconv.Itoa(i)
		c.want(":1", "FBF.ADD", "adaptive", item)
		c.want(":1", "FBF.ADD", "fixed", item)
		switch i {
		case 100:
			s.restart()
			c = s.dial()
		case 200:
			s.crash()
			c = s.dial()
		}
	}
	s.crash()
	c = s.dial()
	for i := range 300 {
		c.want(":1", "FBF.EXISTS", "adaptive", strconv.Itoa(i))
		c.want(":0", "FBF.ADD", "fixed", strconv.Itoa(i))
	}
	c.want(":300", "FBF.CARD", "adaptive")
}
