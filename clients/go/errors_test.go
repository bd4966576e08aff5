package fbfkv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// answered is an error as go-redis makes it of an answer of the server.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

var dial = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

// TestJudge: for each kind of error whether it passes, and what it leaves unknown.
func TestJudge(t *testing.T) {
	passes, unknown, lost := verdict{again: true}, verdict{again: true, unknown: true}, verdict{again: true, lost: true}
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
	stale, mismatch, overflow := answered("STALE x"), answered("MISMATCH x"), answered("ERR increment or decrement would overflow")
	for _, c := range []struct {
		fresh, unknown bool
		err            error
		want           Outcome
	}{
		{true, false, stale, NotApplied},
		{false, false, stale, Unknown}, // it may have been applied long ago
		{true, true, stale, Unknown},
		{true, false, overflow, NotApplied},
		{false, false, overflow, NotApplied}, // the opid was looked for first
		{true, true, overflow, Unknown},      // an earlier try may still arrive
		{false, true, mismatch, NotApplied},
		{true, false, dial, NotApplied},
		{false, false, dial, Unknown}, // another process may have sent it
		{true, true, dial, Unknown},
		{false, false, answered("NOPERM x"), Unknown},
	} {
		var earlier error
		if c.unknown {
			earlier = io.EOF
		}
		err := failure(Op{Key: "k", ID: "id", Delta: 1}, c.fresh, earlier, c.err)
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
	err := error(failure(Op{}, true, nil, stale))
	if !errors.Is(err, ErrStale) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrFuture) {
		t.Errorf("%v is not known by its code", err)
	}
}
