package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/server/tlstest"
)

// Everything that one server does, the leader of a shard does. These tests play the tables of
// others to a leader, with a hash tag at the end of every key.

// tag is the hash tag, at the end of keys, so that the prefixes of tables and users hold.
const tag = "{t}"

// maxTagged is the longest key that is tagged. Longer ones are there to try the limits.
const maxTagged = 1000

// taggedArgs returns a command with a tag at the end of all its keys, and of patterns for keys.
func taggedArgs(args []string) []string {
	args = append([]string(nil), args...)
	mark := func(i int) {
		if i < len(args) && args[i] != "" && len(args[i]) <= maxTagged {
			args[i] += tag
		}
	}
	if len(args) == 0 {
		return args
	}
	c := commands.Commands.Get([]byte(args[0]))
	switch {
	case c == nil:
		return args
	case c.Name == "keys":
		mark(1)
	case c.Name == "scan":
		for i := 2; i < len(args); i += 2 {
			if strings.EqualFold(args[i], "match") {
				mark(i + 1)
			}
		}
	}
	if len(args) > 1 {
		for i := range c.Subcommands {
			if strings.EqualFold(c.Subcommands[i].Name, args[1]) {
				c = &c.Subcommands[i]
				break
			}
		}
	}
	first, last, step := c.Keys.First, c.Keys.Last, c.Keys.Step
	switch {
	case first == 0:
		return args
	case c.Keys.NumKeys && first < len(args):
		n, err := strconv.Atoi(args[first])
		if err != nil || n < 1 || n > len(args) {
			return args
		}
		first, last = first+1, first+1+step*(n-1)
	case last < 0:
		last += len(args)
	}
	for i := first; i <= last && i < len(args); i += step {
		mark(i)
	}
	return args
}

// maxShardSteps is how much of a script a shard plays, which waits for three disks.
const maxShardSteps = 800

// tagged returns the script with a tag at the end of all keys.
func (s *script) tagged() *script {
	tag := &script{name: s.name + "/shard"}
	for _, e := range s.steps[:min(len(s.steps), maxShardSteps)] {
		tagged := *e
		switch e.kind {
		case rawSend:
		case scanAll:
			tagged.args = taggedArgs(append([]string{"SCAN", "0"}, e.args...))[2:]
		default:
			tagged.args = taggedArgs(e.args)
			tagged.bytes = frame(tagged.args...)
		}
		tag.steps = append(tag.steps, &tagged)
	}
	return tag
}

// startShard starts three nodes, so patient that a busy machine changes no leader.
func startShard(t testing.TB, args ...string) []*server {
	t.Helper()
	return startCluster(t, 3, append(args, "--cluster-node-timeout", "5000")...)
}

// shardOfOne starts a shard of one node, which leads it and has saved what a new shard begins with.
func shardOfOne(t testing.TB, args ...string) *server {
	t.Helper()
	return savedLeader(startCluster(t, 1, args...)[0])
}

// shardLeader starts three nodes and returns their leader, which has saved what a new shard
// begins with.
func shardLeader(t testing.TB, args ...string) *server {
	t.Helper()
	return savedLeader(leaderOf(t, startShard(t, args...)...))
}

func savedLeader(leader *server) *server {
	c := leader.dial()
	c.want("+OK", "CTABLE", "ALTER", "default", "WINDOW", "2m") // as it is: waits until the shard has its tables
	c.want("+OK", "SAVE")
	c.want("+OK", "QUIT")
	c.wantClosed() // no other client than the test's is connected
	return leader
}

