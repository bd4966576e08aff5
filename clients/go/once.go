package fbfkv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Option names an operation, bounds it, or sets an expiry together with it. An option that an
// operation does not have makes an error that is ErrArgument.
type Option struct {
	name  string
	words []any // of the command
	id    string
	at    int64
	scale int
}

// ID names an operation that has a name already, such as the number of an order. It has 1 to 512
// bytes, and no other operation on the counter has it. Whoever sends the operation again under its
// name, within the WINDOW, gets the first answer. An empty id leaves it to the package to make one.
func ID(id string) Option { return Option{name: "ID", id: id} }

// At is when an operation with an ID was made, by the server's clock. Without it a retry after the
// WINDOW counts again.
func At(t time.Time) Option { return Option{name: "At", at: t.UnixMilli()} }

// Min refuses what would leave less than n.
func Min(n int64) Option { return Option{name: "Min", words: []any{"LBOUND", decimal(n)}} }

// Max refuses what would leave more than n.
func Max(n int64) Option { return Option{name: "Max", words: []any{"UBOUND", decimal(n)}} }

// ExpireIn has the counter expire, in whole milliseconds from when it is applied.
func ExpireIn(d time.Duration) Option {
	return Option{name: "ExpireIn", words: []any{"PX", d.Milliseconds()}}
}

// ExpireAt has the counter expire at a time, by the server's clock.
func ExpireAt(t time.Time) Option {
	return Option{name: "ExpireAt", words: []any{"PXAT", t.UnixMilli()}}
}

// IfNone lets ExpireIn and ExpireAt set an expiry only if there is none.
func IfNone() Option { return Option{name: "IfNone", words: []any{"ENX"}} }

// Saturate lets Limit add as much as the bounds permit.
func Saturate() Option { return Option{name: "Saturate", words: []any{"SATURATE"}} }

// Scale is for tables with SCALE: amounts, bounds and values are numbers of steps of 10^-decimals. So with
// Scale(2) an amount of 250 is 2.50. The server refuses it in a table that has fewer decimals.
func Scale(decimals int) Option { return Option{name: "Scale", scale: max(0, decimals)} }

// Delta is what an operation adds to one of several counters or items.
type Delta struct {
	Name string // of the counter, or the item
	By   int64
}

// Reply is the answer to an operation.
type Reply struct {
	ID    string // its opid
	Value int64  // the counter after it
	// Applied says that the try which was answered applied it; false: an earlier one did, of this
	// call or of whoever used the ID before.
	Applied bool
}

// Replies is the answer to an operation on several counters or items.
type Replies struct {
	ID      string
	Values  []int64 // in the order in which they were given
	Applied bool    // as in Reply
}

// apply carries out an operation with options, of which it may have those in allowed. Words makes
// its command; what the options add comes at its end, in front of last.
func (c *Client) apply(ctx context.Context, o call, allowed string, options []Option,
	words func(op Op) []any, last ...string) (string, []int64, error) {
	var more []any
	refuse := func(why string) (string, []int64, error) {
		return "", nil, failure(o, nil, fmt.Errorf("%s: %w", why, ErrArgument))
	}
	if o.answer == 1 { // to no counters or items
		return refuse("there is nothing to add")
	}
	for _, option := range options {
		if !slices.Contains(strings.Fields(allowed), option.name) {
			return refuse("it has no option " + option.name)
		}
		more = append(more, option.words...)
		if option.name == "ID" {
			o.op.ID = option.id
		}
		o.op.At, o.scale = max(o.op.At, option.at), max(o.scale, option.scale)
	}
	o.plain = o.plain && more == nil && o.scale == 0
	o.args = func(op Op) []any {
		args := append(words(op), more...)
		for _, word := range last {
			if args = append(args, word); word == "OPID" {
				args = append(args, op.ID)
			}
		}
		return args
	}
	return c.once(ctx, o)
}

// AddWith is Add with options: ID, At, Min, Max, Scale, ExpireIn, ExpireAt, IfNone. If the counter would
// leave a bound, the error is ErrBound.
func (c *Client) AddWith(ctx context.Context, key string, delta int64, options ...Option) (Reply, error) {
	o := addition(Op{Key: key, Delta: delta})
	id, n, err := c.apply(ctx, o, "ID At Min Max Scale ExpireIn ExpireAt IfNone", options, o.args)
	return one(id, n, err)
}

// one makes a Reply of a value and whether it was applied.
func one(id string, n []int64, err error) (Reply, error) {
	if err != nil {
		return Reply{}, err
	}
	return Reply{id, n[0], n[1] != 0}, nil
}

