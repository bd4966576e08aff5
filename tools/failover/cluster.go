package main

import (
	"context"
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
func lua(key string) []any     { return []any{"EVAL", process.LuaRecipe, 2, key, key + ":op", 1, 86400} }

// fbfkvCluster starts shards of three nodes of an fbfkv; one is asked without a map of slots.
func (o *options) fbfkvCluster(shards int) func(ctx context.Context, s *servers) {
	return func(ctx context.Context, s *servers) {
		if s.increment = cincrby; shards > 1 {
			s.shards = shards
		}
		for _, p := range process.Must(process.Cluster(ctx, o.fbfkv, shards, 3, 0)) {
			s.add(p)
		}
	}
}

// redisCluster starts a Redis Cluster of as many masters, each with two replicas. A replica takes over whatever its
// age: as it comes, Redis would leave a shard without a master whose replicas had been started again without it. And it
// stays in its shard, so that all have two.
func (o *options) redisCluster(shards int, increment func(key string) []any) func(ctx context.Context, s *servers) {
	return func(ctx context.Context, s *servers) {
		s.increment, s.shards = increment, shards
		args := []string{"--cluster", "create"}
		for range 3 * shards {
			s.add(process.Must(process.Redis(ctx, o.redis, "--appendfsync", "always", "--repl-diskless-sync-delay", "0",
				"--cluster-enabled", "yes", "--cluster-port", process.FreePort(),
				"--cluster-node-timeout", fmt.Sprint(patience.Milliseconds()), "--cluster-replica-validity-factor", "0",
				"--cluster-allow-replica-migration", "no")))
			args = append(args, s.all[len(s.all)-1].Address)
		}
		args = append(args, "--cluster-replicas", "2", "--cluster-yes")
		if out, err := exec.CommandContext(ctx, o.cli, args...).CombinedOutput(); err != nil {
			process.Check(fmt.Errorf("%w: %s", err, out))
		}
	}
}

// ready waits until all is well, and learns who leads what.
func (s *servers) ready(ctx context.Context) {
	s.settled(ctx)
	if s.shards == 0 {
		return
	}
	asked := s.clients[0].Pipeline()
	for tag := range tags {
		asked.ClusterKeySlot(ctx, fmt.Sprint(tag))
	}
	for tag, a := range process.Must(asked.Exec(ctx)) {
		s.slots[tag] = a.(*redis.IntCmd).Val()
	}
	process.Check(s.learn(ctx, 0))
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
