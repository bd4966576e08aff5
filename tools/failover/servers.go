package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// servers are the nodes that hold the same counters.
type servers struct {
	all     []*process.Process
	watch   []*exec.Cmd     // sentinels
	ask     []*redis.Client // of these
	dir     string          // of the sentinels
	clients []*redis.Client
}

// patience is how long a client waits for one answer, and startTime bounds how long servers take
// to find each other.
const (
	patience  = time.Second
	startTime = 3 * time.Minute
)

func (s *servers) add(p *process.Process) {
	s.all = append(s.all, p)
	s.clients = append(s.clients, redis.NewClient(&redis.Options{Addr: p.Address, MaxRetries: -1, DialerRetries: 1, DialTimeout: patience,
		ReadTimeout: patience, PoolSize: 1000, DisableIdentity: true}))
}

// close ends all.
func (s *servers) close() {
	for _, c := range s.watch {
		_ = c.Process.Kill() // it may be gone
		_ = c.Wait()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
	for _, c := range s.ask {
		c.Close()
	}
	for i, p := range s.all {
		s.clients[i].Close()
		if err := p.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// cpu is the processor time that all have used, seconds.
func (s *servers) cpu() (sum float64) {
	for _, p := range s.all {
		sum += p.CPU()
	}
	return sum
}

// other returns whom a client asks whose question to one was not answered: the next, or the one
// that a sentinel names.
func (s *servers) other(ctx context.Context, at int) int {
	if len(s.ask) == 0 {
		return (at + 1) % len(s.all)
	}
	for _, c := range s.ask {
		address, err := c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m").StringSlice()
		for i := range s.all {
			if err == nil && s.all[i].Address == address[0]+":"+address[1] {
				return i
			}
		}
	}
	return at
}

// role is what a server says of itself.
type role struct {
	leads     bool
	replicas  int    // of one that leads: how many receive what it does
	leader    string // of another: HOST:PORT
	connected bool   // it has the leader's data and receives what comes
}

// readRole reads the answer to ROLE.
func readRole(reply []any) (r role) {
	if len(reply) < 3 {
		return r
	}
	if list, ok := reply[2].([]any); ok && reply[0] == "master" {
		return role{leads: true, replicas: len(list)}
	}
	if len(reply) >= 5 && reply[0] == "slave" {
		r = role{leader: fmt.Sprintf("%v:%v", reply[1], reply[2]), connected: reply[3] == "connected"}
	}
	return r
}

// settled waits until one leads, the others follow it with all that it has, and the sentinels find
// that everybody is well. It returns the leader's place.
func (s *servers) settled(ctx context.Context) (leader int, err error) {
	for end := time.Now().Add(startTime); ; sleep(ctx, 50*time.Millisecond) {
		if leader, err = s.look(ctx); err == nil {
			return leader, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
	}
}

// look returns the leader's place, or what is not well yet.
func (s *servers) look(ctx context.Context) (leader int, err error) {
	leader = -1
	var roles []role
	for i, c := range s.clients {
		reply, err := c.Do(ctx, "ROLE").Slice()
		if err != nil {
			return 0, err
		}
		roles = append(roles, readRole(reply))
		if roles[i].leads {
			if leader >= 0 {
				return 0, errors.New("two servers lead")
			}
			leader = i
		}
	}
	if leader < 0 || roles[leader].replicas != len(s.all)-1 {
		return 0, errors.New("no server leads all others")
	}
	address := s.all[leader].Address
	for i, r := range roles {
		if i != leader && (r.leader != address || !r.connected) {
			return 0, fmt.Errorf("a follower does not follow: %+v", r)
		}
	}
	for _, c := range s.ask {
		if err := agrees(ctx, c, address, len(s.all)-1, len(s.ask)-1); err != nil {
			return 0, err
		}
	}
	return leader, nil
}

// agrees tells whether a sentinel knows the leader and that all is well.
func agrees(ctx context.Context, c *redis.Client, address string, replicas, sentinels int) error {
	m, err := c.Do(ctx, "SENTINEL", "MASTER", "m").Slice()
	if err != nil {
		return err
	}
	of := fields(m)
	if of["ip"]+":"+of["port"] != address || of["flags"] != "master" || of["num-slaves"] != strconv.Itoa(replicas) ||
		of["num-other-sentinels"] != strconv.Itoa(sentinels) {
		return fmt.Errorf("a sentinel knows %s:%s as %s, with %s replicas and %s other sentinels", of["ip"], of["port"], of["flags"],
			of["num-slaves"], of["num-other-sentinels"])
	}
	list, err := c.Do(ctx, "SENTINEL", "REPLICAS", "m").Slice()
	if err != nil {
		return err
	}
	for _, r := range list {
		r, _ := r.([]any)
		if of := fields(r); of["flags"] != "slave" || of["master-link-status"] != "ok" || of["master-host"]+":"+of["master-port"] != address {
			return fmt.Errorf("a sentinel knows the replica %s as %s, its link as %s", of["name"], of["flags"], of["master-link-status"])
		}
	}
	return nil
}

// fields reads names and values that follow each other.
func fields(reply []any) map[string]string {
	of := make(map[string]string)
	for i := 0; i+1 < len(reply); i += 2 {
		of[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
	}
	return of
}

// shard starts three nodes of an fbfkv.
func (o *options) shard(ctx context.Context) (*servers, error) { return o.shardOf(ctx, 3) }

// shardOf starts some; one stands alone.
func (o *options) shardOf(ctx context.Context, nodes int) (*servers, error) {
	s := &servers{}
	args := []string{"cluster", "create", "--yes"}
	for range nodes {
		var more []string
		if nodes > 1 {
			port, err := process.FreePort()
			if err != nil {
				return nil, err
			}
			more = []string{"--cluster-enabled", "yes", "--cluster-port", port}
		}
		p, err := process.FBFKV(ctx, o.fbfkv, more...)
		if err != nil {
			s.close()
			return nil, err
		}
		s.add(p)
		args = append(args, p.Address)
	}
	if nodes > 1 {
		if out, err := exec.CommandContext(ctx, o.fbfkv, args...).CombinedOutput(); err != nil {
			s.close()
			return nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	_, err := s.settled(ctx)
	return s, err
}

// sentinels starts a redis-server with two replicas, and three sentinels.
func (o *options) sentinels(more ...string) func(ctx context.Context) (*servers, error) {
	return func(ctx context.Context) (s *servers, err error) {
		s = &servers{}
		defer func() {
			if err != nil {
				s.close()
			}
		}()
		var host, port string
		for i := range 3 {
			// A replica need not wait for others before it is sent what it lacks.
			p, err := process.Redis(ctx, o.redis, append([]string{"--appendfsync", "always", "--repl-diskless-sync-delay", "0"}, more...)...)
			if err != nil {
				return s, err
			}
			s.add(p)
			if i == 0 {
				host, port, _ = net.SplitHostPort(p.Address)
				continue
			}
			if err := s.clients[i].Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
				return s, err
			}
			if err := s.clients[i].Do(ctx, "CONFIG", "REWRITE").Err(); err != nil { // a sentinel does both, too
				return s, err
			}
		}
		if s.dir, err = os.MkdirTemp("", "fbfkv-sentinels-"); err != nil {
			return s, err
		}
		for i := range 3 {
			if err := s.addSentinel(o.redis, fmt.Sprintf("%s/%d", s.dir, i), host, port); err != nil {
				return s, err
			}
		}
		_, err = s.settled(ctx)
		return s, err
	}
}

// addSentinel starts a sentinel with a directory of its own. It finds a server down after the same
// time as an fbfkv does.
func (s *servers) addSentinel(program, dir, host, port string) error {
	own, err := process.FreePort()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor m %s %s 2\nsentinel down-after-milliseconds m 1000\n"+
		"sentinel failover-timeout m 5000\nsentinel parallel-syncs m 1\n", own, dir, host, port)
	if err := os.WriteFile(dir+"/sentinel.conf", []byte(text), 0o600); err != nil {
		return err
	}
	c := exec.Command(program, dir+"/sentinel.conf", "--sentinel")
	if err := c.Start(); err != nil {
		return err
	}
	s.watch = append(s.watch, c)
	s.ask = append(s.ask, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + own, MaxRetries: -1, ReadTimeout: patience, DisableIdentity: true, Protocol: 2}))
	return nil
}
