// Command driver lets a test of another process use package fbfkv: see
// integration_test/packages_test.go for its input and output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	fbfkv "github.com/fbfkv/fbfkv/clients/go"
)

// request is one line that is read. Numbers that are not given are 0.
type request struct {
	ID       int        `json:"id"`
	Do       string     `json:"do"`
	Key      string     `json:"key"`
	OpID     string     `json:"opid"`
	Delta    int64      `json:"delta,string"`
	Min      *int64     `json:"min,string"`
	Max      *int64     `json:"max,string"`
	Expire   int64      `json:"expire,string"`
	ENX      bool       `json:"enx"`
	Saturate bool       `json:"saturate"`
	Items    []string   `json:"items"`
	Burst    int64      `json:"burst,string"`
	Count    int64      `json:"count,string"`
	Period   int64      `json:"period,string"`
	Quantity *int64     `json:"quantity,string"`
	Scale    int        `json:"scale,string"`
	Ops      []fbfkv.Op `json:"ops"`
}

// options are those that a request asks for.
func (r *request) options() (options []fbfkv.Option) {
	if r.OpID != "" && !slices.Contains([]string{"hold", "settle", "cancel"}, r.Do) {
		options = append(options, fbfkv.ID(r.OpID))
	}
	if r.Min != nil {
		options = append(options, fbfkv.Min(*r.Min))
	}
	if r.Max != nil {
		options = append(options, fbfkv.Max(*r.Max))
	}
	if r.Expire != 0 && r.Do != "hold" {
		options = append(options, fbfkv.ExpireIn(r.lasts()))
	}
	if r.Scale != 0 {
		options = append(options, fbfkv.Scale(r.Scale))
	}
	if r.ENX {
		options = append(options, fbfkv.IfNone())
	}
	if r.Saturate {
		options = append(options, fbfkv.Saturate())
	}
	return options
}

func (r *request) lasts() time.Duration { return time.Duration(r.Expire) * time.Millisecond }

// deltas are the items of a request, each followed by its number.
func (r *request) deltas() (deltas []fbfkv.Delta) {
	for i := 0; i+1 < len(r.Items); i += 2 {
		n, _ := strconv.ParseInt(r.Items[i+1], 10, 64)
		deltas = append(deltas, fbfkv.Delta{Name: r.Items[i], By: n})
	}
	return deltas
}

// answer is one line that is written, or a part of it.
type answer map[string]any

// codes are the errors by the names that they have in other languages.
var codes = map[string]error{"STALE": fbfkv.ErrStale, "MISMATCH": fbfkv.ErrMismatch,
	"FUTURE": fbfkv.ErrFuture, "ARGUMENT": fbfkv.ErrArgument, "BOUND": fbfkv.ErrBound, "NOHOLD": fbfkv.ErrNoHold,
	"ENDED": fbfkv.ErrEnded, "EXPIRED": fbfkv.ErrExpired, "CMS:": fbfkv.ErrSketch,
	"OVERFLOW": fbfkv.ErrOverflow, "WRONGTYPE": fbfkv.ErrWrongType, "MISCONF": fbfkv.ErrMisconf,
	"LOADING": fbfkv.ErrLoading, "OOM": fbfkv.ErrOutOfMemory, "MOVED": fbfkv.ErrMoved,
	"TRYAGAIN": fbfkv.ErrTryAgain}

// text makes text of a number, a flag (1 or 0), or several of them.
func text(value any) any {
	switch value := value.(type) {
	case int64:
		return strconv.FormatInt(value, 10)
	case bool:
		return map[bool]string{true: "1", false: "0"}[value]
	case time.Duration:
		if value < 0 {
			return "-1"
		}
		return strconv.FormatInt(value.Milliseconds(), 10)
	case []int64:
		all := []any{}
		for _, v := range value {
			all = append(all, text(v))
		}
		return all
	case []bool:
		all := []any{}
		for _, v := range value {
			all = append(all, text(v))
		}
		return all
	}
	return value
}

