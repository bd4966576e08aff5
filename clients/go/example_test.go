package fbfkv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

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

// A cart holds two pieces for ten minutes. The payment settles the hold, and then they are sold; the first
// of payment, cancellation and time decides.
func ExampleClient_Hold() {
	ctx := context.Background()
	counters := fbfkv.New(redis.NewClient(&redis.Options{}), fbfkv.Options{})
	cart := "cart-77"
	switch left, err := counters.Hold(ctx, "stock:fig", cart, -2, 10*time.Minute, fbfkv.Min(0)); {
	case errors.Is(err, fbfkv.ErrBound):
		fmt.Println("sold out")
		return
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("left for others:", left.Value)
	}
	switch _, err := counters.Settle(ctx, "stock:fig", cart, -2); {
	case errors.Is(err, fbfkv.ErrExpired), errors.Is(err, fbfkv.ErrEnded):
		fmt.Println("too late: give the money back")
	case err != nil:
		log.Fatal(err)
	}
}

// At most 100 requests a minute: the first one begins the minute. A retry with the request's id costs
// nothing, and gets the first answer.
func ExampleClient_Limit() {
	counters := fbfkv.New(redis.NewClient(&redis.Options{}), fbfkv.Options{})
	limit, err := counters.Limit(context.Background(), "rate:ann", 1, fbfkv.ID("request-1"), fbfkv.Max(100),
		fbfkv.ExpireIn(time.Minute), fbfkv.IfNone())
	if err != nil {
		log.Fatal(err)
	}
	if limit.Added == 0 {
		fmt.Println("come back in", limit.TTL)
	}
}

// A transfer changes both counters or none.
func ExampleClient_AddMany() {
	counters := fbfkv.New(redis.NewClient(&redis.Options{}), fbfkv.Options{})
	accounts := []fbfkv.Delta{{Name: "{wallet}:ann", By: -250}, {Name: "{wallet}:bob", By: 250}}
	_, err := counters.AddMany(context.Background(), accounts, fbfkv.ID("move-1"), fbfkv.Min(0))
	if errors.Is(err, fbfkv.ErrBound) {
		fmt.Println("not enough")
	}
}
