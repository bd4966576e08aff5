package paper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// liveServer is a server on a free port with a data directory of its own.
type liveServer struct {
	address string
	server  *server.Server
	store   *store.Store
	dir     string
	done    chan error
	fatal   func() error
}

// startServer starts a server in this process. Clients speak to it over TCP.
func startServer() (*liveServer, error) {
	dir, err := os.MkdirTemp("", "fbfkv-paper-")
	if err != nil {
		return nil, err
	}
	s := &liveServer{dir: dir, done: make(chan error, 1)}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *liveServer) start() error {
	config := server.DefaultConfig()
	config.Port, config.Dir, config.AppendFsync = 0, filepath.Join(s.dir, "data"), "everysec"
	options, err := config.StoreOptions()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	options.Logger = log
	listeners, err := server.Listen(config)
	if err != nil {
		return err
	}
	s.address = listeners[0].Addr().String()
	if s.store, err = store.Open(options); err != nil {
		return errors.Join(err, listeners[0].Close())
	}
	var mu sync.Mutex
	var failed error
	s.fatal = func() error { mu.Lock(); defer mu.Unlock(); return failed }
	s.server = server.New(server.Options{Store: s.store, Config: config, Logger: log, Fatal: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
	}})
	go func() { s.done <- s.server.Serve(listeners...) }()
	return nil
}

// stop ends the server and removes its data. It reports what went wrong while it ran.
func (s *liveServer) stop() error {
	s.server.Stop(false)
	err := <-s.done
	if errors.Is(err, server.ErrStopped) {
		err = nil
	}
	return errors.Join(s.fatal(), err, s.store.CloseNow(), os.RemoveAll(s.dir))
}

// client returns a client with one connection that retries nothing by itself
// and gives up when its context's time is over.
func (s *liveServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.address, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, Protocol: 2,
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

// removeOnSignal removes the data if the user ends the process, and ends it. The func it
// returns puts an end to that.
func (s *liveServer) removeOnSignal() func() {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			if err := os.RemoveAll(s.dir); err != nil {
				fmt.Fprintln(os.Stderr, "fbfkv:", err)
			}
			os.Exit(1)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// withServer runs f against a fresh server.
func withServer(f func(s *liveServer) error) (err error) {
	s, err := startServer()
	if err != nil {
		return fmt.Errorf("starting a server: %w", err)
	}
	defer s.removeOnSignal()()
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.createTables(context.Background()); err != nil {
		return err
	}
	return f(s)
}