// outcome makes an answer of an error, or of names and values if there is none.
func outcome(err error, fields ...any) answer {
	a := answer{}
	if err == nil {
		for i := 0; i < len(fields); i += 2 {
			a[fields[i].(string)] = text(fields[i+1])
		}
		return a
	}
	a["error"] = err.Error()
	var failed *fbfkv.Error
	if errors.As(err, &failed) {
		a["op"], a["outcome"] = failed.Op.String(), failed.Outcome.String()
	}
	for name, target := range codes {
		if errors.Is(err, target) {
			a["code"] = name
		}
	}
	return a
}

func one(r fbfkv.Reply, err error) answer {
	return outcome(err, "value", r.Value, "applied", r.Applied)
}

func many(r fbfkv.Replies, err error) answer {
	return outcome(err, "values", r.Values, "applied", r.Applied)
}

// serve does what a line asks for.
func serve(c *fbfkv.Client, r request) answer {
	ctx := context.Background()
	switch r.Do {
	case "add":
		return one(c.AddWith(ctx, r.Key, r.Delta, r.options()...))
	case "addmany":
		return many(c.AddMany(ctx, r.deltas(), r.options()...))
	case "limit":
		l, err := c.Limit(ctx, r.Key, r.Delta, r.options()...)
		return outcome(err, "value", l.Value, "added", l.Added, "ttl", l.TTL)
	case "hold":
		return one(c.Hold(ctx, r.Key, r.OpID, r.Delta, r.lasts(), r.options()...))
	case "settle":
		return one(c.Settle(ctx, r.Key, r.OpID, r.Delta, r.options()...))
	case "cancel":
		return one(c.Cancel(ctx, r.Key, r.OpID, r.options()...))
	case "held":
		h, err := c.Held(ctx, r.Key, r.options()...)
		return outcome(err, "value", h.Value, "up", h.Up, "down", h.Down, "open", h.Open)
	case "throttle":
		return throttle(ctx, c, r)
	case "drain":
		d, err := c.Drain(ctx, r.Key, r.options()...)
		if err == nil && !d.Found {
			return answer{}
		}
		return outcome(err, "value", d.Value)
	case "bloom":
		b, err := c.BloomAdd(ctx, r.Key, r.Items, r.options()...)
		return outcome(err, "values", b.New, "applied", b.Applied)
	case "sketch":
		return many(c.SketchAdd(ctx, r.Key, r.deltas(), r.options()...))
	case "newop":
		op, err := c.NewOp(ctx, r.Key, r.Delta)
		return outcome(err, "op", op.String())
	case "do":
		value, err := c.Do(ctx, r.Ops[0])
		return outcome(err, "value", value)
	}
	results := []answer{}
	for _, result := range c.DoAll(ctx, r.Ops) {
		results = append(results, outcome(result.Err, "value", result.Value, "applied", result.Applied))
	}
	return answer{"results": results}
}

func throttle(ctx context.Context, c *fbfkv.Client, r request) answer {
	quantity := int64(1)
	if r.Quantity != nil {
		quantity = *r.Quantity
	}
	rate := fbfkv.Rate{Burst: r.Burst, Count: r.Count, Period: time.Duration(r.Period) * time.Second}
	v, err := c.Throttle(ctx, r.Key, rate, quantity, r.options()...)
	a := outcome(err, "limited", v.Limited, "limit", v.Limit, "remaining", v.Remaining,
		"fullAfter", int64(v.FullAfter/time.Second), "retryAfter", int64(-1))
	if err == nil && v.RetryAfter >= 0 {
		a["retryAfter"] = text(int64(v.RetryAfter / time.Second))
	}
	return a
}

func main() {
	timeout, _ := time.ParseDuration(os.Args[2] + "ms")
	retryFor, _ := time.ParseDuration(os.Args[3] + "ms")
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(os.Args[1], ",")})
	c := fbfkv.New(rdb, fbfkv.Options{Timeout: timeout, RetryFor: retryFor})
	var write sync.Mutex
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		go func() {
			a := serve(c, r)
			a["id"] = r.ID
			write.Lock()
			defer write.Unlock()
			out.Encode(a)
		}()
	}
}
