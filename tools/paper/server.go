package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// liveServer is an fbfkv on a free port with a data directory of its own.
type liveServer struct{ *process.Process }

// client returns a client with one connection that retries nothing by itself
// and gives up when its context's time is over.
func (s *liveServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Address, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, Protocol: 2,
		ContextTimeoutEnabled: true, ReadTimeout: time.Minute, DisableIdentity: true,
	})
}

// way is how a counter is incremented.
type way struct {
	name   string
	prefix string // of its counters' keys
	ids    bool   // CINCRBY with an id per operation, not INCRBY
	style
}

// ways are the three ways compared. APPROX is the paper's: the filter alone decides.
func ways() []way {
	return []way{
		{"INCRBY: no filter", "plain:", false, style{color: orange, line: true, glyph: dot}},
		{"CINCRBY, APPROX: filter alone", "approx:", true, style{color: blue, line: true, glyph: square}},
		{"CINCRBY, EXACT: filter and record", "exact:", true, style{color: green, line: true, glyph: dot}},
	}
}

// createTables declares the tables of the ways.
func (s *liveServer) createTables(ctx context.Context) error {
	c := s.client()
	defer c.Close()
	for _, t := range [][]any{
		{"CTABLE", "CREATE", "approx", "PREFIX", "approx:", "WINDOW", 120_000, "MODE", "APPROX"},
		{"CTABLE", "CREATE", "exact", "PREFIX", "exact:", "WINDOW", 120_000, "MODE", "EXACT"},
	} {
		if err := c.Do(ctx, t...).Err(); err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
	}
	return nil
}

// increment is the command that adds 1 to a counter as operation id.
func (w way) increment(key, id string) []any {
	if w.ids {
		return []any{"CINCRBY", key, id, 1}
	}
	return []any{"INCRBY", key, 1}
}

// withServer runs f against a fresh server. What ends this program ends the server, and
// removes its data.
func withServer(program string, f func(s *liveServer) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := process.FBFKV(ctx, program, "--appendfsync", "everysec")
	if err != nil {
		return fmt.Errorf("starting a server: %w", err)
	}
	s := &liveServer{p}
	done := make(chan error, 1)
	go func() {
		err := s.createTables(ctx)
		if err == nil {
			err = f(s)
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = errors.New("interrupted")
	}
	return errors.Join(err, p.Close())
}
