// Package fbfkv counts with the server fbfkv so that a retry never counts twice.
//
//	counters := fbfkv.New(rdb, fbfkv.Options{}) // rdb is any client of go-redis
//	views, err := counters.Add(ctx, "page:home", 1)
//
// Add makes an operation: an id that no other operation has, and the time by the
// server's clock. It sends the operation, each try with a time limit, until there is an
// answer that trying again cannot change. However often the connection breaks and the
// server restarts on the way, the server applies the operation once. Retries end before
// the table's WINDOW does; one that arrives later all the same is refused, not guessed.
//
// An error is always an [*Error]. It says whether the operation is known to be without
// effect ([NotApplied]) or not known ([Unknown]).
//
// Beside additions there are [Client.AddMany], all or none; [Client.Limit] and [Client.Throttle];
// [Client.Hold], [Client.Settle] and [Client.Cancel]; [Client.Drain], [Client.BloomAdd] and
// [Client.SketchAdd]. Each is applied once, and an [ID] names it if it has a name already.
//
// A program that may crash between asking and knowing makes the operation with
// [Client.NewOp], stores it as text, and sends it with [Client.Do], again after the crash
// if need be. [Client.DoAll] sends many operations in one round trip.
//
// The package works on a single server, on a cluster, and through a Sentinel client. It
// sets aside go-redis' own retries, whose outcomes nobody sees.
package fbfkv

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options configure a Client. The zero value is right for most programs.
type Options struct {
	// Timeout bounds one try: connecting, sending and the answer. Default 2 s. A server
	// that hangs, or is cut off, breaks no connection: only a timeout notices.
	Timeout time.Duration
	// RetryFor is for how long tries of an operation begin. Default 30 s. With any value,
	// the last try ends within nine tenths of the table's WINDOW.
	RetryFor time.Duration
	// NewID makes the opid of an operation that is made at the time now, by the server's
	// clock. Default: a UUIDv7, which also fits tables with IDTIME AUTO, NONE or UUIDV7.
	// For a table with IDTIME ULID or MS it must return what the table reads. The id must
	// be unique among all operations on the same counter.
	NewID func(now time.Time) string
}

// Client counts through a client of go-redis. It is safe for concurrent use. It has
// nothing to close; the go-redis client stays its owner's.
type Client struct {
	rdb    redis.UniversalClient
	o      Options
	facts  facts
	inCtx  bool                      // go-redis itself ends requests when their context ends
	reload func(ctx context.Context) // reads the map of a cluster again
	server string                    // where rdb connects to
}

// New returns a Client that sends through rdb. It sends nothing yet: the server's clock
// and windows are asked for with the first operation, and once a minute from then on.
func New(rdb redis.UniversalClient, o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.RetryFor <= 0 {
		o.RetryFor = 30 * time.Second
	}
	if o.NewID == nil {
		o.NewID = newUUID
	}
	c := &Client{rdb: rdb, o: o, reload: func(context.Context) {}}
	switch r := rdb.(type) {
	case *redis.Client:
		c.inCtx, c.server = r.Options().ContextTimeoutEnabled, r.Options().Addr
	case *redis.ClusterClient:
		c.inCtx, c.server = r.Options().ContextTimeoutEnabled, strings.Join(r.Options().Addrs, ", ")
		c.reload = r.ReloadState
	}
	return c
}

// Add adds delta to a counter once and returns the counter after it. delta may be
// negative or zero.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	r, err := c.AddWith(ctx, key, delta)
	return r.Value, err
}

// once makes an operation, unless the caller has named it, and sends it. It returns the opid and
// the integers of the answer.
func (c *Client) once(ctx context.Context, o call) (string, []int64, error) {
	deadline := time.Now().Add(c.o.RetryFor)
	o.fresh = o.op.ID == "" && !o.named
	for first := true; ; first = false {
		if o.fresh {
			now, _, err := c.learn(ctx, o, o.key(0), deadline)
			if err != nil {
				return "", nil, err
			}
			o.op.ID, o.op.At = c.o.NewID(now), now.UnixMilli()
		}
		a := c.run(ctx, []call{o}, deadline)[0]
		var failed *Error
		if !o.fresh || !first || !errors.As(a.err, &failed) || failed.Outcome != NotApplied ||
			!errors.Is(failed, ErrStale) && !errors.Is(failed, ErrFuture) {
			return o.op.ID, a.ints, a.err
		}
		// What we believed of the server's clock is wrong: this machine slept, or the
		// server's clock was set. Nobody has applied the operation, so it may be made anew.
		c.facts.forget()
	}
}

// NewOp makes an operation that Do sends, now or after a crash. It needs the server once
// to learn its clock. The operation must be sent within the table's WINDOW.
func (c *Client) NewOp(ctx context.Context, key string, delta int64) (Op, error) {
	op := Op{Key: key, Delta: delta}
	now, _, err := c.learn(ctx, addition(op), key, time.Now().Add(c.o.RetryFor))
	if err != nil {
		return Op{}, err
	}
	op.ID, op.At = c.o.NewID(now), now.UnixMilli()
	return op, nil
}

