// Command goredis is go-redis against fbfkv: see clients_test.go for what the
// steps are for.
//
//	goredis host:port[,host:port…] 2|3 prefix
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

func main() {
	log.SetFlags(0)
	protocol, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client := connect(strings.Split(os.Args[1], ","), protocol)
	prefix := os.Args[3]
	if err := check(context.Background(), client, protocol, prefix); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	if err := load(client, prefix); err != nil {
		log.Fatal(err)
	}
}

// connect makes a client of a server, or of a cluster if there are several addresses.
//
// go-redis sends a command again by itself. The command is the same, so the opid is the
// same, and nothing is counted twice. With INCRBY this counts twice.
func connect(addresses []string, protocol int) redis.UniversalClient {
	if len(addresses) > 1 {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:           addresses,
			Protocol:        protocol,
			ClientName:      "go-redis",
			MaxRedirects:    200,         // of the cluster client these are its retries as well
			ReadTimeout:     time.Second, // three of them may pass until a silent leader is given up
			DialerRetries:   1,
			MinRetryBackoff: 10 * time.Millisecond,
			MaxRetryBackoff: 100 * time.Millisecond,
			// A leader that is gone says MOVED no more, so the map has to be read again.
			ClusterStateReloadInterval: 500 * time.Millisecond,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr:            addresses[0],
		Protocol:        protocol,
		ClientName:      "go-redis",
		MaxRetries:      200,
		DialerRetries:   1, // MaxRetries covers dialling as well
		MinRetryBackoff: 10 * time.Millisecond,
		MaxRetryBackoff: 100 * time.Millisecond,
	})
}

// check does what clients do when they connect, a pipeline, a transaction, and
// the replies that are no integers.
func check(ctx context.Context, client redis.UniversalClient, protocol int, prefix string) error {
	info, err := client.ClientInfo(ctx).Result()
	if err != nil || info.Name != "go-redis" || info.Resp != protocol {
		return fmt.Errorf("CLIENT INFO: %+v, %w", info, err)
	}
	replies, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 100 {
			p.Do(ctx, "CINCRBY", prefix+"pipeline", fmt.Sprint("op-", i), 1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, r := range replies {
		if n, _ := r.(*redis.Cmd).Int(); n != i+1 {
			return fmt.Errorf("pipelined increment %d: %s", i, r)
		}
	}
	// The cluster client divides a pipeline among the shards.
	if replies, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 30 {
			p.Do(ctx, "CINCRBY", fmt.Sprint(prefix, "spread:", i), "op", i)
		}
		return nil
	}); err != nil {
		return err
	}
	for i, r := range replies {
		if n, _ := r.(*redis.Cmd).Int(); n != i {
			return fmt.Errorf("pipelined over the shards: %s", r)
		}
	}
	var incremented *redis.Cmd
	var value *redis.StringCmd
	if _, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		incremented = p.Do(ctx, "CINCRBY", prefix+"transaction", "op", 5)
		value = p.Get(ctx, prefix+"transaction")
		return nil
	}); err != nil || incremented.Val() != int64(5) || value.Val() != "5" {
		return fmt.Errorf("transaction: %s, %s, %w", incremented, value, err)
	}
	if err := client.Do(ctx, "CSEEN", prefix+"transaction", "other").Err(); err != redis.Nil {
		return fmt.Errorf("CSEEN of an unknown opid: %v", err)
	}
	if err := client.Do(ctx, "CINCRBY", prefix+"transaction", "op", 6).Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "MISMATCH") {
		return fmt.Errorf("an opid was used for another delta: %v", err)
	}
	added, err := client.Do(ctx, "FBF.ADD", prefix+"filter", "item").Bool()
	if err != nil || !added {
		return fmt.Errorf("FBF.ADD: %v, %w", added, err)
	}
	if c, one := client.(*redis.Client); one {
		return checkSketches(ctx, c)
	}
	return nil
}

