// Command go counts a page view with fbfkv so that a retry never counts twice.
//
//	go run ./examples/go [-addr 127.0.0.1:6379] [-key page:home] [-n 3]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// timeout is how long one try may take. A server that is silent (stopped, or cut off
// by the network) breaks no connection.
const timeout = 2 * time.Second

// patience is how long an increment is retried. The table's WINDOW, 120 s by
// default, must be longer.
const patience = 30 * time.Second

func main() {
	addr := flag.String("addr", "127.0.0.1:6379", "address of fbfkv")
	key := flag.String("key", "page:home", "counter")
	n := flag.Int("n", 3, "how often to increment it")
	flag.Parse()

	// MaxRetries: -1, since increment retries by itself. (go-redis' own retries
	// would be safe as well: they send the same command with the same opid.)
	client := redis.NewClient(&redis.Options{Addr: *addr, DialTimeout: timeout, ReadTimeout: timeout, MaxRetries: -1})
	defer client.Close()
	for range *n {
		value, err := increment(context.Background(), client, *key, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(*key, value)
	}
}

// increment adds delta to a counter exactly once, however often the connection
// breaks or the server restarts on the way.
func increment(ctx context.Context, client *redis.Client, key string, delta int64) (int64, error) {
	opid, err := uuid.NewV7() // one id per operation, made before the first try
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		value, err := client.Do(ctx, "CINCRBY", key, opid.String(), delta).Int64()
		if err == nil || isFinal(err) {
			return value, err
		}
		// A timeout, a broken connection, a server that starts: the increment
		// may or may not have been applied. The same opid makes trying again
		// harmless.
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("increment %s (opid %s): %w", key, opid, err)
		case <-time.After(wait):
		}
	}
}

// isFinal reports whether err is the server's answer that trying again cannot
// change: everything but MISCONF (the outcome is unknown), OOM, LOADING and
// "max number of clients", which pass.
func isFinal(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false // not an answer of the server at all
	}
	for _, passing := range []string{"MISCONF", "OOM", "LOADING", "ERR max number of clients"} {
		if strings.HasPrefix(reply.Error(), passing) {
			return false
		}
	}
	return true
}