// Do sends an operation until there is an answer, and returns the counter after it. If
// the operation was applied before, by whatever process, Do changes nothing and returns
// the original result (in a table with MODE APPROX, the present value).
func (c *Client) Do(ctx context.Context, op Op) (int64, error) {
	result := c.DoAll(ctx, []Op{op})[0]
	return result.Value, result.Err
}

// Result is the outcome of one operation of DoAll.
type Result struct {
	Value   int64 // the counter after the operation, if Err is nil
	Applied bool  // by the try that was answered; false: by an earlier one
	Err     error // an *Error, or nil
}

// DoAll sends operations as one pipeline and returns their results in the same order.
// Each counts by itself: what is not answered is sent again, with its own opid, without
// the others. Operations on the same counter may be applied in another order than given.
func (c *Client) DoAll(ctx context.Context, ops []Op) []Result {
	calls := make([]call, len(ops))
	for i, op := range ops {
		calls[i] = addition(op)
	}
	results := make([]Result, len(ops))
	for i, a := range c.run(ctx, calls, time.Now().Add(c.o.RetryFor)) {
		if results[i].Err = a.err; a.err == nil {
			results[i].Value, results[i].Applied = a.ints[0], a.ints[1] != 0
		}
	}
	return results
}

// run sends operations until each has an answer that trying again cannot change. No try begins
// after the deadline, nor so late that it could outlast the window.
func (c *Client) run(ctx context.Context, calls []call, deadline time.Time) []reply {
	results := make([]reply, len(calls))
	pending := make([]int, len(calls))   // indices of operations without such an answer
	unknown := make([]error, len(calls)) // of the first try that may have been applied
	trails := make([]trail, len(calls))
	begun := time.Now()
	for i, o := range calls {
		pending[i], trails[i].begun = i, begun
		for k := range max(1, len(o.more)) {
			_, window, err := c.learn(ctx, o, o.key(k), deadline)
			if err != nil {
				for j := range results {
					results[j].err = failure(calls[j], nil, err)
				}
				return results
			}
			if last := begun.Add(window/10*9 - c.o.Timeout); last.Before(deadline) {
				deadline = last
			}
		}
	}
	for tries := 0; len(pending) > 0; tries++ {
		if tries > 0 && !c.pause(ctx, tries, deadline) {
			break
		}
		answers := c.send(ctx, calls, pending)
		again := pending[:0]
		lost := false
		for n, i := range pending {
			a := answers[n]
			v := judge(a.err)
			if v.unknown && unknown[i] == nil && !calls[i].reads {
				unknown[i] = a.err
			}
			lost = lost || v.lost
			results[i] = a
			if a.err != nil {
				trails[i].note(a.err)
				results[i].err = c.completed(failure(calls[i], unknown[i], a.err), &trails[i])
			}
			if v.again {
				again = append(again, i)
			}
		}
		pending = again
		if lost {
			c.reload(ctx) // go-redis alone keeps a cluster's map for a minute
		}
	}
	for _, i := range pending {
		results[i].err.(*Error).context = ctx.Err()
	}
	return results
}

// pause waits before a try: longer each time, up to a second, and never in step with
// other clients. It returns false if there is no time for that.
func (c *Client) pause(ctx context.Context, tries int, deadline time.Time) bool {
	longest := min(10*time.Millisecond<<min(tries-1, 10), time.Second)
	wait := longest/2 + rand.N(longest/2)
	if time.Now().Add(wait).After(deadline) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// send sends the pending operations once, in one round trip, and returns their answers.
func (c *Client) send(ctx context.Context, calls []call, pending []int) []reply {
	answers, err := within(ctx, c, func(ctx context.Context) ([]reply, error) {
		commands := make([]request, len(pending))
		for n, i := range pending {
			commands[n] = calls[i].command(ctx)
		}
		if len(commands) == 1 {
			c.rdb.Process(ctx, commands[0])
		} else {
			pipe := c.rdb.Pipeline()
			for _, command := range commands {
				pipe.Process(ctx, command)
			}
			pipe.Exec(ctx)
		}
		answers := make([]reply, len(commands))
		for n, command := range commands { // each has its own error
			answers[n] = calls[pending[n]].read(command.Result())
		}
		return answers, nil
	})
	if err != nil {
		answers = slices.Repeat([]reply{{err: err}}, len(pending))
	}
	return answers
}

// within runs a request and gives it up when its time is over. go-redis looks at the
// context of a request only if it is told to (ContextTimeoutEnabled); otherwise the
// request goes on in the background until its connection's own time limit.
func within[T any](ctx context.Context, c *Client, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel() // not by the request: an answer that is here must not look like the end of its time
	if c.inCtx {
		return request(ctx)
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := request(ctx)
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, errNoAnswer
	}
}
