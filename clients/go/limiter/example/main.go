// Command example answers requests, of each user so many, and a retry is not counted.
//
//	go run ./example [-addr 127.0.0.1:6379] [-listen 127.0.0.1:8080] [-burst 4] [-period 60s]
//	curl -i -H 'X-User: ann' -H 'X-Request-Id: 1' http://127.0.0.1:8080
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"

	fbfkv "github.com/fbfkv/fbfkv/clients/go"
	"github.com/fbfkv/fbfkv/clients/go/limiter"
)

func main() {
	var addr, listen string
	flag.StringVar(&addr, "addr", "127.0.0.1:6379", "address of fbfkv")
	flag.StringVar(&listen, "listen", "127.0.0.1:8080", "address for requests")
	burst := flag.Int64("burst", 4, "how many more at once")
	period := flag.Duration("period", time.Minute, "in which there are 60")
	flag.Parse()

	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	counters := fbfkv.New(rdb, fbfkv.Options{Timeout: time.Second, RetryFor: 5 * time.Second})
	limit := throttled.HTTPRateLimiterCtx{
		RateLimiter: limiter.New(counters, "rate:", fbfkv.Rate{Burst: *burst, Count: 60, Period: *period}),
		VaryBy:      &throttled.VaryBy{Headers: []string{"X-User"}},
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, limiter.Identify("X-Request-Id", limit.RateLimit(hello))))
}
