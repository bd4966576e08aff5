package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRegionGoesOn: a client that may only pull names entries that a region has not got, as if it were another one.
// The region goes on. If its directory is put back from a copy, the other one's proof fences it.
func TestRegionGoesOn(t *testing.T) {
	t.Parallel()
	a := startServer(t, "--port", fmt.Sprint(freePorts(t, 1)))
	b := startServer(t, "--port", fmt.Sprint(freePorts(t, 1)))
	region(t, 0, "is the region eu", "create", a.address(), "eu")
	region(t, 0, "", "join", b.address(), "us", a.address())
	write := func(id string) {
		t.Helper()
		if _, err := redisAsk(a, "CINCRBY", "k", id, 1); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(s *server, want string) {
		t.Helper()
		eventually(t, patience, s.address()+" shows "+want, func() bool {
			out, _ := redisAsk(s, "GET", "k")
			return out == want
		})
	}
	write("1")
	shows(b, "1")
	var status struct {
		Group uint64 `json:"group"`
		Self  struct {
			Partitions  int    `json:"partitions"`
			Incarnation uint64 `json:"incarnation"`
		} `json:"self"`
	}
	text, err := redisAsk(a, "REGION", "STATUS")
	if err == nil {
		err = json.Unmarshal([]byte(text), &status)
	}
	if err != nil {
		t.Fatal(text, err)
	}
	if _, err := redisAsk(a, "ACL", "SETUSER", "peer", "on", ">secret", "+region.pull"); err != nil {
		t.Fatal(err)
	}
	c := a.dial()
	c.want("+OK", "AUTH", "peer", "secret")
	c.want("-NOPERM this user has no permissions to run the 'incr' command", "INCR", "k")
	for _, after := range []string{"1000", "1000000000000", "9223372036854775808", "18446744073709551615"} {
		reply := c.do("REGION.PULL", fmt.Sprint(status.Group), "1", fmt.Sprint(status.Self.Incarnation), "MAX", "1000", "BLOCK", "0",
			"0", "0", fmt.Sprint(16384/status.Self.Partitions-1), after, after)
		if !strings.HasPrefix(reply, "-REFUSED") {
			t.Errorf("after %s: %s", after, reply)
		}
	}
	write("2")
	shows(b, "2")
	region(t, 0, "", "status", a.address())

	a.kill()
	copied := t.TempDir() + "/copy"
	if err := os.CopyFS(copied, os.DirFS(a.dir)); err != nil {
		t.Fatal(err)
	}
	a.start()
	write("3")
	shows(b, "3")
	a.kill()
	a.dir = copied
	a.start()
	refusesWrites(t, "this directory was restored from a backup, or is an older copy", a)
	a.kill()
	a.start()
	refusesWrites(t, "this directory was restored from a backup, or is an older copy", a)
}