// many makes Replies of values and whether they were applied.
func many(id string, n []int64, err error) (Replies, error) {
	if err != nil {
		return Replies{}, err
	}
	last := len(n) - 1
	return Replies{id, n[:last], n[last] != 0}, nil
}

// AddMany adds to several counters, all or none: a transfer, for one. In a cluster they must be in
// one slot. Options: ID, At, Min, Max, Scale.
func (c *Client) AddMany(ctx context.Context, deltas []Delta, options ...Option) (Replies, error) {
	o := call{answer: len(deltas) + 1, does: fmt.Sprintf("add to %d counters, the first of them", len(deltas))}
	for _, d := range deltas {
		o.more = append(o.more, d.Name)
		o.op = Op{Key: deltas[0].Name, Delta: deltas[0].By}
	}
	return many(c.apply(ctx, o, "ID At Min Max Scale", options, func(op Op) []any {
		return timed(op, append(pairs([]any{"CMINCRBY", op.ID, len(deltas)}, deltas), "WITHSTATUS")...)
	}))
}

// pairs appends names and numbers to a command.
func pairs(args []any, deltas []Delta) []any {
	for _, d := range deltas {
		args = append(args, d.Name, decimal(d.By))
	}
	return args
}

// Limit is the answer of Client.Limit.
type Limit struct {
	ID    string
	Value int64         // the counter
	Added int64         // 0: refused by a bound
	TTL   time.Duration // what the counter has left; negative: it does not expire
}

// Limit adds n to a counter within bounds, which is a quota or a limiter with fixed windows:
//
//	counters.Limit(ctx, "rate:ann", 1, fbfkv.Max(100), fbfkv.ExpireIn(time.Minute), fbfkv.IfNone())
//
// A refusal by a bound is no error: it adds 0 and uses up no opid. Options: ID, Min, Max, Scale,
// Saturate, ExpireIn, ExpireAt, IfNone.
func (c *Client) Limit(ctx context.Context, key string, n int64, options ...Option) (Limit, error) {
	o := call{op: Op{Key: key, Delta: n}, answer: 3, does: fmt.Sprintf("add %d within bounds to", n)}
	by := "BYINT"
	if slices.ContainsFunc(options, func(o Option) bool { return o.scale > 0 }) {
		by = "BYFLOAT"
	}
	id, v, err := c.apply(ctx, o, "ID Min Max Scale Saturate ExpireIn ExpireAt IfNone", options,
		func(op Op) []any { return []any{"INCREX", op.Key, by, decimal(op.Delta)} }, "WITHTTL", "OPID")
	if err != nil {
		return Limit{}, err
	}
	return Limit{id, v[0], v[1], time.Duration(v[2]) * time.Millisecond}, nil
}

// Hold sets an amount of a counter aside until Settle, Cancel or its time ends the hold, the first of
// them. A negative amount is kept from being spent, a positive one from being filled. The opid is the
// hold's name for Settle and Cancel; if it is empty, the package makes one. The value of the reply is
// what would be left if all holds of this sign were settled in full. Options: At, Min, Max, Scale.
func (c *Client) Hold(ctx context.Context, key, opid string, amount int64, ends time.Duration,
	options ...Option) (Reply, error) {
	o := call{op: Op{Key: key, ID: opid, Delta: amount}, answer: 2, does: fmt.Sprintf("hold %d of", amount)}
	return one(c.apply(ctx, o, "At Min Max Scale", options, func(op Op) []any {
		return timed(op, "CHOLD", op.Key, op.ID, decimal(op.Delta), "PX", ends.Milliseconds(), "WITHSTATUS")
	}))
}

// Settle ends a hold and adds to the counter what has happened: the amount held, more, less or 0.
// ErrEnded and ErrExpired say that the hold had ended otherwise. Options: Min and Max, which are
// judged on the counter alone, Scale.
func (c *Client) Settle(ctx context.Context, key, opid string, amount int64, options ...Option) (Reply,
	error) {
	o := call{op: Op{Key: key, ID: opid, Delta: amount}, answer: 2, named: true,
		does: fmt.Sprintf("settle %d of a hold of", amount)}
	return one(c.apply(ctx, o, "Min Max Scale", options, func(op Op) []any {
		return []any{"CSETTLE", op.Key, op.ID, decimal(op.Delta), "WITHSTATUS"}
	}))
}

// Cancel ends a hold and adds nothing. Option: Scale.
func (c *Client) Cancel(ctx context.Context, key, opid string, options ...Option) (Reply, error) {
	o := call{op: Op{Key: key, ID: opid}, answer: 2, named: true, does: "cancel a hold of"}
	return one(c.apply(ctx, o, "Scale", options, func(op Op) []any {
		return []any{"CCANCEL", op.Key, op.ID, "WITHSTATUS"}
	}))
}

