package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// The commands that count. An opid is known for longer than a measurement takes.
func cincrby(key string) []any { return []any{"CINCRBY", key, "op", 1} }
func incr(key string) []any    { return []any{"INCR", key} }
func lua(key string) []any     { return []any{"EVAL", luaRecipe, 2, key, key + ":op", 1, 86400} }

// luaRecipe increments a counter unless a key of the operation's id is there.
const luaRecipe = `if redis.call('SET', KEYS[2], '', 'NX', 'EX', ARGV[2]) then
 return redis.call('INCRBY', KEYS[1], ARGV[1])
end
return tonumber(redis.call('GET', KEYS[1]) or 0)`

// fbfkvCluster starts shards of three nodes of an fbfkv; one is asked without a map of slots.
func (o *options) fbfkvCluster(shards int) func(ctx context.Context) (*servers, error) {
	return func(ctx context.Context) (*servers, error) {
		s := &servers{increment: cincrby}
		if shards > 1 {
			s.shards = shards
		}
		all, err := process.Cluster(ctx, o.fbfkv, shards, 3, 0)
		for _, p := range all {
			s.add(p)
		}
		return s.ready(ctx, err)
	}
}

// redisCluster starts a Redis Cluster of as many masters, each with two replicas. A replica takes over whatever its
// age: as it comes, Redis would leave a shard without a master whose replicas had been started again without it. And it
// stays in its shard, so that all have two.
func (o *options) redisCluster(shards int, increment func(key string) []any) func(ctx context.Context) (*servers, error) {
	return func(ctx context.Context) (*servers, error) {
		s := &servers{increment: increment, shards: shards}
		args := []string{"--cluster", "create"}
		for range 3 * shards {
			port, err := process.FreePort()
			if err != nil {
				return s.ready(ctx, err)
			}
			p, err := process.Redis(ctx, o.redis, "--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--cluster-enabled", "yes",
				"--cluster-port", port, "--cluster-node-timeout", fmt.Sprint(patience.Milliseconds()), "--cluster-replica-validity-factor", "0",
				"--cluster-allow-replica-migration", "no")
			if err != nil {
				return s.ready(ctx, err)
			}
			s.add(p)
			args = append(args, p.Address)
		}
		out, err := exec.CommandContext(ctx, o.cli, append(args, "--cluster-replicas", "2", "--cluster-yes")...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return s.ready(ctx, err)
	}
}

// ready waits until all is well, and learns who leads what. It ends the servers if they could not be started.
func (s *servers) ready(ctx context.Context, err error) (*servers, error) {
	if err == nil {
		_, err = s.settled(ctx)
	}
	if err == nil && s.shards > 0 {
		asked := s.clients[0].Pipeline()
		for tag := range tags {
			asked.ClusterKeySlot(ctx, fmt.Sprint(tag))
		}
		var answers []redis.Cmder
		answers, err = asked.Exec(ctx)
		for tag, a := range answers {
			s.slots[tag] = a.(*redis.IntCmd).Val()
		}
		err = errors.Join(err, s.learn(ctx, 0))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// clusterAgrees tells whether each node of a cluster finds it well, and knows who leads what.
func (s *servers) clusterAgrees(ctx context.Context, groups []group) error {
	for i, c := range s.clients {
		if s.shards == 0 {
			break
		}
		info, err := c.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") {
			return fmt.Errorf("the node %d does not find the cluster well", i)
		}
		ranges, err := c.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		leaders := process.Leaders(ranges)
		for _, g := range groups {
			if !slices.Contains(leaders, s.all[g.leader].Address) || len(leaders) != len(groups) {
				return fmt.Errorf("the node %d takes others for leaders", i)
			}
		}
	}
	return nil
}
