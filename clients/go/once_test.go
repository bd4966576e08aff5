package fbfkv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestOptions: what an operation does not have is refused before anything is sent, since the server may take
// it for something else, such as an item.
func TestOptions(t *testing.T) {
	ctx := context.Background()
	c := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), Options{RetryFor: time.Nanosecond})
	for name, do := range map[string]func() error{
		"bloom": func() error { _, err := c.BloomAdd(ctx, "k", []string{"x"}, Min(0)); return err },
		"limit": func() error { _, err := c.Limit(ctx, "k", 1, At(time.Now())); return err },
		"many":  func() error { _, err := c.AddMany(ctx, []Delta{{"k", 1}}, ExpireIn(time.Hour)); return err },
		"none":  func() error { _, err := c.AddMany(ctx, nil); return err },
		"items": func() error { _, err := c.BloomAdd(ctx, "k", nil); return err },
	} {
		err := do()
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrArgument) || e.Outcome != NotApplied || e.Tries != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The error has the name of an addition with bounds, and no Op, which Do would send without them.
	_, err := c.AddWith(ctx, "k", 1, ID("x"), Min(0), Max(9), ExpireIn(time.Hour), IfNone())
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, ErrArgument) || e.Op != (Op{}) || e.ID != "x" || e.Key != "k" {
		t.Errorf("of an addition that has them: %v, %+v", err, e)
	}
	_, err = c.AddWith(ctx, "k", 1, ID("x"), At(time.UnixMilli(1700000000000)))
	if want := (Op{"k", "x", 1, 1700000000000}); !errors.As(err, &e) || e.Op != want {
		t.Errorf("of a plain addition: %v, %+v", err, e)
	}
	if _, err = c.Hold(ctx, "k", "h", 1, time.Hour); !errors.As(err, &e) || e.Op != (Op{}) || e.ID != "h" {
		t.Errorf("of a hold: %v, %+v", err, e)
	}
}

// TestScale: amounts are written and read in steps.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		scale int
		n     int64
		text  string // as it is sent
		reply string // as the server would answer it
	}{
		{0, -5, "-5", "-5"}, {2, 250, "2.50", "2.5"}, {2, -5, "-0.05", "-0.05"}, {2, 0, "0.00", "0"},
		{9, -1 << 63, "-9223372036.854775808", "-9223372036.854775808"}, {2, 30000, "300.00", "300"},
	} {
		if got := decimal(c.n).text(c.scale); got != c.text {
			t.Errorf("%d with %d decimals is sent as %s, want %s", c.n, c.scale, got, c.text)
		}
		if n, err := steps(c.reply, c.scale); err != nil || n != c.n {
			t.Errorf("%s with %d decimals: %d, %v", c.reply, c.scale, n, err)
		}
	}
	if _, err := steps("1.234", 2); err == nil {
		t.Error("a digit was lost")
	}
}

// TestRead: an answer is the integers in it, whatever RESP has them in, or not the command's.
func TestRead(t *testing.T) {
	many, drain := call{answer: 3}, call{answer: anyAnswer}
	for _, c := range []struct {
		call  call
		value any
		err   error
		want  int // integers, or -1
	}{
		{many, []any{[]any{int64(5), int64(-5)}, int64(1)}, nil, 3},
		{many, []any{[]any{true, false}, int64(0)}, nil, 3},
		{many, []any{[]any{int64(5)}, int64(1)}, nil, -1},
		{many, "OK", nil, -1},
		{many, nil, answered("BOUND x"), -1},
		{drain, "30", nil, 1},
		{drain, nil, redis.Nil, 0},
		{drain, "1.50", nil, -1},
	} {
		r := c.call.read(c.value, c.err)
		if (r.err != nil) != (c.want < 0) || c.want >= 0 && len(r.ints) != c.want {
			t.Errorf("%v, %v: %+v", c.value, c.err, r)
		}
	}
}

// TestWithin: an answer that is here is never taken for the end of its time.
func TestWithin(t *testing.T) {
	c := &Client{o: Options{Timeout: time.Hour}}
	for range 20_000 {
		value, err := within(t.Context(), c, func(context.Context) (int, error) { return 7, nil })
		if value != 7 || err != nil {
			t.Fatal(value, err)
		}
	}
}
