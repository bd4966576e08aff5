package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// counterServer is a small server of INCRBY, CINCRBY and MGET over RESP, with
// whatever fault a test gives it.
type counterServer struct {
	net.Listener
	mu     sync.Mutex
	values map[string]int64
	seen   map[string]bool
	calls  int64
	// apply is how often the n-th increment counts, duplicates left out.
	apply func(n int64) int64
	// reply may replace the reply to the n-th increment; "" closes the connection.
	reply func(n int64, usual string) string
}

func newCounterServer(t *testing.T) *counterServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &counterServer{Listener: l, values: map[string]int64{}, seen: map[string]bool{},
		apply: func(int64) int64 { return 1 }, reply: func(_ int64, usual string) string { return usual }}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(nc)
		}
	}()
	return s
}

func (s *counterServer) serve(nc net.Conn) {
	defer nc.Close()
	in, out := bufio.NewReader(nc), bufio.NewWriter(nc)
	for {
		args, err := readRequest(in)
		if err != nil {
			return
		}
		reply := s.do(args)
		if reply == "" {
			out.Flush()
			return
		}
		out.WriteString(reply)
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

func readRequest(in *bufio.Reader) (args []string, err error) {
	number := func() (n int) {
		line, readErr := in.ReadString('\n')
		if err = errors.Join(err, readErr); err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for n := number(); n > 0 && err == nil; n-- {
		b := make([]byte, number()+2)
		if _, readErr := io.ReadFull(in, b); readErr != nil {
			return nil, readErr
		}
		args = append(args, string(b[:len(b)-2]))
	}
	return args, err
}

func (s *counterServer) do(args []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch strings.ToUpper(args[0]) {
	case "PING":
		return "+PONG\r\n"
	case "MGET":
		reply := fmt.Sprintf("*%d\r\n", len(args)-1)
		for _, k := range args[1:] {
			v := strconv.FormatInt(s.values[k], 10)
			reply += fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
		}
		return reply
	case "CINCRBY", "INCRBY":
		key := args[1]
		if args[0] == "INCRBY" || !s.seen[args[1]+args[2]] {
			if args[0] == "CINCRBY" {
				s.seen[args[1]+args[2]] = true
			}
			s.values[key] += s.apply(s.calls)
		}
		s.calls++
		return s.reply(s.calls-1, fmt.Sprintf(":%d\r\n", s.values[key]))
	}
	return "-ERR unknown command\r\n"
}

// count is how many increments came.
func (s *counterServer) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// quick are options for a short run against a server of the test's.
func quick(s *counterServer, workload string) options {
	o := defaultOptions()
	o.Target.URL, o.Workload = s.Addr().String(), workload
	o.Connections, o.Pipeline, o.Keys = 4, 8, "uniform:50"
	o.Duration, o.Count, o.Verify = 0, 4000, true
	return o
}

func mustRun(t *testing.T, o options) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := send(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestVerify runs against servers that count well and badly; only the bad are
// found out, to the operation.
func TestVerify(t *testing.T) {
	tests := []struct {
		name        string
		apply       func(n int64) int64
		over, under int64
	}{
		{"right", func(int64) int64 { return 1 }, 0, 0},
		{"twice", func(n int64) int64 {
			if n%1000 == 500 {
				return 2
			}
			return 1
		}, 4, 0},
		{"lost", func(n int64) int64 {
			if n%2000 == 1500 {
				return 0
			}
			return 1
		}, 0, 2},
	}
	for _, workload := range []string{"cincrby", "incrby"} {
		for _, tt := range tests {
			s := newCounterServer(t)
			s.apply = tt.apply
			s.values["bench:07"] = 1000 // what was there before counts for nothing
			r := mustRun(t, quick(s, workload))
			v := r.Verified
			if r.Sent != 4000 || v.Acknowledged != 4000 || v.Over != tt.over || v.Under != tt.under {
				t.Errorf("%s %s: sent %d, %+v", workload, tt.name, r.Sent, v)
			}
			if err := v.Err(); (err != nil) != (tt.over+tt.under > 0) {
				t.Errorf("%s %s: %v", workload, tt.name, err)
			}
		}
	}
}

// TestRetry sends duplicates of an earlier run's operations, in the share that was asked for.
func TestRetry(t *testing.T) {
	s := newCounterServer(t)
	o := quick(s, "cincrby")
	o.format, o.Seed = clientSeq, 77
	mustRun(t, o)
	for _, tt := range []struct {
		share float64
		want  int64
	}{{1, 4000}, {0.1, 400}} {
		before := len(s.seen)
		o = quick(s, "cincrby")
		o.format, o.RetryShare, o.again = clientSeq, tt.share, again{77, 1000}
		r := mustRun(t, o)
		if r.duplicates > tt.want || r.duplicates < tt.want-4 || int64(len(s.seen)-before) != 4000-r.duplicates || r.Verified.Wrong != 0 {
			t.Errorf("share %v of an earlier run: %d duplicates, %d new operations, %+v", tt.share, r.duplicates, len(s.seen)-before, r.Verified)
		}
	}
}

// TestOpenLoop charges a stall of the server to every operation that was due during it.
func TestOpenLoop(t *testing.T) {
	stalled := func() *Result {
		s := newCounterServer(t)
		s.reply = func(n int64, usual string) string {
			if n == 125 {
				time.Sleep(300 * time.Millisecond) // with the lock: everybody waits
			}
			return usual
		}
		o := quick(s, "cincrby")
		o.Count, o.Duration, o.Rate, o.Pipeline, o.Interval = 0, time.Second, 500, 4, 100*time.Millisecond
		return mustRun(t, o)
	}
	r := stalled()
	for end := time.Now().Add(time.Minute); time.Now().Before(end) &&
		(r.Throughput < 400 || r.Latency.P95 > 0.4 || r.Latency.P50 > 0.1); {
		r = stalled() // a busy machine stalls, too
	}
	// 150 of 500 operations fell due during the stall.
	if r.Throughput < 400 || r.Throughput > 515 || r.Latency.P95 < 0.150 || r.Latency.P95 > 0.4 || r.Latency.P50 > 0.1 {
		t.Errorf("%.0f operations per second, want 500: %+v", r.Throughput, r.Latency)
	}
	if len(r.Series) < 9 {
		t.Errorf("%d intervals", len(r.Series))
	}
}

// TestGone ends with an error if the server goes away.
func TestGone(t *testing.T) {
	s := newCounterServer(t)
	s.reply = func(n int64, usual string) string {
		if n < 1000 {
			return usual
		}
		s.Close()
		return ""
	}
	o := quick(s, "cincrby")
	if _, err := send(t.Context(), o); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Error(err)
	}
}

// TestRefused runs against servers that refuse everything, and some operations. Only what was answered well counts as throughput, the full text of
// an error is shown, and a run of refusals is no success.
func TestRefused(t *testing.T) {
	const text = "ERR unknown command 'CINCRBY', with args beginning with: 'x' "
	for _, tt := range []struct {
		name, wrong, shown string
		reply              func(n int64, usual string) string
		good               int64
		args               []string
	}{
		{"all", "every reply was an error: \"" + text, "the first: \"" + text, func(int64, string) string { return "-" + text + "\r\n" }, 0, nil},
		{"half", "", "50 of all 100 replies", func(n int64, usual string) string {
			if n%2 == 0 {
				return "-" + text + "\r\n"
			}
			return usual
		}, 50, nil},
		{"one, to be verified", "not verified: 1 operations were refused: \"ERR \\x1b\"", "1 \"ERR\"", func(n int64, usual string) string {
			if n == 20 {
				return "-ERR \x1b\r\n"
			}
			return usual
		}, 99, []string{"--verify"}},
	} {
		s := newCounterServer(t)
		s.reply = tt.reply
		if tt.name == "one, to be verified" {
			s.apply = func(n int64) int64 {
				if n == 20 {
					return 0
				}
				return 1
			}
		}
		args := append([]string{s.Addr().String(), "--count", "100", "--connections", "2"}, tt.args...)
		out, err := runCommand(t, args...)
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.wrong)
		}
		if !strings.Contains(out, tt.shown) || strings.Contains(out, "\x1b") || strings.Contains(out, "verified ") != (tt.args != nil && err == nil) {
			t.Errorf("%s: want %q:\n%s", tt.name, tt.shown, out)
		}
		if !strings.Contains(out, "("+number(float64(tt.good))+" in ") {
			t.Errorf("%s: want %d good replies:\n%s", tt.name, tt.good, out)
		}
	}
}
