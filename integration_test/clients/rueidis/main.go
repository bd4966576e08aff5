// Command rueidis is rueidis against fbfkv: see clients_test.go for what the
// steps are for.
//
//	rueidis host:port[,host:port…] 2|3 prefix
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
)

func main() {
	log.SetFlags(0)
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: strings.Split(os.Args[1], ","), // rueidis finds out whether it is a cluster
		AlwaysRESP2: os.Args[2] == "2",
		ClientName:  "rueidis",
		// Client-side caching needs RESP3, and BCAST with the prefixes of the keys that are cached.
		DisableCache:          os.Args[2] == "2",
		ClientTrackingOptions: []string{"BCAST", "PREFIX", os.Args[3] + "cached"},
		// A server that is silent is given up after that.
		ConnWriteTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	prefix := os.Args[3]
	if err := check(context.Background(), client, os.Args[2], prefix); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	if err := load(client, prefix); err != nil {
		log.Fatal(err)
	}
}

// do sends any command; its key comes first.
func do(ctx context.Context, client rueidis.Client, command string, args ...string) rueidis.RedisResult {
	return client.Do(ctx, client.B().Arbitrary(command).Keys(args[0]).Args(args[1:]...).Build())
}

// increment adds 1 to a counter exactly once, however often the connection
// breaks. rueidis repeats reads by itself, but not commands that it does not
// know; with an opid we may.
func increment(ctx context.Context, client rueidis.Client, key string) (opid string, value int64, err error) {
	opid = uuid.NewString() // one id per operation, made before the first try
	for {
		value, err = do(ctx, client, "CINCRBY", key, opid, "1").AsInt64()
		if err == nil || isFinal(err) || ctx.Err() != nil {
			return opid, value, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isFinal reports whether an error is the server's answer, and not that of a cluster that
// has no leader at the moment.
func isFinal(err error) bool {
	answer, ok := rueidis.IsRedisErr(err)
	return ok && !answer.IsTryAgain() && !answer.IsClusterDown()
}

// check does what clients do when they connect, a pipeline, a transaction, and
// the replies that are no integers.
func check(ctx context.Context, client rueidis.Client, protocol, prefix string) error {
	info, err := client.Do(ctx, client.B().ClientInfo().Build()).ToString()
	if err != nil || !strings.Contains(info, " name=rueidis ") || !strings.Contains(info, " resp="+protocol) {
		return fmt.Errorf("CLIENT INFO: %s, %w", info, err)
	}
	pipeline := make(rueidis.Commands, 100)
	for i := range pipeline {
		pipeline[i] = client.B().Arbitrary("CINCRBY").Keys(prefix+"pipeline").Args(fmt.Sprint("op-", i),
			"1").Build()
	}
	for i, r := range client.DoMulti(ctx, pipeline...) {
		if n, err := r.AsInt64(); err != nil || n != int64(i+1) {
			return fmt.Errorf("pipelined increment %d: %d, %w", i, n, err)
		}
	}
	// The cluster client divides a pipeline, and MGet, among the shards.
	var spread rueidis.Commands
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprint(prefix, "spread:", i))
		spread = append(spread,
			client.B().Arbitrary("CINCRBY").Keys(keys[i]).Args("op", fmt.Sprint(i)).Build())
	}
	for i, r := range client.DoMulti(ctx, spread...) {
		if n, err := r.AsInt64(); err != nil || n != int64(i) {
			return fmt.Errorf("pipelined over the shards: %d, %w", n, err)
		}
	}
	values, err := rueidis.MGet(client, ctx, keys)
	for i, key := range keys {
		value := values[key]
		if n, _ := value.AsInt64(); err != nil || n != int64(i) {
			return fmt.Errorf("MGet of %s: %d, %w", key, n, err)
		}
	}
	var exec []rueidis.RedisMessage
	err = client.Dedicated(func(c rueidis.DedicatedClient) error {
		replies := c.DoMulti(ctx, c.B().Multi().Build(),
			c.B().Arbitrary("CINCRBY").Keys(prefix+"transaction").Args("op", "5").Build(),
			c.B().Get().Key(prefix+"transaction").Build(), c.B().Exec().Build())
		var err error
		exec, err = replies[3].ToArray()
		return err
	})
	if err != nil || len(exec) != 2 {
		return fmt.Errorf("transaction: %d replies, %w", len(exec), err)
	}
	incremented, _ := exec[0].AsInt64()
	if value, _ := exec[1].ToString(); incremented != 5 || value != "5" {
		return fmt.Errorf("transaction: %d and %s", incremented, value)
	}
	if err := do(ctx, client, "CSEEN", prefix+"transaction", "other").Error(); !rueidis.IsRedisNil(err) {
		return fmt.Errorf("CSEEN of an unknown opid: %v", err)
	}
	if err := do(ctx, client, "CINCRBY", prefix+"transaction", "op", "6").Error(); err == nil ||
		!strings.HasPrefix(err.Error(), "MISMATCH") {
		return fmt.Errorf("an opid was used for another delta: %v", err)
	}
	if protocol == "3" {
		if err := cache(ctx, client, prefix+"cached"); err != nil {
			return err
		}
	}
	added, err := do(ctx, client, "FBF.ADD", prefix+"filter", "item").AsBool()
	if err != nil || !added {
		return fmt.Errorf("FBF.ADD: %v, %w", added, err)
	}
	return nil
}

// cache reads a counter from the client's own memory until the server says that it has changed.
func cache(ctx context.Context, client rueidis.Client, key string) error {
	get := func() rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Hour)
	}
	for n := int64(1); n <= 3; n++ {
		if value, err := do(ctx, client, "CINCRBY", key, fmt.Sprint("op-", n), "1").AsInt64(); value != n {
			return fmt.Errorf("increment %d: %d, %w", n, value, err)
		}
		for hit := false; !hit; {
			reply := get()
			value, err := reply.AsInt64()
			if err != nil && !rueidis.IsRedisNil(err) {
				return fmt.Errorf("read through the cache: %w", err)
			}
			hit = value == n && reply.IsCacheHit()
			time.Sleep(time.Millisecond) // the message may be on its way
		}
	}
	return nil
}

// load increments counters from several goroutines until standard input is
// closed. Every answer must be the number of increments so far.
func load(client rueidis.Client, prefix string) error {
	var stopped atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stopped.Store(true)
	}()
	var applied atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			key := fmt.Sprint(prefix, "load:", worker)
			for count := int64(1); !stopped.Load(); count++ {
				opid, value, err := increment(context.Background(), client, key)
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
