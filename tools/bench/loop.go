package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
)

// link is how a connection's bytes travel. Only the loop that serves the
// connection uses it.
type link struct {
	fd      int      // of the epoll loop; -1 without a connection
	unsent  []byte   // what the system did not take yet
	waiting bool     // for the system to take more
	net     net.Conn // of the blocking loop
}

// redial connects again and again until it succeeds, is refused for good, or
// patience is at an end.
func (w *worker) redial(ctx context.Context, t *Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.patience))
	defer cancel()
	for {
		nc, err := t.dial(ctx)
		if err == nil || errors.Is(err, errLogIn) {
			return nc, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the connection was lost and could not be made again: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// keepProcessors gives the thread that waits in the kernel without giving up its P one
// of its own, and the rest of the program another. The returned function takes them back.
func keepProcessors() (restore func()) {
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(before, 2))
	return func() { runtime.GOMAXPROCS(before) }
}

// The longest time between two looks at the clock, ms.
const (
	waitBusy = 100
	waitIdle = 5
)

// loop drives a worker until it is finished.
type loop func(ctx context.Context, w *worker, t *Target) error
