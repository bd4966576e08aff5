package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// serveBlocking serves each connection on a goroutine of its own: for TLS, and where
// there is no epoll. The worker's state is shared under its lock, which is not held while
// bytes travel.
func serveBlocking(ctx context.Context, w *worker, t *Target) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, w.cutOff)()
	var all sync.WaitGroup
	for _, c := range w.conns {
		all.Go(func() {
			err := w.serveOne(ctx, c, t)
			c.net.Close()
			if err != nil {
				cancel(err)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	for {
		select {
		case <-over:
			return context.Cause(ctx)
		case <-time.After(waitIdle * time.Millisecond):
			if w.over() { // also if the server does not answer
				w.cutOff()
			}
		}
	}
}

// cutOff ends reads and writes under way.
func (w *worker) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.net.SetDeadline(time.Unix(1, 0))
	}
}

// serveOne serves a connection until the worker is finished.
func (w *worker) serveOne(ctx context.Context, c *conn, t *Target) error {
	for {
		w.mu.Lock()
		now := w.now()
		b := c.compose(now)
		over := b == nil && w.finished(now)
		w.mu.Unlock()
		if over {
			return nil
		}
		if b == nil { // for now
			select {
			case <-time.After(waitIdle * time.Millisecond):
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
