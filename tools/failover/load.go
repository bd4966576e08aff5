package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
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
	stop    context.CancelFunc
	wait    sync.WaitGroup
	clients [loadClients][]answer // each is its client's until that has ended

	mu      sync.Mutex
	answers []answer // of all clients
}

// answer is of one operation.
type answer struct {
	at    time.Time
	took  time.Duration
	tries int
	since float64 // seconds since the fault, for the plot
}

const loadClients = 16

// counter is the key of a client's i-th operation. All are in one slot.
func counter(client, i int) string { return fmt.Sprintf("{t}%d:%d", client, i) }

func startLoad(ctx context.Context, s *servers) *load {
	ctx, stop := context.WithCancel(ctx)
	l := &load{stop: stop}
	for c := range loadClients {
		l.wait.Go(func() {
			at := 0
			for i := 0; ; i++ {
				args := []any{"INCR", counter(c, i)}
				if len(s.ask) == 0 {
					args = []any{"CINCRBY", counter(c, i), "op", 1}
				}
				a, began := answer{tries: 1}, time.Now()
				for s.clients[at].Do(ctx, args...).Err() != nil {
					if sleep(ctx, 5*time.Millisecond); ctx.Err() != nil {
						return // with an operation that nobody has acknowledged
					}
					a.tries++
					at = s.other(ctx, at)
				}
				a.at = time.Now()
				a.took = a.at.Sub(began)
				l.clients[c] = append(l.clients[c], a)
				l.mu.Lock()
				l.answers = append(l.answers, a)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// halt ends the clients.
func (l *load) halt() {
	l.stop()
	l.wait.Wait()
}

// awaitService waits until clients have been answered for a while without a break.
func (l *load) awaitService(ctx context.Context) error {
	began := time.Now()
	for end := began.Add(startTime); ; sleep(ctx, 20*time.Millisecond) {
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case now.After(end):
			return fmt.Errorf("nobody is served for %v", startTime)
		case now.Sub(began) >= servedTime && l.gap(now.Add(-servedTime), now) < servedTime/4:
			return nil
		}
	}
}

// gap returns the longest time without an answer within a span.
func (l *load) gap(from, to time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return gap(l.answers, from, to)
}

// gap goes through answers in their order, from the last.
func gap(answers []answer, from, to time.Time) (longest time.Duration) {
	next := to
	for _, a := range slices.Backward(answers) {
		if a.at.Before(from) {
			break
		}
		if a.at.Before(next) {
			longest, next = max(longest, next.Sub(a.at)), a.at
		}
	}
	return max(longest, next.Sub(from))
}

// since returns the answers that the plot shows, with their time since the fault.
func (l *load) since(began time.Time) (list []answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.since = a.at.Sub(began).Seconds(); a.since >= plotFrom && a.since < plotTo {
			list = append(list, a)
		}
	}
	return list
}

// sums say what became of operations. Each is counted once.
type sums struct{ acknowledged, again, lost, twice int }

// add adds an operation that was acknowledged, by what its counter holds, "" if there is none.
func (s *sums) add(tries int, value string) error {
	s.acknowledged++
	if tries > 1 {
		s.again++
	}
	switch n, err := strconv.Atoi(value); {
	case value == "":
		s.lost++
	case err != nil || n < 1:
		return fmt.Errorf("a counter that was incremented holds %.40q", value)
	case n > 1:
		s.twice++
	}
	return nil
}

// compare asks for the counters of all operations that were acknowledged. The clients have ended.
func (l *load) compare(ctx context.Context, leader *redis.Client) (s sums, err error) {
	const most = 500 // keys at once
	for c, answers := range l.clients {
		for first := 0; first < len(answers); first += most {
			var keys []string
			for i := first; i < min(first+most, len(answers)); i++ {
				keys = append(keys, counter(c, i))
			}
			values, err := leader.MGet(ctx, keys...).Result()
			for end := time.Now().Add(startTime); err != nil && time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
				values, err = leader.MGet(ctx, keys...).Result() // it may be busy
			}
			if err != nil {
				return s, err
			}
			for i, v := range values {
				text, _ := v.(string) // nil if there is none
				if err := s.add(answers[first+i].tries, text); err != nil {
					return s, err
				}
			}
		}
	}
	return s, nil
}
