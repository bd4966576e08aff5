package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipelines sends as many operations as a server takes for a while, and returns how many.
func pipelines(ctx context.Context, address string, d time.Duration) (n int64, err error) {
	const connections, depth = 64, 16
	var wait sync.WaitGroup
	var total atomic.Int64
	errs := make(chan error, connections)
	end := time.Now().Add(d)
	for c := range connections {
		wait.Go(func() {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				errs <- err
				return
			}
			defer nc.Close()
			in, out := bufio.NewReader(nc), []byte(nil)
			for i := 0; time.Now().Before(end) && ctx.Err() == nil; i += depth {
				out = out[:0]
				for j := range depth {
					key, id := fmt.Sprintf("{t}k%d", (i+j+c*7919)%10000), fmt.Sprintf("%d-%d-%d", end.UnixNano(), c, i+j)
					out = fmt.Appendf(out, "*4\r\n$7\r\nCINCRBY\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$1\r\n1\r\n", len(key), key, len(id), id)
				}
				if _, err := nc.Write(out); err != nil {
					errs <- err
					return
				}
				for range depth {
					if line, err := in.ReadString('\n'); err != nil || line[0] != ':' {
						errs <- errors.Join(err, errors.New(line))
						return
					}
				}
				total.Add(depth)
			}
		})
	}
	wait.Wait()
	select {
	case err = <-errs:
	default:
	}
	return total.Load(), err
}

// load is clients that count one operation after the other, and repeat each until it is
// answered.
type load struct {
	s    *servers
	opid bool
	stop atomic.Bool
	wait sync.WaitGroup

	mu      sync.Mutex
	answers []answer
	counted map[string]int64
}

// answer is of one operation.
type answer struct {
	at    time.Time
	took  time.Duration
	since float64 // seconds since the fault, for the plot
}

const loadClients = 16

func startLoad(ctx context.Context, s *servers) *load {
	l := &load{s: s, opid: strings.HasPrefix(s.name, "fbfkv"), counted: make(map[string]int64)}
	for c := range loadClients {
		key := fmt.Sprintf("{t}c%d", c)
		l.wait.Go(func() {
			at := 0
			for i := 0; !l.stop.Load() && ctx.Err() == nil; i++ {
				args := []any{"INCR", key}
				if l.opid {
					args = []any{"CINCRBY", key, i, 1}
				}
				began := time.Now()
				for l.s.clients[at].Do(ctx, args...).Err() != nil && ctx.Err() == nil {
					sleep(ctx, 5*time.Millisecond)
					at = s.other(ctx, at)
				}
				l.mu.Lock()
				l.answers = append(l.answers, answer{at: time.Now(), took: time.Since(began)})
				l.counted[key]++
				l.mu.Unlock()
			}
		})
	}
	return l
}

// gap returns the longest time without an answer within a span.
func (l *load) gap(from, to time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := from
	for _, a := range l.answers {
		if a.at.After(from) && a.at.Before(to) {
			longest, last = max(longest, a.at.Sub(last)), a.at
		}
	}
	return max(longest, to.Sub(last))
}

// since returns the answers from an instant on, with their time since another.
func (l *load) since(from, zero time.Time) (list []answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.since = a.at.Sub(zero).Seconds(); a.at.After(from) {
			list = append(list, a)
		}
	}
	return list
}

// end stops the clients and compares what was answered with the counters.
func (l *load) end(ctx context.Context) (lost, doubled int64, err error) {
	l.stop.Store(true)
	l.wait.Wait()
	leader, err := l.s.leaderIndex(ctx)
	if err != nil {
		return 0, 0, err
	}
	for key, n := range l.counted {
		value, err := l.s.clients[leader].Get(ctx, key).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, 0, err
		}
		lost, doubled = lost+max(0, n-value), doubled+max(0, value-n)
	}
	return lost, doubled, nil
}
