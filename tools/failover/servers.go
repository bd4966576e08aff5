package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// servers are the nodes that hold the same counters.
type servers struct {
	name    string
	all     []*process.Process
	watch   []*exec.Cmd     // sentinels
	ask     []*redis.Client // of these
	dir     string          // of the sentinels
	clients []*redis.Client
}

// patience is how long a client waits for one answer, and startTime bounds how long servers take
// to find each other.
const (
	patience  = 400 * time.Millisecond
	startTime = time.Minute
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

// leaderIndex waits until one leads and the others follow it, and returns its place.
func (s *servers) leaderIndex(ctx context.Context) (leader int, err error) {
	for end := time.Now().Add(startTime); ; sleep(ctx, 20*time.Millisecond) {
		leaders, replicas := 0, 0
		for i, c := range s.clients {
			role, err := c.Do(ctx, "ROLE").Slice()
			if err != nil || len(role) < 3 || role[0] != "master" {
				continue
			}
			list, _ := role[2].([]any)
			leader, leaders, replicas = i, leaders+1, len(list)
		}
		if leaders == 1 && replicas == len(s.all)-1 {
			return leader, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return 0, errors.Join(fmt.Errorf("%s: there are %d leaders, and one has %d replicas", s.name, leaders, replicas), ctx.Err())
		}
	}
}

func (s *servers) leader(ctx context.Context) (string, error) {
	i, err := s.leaderIndex(ctx)
	return s.all[i].Address, err
}

// shard starts three nodes of an fbfkv.
func (o *options) shard(ctx context.Context) (*servers, error) { return o.shardOf(ctx, 3) }

// shardOf starts some; one stands alone.
func (o *options) shardOf(ctx context.Context, nodes int) (*servers, error) {
	s := &servers{name: "fbfkv, three nodes"}
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
	_, err := s.leaderIndex(ctx)
	return s, err
}

// sentinels starts a redis-server with two replicas, and three sentinels.
func (o *options) sentinels(ctx context.Context) (*servers, error) {
	s := &servers{name: "redis-server, two replicas, three sentinels"}
	var host, port string
	for i := range 3 {
		more := []string{"--appendfsync", "always"}
		if i > 0 {
			more = append(more, "--replicaof", host+" "+port)
		}
		p, err := process.Redis(ctx, o.redis, more...)
		if err != nil {
			s.close()
			return nil, err
		}
		s.add(p)
		if i == 0 {
			host, port, _ = net.SplitHostPort(p.Address)
		}
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "fbfkv-sentinels-"); err != nil {
		return nil, err
	}
	for i := range 3 {
		own, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		file := fmt.Sprintf("%s/%d.conf", s.dir, i)
		text := fmt.Sprintf("port %s\nsentinel monitor m %s %s 2\nsentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 5000\n", own, host, port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		c := exec.Command(o.redis, file, "--sentinel")
		if err := c.Start(); err != nil {
			return nil, err
		}
		s.watch = append(s.watch, c)
		s.ask = append(s.ask, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + own, MaxRetries: -1, ReadTimeout: patience, DisableIdentity: true}))
	}
	if _, err = s.leaderIndex(ctx); err == nil {
		sleep(ctx, 3*time.Second) // sentinels learn of each other
	}
	return s, err
}
