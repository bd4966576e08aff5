// Command example counts a page view so that a retry never counts twice.
//
//	go run ./example [-addr 127.0.0.1:6379] [-key page:home] [-n 3]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	fbfkv "github.com/fbfkv/fbfkv/clients/go"
)

func main() {
	var addr, key string
	flag.StringVar(&addr, "addr", "127.0.0.1:6379", "address of fbfkv")
	flag.StringVar(&key, "key", "page:home", "counter")
	n := flag.Int("n", 3, "how often to increment it")
	flag.Parse()
	ctx := context.Background()

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	counters := fbfkv.New(rdb, fbfkv.Options{})
	value, err := counters.Add(ctx, key, 1)
	for i := 1; err == nil; i++ {
		fmt.Println(key, value)
		if i >= *n {
			return
		}
		value, err = counters.Add(ctx, key, 1)
	}
	log.Fatal(err)
}
