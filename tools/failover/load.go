package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

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
	at      time.Time
	took    time.Duration
	tries   int
	since   float64 // seconds since the fault, for the plot
	counted int     // what its counter holds in the end
}

const (
	loadClients = 16
	tags        = 240 // hash tags, and as many slots at most, over which keys are spread
)

// counter is the key of a client's i-th operation, and its hash tag.
func counter(client, i int) (key string, tag int) {
	tag = (client*tags/loadClients + i) % tags
	return fmt.Sprintf("{%d}%d:%d", tag, client, i), tag
}

func startLoad(ctx context.Context, s *servers) *load {
	ctx, stop := context.WithCancel(ctx)
	l := &load{stop: stop}
	for c := range loadClients {
		l.wait.Go(func() {
			for i := 0; ; i++ {
				key, tag := counter(c, i)
				a, began := answer{tries: 1}, time.Now()
				for {
					at := s.ownerOf(tag)
					err := s.clients[at].Do(ctx, s.increment(key)...).Err()
					if err == nil {
						break
					}
					if s.failed(ctx, tag, at, err); ctx.Err() != nil {
						return // with an operation that nobody has acknowledged
					}
					a.tries++
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
	for end := began.Add(startTime); ; process.Sleep(ctx, 20*time.Millisecond) {
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

// add adds an operation that was acknowledged.
func (s *sums) add(a answer) {
	s.acknowledged++
	if a.tries > 1 {
		s.again++
	}
	switch {
	case a.counted == 0:
		s.lost++
	case a.counted > 1:
		s.twice++
	}
}

// count is what a counter that was incremented once holds, "" if there is none.
func count(value string) (int, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("a counter that was incremented holds %.40q", value)
	}
	return n, nil
}

// compare asks for the counters of all operations that were acknowledged, and returns these in their order. The
// clients have ended.
func (l *load) compare(ctx context.Context, s *servers) (all []answer) {
	const most = 4800 // keys at once
	for c, answers := range l.clients {
		for first := 0; first < len(answers); first += most {
			part := answers[first:min(first+most, len(answers))]
			err := s.counted(ctx, c, first, part)
			for end := time.Now().Add(startTime); err != nil && time.Now().Before(end) && ctx.Err() == nil; process.Sleep(ctx, 50*time.Millisecond) {
				err = s.counted(ctx, c, first, part) // a server may be busy
			}
			process.Check(err)
			all = append(all, part...)
		}
	}
	slices.SortFunc(all, func(a, b answer) int { return a.at.Compare(b.at) })
	return all
}

// counted notes what the counters of a client's operations hold, from the first on.
func (s *servers) counted(ctx context.Context, client, first int, answers []answer) error {
	asked := make([]redis.Pipeliner, len(s.all))
	values := make([]*redis.StringCmd, len(answers))
	for i := range answers {
		key, tag := counter(client, first+i)
		at := s.ownerOf(tag)
		if asked[at] == nil {
			asked[at] = s.clients[at].Pipeline()
		}
		values[i] = asked[at].Get(ctx, key)
	}
	for _, p := range asked {
		if p != nil {
			_, _ = p.Exec(ctx) // each answer says what was wrong
		}
	}
	for i, v := range values {
		text, err := v.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			_, tag := counter(client, first+i)
			s.failed(ctx, tag, s.ownerOf(tag), err)
			return err
		}
		if answers[i].counted, err = count(text); err != nil {
			return err
		}
	}
	return nil
}
