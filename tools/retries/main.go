// Command retries shows what retries do to money, on Redis and on fbfkv.
//
//	make build && go -C tools run ./retries -plot ../docs/performance/retries.svg
//
// A program pays 0.10 into an account again and again, through a proxy that cuts the connection instead of passing on some
// of the answers. The client library retries three times, as it does by default. INCRBYFLOAT on Redis then counts payments
// twice. fbfkv counts each once: CINCRBY in a table with SCALE 2, with the payment's id as the opid.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/chart"
	"github.com/fbfkv/fbfkv/tools/process"
)

// options are the flags.
type options struct {
	fbfkv, redis, plot string
	payments           int
	shares             []float64 // of the answers that are cut
}

func main() {
	o := options{shares: []float64{0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3}}
	flag.StringVar(&o.fbfkv, "fbfkv", "../fbfkv", "the program; make build makes it")
	flag.StringVar(&o.redis, "redis", "redis-server", "the redis-server program")
	flag.StringVar(&o.plot, "plot", "", "the file for a plot, .svg or .png")
	flag.IntVar(&o.payments, "payments", 2000, "how many are made for each share of cut answers")
	flag.Parse()
	process.Main(func(ctx context.Context) {
		surplus := o.measure(ctx)
		process.Check(o.draw(surplus))
	})
}

// pay pays 0.10; id is the payment's.
type pay func(ctx context.Context, c *redis.Client, id string) error

func onRedis(ctx context.Context, c *redis.Client, _ string) error {
	return c.IncrByFloat(ctx, "account", 0.1).Err()
}

func onFBFKV(ctx context.Context, c *redis.Client, id string) error {
	return c.Do(ctx, "CINCRBY", "account", id, "0.1").Err()
}

// names are the servers' names in the plot, in measure's order.
var names = [2]string{"Redis, INCRBYFLOAT", "fbfkv, CINCRBY"}

// measure returns by how many percent an account has too much, for each share of cut answers.
func (o *options) measure(ctx context.Context) (surplus [2][]float64) {
	process.Check(process.Find("-fbfkv", o.fbfkv))
	process.Check(process.Find("-redis", o.redis))
	theirs := process.Must(process.Redis(ctx, o.redis))
	defer theirs.Close()
	ours := process.Must(process.FBFKV(ctx, o.fbfkv))
	defer ours.Close()
	c := redis.NewClient(&redis.Options{Addr: ours.Address})
	defer c.Close()
	process.Check(c.Do(ctx, "CTABLE", "ALTER", "default", "SCALE", 2, "WINDOW", "1h").Err())
	for _, share := range o.shares {
		fmt.Printf("%4.0f %% of the answers cut", 100*share)
		for i, pay := range []pay{onRedis, onFBFKV} {
			has := o.account(ctx, []*process.Process{theirs, ours}[i], share, pay)
			surplus[i] = append(surplus[i], 100*(has/(0.1*float64(o.payments))-1))
			fmt.Printf("   %s: %.2f of %.2f", names[i], has, 0.1*float64(o.payments))
		}
		fmt.Println()
	}
	return surplus
}

// account makes payments while a share of the answers is cut, and returns what the account has then.
func (o *options) account(ctx context.Context, s *process.Process, share float64, pay pay) (has float64) {
	direct := redis.NewClient(&redis.Options{Addr: s.Address})
	defer direct.Close()
	process.Check(direct.Del(ctx, "account").Err())
	p := process.Must(newProxy(s.Address, share))
	defer p.Close()
	c := redis.NewClient(&redis.Options{Addr: p.Addr().String(), MaxRetries: 3, MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 2 * time.Millisecond})
	defer c.Close()
	for i := range o.payments {
		// A program that gets an error after all retries does not know either: it tries again.
		for pay(ctx, c, fmt.Sprintf("payment-%g-%d", share, i)) != nil {
			process.Check(ctx.Err())
		}
	}
	return process.Must(direct.Get(ctx, "account").Float64())
}

// proxy passes on what clients and a server say, but for a share of the answers: there it cuts the connection.
type proxy struct {
	net.Listener
	target string
	share  float64
}

func newProxy(target string, share float64) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	p := &proxy{Listener: l, target: target, share: share}
	if err == nil {
		go p.accept()
	}
	return p, err
}

func (p *proxy) accept() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		go carry(server, client, 0)
		go carry(client, server, p.share)
	}
}

// carry passes on bytes until either side ends, or an answer is cut. Only a balance is: a bulk string.
func carry(to, from net.Conn, share float64) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil || share > 0 && b[0] == '$' && rand.Float64() < share {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// draw draws how much too much the accounts have.
func (o *options) draw(surplus [2][]float64) error {
	if o.plot == "" {
		return nil
	}
	var x, expected []float64
	for _, share := range o.shares {
		x, expected = append(x, 100*share), append(expected, 100*share/(1-share))
	}
	return chart.Write(o.plot, chart.Panel{Title: "Money that retries make",
		X: chart.Axis{Label: "answers that are cut, %"}, Y: chart.Axis{Label: "more in the account than was paid, %"},
		Series: []chart.Series{chart.Dots(names[0], chart.Orange, x, surplus[0]), chart.Dots(names[1], chart.Blue, x, surplus[1]),
			chart.Dashed("expected of retries", chart.Black, x, expected)}})
}