// Held is what Client.Held reads.
type Held struct {
	Value int64 // the counter
	Up    int64 // the sum of open holds with positive amounts
	Down  int64 // and of those with negative ones
	Open  int64 // how many there are
}

// Held reads a counter and the sums of its open holds. Option: Scale.
func (c *Client) Held(ctx context.Context, key string, options ...Option) (Held, error) {
	o := call{op: Op{Key: key}, answer: 4, does: "read the holds of", reads: true}
	_, n, err := c.apply(ctx, o, "Scale", options, func(op Op) []any { return []any{"CHELD", op.Key} })
	if err != nil {
		return Held{}, err
	}
	return Held{n[0], n[1], n[2], n[3]}, nil
}

// Rate is how many permits there are in each period, and how many more at once.
type Rate struct {
	Burst, Count int64
	Period       time.Duration // whole seconds; a part of one is rounded up
}

// Throttled is the verdict of Client.Throttle.
type Throttled struct {
	ID        string
	Limited   bool // refused: nothing was spent, and the opid is not used up
	Limit     int64
	Remaining int64
	// RetryAfter is when what was refused can succeed; negative: it was not refused, or never can.
	RetryAfter time.Duration
	FullAfter  time.Duration // when all permits are there again
}

// Throttle spends permits of a smooth rate (GCRA), if there are so many. Whoever asks again under the
// same ID gets the first verdict, unless that was a refusal. A quantity of 0 only asks. Option: ID.
func (c *Client) Throttle(ctx context.Context, key string, rate Rate, quantity int64, options ...Option) (
	Throttled, error) {
	o := call{op: Op{Key: key, Delta: quantity}, answer: 5, does: fmt.Sprintf("spend %d permits of", quantity)}
	seconds := (rate.Period + time.Second - 1) / time.Second
	id, n, err := c.apply(ctx, o, "ID", options, func(op Op) []any {
		return []any{"CL.THROTTLE", op.Key, rate.Burst, rate.Count, int64(seconds), op.Delta}
	}, "OPID")
	if err != nil {
		return Throttled{}, err
	}
	return Throttled{id, n[0] != 0, n[1], n[2],
		time.Duration(n[3]) * time.Second, time.Duration(n[4]) * time.Second}, nil
}

// Drained is what Client.Drain took.
type Drained struct {
	ID    string
	Value int64
	Found bool // false: there was no counter
}

// Drain reads a counter and deletes it. Options: ID, At, Scale.
func (c *Client) Drain(ctx context.Context, key string, options ...Option) (Drained, error) {
	o := call{op: Op{Key: key}, answer: anyAnswer, does: "drain"}
	id, n, err := c.apply(ctx, o, "ID At Scale", options, func(op Op) []any {
		return timed(op, "CGETDEL", op.Key, op.ID)
	})
	if err != nil || len(n) == 0 {
		return Drained{ID: id}, err
	}
	return Drained{id, n[0], true}, nil
}

// Added is the answer of BloomAdd.
type Added struct {
	ID      string
	New     []bool // which items were not in the filter before
	Applied bool   // as in Reply
}

// BloomAdd adds up to 64 items to a Bloom filter, all or none. A retry, too, tells which were new.
// Options: ID, At.
func (c *Client) BloomAdd(ctx context.Context, key string, items []string, options ...Option) (Added, error) {
	o := call{op: Op{Key: key}, answer: len(items) + 1, does: fmt.Sprintf("add %d items to", len(items))}
	r, err := many(c.apply(ctx, o, "ID At", options, func(op Op) []any {
		args := []any{"BF.CADD", op.Key, op.ID}
		for _, item := range items {
			args = append(args, item)
		}
		return append(args, "WITHSTATUS", "AT", op.At) // also 0: what is in front of it is an item
	}))
	added := Added{ID: r.ID, Applied: r.Applied}
	for _, n := range r.Values {
		added.New = append(added.New, n != 0)
	}
	return added, err
}

// SketchAdd counts items in a count-min sketch, all or none, and returns their estimates, of a retry
// those of now. Options: ID, At.
func (c *Client) SketchAdd(ctx context.Context, key string, items []Delta, options ...Option) (Replies,
	error) {
	o := call{op: Op{Key: key}, answer: len(items) + 1, does: fmt.Sprintf("count %d items in", len(items))}
	return many(c.apply(ctx, o, "ID At", options, func(op Op) []any {
		return append(pairs([]any{"CMS.CINCRBY", op.Key, op.ID}, items), "WITHSTATUS", "AT", op.At)
	}))
}