// TestShardOverTLS counts, as a user with few rights, in a shard whose ports all speak TLS.
// SLOWLOG of its leader shows it. When the leader is killed the client, which
// has MOVED and the map to go by, finds the next one.
func TestShardOverTLS(t *testing.T) {
	t.Parallel()
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue("server", time.Now().Add(time.Hour))
	node := func(trusted string, more ...string) *server {
		return startServer(t, append([]string{"--cluster-enabled", "yes", "--port", "0", "--tls-port",
			strconv.Itoa(freePorts(t, 1)),
			"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", trusted,
			"--tls-cluster", "yes", "--cluster-node-timeout", "5000"}, more...)...)
	}
	all := []*server{node(ca.File), node(ca.File), node(ca.File)}
	trust := []string{"--tls", "--cacert", ca.File, "--cert", cert, "--key", key}
	operate(t, 0, "is complete", append(append([]string{"create"}, trust...), addresses(all...)...)...)
	ctx := context.Background()
	for _, s := range all { // users are each node's own
		if got := s.cli(append(trust, "ACL", "SETUSER", "web", "on", ">horse", "~page:*", "+cincrby",
			"+cluster|slots")...); got != "OK" {
			t.Fatal(got)
		}
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses(all...),
		TLSConfig: ca.Client(cert, key), Username: "web", Password: "horse",
		MaxRedirects: 200, MaxRetryBackoff: 100 * time.Millisecond,
		ClusterStateReloadInterval: 100 * time.Millisecond})
	defer c.Close()
	count := func(i int) {
		t.Helper()
		eventually(t, patience, "a leader counts", func() bool {
			n, err := c.Do(ctx, "CINCRBY", "page:home", fmt.Sprint("op-", i), 1).Int()
			if err == nil && n != i {
				t.Fatalf("operation %d: %d", i, n)
			}
			return err == nil
		})
	}
	count(1)
	if err := c.Do(ctx, "CINCRBY", "other", "op", 1).Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("another key: %v", err)
	}
	leader := all[0]
	for _, s := range all {
		if strings.Contains(s.cli(append(trust, "ROLE")...), `"master"`) {
			leader = s
		}
	}
	admin := leader.client(func(o *redis.Options) { o.TLSConfig, o.Dialer = ca.Client(cert, key), nil })
	if err := admin.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err(); err != nil {
		t.Fatal(err)
	}
	count(2)
	if log := admin.SlowLogGet(ctx, 10).String(); !strings.Contains(log, "page:home") {
		t.Errorf("SLOWLOG: %s", log)
	}
	leader.kill()
	count(1)

	// Others join over TLS, also in its place. One that trusts another authority does not, and
	// one whose certificate another has signed is refused at once.
	operator := func(code int, want, verb string, args ...string) {
		t.Helper()
		operate(t, code, want, append(append([]string{verb}, trust...), args...)...)
	}
	fresh, any := node(ca.File), without(all, leader)[0].address()
	operator(0, "has caught up and votes", "replace", any, leader.address(), fresh.address())
	stranger := tlstest.NewAuthority(t, "stranger")
	deaf := node(stranger.File, "--tls-auth-clients", "no") // so that it is told to join at all
	operator(1, "certificate signed by unknown authority", "add-node", "--patience", "2s", deaf.address(),
		any)
	operator(1, deaf.address()+" was admitted and has not joined", "status", any)
	operator(0, "is no longer a member", "remove-node", any, deaf.address())
	operator(0, "leader ", "status", any)
	cert, key = stranger.Issue("stranger", time.Now().Add(time.Hour))
	foreign := node(ca.File)
	operator(1, "certificate signed by unknown authority", "add-node", foreign.address(), any)
	deaf.stop()
	deaf.args[slices.Index(deaf.args, stranger.File)] = ca.File // it was told which one is right
	deaf.start()
	operator(0, "has caught up and votes", "add-node", deaf.address(), any)
	for _, s := range []*server{fresh, deaf} {
		if got := s.cli(append(trust, "CINCRBY", "page:home", "op-2", "1")...); !strings.Contains(got,
			"MOVED") && got != "2" {
			t.Errorf("a node that has joined answers %q", got)
		}
	}
}

// TestShardIsObserved: MONITOR and SLOWLOG show a command on the node that carried it out. What a
// replica redoes is no command there.
func TestShardIsObserved(t *testing.T) {
	t.Parallel()
	all := startShard(t)
	leader := leaderOf(t, all...)
	replica := without(all, leader)[0]
	seen := map[*server]*bufio.Scanner{}
	for _, s := range []*server{leader, replica} {
		if _, err := redisAsk(s, "CONFIG", "SET", "slowlog-log-slower-than", 0); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", s.address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		seen[s] = bufio.NewScanner(c)
		if _, err = io.WriteString(c, "MONITOR\r\n"); err != nil || !seen[s].Scan() ||
			seen[s].Text() != "+OK" {
			t.Fatal(err, seen[s].Text())
		}
	}
	if got, err := redisAsk(leader, "CINCRBY", "{t}k", "op-1", 7); err != nil || got != "7" {
		t.Fatal(got, err)
	}
	c := replica.client()
	defer c.Close()
	reader := c.Conn()
	defer reader.Close()
	if err := reader.Do(t.Context(), "READONLY").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the replica has it", func() bool {
		v, err := reader.Get(t.Context(), "{t}k").Result()
		return err == nil && v == "7"
	})
	eventually(t, patience, "the replica has just heard its leader", func() bool {
		info, _ := redisAsk(replica, "INFO", "replication")
		return strings.Contains(info, "master_last_io_seconds_ago:0\r\n")
	})
	for _, s := range []*server{leader, replica} {
		if _, err := redisAsk(s, "ECHO", "end"); err != nil {
			t.Fatal(err)
		}
		log, err := redisAsk(s, "SLOWLOG", "GET", -1)
		if err != nil {
			t.Fatal(err)
		}
		monitored := ""
		for !strings.Contains(monitored, `"END"`) && seen[s].Scan() {
			monitored += strings.ToUpper(seen[s].Text()) + "\n"
		}
		for what, lines := range map[string]string{"MONITOR": monitored, "SLOWLOG": strings.ToUpper(log)} {
			if has := strings.Contains(lines, "CINCRBY"); has != (s == leader) {
				t.Errorf("%s, leader %v: %s", what, s == leader, lines)
			}
		}
	}
}