// checkSketches uses the client's own calls for RedisBloom's commands: a filter moves, and
// two sketches are merged.
func checkSketches(ctx context.Context, c *redis.Client) error {
	reserved, err := c.BFReserve(ctx, "bloom", 0.01, 1000).Result()
	if err != nil || reserved != "OK" {
		return fmt.Errorf("BF.RESERVE: %q, %w", reserved, err)
	}
	added, err := c.BFMAdd(ctx, "bloom", "a", "b", "a").Result()
	if err != nil || !slices.Equal(added, []bool{true, true, false}) {
		return fmt.Errorf("BF.MADD: %v, %w", added, err)
	}
	for iterator := int64(0); ; {
		dump, err := c.BFScanDump(ctx, "bloom", iterator).Result()
		if err != nil {
			return fmt.Errorf("BF.SCANDUMP: %w", err)
		}
		if iterator = dump.Iter; iterator == 0 {
			break
		}
		if err := c.BFLoadChunk(ctx, "copy", iterator, dump.Data).Err(); err != nil {
			return fmt.Errorf("BF.LOADCHUNK: %w", err)
		}
	}
	there, err := c.BFMExists(ctx, "copy", "a", "b", "c").Result()
	if err != nil || !slices.Equal(there, []bool{true, true, false}) {
		return fmt.Errorf("BF.MEXISTS: %v, %w", there, err)
	}
	info, err := c.BFInfo(ctx, "copy").Result()
	if err != nil || info.Capacity != 1000 || info.ItemsInserted != 2 || info.ExpansionRate != 2 {
		return fmt.Errorf("BF.INFO: %+v, %w", info, err)
	}
	one, err := c.BFInfoCapacity(ctx, "copy").Result()
	if err != nil || one.Capacity != 1000 {
		return fmt.Errorf("BF.INFO CAPACITY: %+v, %w", one, err)
	}
	for _, key := range []string{"x", "y"} {
		if err := c.CMSInitByProb(ctx, key, 0.01, 0.01).Err(); err != nil {
			return fmt.Errorf("CMS.INITBYPROB: %w", err)
		}
		if counts, err := c.CMSIncrBy(ctx, key, "a", 2, "b", 3).Result(); err != nil ||
			!slices.Equal(counts, []int64{2, 3}) {
			return fmt.Errorf("CMS.INCRBY: %v, %w", counts, err)
		}
	}
	if err := c.CMSMergeWithWeight(ctx, "x", map[string]int64{"x": 1, "y": 10}).Err(); err != nil {
		return fmt.Errorf("CMS.MERGE: %w", err)
	}
	if counts, err := c.CMSQuery(ctx, "x", "a", "b", "c").Result(); err != nil ||
		!slices.Equal(counts, []int64{22, 33, 0}) {
		return fmt.Errorf("CMS.QUERY: %v, %w", counts, err)
	}
	sketch, err := c.CMSInfo(ctx, "x").Result()
	if err != nil || sketch.Width != 200 || sketch.Depth != 7 || sketch.Count != 55 {
		return fmt.Errorf("CMS.INFO: %+v, %w", sketch, err)
	}
	return nil
}

// load increments counters from several goroutines until standard input is
// closed. Every answer must be the number of increments so far.
func load(client redis.UniversalClient, prefix string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var applied atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			key := fmt.Sprint(prefix, "load:", worker)
			for count := int64(1); ctx.Err() == nil; count++ {
				// Not with ctx: an increment that was begun is finished.
				opid := uuid.NewString()
				value, err := client.Do(context.Background(), "CINCRBY", key, opid, 1).Int64()
				// It sends nothing again when a new connection is silent: that is left to its user.
				for silent := net.Error(nil); errors.As(err, &silent) && silent.Timeout(); {
					value, err = client.Do(context.Background(), "CINCRBY", key, opid, 1).Int64()
				}
				if err != nil || value != count {
					err = fmt.Errorf("%s is %d after %d increments, %w", key, value, count, err)
					failed.Store(&err)
					return
				}
				fmt.Println("counted", key, opid, value)
				applied.Add(1)
				time.Sleep(60 * time.Millisecond) // others need the processor
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	fmt.Println("applied", applied.Load())
	return nil
}
