package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// serveBlocking serves each of a worker's connections on a goroutine of its
// own: for TLS, and where there is no epoll. The worker's state is shared under
// its lock, which is not held while bytes travel.
func serveBlocking(ctx context.Context, w *worker, t *Target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(w.conns))
	var all sync.WaitGroup
	for _, c := range w.conns {
		c.wake = make(chan struct{}, 1)
		all.Go(func() {
			err := w.serveOne(ctx, c, t)
			if c.net != nil {
				c.net.Close()
			}
			if err != nil {
				cancel()
			}
			errs <- err
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	w.pace(ctx, over)
	<-over
	var first error
	for range w.conns {
		if err := <-errs; first == nil || errors.Is(first, context.Canceled) && err != nil {
			first = err
		}
	}
	return first
}

// pace wakes idle connections when something is due, and all of them from time
// to time to look at the clock. A connection that waits for a server that does
// not answer is cut off once patience is at an end.
func (w *worker) pace(ctx context.Context, over <-chan struct{}) {
	stop := context.AfterFunc(ctx, w.cutOff)
	defer stop()
	for {
		w.mu.Lock()
		now := w.now()
		finished := w.finished(now)
		sleep := int64(waitIdle * 1e6)
		if w.schedule.open() {
			sleep = min(sleep, max(w.schedule.at(w.schedule.next)-now, sendGrain))
		}
		w.wakeIdle(now, finished)
		w.mu.Unlock()
		if finished {
			w.cutOff()
			return
		}
		select {
		case <-over:
			return
		case <-time.After(time.Duration(sleep)):
		}
	}
}

// wakeIdle wakes one idle connection for each batch that is due, or all.
func (w *worker) wakeIdle(now int64, all bool) {
	budget := len(w.conns)
	if w.schedule.open() && !all && w.retry.due(now) == nil {
		budget = w.schedule.due(now, budget)
	}
	for _, c := range w.conns {
		if budget == 0 {
			return
		}
		if c.idle {
			c.idle = false
			c.wake <- struct{}{}
			budget--
		}
	}
}

// cutOff ends reads and writes under way.
func (w *worker) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if c.net != nil {
			c.net.SetDeadline(time.Unix(1, 0))
		}
	}
}

// serveOne serves a connection until the worker is finished.
func (w *worker) serveOne(ctx context.Context, c *conn, t *Target) error {
	for {
		w.mu.Lock()
		now := w.now()
		b := c.compose(now)
		over := b == nil && w.finished(now)
		c.idle = b == nil && !over
		w.mu.Unlock()
		if over {
			return nil
		}
		if b == nil {
			select {
			case <-c.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		for b != nil {
			err := w.exchange(c, b)
			if b = nil; err == nil {
				break
			}
			if errors.Is(err, errReply) || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			if w.over() {
				return nil
			}
			if b, err = w.reconnect(ctx, c, t); err != nil {
				return err
			}
		}
	}
}

// over reports whether the worker is finished.
func (w *worker) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished(w.now())
}

// exchange writes a batch and reads its replies.
func (w *worker) exchange(c *conn, b []byte) error {
	if _, err := c.net.Write(b); err != nil {
		return err
	}
	for {
		n, err := c.net.Read(c.in[c.inBytes:])
		if err != nil {
			return err
		}
		w.mu.Lock()
		done, err := c.received(n, w.now())
		w.mu.Unlock()
		if done || err != nil {
			return err
		}
	}
}

// reconnect replaces a broken connection and returns what to send again.
func (w *worker) reconnect(ctx context.Context, c *conn, t *Target) ([]byte, error) {
	nc, err := w.redial(ctx, t)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.net.Close()
	c.net = nc
	w.tally.reconnects++
	b := c.unanswered()
	if len(b) == 0 {
		return nil, nil
	}
	return b, nil
}
