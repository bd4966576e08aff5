package fbfkv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// answered is an error as go-redis makes it of an answer of the server.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

var dial = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

// TestJudge: for each kind of error whether it passes, and what it leaves unknown.
func TestJudge(t *testing.T) {
	passes, unknown, lost := verdict{again: true}, verdict{again: true, unknown: true}, verdict{again: true,
		lost: true}
	for _, c := range []struct {
		err  error
		want verdict
	}{
		{nil, verdict{}},
		{answered("STALE operation is older"), verdict{}},
		{answered("MISMATCH opid"), verdict{}},
		{answered("ERR operation time is in the future"), verdict{}},
		{answered("ERR syntax error"), verdict{}},
		{answered("NOAUTH Authentication required."), verdict{}},
		{redis.ErrClosed, verdict{}},
		{answered("LOADING fbfkv is loading"), passes},
		{answered("OOM command not allowed"), passes},
		{answered("ERR max number of clients reached"), passes},
		{answered("MISCONF writes are refused, nothing was applied: disk full"), passes},
		{redis.ErrPoolTimeout, passes},
		{answered("MISCONF commit failed: outcome unknown"), unknown},
		{answered("TRYAGAIN the leader was lost"), unknown},
		{answered("UNKNOWN the leader was lost"), unknown},
		{answered("BOUND key"), verdict{}},
		{fmt.Errorf("%w: 7", errUnexpected), verdict{unknown: true}},
		{answered("MOVED 1 127.0.0.1:7000"), lost},
		{answered("CLUSTERDOWN no leader"), lost},
		{fmt.Errorf("in a pool: %w", dial), lost},
		{io.EOF, verdict{true, true, true}},
		{os.ErrDeadlineExceeded, verdict{true, true, true}},
		{context.DeadlineExceeded, verdict{true, true, true}},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, verdict{true, true, true}},
	} {
		if got := judge(c.err); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
}

// TestOutcome: an error says "not applied" only where that is certain.
func TestOutcome(t *testing.T) {
	stale, mismatch, overflow := answered("STALE x"), answered("MISMATCH x"),
		answered("ERR increment or decrement would overflow")
	future := answered("ERR operation time is in the future, by more than SKEW (5s)")
	for _, c := range []struct {
		fresh, unknown bool
		err            error
		want           Outcome
	}{
		{true, false, stale, NotApplied},
		{false, false, stale, Unknown}, // it may have been applied long ago
		{true, true, stale, Unknown},
		{true, false, overflow, NotApplied},
		{false, false, overflow, Unknown}, // another region may have applied it
		// an earlier try may still arrive, when the key holds a counter again
		{false, false, answered("WRONGTYPE x"), Unknown},
		{true, true, overflow, Unknown}, // an earlier try may still arrive
		{false, true, mismatch, NotApplied},
		{false, true, answered("ENDED hold was cancelled"), NotApplied},
		{false, true, answered("EXPIRED hold ended at 1700000000000"), NotApplied},
		{false, false, answered("BOUND key"), Unknown}, // an earlier try may still arrive
		{true, false, answered("BOUND key"), NotApplied},
		{false, false, answered("NOHOLD no hold"), Unknown}, // it may be forgotten
		{true, false, dial, NotApplied},
		{false, false, dial, Unknown}, // another process may have sent it
		{true, true, dial, Unknown},
		{false, false, answered("NOPERM x"), Unknown},
		{true, false, future, NotApplied},
		{false, false, future, Unknown}, // a server with another clock may have applied it
		{true, true, future, Unknown},
		{false, false, answered("ERR opid must be 1 to 512 bytes"), NotApplied},
		{false, true, answered("ERR key must be 1 to 65536 bytes"), NotApplied},
		{false, false, answered("ERR AT is a time in milliseconds, and this one is in 1970"), NotApplied},
	} {
		var earlier error
		if c.unknown {
			earlier = io.EOF
		}
		o := addition(Op{Key: "k", ID: "id", Delta: 1})
		o.fresh = c.fresh
		err := failure(o, earlier, c.err)
		if told := strings.Contains(err.Error(), "EOF"); told != (c.unknown && c.want == Unknown) {
			t.Errorf("what an earlier try ended in: %v", err)
		}
		if err.Outcome != c.want {
			t.Errorf("fresh %v, unknown %v, %v: %v", c.fresh, c.unknown, c.err, err.Outcome)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%v does not hold its cause", err)
		}
	}
	err := error(failure(call{fresh: true}, nil, stale))
	if !errors.Is(err, ErrStale) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrFuture) {
		t.Errorf("%v is not known by its code", err)
	}
}

// TestErrorTellsOfItsTries: against an address where nothing listens, one that never answers and one
// that answers LOADING, an error says which server, how many tries, and the most telling cause.
func TestErrorTellsOfItsTries(t *testing.T) {
	listen := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				serve(conn)
			}
		}()
		return l.Addr().String()
	}
	closed := listen(func(c net.Conn) { c.Close() })
	silent := listen(func(net.Conn) {})
	var tries atomic.Int32
	loading := listen(func(c net.Conn) { // once, and then it is gone
		defer c.Close()
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil || bytes.Contains(b[:n], []byte("time")) && tries.Add(1) > 1 {
				return
			}
			io.WriteString(c,
				strings.Repeat("-LOADING fbfkv is loading\r\n", bytes.Count(b[:n], []byte("*"))))
		}
	})
	for _, c := range []struct {
		name, addr, cause string
		timeout           time.Duration
	}{
		{"refused", "127.0.0.1:1", "connection refused", time.Minute}, {"closed", closed, "EOF", time.Minute},
		{"silent", silent, "no answer within 100ms", 100 * time.Millisecond},
		{"loading", loading, "LOADING", time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{Addr: c.addr, Protocol: 2, DisableIdentity: true,
				MaxRetries: -1, DialerRetries: 1})
			defer rdb.Close()
			counters := New(rdb, Options{Timeout: c.timeout, RetryFor: time.Second})
			_, err := counters.Add(context.Background(), "k", 1)
			var e *Error
			// A busy machine may take a second for one try.
			for errors.As(err, &e) && e.Tries < 2 && counters.o.RetryFor < time.Minute {
				counters.o.RetryFor *= 4
				tries.Store(0)
				_, err = counters.Add(context.Background(), "k", 1)
			}
			if !errors.As(err, &e) || e.Outcome != NotApplied || e.Tries < 2 || e.Elapsed <= 0 ||
				e.Server != c.addr ||
				!strings.Contains(err.Error(), c.cause) || !strings.Contains(err.Error(), c.addr) ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, %+v", err, e)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			counters.o.RetryFor = time.Hour
			if _, err = counters.Add(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller's context ended it: %v", err)
			}
		})
	}
}
