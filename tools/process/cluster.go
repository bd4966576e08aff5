package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClusterTime bounds how long the servers of a cluster may take to find each other.
const ClusterTime = 3 * time.Minute

// Cluster starts a cluster of an fbfkv, of so many shards of so many nodes each with more arguments of their own, and waits
// until all is well. Partitions are as many as the program finds right, if 0. If it fails, it ends what it has started.
func Cluster(ctx context.Context, binary string, shards, nodes, partitions int, more ...string) (all []*Process, err error) {
	defer func() {
		if err != nil {
			err, all = errors.Join(err, closeAll(all)), nil
		}
	}()
	// There is no command for shards of one node: they are made of two, of which one is removed.
	replicas := max(1, nodes-1)
	args := []string{"cluster", "create", "--yes", "--replicas", strconv.Itoa(replicas), "--partitions", strconv.Itoa(partitions)}
	for range shards * (replicas + 1) {
		port, err := FreePort()
		if err != nil {
			return all, err
		}
		p, err := FBFKV(ctx, binary, append([]string{"--cluster-enabled", "yes", "--cluster-port", port}, more...)...)
		if err != nil {
			return all, err
		}
		all = append(all, p)
		args = append(args, p.Address)
	}
	if out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput(); err != nil {
		return all, fmt.Errorf("%w: %s", err, out)
	}
	if err := awaitStatus(ctx, binary, all[0].Address); err != nil || nodes > 1 {
		return all, err
	}
	return removeFollowers(ctx, binary, all)
}

// removeFollowers leaves the leader of each shard.
func removeFollowers(ctx context.Context, binary string, all []*Process) ([]*Process, error) {
	ranges, err := Slots(ctx, all[0].Address)
	if err != nil {
		return all, err
	}
	leaders := Leaders(ranges)
	for _, p := range slices.Clone(all) {
		if slices.Contains(leaders, p.Address) {
			continue
		}
		if out, err := exec.CommandContext(ctx, binary, "cluster", "remove-node", "--yes", leaders[0], p.Address).CombinedOutput(); err != nil {
			return all, fmt.Errorf("%w: %s", err, out)
		}
		all = slices.DeleteFunc(all, func(other *Process) bool { return other == p })
		if err := p.Close(); err != nil {
			return all, err
		}
	}
	return all, awaitStatus(ctx, binary, leaders[0])
}

// awaitStatus waits until a cluster says of itself that all is well.
func awaitStatus(ctx context.Context, binary, address string) error {
	for end := time.Now().Add(ClusterTime); ; {
		out, err := exec.CommandContext(ctx, binary, "cluster", "status", address).CombinedOutput()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("the cluster is not well: %s", out)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// closeAll ends servers and removes their data.
func closeAll(all []*Process) (err error) {
	for _, p := range all {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Slots asks a node of a cluster which node leads which slots: the first of each range.
func Slots(ctx context.Context, address string) ([]redis.ClusterSlot, error) {
	c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: time.Second, DisableIdentity: true})
	defer c.Close()
	return c.ClusterSlots(ctx).Result()
}

// Leaders are the addresses of the nodes that lead slots, each once, in their order.
func Leaders(ranges []redis.ClusterSlot) (leaders []string) {
	for _, r := range ranges {
		if len(r.Nodes) > 0 && !slices.Contains(leaders, r.Nodes[0].Addr) {
			leaders = append(leaders, r.Nodes[0].Addr)
		}
	}
	return leaders
}
