// Command driver lets a test of another process use package fbfkv: see
// integration_test/packages_test.go for its input and output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	fbfkv "github.com/fbfkv/fbfkv/clients/go"
)

// request is one line that is read.
type request struct {
	ID    int        `json:"id"`
	Do    string     `json:"do"`
	Key   string     `json:"key"`
	Delta int64      `json:"delta,string"`
	Ops   []fbfkv.Op `json:"ops"`
}

// answer is one line that is written, or a part of it.
type answer struct {
	ID      int      `json:"id,omitempty"`
	Value   string   `json:"value,omitempty"`
	Op      string   `json:"op,omitempty"`
	Error   string   `json:"error,omitempty"`
	Code    string   `json:"code,omitempty"`
	Outcome string   `json:"outcome,omitempty"`
	Results []answer `json:"results,omitempty"`
}

// codes are the errors by the names that they have in other languages.
var codes = map[string]error{"STALE": fbfkv.ErrStale, "MISMATCH": fbfkv.ErrMismatch,
	"FUTURE": fbfkv.ErrFuture, "ARGUMENT": fbfkv.ErrArgument,
	"OVERFLOW": fbfkv.ErrOverflow, "WRONGTYPE": fbfkv.ErrWrongType, "MISCONF": fbfkv.ErrMisconf,
	"LOADING": fbfkv.ErrLoading, "OOM": fbfkv.ErrOutOfMemory, "MOVED": fbfkv.ErrMoved,
	"TRYAGAIN": fbfkv.ErrTryAgain}

// outcome makes an answer of what Add and Do return.
func outcome(value int64, err error) answer {
	if err == nil {
		return answer{Value: strconv.FormatInt(value, 10)}
	}
	a := answer{Error: err.Error()}
	var failed *fbfkv.Error
	if errors.As(err, &failed) {
		a.Op, a.Outcome = failed.Op.String(), failed.Outcome.String()
	}
	for name, target := range codes {
		if errors.Is(err, target) {
			a.Code = name
		}
	}
	return a
}

// serve does what a line asks for.
func serve(c *fbfkv.Client, r request) (a answer) {
	ctx := context.Background()
	switch r.Do {
	case "add":
		a = outcome(c.Add(ctx, r.Key, r.Delta))
	case "newop":
		op, err := c.NewOp(ctx, r.Key, r.Delta)
		if a = outcome(0, err); err == nil {
			a = answer{Op: op.String()}
		}
	case "do":
		a = outcome(c.Do(ctx, r.Ops[0]))
	case "doall":
		for _, result := range c.DoAll(ctx, r.Ops) {
			a.Results = append(a.Results, outcome(result.Value, result.Err))
		}
	}
	a.ID = r.ID
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
			write.Lock()
			defer write.Unlock()
			out.Encode(a)
		}()
	}
}
