package fbfkv_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	fbfkv "github.com/fbfkv/fbfkv/clients/go"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	counters := fbfkv.New(rdb, fbfkv.Options{})
	value, err := counters.Add(context.Background(), "page:home", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(value)
}

// A program that may crash stores the operation before it sends it. After a crash it sends
// what it has stored.
func ExampleClient_Do() {
	ctx := context.Background()
	counters := fbfkv.New(redis.NewClient(&redis.Options{}), fbfkv.Options{})
	op, err := counters.NewOp(ctx, "stock:apple", -3)
	if err != nil {
		log.Fatal(err) // nothing was applied
	}
	// store op.String(); fbfkv.ParseOp reads it
	value, err := counters.Do(ctx, op)
	var failed *fbfkv.Error
	if errors.As(err, &failed) && failed.Outcome == fbfkv.Unknown {
		log.Fatal("send it again with Do, within the WINDOW: ", failed.Op)
	}
	fmt.Println(value)
}

// An operation that has a name already, here a message of a queue, has its opid from that.
// Whoever handles the message again counts it once, if the WINDOW is not over.
func ExampleOp() {
	counters := fbfkv.New(redis.NewClient(&redis.Options{}), fbfkv.Options{})
	op := fbfkv.Op{Key: "orders:eu", ID: fmt.Sprintf("orders-%d-%d", 3, 1077), Delta: 1}
	value, err := counters.Do(context.Background(), op)
	fmt.Println(value, err)
}
