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

// Cluster starts a cluster of an fbfkv, of so many shards of so many nodes each with more arguments of their own, and
// waits until all is well. Partitions are as many as the program finds right, if 0. If it fails, it ends what it has started.
func Cluster(ctx context.Context, binary string, shards, nodes, partitions int, more ...string) (all []*Process, err error) {
	defer func() {
		if err != nil {
			for _, p := range all {
				err = errors.Join(err, p.Close())
			}
		}
	}()
	defer Catch(&err)
	run := func(args ...string) {
		if out, err := exec.CommandContext(ctx, binary, append([]string{"cluster"}, args...)...).CombinedOutput(); err != nil {
			Check(fmt.Errorf("%w: %s", err, out))
		}
	}
	// There is no command for shards of one node: they are made of two, of which one is removed.
	replicas := max(1, nodes-1)
	args := []string{"create", "--yes", "--replicas", strconv.Itoa(replicas), "--partitions", strconv.Itoa(partitions)}
	for range shards * (replicas + 1) {
		own := append([]string{"--cluster-enabled", "yes", "--cluster-port", FreePort()}, more...)
		all = append(all, Must(FBFKV(ctx, binary, own...)))
		args = append(args, all[len(all)-1].Address)
	}
	run(args...)
	awaitStatus(ctx, binary, all[0].Address)
	if nodes > 1 {
		return all, nil
	}
	leaders := Leaders(Must(Slots(ctx, all[0].Address)))
	for _, p := range slices.Clone(all) {
		if !slices.Contains(leaders, p.Address) {
			run("remove-node", "--yes", leaders[0], p.Address)
			all = slices.DeleteFunc(all, func(other *Process) bool { return other == p })
			Check(p.Close())
		}
	}
	awaitStatus(ctx, binary, leaders[0])
	return all, nil
}

// awaitStatus waits until a cluster says of itself that all is well.
func awaitStatus(ctx context.Context, binary, address string) {
	for end := time.Now().Add(ClusterTime); ; Sleep(ctx, 50*time.Millisecond) {
		out, err := exec.CommandContext(ctx, binary, "cluster", "status", address).CombinedOutput()
		if Check(ctx.Err()); err == nil {
			return
		}
		if time.Now().After(end) {
			Check(fmt.Errorf("the cluster is not well: %s", out))
		}
	}
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
